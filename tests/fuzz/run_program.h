// Runs small programs for fuzz targets: by the interpreter as they are, and after lowering. Fuzz
// targets only.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string>

#include "compiler/loop/interpret.h"
#include "compiler/loop/lower.h"
#include "compiler/support/rng.h"

namespace whet::fuzz {

[[noreturn]] inline void Fail(const std::string& why, const std::string& context) {
  std::fprintf(stderr, "%s\n%s\n", why.c_str(), context.c_str());
  std::abort();
}

// Few enough elements and loop iterations to run thousands of programs per second.
inline constexpr int64_t kMaxElements = 1 << 16;
inline constexpr int64_t kMaxSteps = 1 << 18;

inline bool IsSmall(const loop::Program& p) {
  int64_t left = kMaxElements;
  const auto fits = [&](const expr::Buffer& b) {
    int64_t n = 1;
    for (int64_t d : b->shape) {
      if (d > left) return false;
      n *= d;
      if (n > left) return false;
    }
    left -= n;
    return true;
  };
  for (const loop::Param& param : p.params) {
    if (!fits(param.buffer)) return false;
  }
  for (const expr::Buffer& b : p.intermediates) {
    if (!fits(b)) return false;
  }
  return true;
}

// Small integers: sums are exact in any order, so results compare with ==.
inline loop::Memory Inputs(const loop::Program& p) {
  loop::Memory m;
  uint64_t tensor = 0;
  for (const loop::Param& param : p.params) {
    if (param.role != loop::Role::kInput) continue;
    auto& v = m[param.buffer->name];
    const bool is_bool = param.buffer->dtype == DType::kBool;
    for (int64_t i = 0; i < param.buffer->num_elements(); ++i) {
      const auto bits = CounterBits(7, tensor, static_cast<uint64_t>(i));
      v.push_back(is_bool ? static_cast<double>(bits % 2) : static_cast<double>(bits % 17) - 8);
    }
    ++tensor;
  }
  return m;
}

inline StatusOr<loop::Memory> RunBlocks(const loop::Program& p) {
  loop::Memory m = Inputs(p);
  WHET_RETURN_IF_ERROR(loop::Interpret(p, m, kMaxSteps));
  return m;
}

// A refusal to lower is FailedPrecondition or ResourceExhausted; any other error is a mistake of
// ours.
inline StatusOr<loop::Memory> RunLowered(const loop::Program& p) {
  WHET_ASSIGN_OR_RETURN(loop::Lowered lowered, loop::Lower(p));
  loop::Memory m = Inputs(p);
  WHET_RETURN_IF_ERROR(loop::Interpret(lowered.prepack, m, kMaxSteps));
  WHET_RETURN_IF_ERROR(loop::Interpret(lowered.main, m, kMaxSteps));
  return m;
}

}  // namespace whet::fuzz
