// Generated code against the interpreter: each program is compiled, linked, loaded by the runtime
// and run.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/loop/parse.h"
#include "compiler/schedule/schedule.h"
#include "tests/unit/conv_program.h"
#include "tests/unit/run_program.h"

namespace whet::codegen {
namespace {

using loop::Program;
using testing_support::ConvProgram;
using testing_support::ConvShape;

std::vector<Target> TestTargets() {
  std::vector<Target> targets = {Target::Host()};
  Target base;  // no FMA, 128-bit vectors
  targets.push_back(base);
  if (Target::Host().Has("avx512f")) {
    Target avx2 = Target::Host();
    std::erase_if(avx2.features, [](const std::string& f) {
      return f.rfind("avx512", 0) == 0 || f.rfind("amx", 0) == 0;
    });
    targets.push_back(avx2);
  }
  return targets;
}

void Check(const Program& initial, const Program& scheduled, const std::string& output) {
  const std::vector<float> expected = testing_support::Interpreted(initial, output);
  for (const Target& t : TestTargets()) {
    EXPECT_EQ(testing_support::Compiled(scheduled, t, testing_support::IntegerInputs(initial)),
              expected)
        << t.ToString() << "\n"
        << loop::ToString(scheduled);
  }
}

TEST(CodegenTest, UnscheduledConvolutionIsRight) {
  Program p = ConvProgram({3, 5, 6, 7, 3, 1, 1});
  Check(p, p, "out");
}

TEST(CodegenTest, DirectConvolutionsWithTailsAndBordersAreRight) {
  for (const ConvShape& c : {ConvShape{3, 24, 11, 13, 3, 1, 1}, ConvShape{2, 28, 12, 9, 5, 2, 2},
                             ConvShape{7, 20, 5, 8, 1, 1, 0}}) {
    Program initial = ConvProgram(c);
    schedule::Schedule s(initial);
    for (const auto& step : testing_support::DirectConvSteps(4, 16, 8, true)) {
      Status st = s.Apply(step[0], {step.begin() + 1, step.end()});
      ASSERT_TRUE(st.ok()) << st;
    }
    Check(initial, s.program(), "out");
  }
}

// out[i] = what the lanes of one vector make of x and s, where only the first `on` lanes load.
StatusOr<Program> LanesProgram(int on) {
  return loop::Parse(fmt::format(R"(program lanes
input x: f32 global[16]
input s: f32 global[1]
output out: f32 global[16]
vectorized out.i in [0, 16)
  block out(v_i:16 = out.i)
    out[v_i] = select(v_i < {0}, x[v_i], 0f) + select(v_i < {0}, s[0], 0f) + select(v_i < {0}, x[v_i], 3f)
)",
                                 on));
}

TEST(CodegenTest, LanesThatAreOffAreNotLoaded) {
  for (int on : {1, 2, 4, 8, 3, 12, 15, 16}) {
    SCOPED_TRACE(on);
    auto p = LanesProgram(on);
    ASSERT_TRUE(p.ok()) << p.status();
    Check(*p, *p, "out");
  }
}

TEST(CodegenTest, AShorterVectorTakesThePlaceOfAMask) {
  auto target = Target::Parse("cpu -arch=x86_64 -mattr=+avx,+avx2,+fma,+avx512f,+avx512vl");
  ASSERT_TRUE(target.ok()) << target.status();
  for (int on : {8, 12}) {
    auto p = LanesProgram(on);
    ASSERT_TRUE(p.ok()) << p.status();
    auto lowered = loop::Lower(*p);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    auto ir = GenerateIr(*lowered, "lanes", *target);
    ASSERT_TRUE(ir.ok()) << ir.status();
    EXPECT_EQ(ir->find("call <16 x float> @llvm.masked.load") == std::string::npos, on == 8) << *ir;
  }
}

// Of a constant, once per vector that moves on with the annotated loop, and of nothing else.
// The last vector ends with the buffer.
TEST(CodegenTest, ElementsAFewApartAreLoadedInVectors) {
  for (const char* type : {"f32", "u8", "i64"}) {
    for (const int stride : {2, 3, 4, 5}) {
      for (const int lanes : {4, 16}) {
        if (type != std::string("f32") && stride != 3) continue;
        auto p =
            loop::Parse(fmt::format(R"(program apart
input x: {0} global[{1}]
output out: {0} global[{2}]
for o in [0, 2)
  vectorized i in [0, {3})
    block out(v_i:{2} = o * {3} + i)
      out[v_i] = x[v_i * {4}]
)",
                                    type, (2 * lanes - 1) * stride + 1, 2 * lanes, lanes, stride));
        ASSERT_TRUE(p.ok()) << p.status();
        loop::Memory inputs;
        for (int i = 0; i <= (2 * lanes - 1) * stride; ++i) inputs["x"].push_back(i % 251);
        for (const Target& t : TestTargets()) {
          const std::vector<double> got = testing_support::CompiledOutputs(*p, t, inputs)["out"];
          ASSERT_EQ(got.size(), static_cast<size_t>(2 * lanes));
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(got[i], inputs["x"][i * static_cast<size_t>(stride)])
                << type << ", stride " << stride << ", " << lanes << " lanes at " << i;
        }
        const auto lowered = loop::Lower(*p);
        ASSERT_TRUE(lowered.ok());
        const auto ir = GenerateIr(*lowered, "kernel", *Target::Parse("x86-64-v4"));
        ASSERT_TRUE(ir.ok()) << ir.status();
        EXPECT_EQ(ir->find("gather") == std::string::npos, stride < 5) << *ir;
      }
    }
  }
}

TEST(CodegenTest, ConstantsAreAskedForAheadOfTime) {
  for (const bool constant : {true, false}) {
    for (const bool annotated : {true, false}) {
      auto p = loop::Parse(fmt::format(R"(program columns
input x: f32 global[9]
input w: {}f32 global[9,8]
output out: f32 global[8]
for k in [0, 9){}
  vectorized j in [0, 8)
    block out(v_j:8 = j, reduce v_k:9 = k)
      out[v_j] sum= x[v_k] * w[v_k, v_j] from 0f
)",
                                       constant ? "const " : "", annotated ? " prefetch=256" : ""));
      ASSERT_TRUE(p.ok()) << p.status();
      Check(*p, *p, "out");
      auto lowered = loop::Lower(*p);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      auto ir = GenerateIr(*lowered, "columns", Target::Host());
      ASSERT_TRUE(ir.ok()) << ir.status();
      const std::string call = "call void @llvm.prefetch";
      const size_t first = ir->find(call);
      EXPECT_EQ(first != std::string::npos, constant && annotated) << *ir;
      EXPECT_EQ(ir->rfind(call), first) << *ir;
    }
  }
}

// The linker is a part of LLVM, whose switches it sets to their defaults.
TEST(CodegenTest, CodeIsTheSameAfterALinkAsBefore) {
  const Program p = ConvProgram({8, 16, 5, 6, 3, 1, 1});
  char dir[] = "/tmp/whet-test-XXXXXX";
  ASSERT_TRUE(mkdtemp(dir));
  std::string before;
  for (int i = 0; i < 2; ++i) {
    auto built = BuildCandidate(p, std::string(32, '0'), Target::Host());
    ASSERT_TRUE(built.ok()) << built.status();
    if (i == 0) before = built->object;
    EXPECT_TRUE(built->object == before);
    EXPECT_TRUE(LinkCandidate(*built, dir, std::string(dir) + "/c.so").ok());
  }
  std::filesystem::remove_all(dir);
}

// LLVM takes conversions that saturate apart into lanes.
TEST(CodegenTest, VectorsOfFloatsBecomeIntegersAsVectors) {
  for (const char* to : {"u8", "i8", "i16", "i32", "u32"}) {
    auto p = loop::Parse(fmt::format(R"(program cast
input x: f32 global[8]
output out: {0} global[8]
vectorized i in [0, 8)
  block out(v_i:8 = i)
    out[v_i] = {0}(x[v_i])
)",
                                     to));
    ASSERT_TRUE(p.ok()) << p.status();
    auto lowered = loop::Lower(*p);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    auto ir = GenerateIr(*lowered, "cast", Target::Host());
    ASSERT_TRUE(ir.ok()) << ir.status();
    EXPECT_EQ(ir->find(".sat."), std::string::npos) << *ir;
    EXPECT_NE(ir->find("x i32>"), std::string::npos) << *ir;
  }
}

TEST(CodegenTest, MaxAndMinKeepNanFromEitherSide) {
  for (int lanes : {2, 4, 8, 16}) {
    auto p = loop::Parse(fmt::format(R"(program extremes
input x: f32 global[48]
input y: f32 global[48]
output out: f32 global[48]
for out.o in [0, {0})
  vectorized out.i in [0, {1})
    block out(v_i:48 = out.o * {1} + out.i)
      out[v_i] = max(max(x[v_i], y[v_i]), -1f) + min(4f, min(x[v_i], y[v_i])) * 16f + max(x[1], y[2])
)",
                                     48 / lanes, lanes));
    ASSERT_TRUE(p.ok()) << p.status();
    loop::Memory inputs = testing_support::IntegerInputs(*p);
    std::vector<float> expected = testing_support::Interpreted(*p, "out");
    for (size_t i = 0; i < 48; i += 5) {
      inputs[i % 2 ? "x" : "y"][i] = NAN;
      if (i % 3 == 0) inputs["x"][i] = inputs["y"][i] = NAN;
      expected[i] = NAN;
    }
    for (const Target& t : TestTargets()) {
      const std::vector<float> got = testing_support::Compiled(*p, t, inputs);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(std::isnan(expected[i]) ? std::isnan(got[i]) : got[i] == expected[i])
            << got[i] << " for " << expected[i] << " at " << i << ", " << t.ToString();
      }
    }
  }
}

TEST(CodegenTest, RegisterBuffersIndexedByLoopsAreRejectedWithAReason) {
  schedule::Schedule s(ConvProgram({3, 16, 6, 6, 3, 1, 1}));
  ASSERT_TRUE(s.Apply("set_scope", {"conv", "register"}).ok());
  ASSERT_TRUE(s.Apply("reverse_compute_at", {"bias", "conv.n"}).ok());
  auto c = BuildCandidate(s.program(), "", Target::Host());
  ASSERT_FALSE(c.ok());
  EXPECT_NE(Message(c.status()).find("register buffer 'conv'"), std::string::npos) << c.status();
}

}  // namespace
}  // namespace whet::codegen
