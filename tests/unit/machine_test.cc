// Figures of a machine as text, and what estimates make of them.
#include "compiler/target/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/loop/lower.h"
#include "compiler/schedule/space.h"
#include "tests/unit/programs.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

constexpr char kText[] =
    "clock=2.5 fma128=40 fma256=80 fma512=160 l1=300 l2=100 l3=25 dram=12 fork_join=3000";

TEST(MachineTest, TextComesBack) {
  const auto m = Machine::Parse(kText);
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->ToString(), kText);
  EXPECT_EQ(m->fma256_gflops, 80);
  EXPECT_EQ(m->FmaGflops(512), 160);
  EXPECT_EQ(m->VectorBits(), 512);
  for (const Target& t : {Target::Host(), *Target::Parse("cpu -arch=aarch64 -mattr=+neon"),
                          *Target::Parse("cpu -mattr=+avx,+avx2,+fma")}) {
    const Machine typical = Machine::Typical(t);
    EXPECT_EQ(typical.VectorBits(), t.VectorBits());
    EXPECT_EQ(Machine::Parse(typical.ToString())->ToString(), typical.ToString());
  }
}

TEST(MachineTest, BadTextIsRefusedInWords) {
  const auto error = [](std::string text, const std::string& from, const std::string& to) {
    if (!from.empty()) text.replace(text.find(from), from.size(), to);
    return Message(Machine::Parse(text).status());
  };
  EXPECT_THAT(error(kText, "l2=100 ", ""), HasSubstr("lack 'l2'"));
  EXPECT_THAT(error(kText, "l2=100", "l2=many"), HasSubstr("'l2=many' is not between"));
  EXPECT_THAT(error(kText, "l2=100", "l2=-1"), HasSubstr("'l2=-1' is not between"));
  EXPECT_THAT(error(kText, "l2=100", "l2=nan"), HasSubstr("'l2=nan' is not between"));
  EXPECT_THAT(error(kText, "l2=100", "l1=100"), HasSubstr("'l1=100' is no figure of a machine"));
  EXPECT_THAT(error(kText, "l2=100", "l9=100"), HasSubstr("'l9=100' is no figure of a machine"));
  EXPECT_THAT(error(std::string(2000, 'x'), "", ""), HasSubstr("2000 bytes"));
}

TEST(MachineTest, EstimatesFollowTheFigures) {
  const Target t = *Target::Parse("cpu -mattr=+avx,+avx2,+fma -l1d=32768 -l2=1048576 -l3=8388608");
  const Machine m = *Machine::Parse(kText);
  schedule::Estimate compute;
  compute.fma_cycles = 8000;  // two of eight lanes each: 256000 operations
  EXPECT_NEAR(Nanoseconds(compute, m, t, 1), 256000 / m.fma256_gflops, 1);
  compute.vector_bits = 128;
  EXPECT_NEAR(Nanoseconds(compute, m, t, 1), 128000 / m.fma128_gflops, 1);
  schedule::Estimate stream;
  stream.bytes = 1e5;
  EXPECT_NEAR(Nanoseconds(stream, m, t, 1), 1e5 / m.l2_gbps, 1);
  stream.bytes = 4e6;
  EXPECT_NEAR(Nanoseconds(stream, m, t, 1), 4e6 / m.l3_gbps, 1);
  stream.bytes = 4e7;
  EXPECT_NEAR(Nanoseconds(stream, m, t, 1), 4e7 / m.dram_gbps, 1);
  stream.l3_bytes = 8e7;  // again
  EXPECT_NEAR(Nanoseconds(stream, m, t, 1), 8e7 / m.dram_gbps, 1);
  // A level of instruction sets does not say how large a third cache is. What is touched once must
  // not outweigh there what is moved again and again.
  const Target level = *Target::Parse("x86-64-v3");
  stream.l3_bytes = 5e7;
  EXPECT_NEAR(Nanoseconds(stream, m, level, 1), 5e7 / m.l3_gbps, 1);
}

TEST(MachineTest, ThreadsShareWholeIterationsAndCostAForkAndJoin) {
  const Target t = *Target::Parse("cpu -mattr=+avx,+avx2,+fma");
  const Machine m = *Machine::Parse(kText);
  schedule::Estimate e;
  e.fma_cycles = 8e6;
  const double one = Nanoseconds(e, m, t, 1);
  e.parallel = 4;
  EXPECT_NEAR(Nanoseconds(e, m, t, 4), one / 4 + m.fork_join_ns, 1);
  e.parallel = 5;
  EXPECT_NEAR(Nanoseconds(e, m, t, 4), one * 2 / 5 + m.fork_join_ns, 1);
  e.parallel = 1;
  EXPECT_NEAR(Nanoseconds(e, m, t, 4), one + m.fork_join_ns, 1);
  // What another core wrote is no concern of one thread.
  e.foreign_bytes = 1e6;
  EXPECT_NEAR(Nanoseconds(e, m, t, 1), one, 1);
  EXPECT_NEAR(Nanoseconds(e, m, t, 4), one + 0.75e6 / m.l3_gbps + m.fork_join_ns, 1);
}

// What a thread gets at most of a program's last phase over what would be even. Those before it
// prepare its operands, a tenth of the work.
double MostOfAThread(const loop::Program& p, int threads) {
  const auto* seq = loop::As<loop::SeqNode>(p.body);
  const auto* f = loop::As<loop::ForNode>(seq ? seq->items.back() : p.body);
  const bool parallel = f && f->for_kind == loop::ForKind::kParallel;
  const auto parts = static_cast<double>(parallel ? f->extent : 1);
  return std::ceil(parts / threads) * threads / parts;
}

TEST(MachineTest, ThreadsGetEvenPartsOfEveryConvolutionOfANetwork) {
  using testing_support::ConvShape;
  const Target t = *Target::Parse(
      "cpu -arch=x86_64 -mattr=+avx,+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl,+fma "
      "-l1d=49152 -l2=2097152 -l3=33554432");
  // Those of ResNet-50, and thin ones of MobileNetV2.
  for (const ConvShape& c :
       std::vector<ConvShape>{{3, 64, 224, 224, 7, 2, 3},    {64, 64, 56, 56, 1, 1, 0},
                              {64, 64, 56, 56, 3, 1, 1},     {64, 256, 56, 56, 1, 1, 0},
                              {256, 64, 56, 56, 1, 1, 0},    {256, 128, 56, 56, 1, 1, 0},
                              {128, 128, 56, 56, 3, 2, 1},   {128, 512, 28, 28, 1, 1, 0},
                              {256, 512, 56, 56, 1, 2, 0},   {512, 128, 28, 28, 1, 1, 0},
                              {128, 128, 28, 28, 3, 1, 1},   {512, 256, 28, 28, 1, 1, 0},
                              {256, 256, 28, 28, 3, 2, 1},   {256, 1024, 14, 14, 1, 1, 0},
                              {512, 1024, 28, 28, 1, 2, 0},  {1024, 256, 14, 14, 1, 1, 0},
                              {256, 256, 14, 14, 3, 1, 1},   {1024, 512, 14, 14, 1, 1, 0},
                              {512, 512, 14, 14, 3, 2, 1},   {512, 2048, 7, 7, 1, 1, 0},
                              {1024, 2048, 14, 14, 1, 2, 0}, {2048, 512, 7, 7, 1, 1, 0},
                              {512, 512, 7, 7, 3, 1, 1},     {24, 144, 56, 56, 1, 1, 0},
                              {144, 24, 56, 56, 1, 1, 0},    {32, 16, 112, 112, 1, 1, 0},
                              {960, 160, 7, 7, 1, 1, 0}}) {
    SCOPED_TRACE(testing::Message()
                 << c.ic << " " << c.oc << " " << c.h << " " << c.k << " " << c.stride);
    const loop::Program p = testing_support::ConvProgram(c);
    for (const int threads : {2, 4}) {
      const schedule::Space space(p, t, {Machine::Typical(t), threads});
      const auto s = space.Untuned();
      ASSERT_TRUE(s.ok()) << s.status();
      const auto lowered = loop::Lower(s->program());
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      EXPECT_LE(MostOfAThread(lowered->main, threads), threads == 2 ? 1.1 : 1.2)
          << s->trace().ToString();
    }
  }
}

TEST(MachineTest, TheDefaultIsTheBestEstimateButForTheSizeOfItsCode) {
  using schedule::Point;
  const Target t = *Target::Parse("cpu -mattr=+avx,+avx2,+fma -l1d=32768 -l2=262144 -l3=0");
  for (const loop::Program& p : {testing_support::ConvProgram({8, 24, 9, 10, 3, 1, 1}),
                                 testing_support::MatmulProgram(64, 96, 48, true),
                                 testing_support::DepthwiseProgram({0, 24, 7, 9, 3, 1, 1}, true)}) {
    const schedule::Space space(p, t);
    const std::vector<Point> ranked = space.Ranked(50);
    ASSERT_EQ(ranked.size(), 50u);
    EXPECT_EQ(ranked[0], space.Default());
    EXPECT_EQ(ranked[0], schedule::Space(p, t).Default());
    double best = 1e300;
    for (size_t i = 0; i < ranked.size(); ++i) {
      EXPECT_EQ(space.Check(ranked[i]), schedule::Rejection::kNone);
      EXPECT_EQ(std::count(ranked.begin(), ranked.end(), ranked[i]), 1);
      best = std::min(best, space.PriorNs(ranked[i]));
    }
    EXPECT_LT(space.PriorNs(ranked[0]), 1.1 * best);
  }
}

TEST(MachineTest, ThePriorFollowsTheMachine) {
  const Target t = *Target::Parse("cpu -mattr=+avx,+avx2,+fma -l1d=32768 -l2=262144 -l3=0");
  const loop::Program p = testing_support::MatmulProgram(64, 96, 48, true);
  Machine slow = Machine::Typical(t);
  slow.clock_ghz /= 2, slow.fma256_gflops /= 2, slow.l1_gbps /= 2, slow.l2_gbps /= 2;
  slow.l3_gbps /= 2;
  const schedule::Space fast(p, t), halved(p, t, {slow, 1});
  EXPECT_NEAR(halved.PriorNs(fast.Default()), 2 * fast.PriorNs(fast.Default()), 1);
  EXPECT_EQ(schedule::Conditions::Of("", t, 0).machine, Machine::Typical(t));
  EXPECT_EQ(schedule::Conditions::Of(slow.ToString(), t, 3).machine.clock_ghz, slow.clock_ghz);
}

}  // namespace
}  // namespace whet
