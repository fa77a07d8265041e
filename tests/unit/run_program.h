// Runs programs for tests: by the interpreter, or compiled, linked and loaded.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "compiler/codegen/candidate.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/lower.h"
#include "compiler/schedule/space.h"
#include "compiler/support/half.h"
#include "compiler/support/inputs.h"
#include "compiler/support/rng.h"
#include "deploy/runtime/model.h"

namespace whet::testing_support {

// Up to `most` points of a variant, drawn at random, that its space does not reject.
inline std::vector<schedule::Point> DrawnPoints(const schedule::Space& space, size_t variant,
                                                size_t most, Rng& rng) {
  std::vector<schedule::Point> points;
  for (int tries = 0; tries < 400 && points.size() < most; ++tries) {
    schedule::Point p{static_cast<int>(variant), {}};
    for (const schedule::Knob& k : space.variants()[variant].knobs)
      p.values.push_back(k.values[rng.Below(static_cast<int64_t>(k.values.size()))]);
    if (space.Check(p) == schedule::Rejection::kNone) points.push_back(std::move(p));
  }
  return points;
}

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

// The same after lowering; EXPECTs that it lowers.
inline std::vector<float> LoweredResult(const loop::Program& p, const std::string& output) {
  auto lowered = loop::Lower(p);
  EXPECT_TRUE(lowered.ok()) << lowered.status() << "\n" << loop::ToString(p);
  if (!lowered.ok()) return {};
  loop::Memory m = IntegerInputs(p);
  EXPECT_TRUE(loop::Interpret(lowered->prepack, m).ok());
  const Status st = loop::Interpret(lowered->main, m);
  EXPECT_TRUE(st.ok()) << st << "\n" << loop::ToString(lowered->main);
  return {m[output].begin(), m[output].end()};
}

inline void PutElement(DType t, double v, char* at) {
  const auto f = static_cast<float>(v);
  uint16_t half = 0;
  switch (t) {
    case DType::kF64: std::memcpy(at, &v, 8); return;
    case DType::kF32: std::memcpy(at, &f, 4); return;
    case DType::kF16: half = F32ToF16(F64ToF32Odd(v)); break;
    case DType::kBF16: half = F32ToBF16(F64ToF32Odd(v)); break;
    default: {
      const int64_t word = expr::SaturateToInt(v, t);
      std::memcpy(at, &word, static_cast<size_t>(SizeOf(t)));
      return;
    }
  }
  std::memcpy(at, &half, 2);
}

// Every output of a compiled program, by name. With `in_place`, the first output takes the bytes of
// the input of that name.
inline loop::Memory CompiledOutputs(const loop::Program& p, const Target& target,
                                    const loop::Memory& memory, const std::string& in_place = "") {
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
  std::vector<std::vector<char>> hold;
  auto data = [&](const whet_tensor& t) {
    const auto it = memory.find(t.name);
    hold.emplace_back(t.bytes + 64);
    char* aligned =
        reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(hold.back().data()) + 63) / 64 * 64);
    const auto type = static_cast<DType>(t.dtype);
    if (it != memory.end()) {
      for (size_t i = 0; i < it->second.size(); ++i)
        PutElement(type, it->second[i], aligned + i * static_cast<size_t>(SizeOf(type)));
    }
    return aligned;
  };
  std::vector<const void*> in, params;
  std::vector<void*> out;
  for (const auto& t : model->inputs()) in.push_back(data(t));
  for (const auto& t : model->outputs()) out.push_back(data(t));
  for (size_t i = 0; i < in.size() && !in_place.empty(); ++i) {
    if (model->inputs()[i].name == in_place) out[0] = const_cast<void*>(in[i]);
  }
  for (uint32_t i : model->parameters()) params.push_back(data(model->desc().tensors[i]));
  if (!params.empty()) instance.Prepack(params);
  instance.Run(in, out);
  loop::Memory results;
  for (size_t k = 0; k < out.size(); ++k) {
    const whet_tensor& t = model->outputs()[k];
    const auto type = static_cast<DType>(t.dtype);
    std::vector<double>& values = results[t.name];
    for (uint64_t i = 0; i < t.bytes / static_cast<uint64_t>(SizeOf(type)); ++i)
      values.push_back(ElementAsDouble(type, out[k], i));
  }
  return results;
}

// The first output, as f32.
inline std::vector<float> Compiled(const loop::Program& p, const Target& target,
                                   const loop::Memory& memory, const std::string& in_place = "") {
  const loop::Memory results = CompiledOutputs(p, target, memory, in_place);
  for (const loop::Param& param : p.params) {
    if (param.role != loop::Role::kOutput || results.empty()) continue;
    const std::vector<double>& values = results.at(param.buffer->name);
    return {values.begin(), values.end()};
  }
  return {};
}

}  // namespace whet::testing_support
