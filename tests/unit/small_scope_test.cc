// Every rule on every combination of small extents, 1 to 5 and primes above the shorter vectors, on
// vectors of 16, 8 and 4 lanes: the default and drawn points give what the unscheduled program
// does, interpreted after lowering, and of some programs compiled. Values are small integers, so
// results are equal, not close. Extents of 0 are not among them: what has no elements never becomes
// a workload (compiler/fusion refuses it).
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>

#include "compiler/schedule/invariants.h"
#include "tests/unit/programs.h"
#include "tests/unit/run_program.h"

namespace whet::schedule {
namespace {

using loop::Program;
using Extents = std::vector<int64_t>;

// Programs of one kind: what each of their numbers may be, and the program of a combination;
// nullopt for what is none.
struct Family {
  const char* name;
  std::vector<Extents> domains;
  std::function<std::optional<Program>(const Extents&)> make;
};

const Extents kSmall = {1, 2, 3, 4, 5};
const Extents kPrimes = {1, 2, 3, 4, 5, 7, 13, 17};

std::vector<Family> Families() {
  using namespace testing_support;
  return {
      {"matmul",
       {kPrimes, kPrimes, kSmall, {0, 1}},
       [](const Extents& n) { return MatmulProgram(n[0], n[1], n[2], n[3] != 0); }},
      {"batch matmul",
       {{1, 2, 3}, kSmall, kPrimes, kSmall, {0, 1, 2}},
       [](const Extents& n) {
         const std::vector<int> y[] = {{0, 1, 2}, {0, 2, 1}, {2, 0, 1}};
         return BatchMatmulProgram(
             n[0], n[1], n[2], n[3], {0, 1, 2}, y[n[4]],
             n[4] == 0 ? std::vector<int>{0, 1, 2} : std::vector<int>{1, 0, 2});
       }},
      // Input channels, output channels, rows, columns, window, stride, padding.
      {"conv",
       {{1, 3, 4, 5}, {1, 4, 7, 17}, kSmall, kSmall, {1, 2, 3}, {1, 2}, {0, 1}},
       [](const Extents& n) -> std::optional<Program> {
         if (std::min(n[2], n[3]) + 2 * n[6] < n[4]) return std::nullopt;
         return ConvProgram({n[0], n[1], n[2], n[3], n[4], n[5], n[6]});
       }},
      {"depthwise",
       {{1, 4, 5, 13, 17}, kSmall, kSmall, {1, 2, 3}, {1, 2}, {0, 1}},
       [](const Extents& n) -> std::optional<Program> {
         if (std::min(n[1], n[2]) + 2 * n[5] < n[3]) return std::nullopt;
         return DepthwiseProgram({0, n[0], n[1], n[2], n[3], n[4], n[5]}, n[4] == 1);
       }},
      {"pool",
       {kPrimes, kSmall, kSmall, {1, 2, 3}, {1, 2}},
       [](const Extents& n) -> std::optional<Program> {
         if (std::min(n[1], n[2]) < n[3]) return std::nullopt;
         return MaxPoolProgram({0, n[0], n[1], n[2], n[3], n[4], 0});
       }},
      {"row stages",
       {{1, 2, 3, 4, 5, 7}, {1, 2, 3, 5, 7, 13, 16, 17, 37}, {1, 2}},
       [](const Extents& n) {
         return n[2] == 1 ? RowStagesProgram({n[0], n[1]}, 1)
                          : RowStagesProgram({2, n[0], n[1]}, 2);
       }},
      {"row norm", {kSmall, kPrimes}, [](const Extents& n) { return RowNormProgram(n[0], n[1]); }},
      {"row reduction",
       {kPrimes, {1, 2, 3, 5, 7, 13, 16, 17, 37}, {0, 1}},
       [](const Extents& n) { return RowReductionProgram(n[0], n[1], n[2] != 0); }},
      {"add",
       {kPrimes, kPrimes, {1, 2, 3}, {1, 3, 5}},
       [](const Extents& n) -> std::optional<Program> {
         if (n[1] > n[0]) return std::nullopt;
         return AddPaddedProgram(n[0], n[1], n[2], n[3]);
       }},
      {"turned", {{1, 2, 3}, kPrimes, kPrimes}, [](const Extents& n) {
         return TurnedProgram(n[0], n[1], n[2]);
       }}};
}

std::vector<Target> Targets() {
  auto avx2 = Target::Parse("cpu -arch=x86_64 -mattr=+avx,+avx2,+fma -l1d=1024 -l2=8192");
  EXPECT_TRUE(avx2.ok()) << avx2.status();
  return {Target::Host(), avx2.ok() ? *avx2 : Target(), Target()};
}

void ExpectKept(const Program& program, const Target& target, bool compiled, Rng& rng,
                std::map<std::string, int>& points) {
  const Space space(program, target);
  const std::vector<float> expected = testing_support::Interpreted(program, "out");
  for (size_t v = 0; v < space.variants().size(); ++v) {
    std::vector<Point> tries = testing_support::DrawnPoints(space, v, 1, rng);
    if (v == 0) tries.push_back(space.Default());
    for (const Point& p : tries) {
      ASSERT_EQ(space.Check(p), Rejection::kNone);
      auto s = space.Apply(p);
      ASSERT_TRUE(s.ok()) << s.status() << loop::ToString(program);
      EXPECT_TRUE(WritesOutputOnce(s->program()) || s->trace().rule == "generic");
      ASSERT_EQ(testing_support::LoweredResult(s->program(), "out"), expected)
          << s->trace().ToString() << loop::ToString(s->program());
      if (compiled) {
        ASSERT_EQ(testing_support::Compiled(s->program(), target,
                                            testing_support::IntegerInputs(program)),
                  expected)
            << s->trace().ToString();
      }
      ++points[s->trace().rule];
    }
  }
}

TEST(SmallScopeTest, EveryRuleKeepsTheResultOfEverySmallProgram) {
  constexpr int kCompiled = 60;  // of so many programs one
  const std::vector<Target> targets = Targets();
  std::map<std::string, int> points;
  Rng rng(9);
  int programs = 0;
  for (const Family& f : Families()) {
    Extents at(f.domains.size());
    int64_t combinations = 1;
    for (const Extents& d : f.domains) combinations *= static_cast<int64_t>(d.size());
    for (int64_t code = 0; code < combinations; ++code) {
      int64_t rest = code;
      for (size_t d = 0; d < f.domains.size(); ++d) {
        const auto n = static_cast<int64_t>(f.domains[d].size());
        at[d] = f.domains[d][static_cast<size_t>(rest % n)];
        rest /= n;
      }
      const std::optional<Program> program = f.make(at);
      if (!program) continue;
      SCOPED_TRACE(fmt::format("{} {}", f.name, fmt::join(at, " ")));
      ++programs;
      const Target& target = targets[static_cast<size_t>(programs) % targets.size()];
      ExpectKept(*program, target, programs % kCompiled == 0, rng, points);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(programs, 5000);
  for (const Rule* r : Rules()) EXPECT_GT(points[r->name], 50) << r->name;
}

}  // namespace
}  // namespace whet::schedule
