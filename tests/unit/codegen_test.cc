// Generated code against the interpreter: each program is compiled, linked, loaded by the runtime and run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "compiler/codegen/candidate.h"
#include "compiler/loop/interpret.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/rng.h"
#include "deploy/runtime/model.h"
#include "tests/unit/conv_program.h"

namespace whet::codegen {
namespace {

using loop::Memory;
using loop::Program;
using testing_support::ConvProgram;
using testing_support::ConvShape;

std::vector<Target> TestTargets() {
  std::vector<Target> targets = {Target::Host()};
  Target base;  // no FMA, 128-bit vectors
  targets.push_back(base);
  if (Target::Host().Has("avx512f")) {
    Target avx2 = Target::Host();
    std::erase_if(avx2.features, [](const std::string& f) { return f.rfind("avx512", 0) == 0 || f.rfind("amx", 0) == 0; });
    targets.push_back(avx2);
  }
  return targets;
}

std::vector<float> RunCompiled(const Program& p, const Target& target, const Memory& memory) {
  char dir[] = "/tmp/whet-test-XXXXXX";
  EXPECT_TRUE(mkdtemp(dir));
  auto c = BuildCandidate(p, std::string(32, '0'), target);
  EXPECT_TRUE(c.ok()) << c.status() << "\n" << loop::ToString(p);
  if (!c.ok()) return {};
  const std::string so = std::string(dir) + "/c.so";
  Status st = LinkCandidate(*c, dir, so);
  EXPECT_TRUE(st.ok()) << st;
  std::string error;
  auto model = Model::Load(so, &error);
  EXPECT_TRUE(model) << error;
  std::filesystem::remove_all(dir);
  if (!model) return {};
  Instance instance(model, 2);
  std::vector<std::vector<float>> hold;
  auto data = [&](const whet_tensor& t) {
    const auto it = memory.find(t.name);
    hold.emplace_back(t.bytes / 4 + 16);
    float* aligned = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(hold.back().data()) + 63) / 64 * 64);
    if (it != memory.end()) std::copy(it->second.begin(), it->second.end(), aligned);
    return aligned;
  };
  std::vector<const void*> in, params;
  std::vector<void*> out;
  for (const auto& t : model->inputs()) in.push_back(data(t));
  for (const auto& t : model->outputs()) out.push_back(data(t));
  for (uint32_t i : model->parameters()) params.push_back(data(model->desc().tensors[i]));
  if (!params.empty()) instance.Prepack(params);
  instance.Run(in, out);
  const auto* result = static_cast<const float*>(out[0]);
  return {result, result + model->outputs()[0].bytes / 4};
}

void Check(const Program& initial, const Program& scheduled, const std::string& output) {
  Memory m;
  uint64_t tensor = 0;
  for (const loop::Param& param : initial.params) {
    if (param.role != loop::Role::kInput) continue;
    auto& v = m[param.buffer->name];
    for (int64_t i = 0; i < param.buffer->num_elements(); ++i) v.push_back(static_cast<double>(CounterBits(7, tensor, i) % 17) - 8);
    ++tensor;
  }
  Memory inputs = m;
  ASSERT_TRUE(loop::Interpret(initial, m).ok());
  const std::vector<float> expected(m[output].begin(), m[output].end());
  for (const Target& t : TestTargets()) {
    EXPECT_EQ(RunCompiled(scheduled, t, inputs), expected) << t.ToString() << "\n" << loop::ToString(scheduled);
  }
}

TEST(CodegenTest, UnscheduledConvolutionIsRight) {
  Program p = ConvProgram({3, 5, 6, 7, 3, 1, 1});
  Check(p, p, "out");
}

TEST(CodegenTest, DirectConvolutionsWithTailsAndBordersAreRight) {
  for (const ConvShape& c : {ConvShape{3, 24, 11, 13, 3, 1, 1}, ConvShape{2, 28, 12, 9, 5, 2, 2}, ConvShape{7, 20, 5, 8, 1, 1, 0}}) {
    Program initial = ConvProgram(c);
    schedule::Schedule s(initial);
    for (const auto& step : testing_support::DirectConvSteps(4, 16, 8, true)) {
      Status st = s.Apply(step[0], {step.begin() + 1, step.end()});
      ASSERT_TRUE(st.ok()) << st;
    }
    Check(initial, s.program(), "out");
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
