// Every primitive keeps what a program computes: a small convolution is scheduled step by step, and
// after each step, and after lowering, the interpreter must give the initial program's result.
#include "compiler/schedule/schedule.h"

#include <gtest/gtest.h>

#include "compiler/loop/interpret.h"
#include "compiler/loop/lower.h"
#include "compiler/loop/parse.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/invariants.h"
#include "compiler/support/rng.h"
#include "tests/unit/conv_program.h"
#include "tests/unit/programs.h"

namespace whet::schedule {
namespace {

using expr::Expr;
using loop::Memory;
using loop::Program;
using testing_support::ConvProgram;
using testing_support::ConvShape;

Memory Inputs(const Program& p) {
  Memory m;
  uint64_t tensor = 0;
  for (const loop::Param& param : p.params) {
    if (param.role != loop::Role::kInput) continue;
    auto& v = m[param.buffer->name];
    for (int64_t i = 0; i < param.buffer->num_elements(); ++i) {
      v.push_back(static_cast<double>(CounterBits(7, tensor, i) % 17) -
                  8);  // small integers: sums are exact
    }
    ++tensor;
  }
  return m;
}

std::vector<double> RunBlocks(const Program& p) {
  Memory m = Inputs(p);
  Status st = loop::Interpret(p, m);
  EXPECT_TRUE(st.ok()) << st << "\n" << loop::ToString(p);
  return m["out"];
}

std::vector<double> RunLowered(const Program& p) {
  auto lowered = loop::Lower(p);
  EXPECT_TRUE(lowered.ok()) << lowered.status() << "\n" << loop::ToString(p);
  if (!lowered.ok()) return {};
  Memory m = Inputs(p);
  Status st = loop::Interpret(lowered->prepack, m);
  EXPECT_TRUE(st.ok()) << st;
  st = loop::Interpret(lowered->main, m);
  EXPECT_TRUE(st.ok()) << st << "\n" << loop::ToString(lowered->main);
  return m["out"];
}

TEST(ScheduleTest, EveryStepOfADirectConvolutionKeepsTheResult) {
  for (const ConvShape& c : {ConvShape{3, 10, 7, 8, 3, 1, 1}, ConvShape{2, 8, 9, 9, 5, 2, 2},
                             ConvShape{5, 3, 4, 6, 1, 1, 0}}) {
    Program initial = ConvProgram(c);
    const std::vector<double> expected = RunBlocks(initial);
    Schedule s(initial);
    for (const auto& step : testing_support::DirectConvSteps(3, 8, 4, true)) {
      Status st = s.Apply(step[0], {step.begin() + 1, step.end()});
      ASSERT_TRUE(st.ok()) << st << "\n" << loop::ToString(s.program());
      ASSERT_TRUE(loop::Verify(s.program()).ok())
          << loop::Verify(s.program()) << loop::ToString(s.program());
      ASSERT_EQ(RunBlocks(s.program()), expected) << step[0] << " " << step[1] << "\n"
                                                  << loop::ToString(s.program());
    }
    ASSERT_EQ(RunLowered(s.program()), expected);
    // The trace's text says it all.
    auto parsed = Trace::Parse(s.trace().ToString());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->ToString(), s.trace().ToString());
    auto replayed = Schedule::Replay(initial, *parsed);
    ASSERT_TRUE(replayed.ok()) << replayed.status();
    EXPECT_EQ(loop::ToString(replayed->program()), loop::ToString(s.program()));
  }
}

TEST(ScheduleTest, ComputeAtComputesTheHaloPerRow) {
  Program initial = ConvProgram({3, 4, 6, 6, 3, 1, 1});
  const std::vector<double> expected = RunBlocks(initial);
  Schedule s(initial);
  ASSERT_TRUE(s.Apply("reorder", {"conv.oh", "conv.oc"}).ok());
  ASSERT_TRUE(s.Apply("compute_at", {"pad", "conv.oh"}).ok());
  ASSERT_TRUE(s.Apply("cache_write", {"out", "global", "acc", "copy"}).ok());
  ASSERT_TRUE(s.Apply("inline", {"out"}).ok());
  EXPECT_EQ(RunBlocks(s.program()), expected);
  auto lowered = loop::Lower(s.program());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(RunLowered(s.program()), expected);
  // One row of output needs three padded rows, not the whole image.
  for (const auto& b : lowered->main.intermediates) {
    if (b->name == "pad") {
      EXPECT_EQ(b->shape, (std::vector<int64_t>{1, 3, 3, 8}));
    }
  }
}

TEST(ScheduleTest, EveryStepOfAReductionAcrossLanesKeepsTheResult) {
  for (int64_t length : {1, 7, 19, 32}) {
    const Program initial = testing_support::RowNormProgram(3, length);
    const std::vector<double> expected = RunBlocks(initial);
    Schedule s(initial);
    for (const std::vector<std::string>& step :
         std::vector<std::vector<std::string>>{{"interleave", "sum", "k", "8", "part"},
                                               {"interleave", "sum", "k", "4", "lanes"},
                                               {"interleave", "top", "k", "4", "tops"},
                                               {"compute_at", "part", "sum.m"},
                                               {"decompose_reduction", "sum", "sum.k"},
                                               {"vectorize", "sum.k"},
                                               {"decompose_reduction", "top", "top.k"},
                                               {"vectorize", "top.k"},
                                               {"vectorize", "lanes.k_l"}}) {
      Status st = s.Apply(step[0], {step.begin() + 1, step.end()});
      if (step[1] == "part" || step[1] == "lanes.k_l") {
        // Not while the reader is elsewhere; not a loop around another.
        EXPECT_FALSE(st.ok());
        continue;
      }
      ASSERT_TRUE(st.ok()) << st << "\n" << loop::ToString(s.program());
      ASSERT_EQ(RunBlocks(s.program()), expected) << loop::ToString(s.program());
      ASSERT_EQ(RunLowered(s.program()), expected) << loop::ToString(s.program());
    }
  }
}

TEST(ScheduleTest, IllegalRewritesAreRefusedAndChangeNothing) {
  Schedule s(ConvProgram({3, 4, 6, 6, 3, 1, 1}));
  const std::string before = loop::ToString(s.program());
  for (const std::vector<std::string>& step :
       std::vector<std::vector<std::string>>{{"split", "nope", "4", "a", "b"},
                                             {"split", "conv.ow", "0", "a", "b"},
                                             {"split", "conv.ow", "4", "conv.oc", "b"},
                                             {"vectorize", "conv.ic"},
                                             {"parallel", "conv.oh"},
                                             {"fuse", "conv.n", "conv.ow", "f"},
                                             {"inline", "conv"},
                                             {"reorder", "conv.oh", "out.oh"},
                                             {"compute_at", "conv", "conv.oh"},
                                             {"reverse_compute_at", "out", "pad.h"},
                                             {"transform_layout", "conv", "(a) -> (a)"},
                                             {"frobnicate", "conv"},
                                             {"split", "conv.ow"}}) {
    EXPECT_FALSE(s.Apply(step[0], {step.begin() + 1, step.end()}).ok()) << step[0];
  }
  EXPECT_EQ(loop::ToString(s.program()), before);
  EXPECT_TRUE(s.trace().instrs.empty());
}

TEST(ScheduleTest, OnlyOutputsWrittenOncePerElementMayTakeAnInputsBytes) {
  auto once = [](const char* body) {
    auto p =
        loop::Parse(std::string("program p\ninput x: f32 global[10]\noutput y: f32 global[10]\n"
                                "buffer t: f32 global[10]\n") +
                    body);
    EXPECT_TRUE(p.ok()) << p.status();
    return p.ok() && WritesOutputOnce(*p);
  };
  EXPECT_TRUE(
      once("for i in [0, 5)\n  for j in [0, 2)\n    block b(v:10 = i * 2 + j)\n      "
           "y[v] = x[v] + 1f\n"));
  // A last vector that reaches back over what is done already.
  EXPECT_FALSE(
      once("for i in [0, 4)\n  for j in [0, 4)\n    block b(v:10 = min(i * 4, 6) + j)\n"
           "      y[v] = x[v] + 1f\n"));
  EXPECT_FALSE(
      once("for i in [0, 4)\n  for j in [0, 4)\n    block b(v:10 = i * 2 + j)\n      "
           "y[v] = x[v] + 1f\n"));
  // The same again, and sums in place.
  EXPECT_FALSE(
      once("for i in [0, 10)\n  for j in [0, 2)\n    block b(v:10 = i)\n      y[v] = "
           "x[v] + 1f\n"));
  EXPECT_FALSE(
      once("for i in [0, 10)\n  block a(v:10 = i)\n    y[v] = x[v]\nfor j in [0, 10)\n  "
           "block b(v:10 = j)\n    y[v] = x[v] + 1f\n"));
  EXPECT_FALSE(
      once("for i in [0, 10)\n  for k in [0, 3)\n    block b(v:10 = i, reduce r:3 = k)\n"
           "      y[v] sum= x[v] from 0f\n"));
}

TEST(TraceTest, BadTextIsRefused) {
  for (const char* text : {"", "whet-trace 2\n", "whet-trace 1", "whet-trace 1\nsplit a\n",
                           "whet-trace 1\nsplit@1 \"a\n", "whet-trace 1\nsplit@1 a  b\n",
                           "whet-trace 1\n\n", "whet-trace 1\nrule r@1 k\n"}) {
    EXPECT_FALSE(Trace::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace whet::schedule
