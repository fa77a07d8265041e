// Every primitive keeps what a program computes: a small convolution is scheduled step by step, and after each step,
// and after lowering, the interpreter must give the initial program's result.
#include "compiler/schedule/schedule.h"

#include <gtest/gtest.h>

#include "compiler/loop/interpret.h"
#include "compiler/loop/lower.h"
#include "compiler/loop/verify.h"
#include "compiler/support/rng.h"

namespace whet::schedule {
namespace {

using expr::Expr;
using loop::Memory;
using loop::Program;

struct ConvShape {
  int64_t ic, oc, h, w, k, stride, pad;
};

// relu(conv(x) + bias + residual), NHWC physically.
Program ConvProgram(const ConvShape& c) {
  te::Builder b;
  auto x = b.Input("x", DType::kF32, {1, c.ic, c.h, c.w}, false);
  auto w = b.Input("w", DType::kF32, {c.oc, c.ic, c.k, c.k}, true);
  auto bias = b.Input("b", DType::kF32, {c.oc}, true);
  const int64_t oh = (c.h + 2 * c.pad - c.k) / c.stride + 1, ow = (c.w + 2 * c.pad - c.k) / c.stride + 1;
  auto res = b.Input("r", DType::kF32, {1, c.oc, oh, ow}, false);
  auto padded = b.Compute("pad", DType::kF32, {{"n", 1}, {"c", c.ic}, {"h", c.h + 2 * c.pad}, {"w", c.w + 2 * c.pad}},
                          [&](const std::vector<Expr>& i) {
                            Expr inside = expr::And(expr::And(expr::Le(expr::Int(c.pad), i[2]), expr::Lt(i[2], expr::Int(c.h + c.pad))),
                                                    expr::And(expr::Le(expr::Int(c.pad), i[3]), expr::Lt(i[3], expr::Int(c.w + c.pad))));
                            return expr::Select(inside, expr::Load(x, {i[0], i[1], i[2] - c.pad, i[3] - c.pad}), expr::Float(0));
                          });
  auto conv = b.Reduce("conv", DType::kF32, {{"n", 1}, {"oc", c.oc}, {"oh", oh}, {"ow", ow}},
                       {{"ic", c.ic}, {"kh", c.k}, {"kw", c.k}}, te::Reducer::kSum,
                       [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                         return expr::Load(padded, {i[0], r[0], i[2] * c.stride + r[1], i[3] * c.stride + r[2]}) *
                                expr::Load(w, {i[1], r[0], r[1], r[2]});
                       });
  auto biased = b.Compute("bias", DType::kF32, {{"n", 1}, {"oc", c.oc}, {"oh", oh}, {"ow", ow}},
                          [&](const std::vector<Expr>& i) { return expr::Load(conv, i) + expr::Load(bias, {i[1]}); });
  auto out = b.Compute("out", DType::kF32, {{"n", 1}, {"oc", c.oc}, {"oh", oh}, {"ow", ow}},
                       [&](const std::vector<Expr>& i) { return expr::Max(expr::Load(biased, i) + expr::Load(res, i), expr::Float(0)); });
  auto nhwc = expr::IndexMap::Permutation({0, 2, 3, 1});
  auto p = loop::FromTe("conv", b.Finish({out}), {nhwc, expr::IndexMap::Identity(4), expr::IndexMap::Identity(1), nhwc}, {nhwc});
  EXPECT_TRUE(p.ok()) << p.status();
  return *p;
}

Memory Inputs(const Program& p) {
  Memory m;
  uint64_t tensor = 0;
  for (const loop::Param& param : p.params) {
    if (param.role != loop::Role::kInput) continue;
    auto& v = m[param.buffer->name];
    for (int64_t i = 0; i < param.buffer->num_elements(); ++i) {
      v.push_back(static_cast<double>(CounterBits(7, tensor, i) % 17) - 8);  // small integers: sums are exact
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

const std::vector<std::vector<std::string>> kDirectConv = {
    {"inline", "bias"},
    {"inline", "pad"},
    {"cache_read", "conv", "w", "global", "wp"},
    {"pad", "wp", "d0", "8"},
    {"transform_layout", "wp", "(o, i, y, x) -> (o // 8, y, x, i, o % 8)"},
    {"pad", "conv", "oc", "8"},
    {"set_scope", "conv", "register"},
    {"split", "conv.ow", "3", "ow.o", "ow.i"},
    {"split", "conv.oc", "8", "oc.o", "oc.i"},
    {"split", "oc.i", "4", "oc.u", "oc.v"},
    {"reorder", "conv.n", "conv.oh", "oc.o", "ow.o", "conv.kh", "conv.kw", "conv.ic", "ow.i", "oc.u", "oc.v"},
    {"vectorize", "oc.v"},
    {"unroll", "oc.u"},
    {"unroll", "ow.i"},
    {"unroll", "conv.kw"},
    {"decompose_reduction", "conv", "conv.kh"},
    {"reverse_compute_at", "out", "ow.o"},
    {"split", "out.oc", "4", "out.oc.o", "out.oc.i"},
    {"reorder", "out.ow", "out.oc.o", "out.oc.i"},
    {"vectorize", "out.oc.i"},
    {"unroll", "out.oc.o"},
    {"annotate", "ow.o", "partition", "1"},
    {"fuse", "conv.n", "conv.oh", "n_oh"},
    {"parallel", "n_oh"},
};

TEST(ScheduleTest, EveryStepOfADirectConvolutionKeepsTheResult) {
  for (const ConvShape& c : {ConvShape{3, 10, 7, 8, 3, 1, 1}, ConvShape{2, 8, 9, 9, 5, 2, 2}, ConvShape{5, 3, 4, 6, 1, 1, 0}}) {
    Program initial = ConvProgram(c);
    const std::vector<double> expected = RunBlocks(initial);
    Schedule s(initial);
    for (const auto& step : kDirectConv) {
      if (c.k == 1 && (step[1] == "conv.kw" && step[0] == "unroll")) continue;
      Status st = s.Apply(step[0], {step.begin() + 1, step.end()});
      ASSERT_TRUE(st.ok()) << st << "\n" << loop::ToString(s.program());
      ASSERT_TRUE(loop::Verify(s.program()).ok()) << loop::Verify(s.program()) << loop::ToString(s.program());
      ASSERT_EQ(RunBlocks(s.program()), expected) << step[0] << " " << step[1] << "\n" << loop::ToString(s.program());
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

TEST(ScheduleTest, IllegalRewritesAreRefusedAndChangeNothing) {
  Schedule s(ConvProgram({3, 4, 6, 6, 3, 1, 1}));
  const std::string before = loop::ToString(s.program());
  for (const std::vector<std::string>& step : std::vector<std::vector<std::string>>{
           {"split", "nope", "4", "a", "b"}, {"split", "conv.ow", "0", "a", "b"}, {"split", "conv.ow", "4", "conv.oc", "b"},
           {"vectorize", "conv.ic"}, {"parallel", "conv.oh"}, {"fuse", "conv.n", "conv.ow", "f"}, {"inline", "conv"},
           {"reorder", "conv.oh", "out.oh"}, {"compute_at", "conv", "conv.oh"}, {"reverse_compute_at", "out", "pad.h"},
           {"transform_layout", "conv", "(a) -> (a)"}, {"frobnicate", "conv"}, {"split", "conv.ow"}}) {
    EXPECT_FALSE(s.Apply(step[0], {step.begin() + 1, step.end()}).ok()) << step[0];
  }
  EXPECT_EQ(loop::ToString(s.program()), before);
  EXPECT_TRUE(s.trace().instrs.empty());
}

TEST(TraceTest, BadTextIsRefused) {
  for (const char* text : {"", "whet-trace 2\n", "whet-trace 1", "whet-trace 1\nsplit a\n", "whet-trace 1\nsplit@1 \"a\n",
                           "whet-trace 1\nsplit@1 a  b\n", "whet-trace 1\n\n", "whet-trace 1\nrule r@1 k\n"}) {
    EXPECT_FALSE(Trace::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace whet::schedule
