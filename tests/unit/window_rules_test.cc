// Depthwise convolution and pooling on small shapes: every combination of extents, windows,
// strides, paddings and dilations below comes up, each with the default and drawn points of the
// rule, whose lowered program must give the unscheduled program's numbers.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "compiler/codegen/untuned.h"
#include "compiler/loop/lower.h"
#include "tests/unit/run_program.h"

namespace whet::schedule {
namespace {

using expr::Expr;
using loop::Program;

enum class Kind { kDepthwise, kMax, kSum };

struct Shape {
  Kind kind;
  int64_t n, c, h, w, kh, kw, stride, pad, dilation;
  int64_t Out(int64_t in, int64_t k) const {
    return (in + 2 * pad - dilation * (k - 1) - 1) / stride + 1;
  }
  bool Valid() const {
    return h + 2 * pad > dilation * (kh - 1) && w + 2 * pad > dilation * (kw - 1) &&
           pad < dilation * (std::max(kh, kw) - 1) + 1;
  }
  std::string ToString() const {
    return fmt::format("kind {} n {} c {} h {} w {} window {}x{} stride {} pad {} dilation {}",
                       static_cast<int>(kind), n, c, h, w, kh, kw, stride, pad, dilation);
  }
};

Program MakeProgram(const Shape& s, const std::vector<int>& out_order = {0, 2, 3, 1}) {
  te::Builder b;
  const auto x = b.Input("x", DType::kF32, {s.n, s.c, s.h, s.w}, false);
  expr::Buffer w, bias;
  std::vector<expr::IndexMap> layouts = {expr::IndexMap::Permutation({0, 2, 3, 1})};
  if (s.kind == Kind::kDepthwise) {
    w = b.Input("w", DType::kF32, {s.c, 1, s.kh, s.kw}, true);
    bias = b.Input("b", DType::kF32, {s.c}, true);
    layouts.push_back(expr::IndexMap::Identity(4));
    layouts.push_back(expr::IndexMap::Identity(1));
  }
  auto inside = [&](const Expr& i, int64_t n) {
    return expr::And(expr::Le(expr::Int(s.pad), i), expr::Lt(i, expr::Int(n + s.pad)));
  };
  const float none = s.kind == Kind::kMax ? -std::numeric_limits<float>::infinity() : 0.0f;
  const auto padded = b.Compute(
      "pad", DType::kF32, {{"n", s.n}, {"c", s.c}, {"h", s.h + 2 * s.pad}, {"w", s.w + 2 * s.pad}},
      [&](const std::vector<Expr>& i) {
        return expr::Select(expr::And(inside(i[2], s.h), inside(i[3], s.w)),
                            expr::Load(x, {i[0], i[1], i[2] - s.pad, i[3] - s.pad}),
                            expr::Float(none));
      });
  const te::AxisSpec axes = {
      {"n", s.n}, {"c", s.c}, {"oh", s.Out(s.h, s.kh)}, {"ow", s.Out(s.w, s.kw)}};
  const auto sum = b.Reduce("window", DType::kF32, axes, {{"kh", s.kh}, {"kw", s.kw}},
                            s.kind == Kind::kMax ? te::Reducer::kMax : te::Reducer::kSum,
                            [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                              const Expr in = expr::Load(
                                  padded, {i[0], i[1], i[2] * s.stride + r[0] * s.dilation,
                                           i[3] * s.stride + r[1] * s.dilation});
                              return w ? in * expr::Load(w, {i[1], expr::Int(0), r[0], r[1]}) : in;
                            });
  const auto out = b.Compute("out", DType::kF32, axes, [&](const std::vector<Expr>& i) {
    const Expr v = expr::Load(sum, i);
    return bias ? expr::Max(v + expr::Load(bias, {i[1]}), expr::Float(0)) : v * expr::Float(0.5);
  });
  auto p =
      loop::FromTe("window", b.Finish({out}), layouts, {expr::IndexMap::Permutation(out_order)});
  WHET_CHECK(p.ok());
  return *p;
}

Target Avx2() {
  auto t = Target::Parse("cpu -arch=x86_64 -mattr=+avx,+avx2,+fma -l1d=32768 -l2=1048576");
  WHET_CHECK(t.ok());
  return *t;
}

// Shapes that differ from one another in as many ways as possible: each is drawn, all values of
// each property come up.
std::vector<Shape> Shapes(int count, uint64_t seed) {
  Rng rng(seed);
  auto pick = [&](std::vector<int64_t> v) { return v[rng.Below(static_cast<int64_t>(v.size()))]; };
  std::vector<Shape> shapes;
  while (static_cast<int>(shapes.size()) < count) {
    const Shape s = {static_cast<Kind>(rng.Below(3)),
                     pick({1, 1, 2}),
                     pick({1, 3, 16, 17, 40}),
                     pick({1, 2, 3, 4, 5, 7, 11}),
                     pick({1, 2, 3, 4, 5, 7, 11}),
                     pick({1, 2, 3, 5}),
                     pick({1, 2, 3, 5}),
                     pick({1, 2, 3}),
                     pick({0, 1, 2}),
                     pick({1, 1, 2})};
    if (s.Valid() && s.kh * s.kw > 1) shapes.push_back(s);
  }
  return shapes;
}

TEST(WindowRulesTest, SmallShapesKeepTheResultInterpreted) {
  Rng rng(3);
  std::set<std::string> rules;
  for (const Shape& s : Shapes(120, 5)) {
    SCOPED_TRACE(s.ToString());
    const Program program = MakeProgram(s);
    const std::vector<float> expected = testing_support::Interpreted(program, "out");
    for (const Target& t : {Target::Host(), Avx2()}) {
      Space space(program, t);
      rules.insert(space.variants()[0].rule->name);
      std::vector<Point> points = {space.Default()};
      ASSERT_EQ(space.Check(points[0]), Rejection::kNone);
      for (Point& p : testing_support::DrawnPoints(space, 0, 2, rng))
        points.push_back(std::move(p));
      for (const Point& p : points) {
        auto applied = space.Apply(p);
        ASSERT_TRUE(applied.ok()) << applied.status();
        ASSERT_EQ(testing_support::LoweredResult(applied->program(), "out"), expected)
            << applied->trace().ToString() << loop::ToString(applied->program());
      }
    }
  }
  EXPECT_TRUE(rules.count("depthwise"));
  EXPECT_TRUE(rules.count("pool"));
}

TEST(WindowRulesTest, SmallShapesKeepTheResultCompiled) {
  Rng rng(4);
  for (const Shape& s : Shapes(40, 6)) {
    SCOPED_TRACE(s.ToString());
    const Program program = MakeProgram(s);
    const std::vector<float> expected = testing_support::Interpreted(program, "out");
    for (const Target& t : {Target::Host(), Avx2()}) {
      Space space(program, t);
      std::vector<Point> points = {space.Default()};
      for (Point& p : testing_support::DrawnPoints(space, 0, 1, rng))
        points.push_back(std::move(p));
      for (const Point& p : points) {
        auto applied = space.Apply(p);
        ASSERT_TRUE(applied.ok()) << applied.status();
        ASSERT_EQ(testing_support::Compiled(applied->program(), t,
                                            testing_support::IntegerInputs(program)),
                  expected)
            << applied->trace().ToString();
      }
    }
  }
}

// Images of one pixel lie as their channels do in any layout: these are the lanes then too.
TEST(WindowRulesTest, WindowsOverAllOfAnImageAreVectorsOfChannels) {
  Rng rng(7);
  for (Kind kind : {Kind::kDepthwise, Kind::kMax, Kind::kSum}) {
    for (const auto& [h, w] : {std::pair<int64_t, int64_t>{7, 7}, {3, 40}, {1, 5}}) {
      const Shape s = {kind, 2, 40, h, w, h, w, 1, 0, 1};
      SCOPED_TRACE(s.ToString());
      const Program program = MakeProgram(s, {0, 1, 2, 3});
      const std::vector<float> expected = testing_support::Interpreted(program, "out");
      Space space(program, Target::Host());
      std::vector<Point> points = {space.Default()};
      for (Point& p : testing_support::DrawnPoints(space, 0, 3, rng))
        points.push_back(std::move(p));
      for (const Point& p : points) {
        auto applied = space.Apply(p);
        ASSERT_TRUE(applied.ok()) << applied.status();
        EXPECT_NE(applied->trace().ToString().find("split@1 window.c "), std::string::npos);
        ASSERT_EQ(testing_support::LoweredResult(applied->program(), "out"), expected)
            << applied->trace().ToString();
      }
    }
  }
}

// Sums over axes that are no window's: any of their points applies, whatever the extents.
TEST(WindowRulesTest, ReductionsOverOuterAxesKeepTheResult) {
  Rng rng(8);
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {5, 17}, {1, 40}, {8, 16}, {3, 7, 33}, {2, 12, 5}, {4, 1, 24}, {1, 1, 3}, {6, 4, 1}}) {
    for (te::Reducer reducer : {te::Reducer::kSum, te::Reducer::kMax}) {
      te::Builder b;
      const auto x = b.Input("x", DType::kF32, shape, false);
      te::AxisSpec reduced;
      for (size_t d = 0; d + 1 < shape.size(); ++d)
        reduced.emplace_back("r" + std::to_string(d), shape[d]);
      const auto out = b.Reduce("out", DType::kF32, {{"c", shape.back()}}, reduced, reducer,
                                [&](const std::vector<Expr>& i, std::vector<Expr> r) {
                                  r.push_back(i[0]);
                                  return expr::Load(x, r);
                                });
      auto p = loop::FromTe("sums", b.Finish({out}),
                            {expr::IndexMap::Identity(static_cast<int>(shape.size()))},
                            {expr::IndexMap::Identity(1)});
      ASSERT_TRUE(p.ok()) << p.status();
      const std::vector<float> expected = testing_support::Interpreted(*p, "out");
      Space space(*p, Target::Host());
      std::vector<Point> points = {space.Default()};
      for (size_t v = 0; v < space.variants().size(); ++v) {
        for (Point& q : testing_support::DrawnPoints(space, static_cast<int>(v), 12, rng))
          points.push_back(std::move(q));
      }
      for (const Point& q : points) {
        auto applied = space.Apply(q);
        ASSERT_TRUE(applied.ok()) << applied.status();
        ASSERT_EQ(testing_support::LoweredResult(applied->program(), "out"), expected)
            << applied->trace().ToString();
      }
    }
  }
}

// What is live by the rule's count fits the registers: the allocator agrees.
TEST(WindowRulesTest, VectorsDoNotSpillInsideLoops) {
  Rng rng(5);
  std::vector<std::string> spilling;
  int built = 0;
  for (const auto& [k, stride] : {std::pair<int64_t, int64_t>{3, 1}, {3, 2}, {5, 1}, {5, 2}}) {
    const Shape shape = {Kind::kDepthwise, 1, 96, 28, 28, k, k, stride, k / 2, 1};
    const Program program = MakeProgram(shape);
    for (const Target& t : {Target::Host(), Avx2()}) {
      Space space(program, t);
      std::vector<Point> points = {space.Default()};
      for (Point& p : testing_support::DrawnPoints(space, 0, 48, rng)) {
        const auto s = space.Apply(p);
        ASSERT_TRUE(s.ok());
        int64_t lanes = 0, unroll = 0;
        for (const auto& [name, value] : s->trace().knobs) {
          if (name == "lanes") lanes = value;
          if (name == "unroll_window") unroll = value;
        }
        // A window that is a loop has an address per row; a short vector is not meant to be fast.
        if (lanes == t.Lanes(4) && unroll > 0) points.push_back(std::move(p));
      }
      for (const Point& p : points) {
        auto applied = space.Apply(p);
        ASSERT_TRUE(applied.ok()) << applied.status();
        auto c = codegen::BuildCandidate(applied->program(), std::string(32, '0'), t);
        ASSERT_TRUE(c.ok()) << c.status();
        ++built;
        if (codegen::SpillsInHotLoop(c->stats))
          spilling.push_back(fmt::format("{}: {}, {}", shape.ToString(),
                                         codegen::SpillMessage(c->stats),
                                         applied->trace().ToString().substr(13, 110)));
      }
    }
  }
  EXPECT_GT(built, 20);
  EXPECT_TRUE(spilling.empty()) << fmt::format("{}", fmt::join(spilling, "\n"));
}

}  // namespace
}  // namespace whet::schedule
