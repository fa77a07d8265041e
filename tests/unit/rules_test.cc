// Every rule on small shapes with tails, borders and odd channel counts: the default and randomly
// drawn points must give the unscheduled program's result, interpreted after lowering and compiled.
#include <gtest/gtest.h>

#include <set>

#include "compiler/loop/lower.h"
#include "compiler/schedule/invariants.h"
#include "compiler/schedule/space.h"
#include "tests/unit/programs.h"
#include "tests/unit/run_program.h"

namespace whet::schedule {
namespace {

using loop::Program;
using testing_support::ConvShape;

struct Case {
  const char* rule;
  Program program;
};

std::vector<Case> Cases() {
  using namespace testing_support;
  return {{"conv_direct", ConvProgram({3, 24, 9, 10, 5, 2, 2})},
          {"conv_direct", ConvProgram({6, 28, 5, 7, 3, 1, 1})},
          {"conv_direct", ConvProgram({8, 20, 4, 6, 1, 1, 0})},
          // Groups that vectors fit into, only shorter ones, and none.
          {"conv_direct", ConvProgram({8, 32, 5, 7, 3, 1, 1, 2})},
          {"conv_direct", ConvProgram({4, 48, 4, 5, 3, 2, 1, 2})},
          {"conv_direct", ConvProgram({12, 12, 5, 6, 3, 1, 1, 3})},
          // Few tiles of columns, so that threads share rows of them out.
          {"conv_direct", ConvProgram({5, 20, 16, 6, 1, 1, 0})},
          {"matmul", MatmulProgram(64, 24, 6, true)},
          {"depthwise", DepthwiseProgram({0, 24, 7, 9, 3, 1, 1}, true)},
          {"depthwise", DepthwiseProgram({0, 10, 8, 8, 3, 2, 1}, false)},
          // Strides, tails of channels, lines of few pixels, taps without and with borders.
          {"depthwise_pointwise", DepthwisePointwiseProgram({24, 20, 6, 9, 3, 1, 1}, true)},
          {"depthwise_pointwise", DepthwisePointwiseProgram({5, 37, 9, 7, 3, 2, 1}, true)},
          {"depthwise_pointwise", DepthwisePointwiseProgram({18, 3, 7, 11, 3, 1, 0}, false)},
          {"depthwise_pointwise", DepthwisePointwiseProgram({16, 16, 4, 5, 2, 1, 0}, false)},
          {"pool", MaxPoolProgram({0, 28, 6, 8, 2, 2, 0})},
          {"matmul", MatmulProgram(7, 37, 12, true)},
          {"matmul", MatmulProgram(1, 16, 5, false)},
          // A single column: a score.
          {"matmul", MatmulProgram(3, 1, 64, true)},
          {"conv_direct", ConvProgram({8, 1, 5, 7, 3, 1, 1})},
          // Heads of an attention: keys as their projection writes them, a result as the next one
          // reads it, a left operand by columns; a single matrix across.
          {"matmul", BatchMatmulProgram(3, 7, 37, 12, {0, 1, 2}, {2, 0, 1}, {1, 0, 2})},
          {"matmul", BatchMatmulProgram(2, 5, 24, 6, {0, 2, 1}, {0, 1, 2}, {1, 0, 2})},
          {"matmul", BatchMatmulProgram(1, 6, 21, 9, {0, 1, 2}, {0, 2, 1}, {0, 1, 2})},
          {"elementwise", AddPaddedProgram(28, 24, 3, 5)},
          {"elementwise", TurnedProgram(3, 37, 21)},
          {"elementwise", TurnedProgram(2, 5, 16)},
          {"generic", RowNormProgram(5, 7)},
          {"rows", RowNormProgram(5, 19)},
          // Vectors that fit, one short vector, several axes of rows and of what is reduced, a
          // single row, rows longer than what is kept in registers.
          {"rows", RowStagesProgram({4, 64}, 1)},
          {"rows", RowStagesProgram({8, 11}, 1)},
          {"rows", RowStagesProgram({2, 3, 4, 37}, 1)},
          {"rows", RowStagesProgram({2, 3, 5, 19}, 2)},
          {"rows", RowStagesProgram({1, 45}, 1)},
          {"rows", RowStagesProgram({33}, 1)},
          {"rows", RowStagesProgram({2, 701}, 1)},
          {"rows", RowReductionProgram(4, 50, false)},
          {"rows", RowReductionProgram(3, 128, true)},
          {"pool", RowReductionProgram(1, 1, true)}};
}

TEST(RulesTest, DefaultAndDrawnPointsKeepTheResult) {
  Rng rng(1);
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.rule);
    Space space(c.program, Target::Host());
    ASSERT_FALSE(space.variants().empty());
    EXPECT_STREQ(space.variants()[0].rule->name, c.rule);
    const std::vector<float> expected = testing_support::Interpreted(c.program, "out");
    const Space two(c.program, Target::Host(), {Machine::Typical(Target::Host()), 2});
    std::vector<Point> points = {space.Default(), two.Default()};
    ASSERT_EQ(space.Check(points[0]), Rejection::kNone);
    for (Point& p : testing_support::DrawnPoints(space, 0, 6, rng)) points.push_back(std::move(p));
    for (const Point& p : points) {
      auto s = space.Apply(p);
      ASSERT_TRUE(s.ok()) << s.status();
      EXPECT_GT(space.PriorNs(p), 0);
      ASSERT_EQ(testing_support::LoweredResult(s->program(), "out"), expected)
          << s->trace().ToString() << loop::ToString(s->program());
      ASSERT_EQ(testing_support::Compiled(s->program(), Target::Host(),
                                          testing_support::IntegerInputs(c.program)),
                expected)
          << s->trace().ToString();
      auto again = Trace::Parse(s->trace().ToString());
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(space.Locate(*again), p);
      ASSERT_TRUE(Schedule::Replay(c.program, *again).ok());
    }
  }
}

// Strips of one line and of several, of images and channels of any small size, on both
// instruction sets: what lies between has lines that end within vectors and tiles.
TEST(RulesTest, ADepthwiseConvolutionFeedsAProductAtAnySize) {
  Rng rng(7);
  const auto avx2 = Target::Parse("cpu -arch=x86_64 -mattr=+avx,+avx2,+fma -l1d=32768 -l2=262144");
  ASSERT_TRUE(avx2.ok()) << avx2.status();
  std::set<int64_t> strips;
  int64_t programs = 0;
  for (const int64_t lines : {2, 3, 4, 5, 7, 8}) {
    for (const int64_t width : {2, 3, 5, 11}) {
      const int64_t stride = 1 + programs % 2, kernel = 2 + programs % 3 % 2, pad = kernel - 2;
      const int64_t channels = std::vector<int64_t>{2, 3, 5, 8, 17, 24}[programs % 6];
      const int64_t outputs = std::vector<int64_t>{1, 4, 16, 19, 33}[programs % 5];
      const auto extent = [&](int64_t out) { return (out - 1) * stride + kernel - 2 * pad; };
      ++programs;
      SCOPED_TRACE(fmt::format("{} x {} x {} -> {}, {} taps, by {}", lines, width, channels,
                               outputs, kernel, stride));
      const Program p = testing_support::DepthwisePointwiseProgram(
          {channels, outputs, extent(lines), extent(width), kernel, stride, pad}, programs % 4 < 2);
      const Space space(p, programs % 3 == 0 ? *avx2 : Target::Host());
      ASSERT_STREQ(space.variants()[0].rule->name, "depthwise_pointwise");
      const std::vector<float> expected = testing_support::Interpreted(p, "out");
      std::vector<Point> points = {space.Default()};
      for (Point& x : testing_support::DrawnPoints(space, 0, 3, rng))
        points.push_back(std::move(x));
      for (const Point& x : points) {
        auto s = space.Apply(x);
        ASSERT_TRUE(s.ok()) << s.status();
        ASSERT_EQ(testing_support::LoweredResult(s->program(), "out"), expected)
            << s->trace().ToString();
        for (const auto& [name, value] : s->trace().knobs) {
          if (name == "second_mc") strips.insert(value / width);
        }
      }
    }
  }
  EXPECT_TRUE(strips.count(1) && strips.count(2) && strips.count(4));
}

// The program, and an input of the output's form added to its result.
Program WithResidual(const Program& p) {
  Program r = p;
  expr::Buffer made;
  for (loop::Param& param : r.params) {
    if (param.role != loop::Role::kOutput) continue;
    made = expr::MakeBuffer("made", param.buffer->dtype, param.buffer->shape);
    r.body = loop::ReplaceBuffer(r.body, param.buffer, made,
                                 [](const std::vector<expr::Expr>& i) { return i; });
    r.intermediates.push_back(made);
  }
  const auto residual = expr::MakeBuffer("residual", made->dtype, made->shape);
  loop::BlockFields b;
  b.name = "add";
  std::vector<expr::Var> loops;
  for (size_t d = 0; d < made->shape.size(); ++d) {
    b.iters.push_back({expr::MakeVar("d" + std::to_string(d)), made->shape[d], false});
    b.out_indices.push_back(b.iters.back().var);
    loops.push_back(expr::MakeVar("add.d" + std::to_string(d)));
    b.bindings.push_back(loops.back());
  }
  b.value = expr::Load(made, b.out_indices) + expr::Load(residual, b.out_indices);
  for (const loop::Param& param : r.params) {
    if (param.role == loop::Role::kOutput) b.out = param.buffer;
  }
  loop::Stmt nest = loop::MakeBlock(std::move(b));
  for (size_t d = loops.size(); d-- > 0;)
    nest = loop::MakeFor(loops[d], 0, made->shape[d], loop::ForKind::kSerial, nest);
  r.body = loop::MakeSeq({r.body, nest});
  const auto first_output =
      std::find_if(r.params.begin(), r.params.end(),
                   [](const loop::Param& x) { return x.role == loop::Role::kOutput; });
  r.params.insert(first_output, {residual, loop::Role::kInput});
  return r;
}

// Caches so small that blocks of every kind are offered for small programs.
Target SmallCaches(Target t) {
  t.l1d_bytes = 1024;
  t.l2_bytes = 8192;
  return t;
}

// A point for each value of each of the knobs that block for caches, all else drawn, where there is
// one.
std::vector<Point> BlockedPoints(const Space& space, Rng& rng, std::set<std::string>& seen) {
  std::vector<Point> points;
  const auto& knobs = space.variants()[0].knobs;
  for (size_t k = 0; k < knobs.size(); ++k) {
    if (knobs[k].name != "kc" && knobs[k].name != "mc" && knobs[k].name != "nc_tiles" &&
        knobs[k].name != "pack_rows")
      continue;
    for (const int64_t value : knobs[k].values) {
      if (value == 0) continue;
      for (int tries = 0; tries < 4000; ++tries) {
        Point p{0, {}};
        for (const Knob& knob : knobs)
          p.values.push_back(knob.values[rng.Below(static_cast<int64_t>(knob.values.size()))]);
        p.values[k] = value;
        if (space.Check(p) != Rejection::kNone) continue;
        points.push_back(std::move(p));
        seen.insert(knobs[k].name);
        break;
      }
    }
  }
  return points;
}

// Sums in blocks, rows and columns in blocks, copied rows: on rows and columns that do not divide,
// rows of several lines, windows with borders, a bias, a residual; on both instruction sets.
TEST(RulesTest, BlocksForCachesKeepTheResult) {
  Rng rng(4);
  const auto avx2 = Target::Parse("cpu -arch=x86_64 -mattr=+avx,+avx2,+fma -l1d=1024 -l2=8192");
  ASSERT_TRUE(avx2.ok()) << avx2.status();
  using namespace testing_support;
  const std::vector<Case> cases = {{"matmul", MatmulProgram(48, 70, 32, true)},
                                   {"matmul", MatmulProgram(50, 130, 48, false)},
                                   {"conv_direct", ConvProgram({32, 40, 8, 12, 1, 1, 0})},
                                   {"conv_direct", ConvProgram({32, 70, 5, 7, 3, 1, 1})}};
  bool residual = false;
  for (const Target& target : {SmallCaches(Target::Host()), *avx2}) {
    std::set<std::string> seen;
    for (const Case& c : cases) {
      SCOPED_TRACE(c.rule);
      const Program program = residual ? WithResidual(c.program) : c.program;
      Space space(program, target);
      const std::vector<float> expected = Interpreted(program, "out");
      for (const Point& p : BlockedPoints(space, rng, seen)) {
        auto s = space.Apply(p);
        ASSERT_TRUE(s.ok()) << s.status();
        EXPECT_TRUE(WritesOutputOnce(s->program())) << loop::ToString(s->program());
        ASSERT_EQ(testing_support::LoweredResult(s->program(), "out"), expected)
            << loop::ToString(s->program());
        ASSERT_EQ(Compiled(s->program(), target, IntegerInputs(program)), expected)
            << s->trace().ToString();
      }
    }
    EXPECT_EQ(seen.size(), 4u);
    residual = true;
  }
}

// Rows and vectors of every tile that the space allows stay in registers in the hot loop, on both
// instruction sets; the tiles that libraries use are among them.
TEST(RulesTest, NoTileOfAMatrixProductSpillsInItsLoop) {
  struct Set {
    const char* target;
    std::vector<std::pair<int64_t, int64_t>> tiles;  // rows, vectors
  };
  const Set sets[] = {
      {"cpu -arch=x86_64 -mattr=+avx,+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl,+fma",
       {{6, 4}, {8, 3}, {12, 2}, {14, 2}}},
      {"cpu -arch=x86_64 -mattr=+avx,+avx2,+fma",
       {{6, 2}, {5, 2}, {4, 2}, {4, 3}, {3, 3}, {2, 5}, {1, 8}}}};
  const Program program = testing_support::MatmulProgram(56, 512, 64, true);
  for (const Set& set : sets) {
    const auto target = Target::Parse(set.target);
    ASSERT_TRUE(target.ok()) << target.status();
    Space space(program, *target);
    const auto& knobs = space.variants()[0].knobs;
    std::set<std::pair<int64_t, int64_t>> allowed;
    for (const int64_t rows : knobs[0].values) {
      for (const int64_t vectors : knobs[1].values) {
        for (const int64_t unroll : {1, 8}) {
          Point p{0, space.variants()[0].rule->default_values(*space.variants()[0].context)};
          p.values[0] = rows;
          p.values[1] = vectors;
          p.values[4] = unroll;
          if (space.Check(p) != Rejection::kNone) continue;
          allowed.emplace(rows, vectors);
          auto s = space.Apply(p);
          ASSERT_TRUE(s.ok()) << s.status();
          auto c = codegen::BuildCandidate(s->program(), "", *target);
          ASSERT_TRUE(c.ok()) << c.status();
          EXPECT_EQ(c->stats.hot_spill_share, 0)
              << rows << " x " << vectors << " vectors, unrolled " << unroll << ", "
              << target->VectorBits() << " bits";
        }
      }
    }
    for (const auto& tile : set.tiles)
      EXPECT_TRUE(allowed.count(tile)) << tile.first << " x " << tile.second;
  }
}

// Few results: sums in parts that do not wait for each other and blocks that threads share, with
// columns that do not fill vectors, a bias, batches, a residual, on both instruction sets.
TEST(RulesTest, SplitReductionsKeepTheResult) {
  Rng rng(5);
  const auto avx2 = Target::Parse("cpu -arch=x86_64 -mattr=+avx,+avx2,+fma");
  ASSERT_TRUE(avx2.ok()) << avx2.status();
  using namespace testing_support;
  const Program programs[] = {
      MatmulProgram(1, 16, 64, false),
      MatmulProgram(1, 37, 96, true),
      MatmulProgram(1, 2, 256, true),
      MatmulProgram(6, 24, 128, true),
      MatmulProgram(5, 21, 34, false),
      WithResidual(MatmulProgram(2, 70, 66, true)),
      BatchMatmulProgram(3, 4, 37, 64, {0, 1, 2}, {0, 1, 2}, {0, 1, 2}),
  };
  for (const Target& target : {Target::Host(), *avx2}) {
    std::set<std::pair<bool, bool>> seen;  // parts, blocks
    for (const Program& program : programs) {
      const Space space(program, target);
      const auto& variants = space.variants();
      const auto at = std::find_if(variants.begin(), variants.end(), [](const Variant& v) {
        return std::string(v.rule->name) == "matmul_split";
      });
      ASSERT_NE(at, variants.end()) << loop::ToString(program);
      const auto variant = static_cast<size_t>(at - variants.begin());
      Point first{static_cast<int>(variant), at->rule->default_values(*at->context)};
      ASSERT_EQ(space.Check(first), Rejection::kNone);
      std::vector<Point> points = DrawnPoints(space, variant, 4, rng);
      points.push_back(std::move(first));
      const std::vector<float> expected = Interpreted(program, "out");
      for (const Point& p : points) {
        seen.emplace(p.values[3] > 1, p.values[4] > 1);
        auto s = space.Apply(p);
        ASSERT_TRUE(s.ok()) << s.status();
        EXPECT_TRUE(WritesOutputOnce(s->program())) << loop::ToString(s->program());
        ASSERT_EQ(LoweredResult(s->program(), "out"), expected)
            << s->trace().ToString() << loop::ToString(s->program());
        ASSERT_EQ(Compiled(s->program(), target, IntegerInputs(program)), expected)
            << s->trace().ToString();
        auto again = Trace::Parse(s->trace().ToString());
        ASSERT_TRUE(again.ok()) << again.status();
        EXPECT_EQ(space.Locate(*again), p);
        ASSERT_TRUE(Schedule::Replay(program, *again).ok());
      }
    }
    EXPECT_EQ(seen.size(), 3u);
  }
}

// A single sum per output waits for itself, so an untuned compile splits it; threads share blocks
// of the reduction where there is nothing else to share.
TEST(RulesTest, FewResultsAreComputedInSplitSums) {
  const Program program = testing_support::MatmulProgram(1, 16, 4096, true);
  const Space one(program, Target::Host());
  const auto s = one.Untuned();
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(s->trace().rule, "matmul_split") << s->trace().ToString();
  Conditions two = Conditions::Typical(Target::Host());
  two.threads = 2;
  two.machine.fork_join_ns = 1;
  const Space shared(testing_support::MatmulProgram(1, 16, 1 << 16, true), Target::Host(), two);
  const auto t = shared.Untuned();
  ASSERT_TRUE(t.ok()) << t.status();
  ASSERT_EQ(t->trace().rule, "matmul_split") << t->trace().ToString();
  EXPECT_EQ(t->trace().knobs[4].first, "blocks");
  EXPECT_GT(t->trace().knobs[4].second, 1);
}

TEST(RulesTest, PixelsOfSeveralLinesAreRowsOfOneTile) {
  auto fuses = [](const Program& p) {
    Space space(p, Target::Host());
    auto s = space.Apply(space.Default());
    EXPECT_TRUE(s.ok()) << s.status();
    return s.ok() && s->trace().ToString().find("fuse_axes") != std::string::npos;
  };
  using testing_support::ConvProgram;
  EXPECT_TRUE(fuses(ConvProgram({8, 20, 7, 7, 1, 1, 0})));
  EXPECT_FALSE(fuses(ConvProgram({8, 20, 7, 7, 1, 2, 0})));  // lines are left out
  EXPECT_FALSE(fuses(ConvProgram({8, 20, 7, 7, 1, 1, 1})));  // and added
  EXPECT_FALSE(fuses(ConvProgram({8, 20, 7, 7, 3, 1, 1})));
}

// Of every rule, the default and some drawn points: the output in the bytes of an input that is
// read element by element gives the same numbers.
TEST(RulesTest, OutputsMayOverwriteAResidual) {
  Rng rng(2);
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.rule);
    const Program program = WithResidual(c.program);
    Space space(program, Target::Host());
    ASSERT_FALSE(space.variants().empty());
    EXPECT_STREQ(space.variants()[0].rule->name, c.rule);
    const std::vector<float> expected = testing_support::Interpreted(program, "out");
    std::vector<Point> points = {space.Default()};
    for (Point& p : testing_support::DrawnPoints(space, 0, 2, rng)) points.push_back(std::move(p));
    for (const Point& p : points) {
      auto s = space.Apply(p);
      ASSERT_TRUE(s.ok()) << s.status();
      EXPECT_TRUE(WritesOutputOnce(s->program())) << loop::ToString(s->program());
      ASSERT_EQ(testing_support::Compiled(s->program(), Target::Host(),
                                          testing_support::IntegerInputs(program), "residual"),
                expected)
          << s->trace().ToString();
    }
  }
}

// Of other lengths of vectors, every point of small spaces.
TEST(RulesTest, RowsOfAnyLengthOnAnyVectors) {
  using testing_support::RowStagesProgram;
  for (const char* text : {"cpu -arch=x86_64 -mattr=+avx,+avx2,+fma -l1d=32768 -l2=262144 -l3=0",
                           "cpu -arch=x86_64 -l1d=32768 -l2=262144 -l3=0"}) {
    auto target = Target::Parse(text);
    ASSERT_TRUE(target.ok()) << target.status();
    for (int64_t length : {8, 9, 13, 16, 31, 33}) {
      for (int64_t rows : {1, 2, 3, 4}) {
        const Program program = RowStagesProgram({rows, length}, 1);
        const Space space(program, *target);
        ASSERT_STREQ(space.variants()[0].rule->name, "rows") << length;
        const std::vector<float> expected = testing_support::Interpreted(program, "out");
        Rng rng(static_cast<uint64_t>(length));
        std::vector<Point> points = testing_support::DrawnPoints(space, 0, 2, rng);
        points.push_back(space.Default());
        for (const Point& p : points) {
          auto s = space.Apply(p);
          ASSERT_TRUE(s.ok()) << s.status();
          ASSERT_EQ(testing_support::Compiled(s->program(), *target,
                                              testing_support::IntegerInputs(program)),
                    expected)
              << s->trace().ToString();
        }
      }
    }
  }
}

TEST(RulesTest, OnlyWhatAllRowsReadIsTurnedIntoVectors) {
  auto turns = [](const Program& p) {
    auto s = Space(p, Target::Host()).Apply(Space(p, Target::Host()).Default());
    EXPECT_TRUE(s.ok()) << s.status();
    return s.ok() && s->trace().ToString().find("cache_read") != std::string::npos;
  };
  using testing_support::BatchMatmulProgram;
  EXPECT_TRUE(turns(BatchMatmulProgram(3, 7, 37, 12, {0, 1, 2}, {0, 2, 1}, {0, 1, 2})));
  EXPECT_FALSE(turns(BatchMatmulProgram(3, 7, 37, 12, {0, 1, 2}, {0, 1, 2}, {0, 1, 2})));
  EXPECT_FALSE(turns(BatchMatmulProgram(3, 1, 37, 12, {0, 1, 2}, {0, 2, 1}, {0, 1, 2})));
  // Sums of rows, and of rows of matrices.
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{24, 40}, {3, 24, 40}}) {
    te::Builder b;
    const auto x = b.Input("x", DType::kF32, shape, false);
    te::AxisSpec axes;
    for (size_t d = 0; d + 1 < shape.size(); ++d)
      axes.emplace_back("d" + std::to_string(d), shape[d]);
    const auto out = b.Reduce("out", DType::kF32, axes, {{"k", shape.back()}}, te::Reducer::kSum,
                              [&](std::vector<expr::Expr> i, const std::vector<expr::Expr>& r) {
                                i.push_back(r[0]);
                                return expr::Load(x, i);
                              });
    const int rank = static_cast<int>(shape.size());
    auto p = loop::FromTe("rows", b.Finish({out}), {expr::IndexMap::Identity(rank)},
                          {expr::IndexMap::Identity(rank - 1)});
    ASSERT_TRUE(p.ok()) << p.status();
    EXPECT_FALSE(turns(*p));
  }
}

// A vector inside of a group reads one number for all lanes, however many tiles a group has.
TEST(RulesTest, NoGroupIsGathered) {
  for (int64_t group : {16, 32, 64, 128}) {
    const Program p = testing_support::ConvProgram({8, 2 * group, 4, 5, 3, 1, 1, 2});
    const Target t = *Target::Parse("cpu -arch=x86_64 -mattr=+avx,+avx2,+fma,+avx512f,+avx512vl");
    Space space(p, t);
    auto s = space.Apply(space.Default());
    ASSERT_TRUE(s.ok()) << s.status();
    auto lowered = loop::Lower(s->program());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const std::string text = loop::ToString(lowered->main);
    EXPECT_EQ(text.find(fmt::format("// {}", group)), std::string::npos) << text;
  }
}

TEST(RulesTest, PointsOutsideTheSpaceAreRefused) {
  Space space(testing_support::ConvProgram({3, 24, 9, 10, 5, 2, 2}), Target::Host());
  Point p = space.Default();
  p.values[0] = 1000;
  EXPECT_EQ(space.Check(p), Rejection::kBadValue);
  EXPECT_FALSE(space.Apply(p).ok());
  p.values.pop_back();
  EXPECT_EQ(space.Check(p), Rejection::kBadValue);
}

}  // namespace
}  // namespace whet::schedule
