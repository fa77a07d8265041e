// Runs programs for tests: by the interpreter, or compiled, linked and loaded.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "compiler/codegen/candidate.h"
#include "compiler/loop/interpret.h"
#include "compiler/support/rng.h"
#include "deploy/runtime/model.h"

namespace whet::testing_support {

// Small integers: sums are exact in any order, so results compare with ==.
inline loop::Memory IntegerInputs(const loop::Program& p) {
  loop::Memory m;
  uint64_t tensor = 0;
  for (const loop::Param& param : p.params) {
    if (param.role != loop::Role::kInput) continue;
    auto& v = m[param.buffer->name];
    for (int64_t i = 0; i < param.buffer->num_elements(); ++i)
      v.push_back(static_cast<double>(CounterBits(7, tensor, i) % 17) - 8);
    ++tensor;
  }
  return m;
}

inline std::vector<float> Interpreted(const loop::Program& p, const std::string& output) {
  loop::Memory m = IntegerInputs(p);
  Status st = loop::Interpret(p, m);
  EXPECT_TRUE(st.ok()) << st << "\n" << loop::ToString(p);
  return {m[output].begin(), m[output].end()};
}

inline std::vector<float> Compiled(const loop::Program& p, const Target& target,
                                   const loop::Memory& memory) {
  char dir[] = "/tmp/whet-test-XXXXXX";
  EXPECT_TRUE(mkdtemp(dir));
  auto c = codegen::BuildCandidate(p, std::string(32, '0'), target);
  EXPECT_TRUE(c.ok()) << c.status() << "\n" << loop::ToString(p);
  if (!c.ok()) return {};
  const std::string so = std::string(dir) + "/c.so";
  Status st = codegen::LinkCandidate(*c, dir, so);
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
    float* aligned =
        reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(hold.back().data()) + 63) / 64 * 64);
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

}  // namespace whet::testing_support
