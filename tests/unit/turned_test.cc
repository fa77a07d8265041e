// Square blocks of vectors that are turned in registers: what code is made of them, for every type
// and length of vectors, and the rule that reads operands across by them, on any extents.
#include <gtest/gtest.h>

#include "compiler/loop/parse.h"
#include "compiler/schedule/space.h"
#include "tests/unit/run_program.h"

namespace whet {
namespace {

using expr::Expr;
using loop::Program;
using testing_support::CompiledOutputs;

std::vector<Target> Targets() {
  std::vector<Target> targets = {Target::Host()};
  for (const char* features : {" -mattr=+avx,+avx2,+fma", ""})
    targets.push_back(*Target::Parse(fmt::format("cpu -arch=x86_64{}", features)));
  return targets;
}

Program Parsed(const std::string& text) {
  auto p = loop::Parse(text);
  EXPECT_TRUE(p.ok()) << p.status() << "\n" << text;
  return p.ok() ? *p : Program();
}

// A block of n by n elements of x, its first `rows` rows written, is read across.
std::string TurningText(const std::string& type, int64_t n, int64_t rows,
                        const std::string& value) {
  return fmt::format(R"(program turn
input x: {0} global[{1},{1}]
output y: {0} global[{1},{1}]
buffer t: {0} register[{1},{1}]
parallel o in [0, 1)
  unrolled a in [0, {1})
    vectorized b in [0, {1})
      block t(i:{1} = a, j:{1} = b) if a < {2}
        t[i, j] = x[i, j]
  unrolled c in [0, {1})
    vectorized d in [0, {1})
      block y(i:{1} = c, j:{1} = d) if d < {2}
        y[i, j] = {3}
)",
                     type, n, rows, value);
}

TEST(TurnedTest, BlocksOfAnyTypeAreReadAcross) {
  for (const Target& target : Targets()) {
    for (const char* type : {"u8", "i16", "f16", "f32", "i32", "f64", "i64"}) {
      // All lengths of one type: what differs between types is the bytes of an element.
      for (const int64_t n : {2, 4, 8, 16, 32}) {
        if (type != std::string("f32") && n != 4 && n != 16) continue;
        const Program p = Parsed(TurningText(type, n, n, "t[j, i]"));
        loop::Memory inputs;
        for (int64_t i = 0; i < n * n; ++i)
          inputs["x"].push_back(static_cast<double>(i * 7 % 127 + (i / 127)));
        const std::vector<double> got = CompiledOutputs(p, target, inputs)["y"];
        ASSERT_EQ(got.size(), static_cast<size_t>(n * n)) << type << " " << n;
        for (int64_t i = 0; i < n * n; ++i) {
          ASSERT_EQ(got[static_cast<size_t>(i)],
                    inputs["x"][static_cast<size_t>(i % n * n + i / n)])
              << type << " " << n << " at " << i << ", " << target.ToString();
        }
      }
    }
  }
}

// Lanes of rows that are not there are computed with like the others, and must do no harm.
TEST(TurnedTest, RowsThatWereNotWrittenAreLanesThatAreOff) {
  for (const char* type : {"i32", "f32"}) {
    const bool whole = type[0] == 'i';
    const Program p =
        Parsed(TurningText(type, 8, 3, whole ? "x[i, j] // t[j, i]" : "x[i, j] / t[j, i]"));
    loop::Memory inputs;
    for (int64_t i = 0; i < 64; ++i) inputs["x"].push_back(static_cast<double>(i + 1));
    for (const Target& target : Targets()) {
      const std::vector<double> got = CompiledOutputs(p, target, inputs)["y"];
      ASSERT_EQ(got.size(), 64u);
      for (int64_t i = 0; i < 64; ++i) {
        if (i % 8 >= 3) continue;
        const double x = inputs["x"][static_cast<size_t>(i)];
        const double by = inputs["x"][static_cast<size_t>(i % 8 * 8 + i / 8)];
        EXPECT_EQ(got[static_cast<size_t>(i)],
                  whole ? std::floor(x / by) : static_cast<double>(static_cast<float>(x / by)))
            << type << " at " << i;
      }
    }
  }
}

// What is turned under a condition is not there without it, and not after a row was written anew.
TEST(TurnedTest, VectorsAcrossAreThoseOfTheLatestRows) {
  const Program p = Parsed(R"(program turn
input x: f32 global[3,4,4]
output y: f32 global[3,4,4]
output z: f32 global[3,4,4]
output w: f32 global[3,4,4]
buffer t: f32 register[4,4]
for o in [0, 3)
  unrolled a in [0, 4)
    vectorized b in [0, 4)
      block t(h:3 = o, i:4 = a, j:4 = b)
        t[i, j] = x[h, i, j]
  unrolled c in [0, 4)
    vectorized d in [0, 4)
      block y(h:3 = o, i:4 = c, j:4 = d) if o < 2
        y[h, i, j] = t[j, i]
  unrolled e in [0, 4)
    vectorized f in [0, 4)
      block z(h:3 = o, i:4 = e, j:4 = f)
        z[h, i, j] = t[j, i] + 1f
  unrolled g in [0, 2)
    vectorized k in [0, 4)
      block again(h:3 = o, i:4 = g, j:4 = k)
        t[i, j] = x[h, i, j] * 2f
  unrolled l in [0, 4)
    vectorized m in [0, 4)
      block w(h:3 = o, i:4 = l, j:4 = m)
        w[h, i, j] = t[j, i]
)");
  loop::Memory inputs;
  for (int64_t i = 0; i < 48; ++i) inputs["x"].push_back(static_cast<double>(i));
  loop::Memory got = CompiledOutputs(p, Target::Host(), inputs);
  for (const char* name : {"y", "z", "w"}) ASSERT_EQ(got[name].size(), 48u) << name;
  for (size_t at = 0; at < 48; ++at) {
    const size_t i = at / 4 % 4, j = at % 4;
    const double x = inputs["x"][at / 16 * 16 + j * 4 + i];
    if (at < 32) {
      EXPECT_EQ(got["y"][at], x) << at;
    }
    EXPECT_EQ(got["z"][at], x + 1) << at;
    EXPECT_EQ(got["w"][at], j < 2 ? 2 * x : x) << at;
  }
}

TEST(TurnedTest, OnlySquareBlocksAreTurned) {
  const Program p = Parsed(R"(program turn
input x: f32 global[4,8]
output y: f32 global[8,4]
buffer t: f32 register[4,8]
parallel o in [0, 1)
  unrolled a in [0, 4)
    vectorized b in [0, 8)
      block t(i:4 = a, j:8 = b)
        t[i, j] = x[i, j]
  unrolled c in [0, 8)
    vectorized d in [0, 4)
      block y(i:8 = c, j:4 = d)
        y[i, j] = t[j, i]
)");
  const auto c = codegen::BuildCandidate(p, "", Target::Host());
  ASSERT_FALSE(c.ok());
  EXPECT_NE(Message(c.status())
                .find("'t' is read with lane stride 8, not across 4 vectors of 4 elements"),
            std::string::npos)
      << c.status();
}

// out[i, k] = 2 * (x[k, i], or 0 where k is beyond x) + y[k, i] + z[i, k], y of another type.
Program AcrossProgram(int64_t i, int64_t k, int64_t inside) {
  te::Builder b;
  const auto x = b.Input("x", DType::kF32, {inside, i}, false);
  const auto y = b.Input("y", DType::kI8, {k, i}, false);
  const auto z = b.Input("z", DType::kF32, {i, k}, false);
  const auto pad =
      b.Compute("pad", DType::kF32, {{"k", k}, {"i", i}}, [&](const std::vector<Expr>& at) {
        return expr::Select(expr::Lt(at[0], expr::Int(inside)), expr::Load(x, at), expr::Float(0));
      });
  const auto out =
      b.Compute("out", DType::kF32, {{"i", i}, {"k", k}}, [&](const std::vector<Expr>& at) {
        return expr::Load(pad, {at[1], at[0]}) * expr::Float(2) +
               expr::Cast(DType::kF32, expr::Load(y, {at[1], at[0]})) + expr::Load(z, at);
      });
  const auto id = expr::IndexMap::Identity(2);
  auto p = loop::FromTe("across", b.Finish({out}), {id, id, id}, {id});
  WHET_CHECK(p.ok());
  return *p;
}

// Every point interpreted, one of each size of blocks compiled too.
TEST(TurnedTest, OperandsAcrossOfAnyExtentsKeepTheResult) {
  const std::pair<int64_t, int64_t> extents[] = {{1, 5},  {2, 3},   {3, 20},  {4, 4},
                                                 {5, 7},  {8, 16},  {16, 9},  {17, 33},
                                                 {31, 5}, {40, 12}, {64, 32}, {13, 48}};
  for (const Target& target : Targets()) {
    std::set<int64_t> sizes;
    for (const auto& [i, k] : extents) {
      const Program program = AcrossProgram(i, k, std::max<int64_t>(k - 2, 1));
      const schedule::Space space(program, target);
      const auto& variant = space.variants()[0];
      ASSERT_STREQ(variant.rule->name, "elementwise");
      ASSERT_EQ(space.Check(space.Default()), schedule::Rejection::kNone);
      const std::vector<float> expected = testing_support::Interpreted(program, "out");
      std::set<int64_t> compiled;
      for (const int64_t unroll : variant.knobs[1].values) {
        for (const int64_t across :
             variant.knobs.size() > 2 ? variant.knobs[2].values : std::vector<int64_t>{}) {
          const schedule::Point p = {0, {target.Lanes(4), unroll, across}};
          if (across == 1 || space.Check(p) != schedule::Rejection::kNone) continue;
          auto s = space.Apply(p);
          ASSERT_TRUE(s.ok()) << s.status();
          EXPECT_NE(s->trace().ToString().find(" register out.t0"), std::string::npos);
          ASSERT_EQ(testing_support::LoweredResult(s->program(), "out"), expected)
              << s->trace().ToString();
          if (unroll > 2 || !compiled.insert(across).second) continue;
          sizes.insert(across);
          ASSERT_EQ(testing_support::Compiled(s->program(), target,
                                              testing_support::IntegerInputs(program)),
                    expected)
              << s->trace().ToString();
        }
      }
      EXPECT_EQ(!compiled.empty(), std::min(i, k) >= 4) << i << " x " << k;
    }
    EXPECT_EQ(sizes.count(4), 1u) << target.ToString();
  }
}

TEST(TurnedTest, WithoutMeasurementsBlocksAreTurned) {
  for (const auto& [i, k] : {std::pair<int64_t, int64_t>{128, 64}, {56, 64}, {300, 500}}) {
    const schedule::Space space(AcrossProgram(i, k, k), *Target::Parse("x86-64-v4"));
    const auto best = space.Ranked(1);
    ASSERT_EQ(best.size(), 1u);
    ASSERT_EQ(best[0].values.size(), 3u);
    EXPECT_GT(best[0].values[2], 1) << i << " x " << k;
  }
}

}  // namespace
}  // namespace whet
