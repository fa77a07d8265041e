// The rule of Winograd's convolutions: what it applies to, that its schedules keep the result on
// small and odd extents, how large errors are, where infinities go, and
// that nothing spills.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "compiler/codegen/untuned.h"
#include "compiler/loop/lower.h"
#include "compiler/schedule/invariants.h"
#include "tests/unit/conv_program.h"
#include "tests/unit/run_program.h"

namespace whet::schedule {
namespace {

using loop::Program;
using testing_support::ConvProgram;
using testing_support::ConvShape;

Target NarrowTarget() {
  auto t = Target::Parse("cpu -arch=x86_64 -mattr=+avx,+avx2,+fma -l1d=32768 -l2=1048576 -l3=0");
  EXPECT_TRUE(t.ok()) << t.status();
  return t.ok() ? *t : Target();
}

// Number of the variant; -1 where the rule does not apply.
int Winograd(const Space& space) {
  for (size_t v = 0; v < space.variants().size(); ++v) {
    if (std::string_view(space.variants()[v].rule->name) == "conv_winograd")
      return static_cast<int>(v);
  }
  return -1;
}

Point Default(const Space& space) {
  const int v = Winograd(space);
  return {v, space.variants()[v].rule->default_values(*space.variants()[v].context)};
}

void ExpectKept(const Program& program, const Space& space, const std::vector<Point>& points,
                const std::vector<float>& expected) {
  for (const Point& p : points) {
    ASSERT_EQ(space.Check(p), Rejection::kNone);
    auto s = space.Apply(p);
    ASSERT_TRUE(s.ok()) << s.status();
    EXPECT_TRUE(WritesOutputOnce(s->program()));
    EXPECT_EQ(space.Locate(s->trace()), p);
    if (p == points[0] && space.target().VectorBits() == Target::Host().VectorBits()) {
      ASSERT_EQ(testing_support::LoweredResult(s->program(), "out"), expected)
          << s->trace().ToString();
    }
    ASSERT_EQ(testing_support::Compiled(s->program(), space.target(),
                                        testing_support::IntegerInputs(program), "r"),
              expected)
        << s->trace().ToString();
  }
}

std::vector<Point> Drawn(const Space& space, size_t most, Rng& rng) {
  return testing_support::DrawnPoints(space, static_cast<size_t>(Winograd(space)), most, rng);
}

// The residual's bytes become the output's in each of them.
TEST(WinogradTest, SmallExtentsKeepTheResult) {
  Rng rng(3);
  bool by_default = true;
  for (int64_t h = 1; h <= 5; ++h) {
    for (int64_t w = 1; w <= 5; ++w) {
      for (int64_t pad : {0, 1}) {
        if (std::min(h, w) + 2 * pad < 3) continue;
        SCOPED_TRACE(fmt::format("{}x{} pad {}", h, w, pad));
        const Program p = ConvProgram({16, 16, h, w, 3, 1, pad});
        const Space space(p, Target::Host());
        ASSERT_GE(Winograd(space), 0);
        ExpectKept(p, space, by_default ? std::vector<Point>{Default(space)} : Drawn(space, 1, rng),
                   testing_support::Interpreted(p, "out"));
        by_default = !by_default;
      }
    }
  }
}

TEST(WinogradTest, TailsOfChannelsBatchesAndTilesKeepTheResult) {
  Rng rng(4);
  for (const ConvShape& c : {ConvShape{20, 34, 7, 7, 3, 1, 1}, ConvShape{17, 17, 4, 13, 3, 1, 1},
                             ConvShape{18, 20, 7, 5, 3, 1, 0}, ConvShape{16, 17, 3, 9, 3, 1, 2},
                             ConvShape{16, 16, 6, 5, 3, 1, 1, 1, 3}}) {
    const Program p = ConvProgram(c);
    const std::vector<float> expected = testing_support::Interpreted(p, "out");
    // Of 16, 8 and 4 lanes.
    for (const Target& target : {Target::Host(), NarrowTarget(), Target()}) {
      SCOPED_TRACE(fmt::format("{}->{} {}x{} on {}", c.ic, c.oc, c.h, c.w, target.ToString()));
      const Space space(p, target);
      ASSERT_GE(Winograd(space), 0);
      ExpectKept(p, space, Drawn(space, target.VectorBits() == 512 ? 2 : 1, rng), expected);
    }
  }
}

// The sum alone, without padding or anything after it.
Program BareConvProgram(const ConvShape& c) {
  using expr::Expr;
  te::Builder b;
  const auto x = b.Input("x", DType::kF32, {c.n, c.ic, c.h, c.w}, false);
  const auto w = b.Input("w", DType::kF32, {c.oc, c.ic, 3, 3}, true);
  const auto out =
      b.Reduce("out", DType::kF32, {{"n", c.n}, {"oc", c.oc}, {"oh", c.h - 2}, {"ow", c.w - 2}},
               {{"ic", c.ic}, {"kh", 3}, {"kw", 3}}, te::Reducer::kSum,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 return expr::Load(x, {i[0], r[0], i[2] + r[1], i[3] + r[2]}) *
                        expr::Load(w, {i[1], r[0], r[1], r[2]});
               });
  const auto nhwc = expr::IndexMap::Permutation({0, 2, 3, 1});
  auto p = loop::FromTe("conv", b.Finish({out}), {nhwc, expr::IndexMap::Identity(4)}, {nhwc});
  WHET_CHECK(p.ok());
  return *p;
}

TEST(WinogradTest, ASumThatIsTheOutputIsKept) {
  Rng rng(5);
  for (const ConvShape& c : {ConvShape{17, 24, 6, 7, 3, 1, 0}, ConvShape{16, 16, 4, 4, 3, 1, 0}}) {
    const Program p = BareConvProgram(c);
    const Space space(p, Target::Host());
    ASSERT_GE(Winograd(space), 0);
    std::vector<Point> points = Drawn(space, 2, rng);
    points.push_back(Default(space));
    ExpectKept(p, space, points, testing_support::Interpreted(p, "out"));
  }
}

// An untuned compile has no other to fall back on.
TEST(WinogradTest, EveryPointHasASchedule) {
  const std::pair<Program, Target> cases[] = {
      {ConvProgram({16, 24, 5, 12, 3, 1, 1}), Target::Host()},
      {BareConvProgram({16, 24, 7, 6, 3, 1, 0}), NarrowTarget()}};
  for (const auto& [program, target] : cases) {
    const Space space(program, target);
    const int variant = Winograd(space);
    ASSERT_GE(variant, 0);
    const auto& knobs = space.variants()[static_cast<size_t>(variant)].knobs;
    Point at{variant, {}};
    int points = 0;
    std::function<void()> choose = [&] {
      if (at.values.size() < knobs.size()) {
        for (int64_t v : knobs[at.values.size()].values) {
          at.values.push_back(v);
          choose();
          at.values.pop_back();
        }
        return;
      }
      if (space.Check(at) != Rejection::kNone) return;
      const auto s = space.Apply(at);
      EXPECT_TRUE(s.ok()) << s.status();
      ++points;
    };
    choose();
    EXPECT_GT(points, 20);
  }
}

TEST(WinogradTest, AppliesToFullVectorsAnd3x3WindowsThatMoveByOneOnly) {
  const auto applies = [](const ConvShape& c) {
    return Winograd(Space(ConvProgram(c), NarrowTarget())) >= 0;
  };
  EXPECT_TRUE(applies({8, 8, 5, 5, 3, 1, 1}));
  EXPECT_FALSE(applies({8, 8, 9, 9, 3, 2, 1}));
  EXPECT_FALSE(applies({8, 8, 9, 9, 5, 1, 1}));
  EXPECT_FALSE(applies({8, 8, 9, 9, 1, 1, 0}));
  EXPECT_FALSE(applies({3, 32, 9, 9, 3, 1, 1}));
  EXPECT_FALSE(applies({32, 3, 9, 9, 3, 1, 1}));
  EXPECT_FALSE(applies({16, 32, 9, 9, 3, 1, 1, 2}));
}

loop::Memory NormalInputs(const Program& p) {
  Rng rng(11);
  loop::Memory m;
  for (const loop::Param& param : p.params) {
    if (param.role != loop::Role::kInput) continue;
    for (int64_t i = 0; i < param.buffer->num_elements(); ++i) {
      double sum = -6;
      for (int k = 0; k < 12; ++k) sum += static_cast<double>(rng.Below(1 << 20)) / (1 << 20);
      m[param.buffer->name].push_back(static_cast<double>(static_cast<float>(sum)));
    }
  }
  return m;
}

// Sum of the absolute values of an output's terms, in f64.
std::vector<double> Magnitudes(const ConvShape& c, const loop::Memory& m) {
  std::vector<double> all;
  const int64_t oh = c.h + 2 * c.pad - 2, ow = c.w + 2 * c.pad - 2;
  for (int64_t i = 0; i < oh * ow * c.oc; ++i) {
    const int64_t o = i % c.oc, x = i / c.oc % ow, y = i / c.oc / ow;
    double sum = std::fabs(m.at("b")[o]) + std::fabs(m.at("r")[i]);
    for (int64_t ky = 0; ky < 3; ++ky) {
      for (int64_t kx = 0; kx < 3; ++kx) {
        const int64_t sy = y + ky - c.pad, sx = x + kx - c.pad;
        if (sy < 0 || sx < 0 || sy >= c.h || sx >= c.w) continue;
        for (int64_t k = 0; k < c.ic; ++k) {
          sum += std::fabs(m.at("x")[(sy * c.w + sx) * c.ic + k] *
                           m.at("w")[((o * c.ic + k) * 3 + ky) * 3 + kx]);
        }
      }
    }
    all.push_back(sum);
  }
  return all;
}

// Of values that are alike, no more than a serial sum's error: 64 channels, 576 terms.
TEST(WinogradTest, ErrorsAreAFewUnitsOfTheTerms) {
  const ConvShape c{64, 32, 8, 9, 3, 1, 1};
  const Program p = ConvProgram(c);
  const Space space(p, Target::Host());
  ASSERT_GE(Winograd(space), 0);
  auto s = space.Apply(Default(space));
  ASSERT_TRUE(s.ok()) << s.status();
  const loop::Memory inputs = NormalInputs(p);
  loop::Memory exact = inputs;
  ASSERT_TRUE(loop::Interpret(p, exact).ok());
  const std::vector<float> got = testing_support::Compiled(s->program(), Target::Host(), inputs);
  const std::vector<double> size = Magnitudes(c, inputs);
  ASSERT_EQ(got.size(), size.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - exact["out"][i]) / size[i]);
  EXPECT_LT(worst, 6 * 0x1.0p-24);
}

// What ARCHITECTURE.md says of infinities and NaN: they stay within the tiles whose patches hold
// them, and all that the definition makes infinite or NaN is.
TEST(WinogradTest, AnInfinityReachesTheResultsOfItsTilesAlone) {
  const ConvShape c{16, 16, 8, 8, 3, 1, 1};
  const Program p = ConvProgram(c);
  const Space space(p, Target::Host());
  ASSERT_GE(Winograd(space), 0);
  auto s = space.Apply(Default(space));
  ASSERT_TRUE(s.ok()) << s.status();
  for (double special :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    loop::Memory inputs = testing_support::IntegerInputs(p);
    constexpr int64_t kRow = 2, kColumn = 5;
    inputs["x"][(kRow * c.w + kColumn) * c.ic + 3] = special;
    loop::Memory defined = inputs;
    ASSERT_TRUE(loop::Interpret(p, defined).ok());
    const std::vector<float> got = testing_support::Compiled(s->program(), Target::Host(), inputs);
    for (size_t i = 0; i < got.size(); ++i) {
      const int64_t x = static_cast<int64_t>(i) / c.oc % c.w,
                    y = static_cast<int64_t>(i) / c.oc / c.w;
      // Rows 2t-1 to 2t+2 of the image are what tile t reads.
      const auto reads = [](int64_t tile, int64_t at) {
        return at >= 2 * tile - 1 && at <= 2 * tile + 2;
      };
      if (!reads(y / 2, kRow) || !reads(x / 2, kColumn)) {
        EXPECT_EQ(got[i], static_cast<float>(defined["out"][i])) << y << ", " << x;
      } else if (!std::isfinite(defined["out"][i])) {
        EXPECT_FALSE(std::isfinite(got[i])) << y << ", " << x;
      }
    }
  }
}

// Every tile of products that the registers hold, and the transformations around it.
TEST(WinogradTest, NoTileOfProductsSpills) {
  for (const Target& target : {Target::Host(), NarrowTarget()}) {
    const Space space(ConvProgram({32, 64, 14, 14, 3, 1, 1}), target);
    const int variant = Winograd(space);
    ASSERT_GE(variant, 0);
    const auto& knobs = space.variants()[static_cast<size_t>(variant)].knobs;
    Point p = Default(space);
    p.values[0] = 7, p.values[4] = 1;  // all tiles in one block
    int tiles = 0;
    for (int64_t rows : knobs[1].values) {
      for (int64_t vectors : knobs[2].values) {
        p.values[1] = rows, p.values[2] = vectors;
        if (rows < 4 || space.Check(p) != Rejection::kNone) continue;
        auto s = space.Apply(p);
        ASSERT_TRUE(s.ok()) << s.status();
        auto built = codegen::BuildCandidate(s->program(), std::string(32, '0'), target);
        ASSERT_TRUE(built.ok()) << built.status();
        EXPECT_FALSE(codegen::SpillsInHotLoop(built->stats))
            << rows << "x" << vectors << " on " << target.ToString() << ": "
            << codegen::SpillMessage(built->stats);
        ++tiles;
      }
    }
    EXPECT_GE(tiles, target.VectorRegisters() / 2);
  }
}

}  // namespace
}  // namespace whet::schedule
