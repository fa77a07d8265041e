// What code is generated for: an instruction set given by its features, and the cache sizes that
// the schedule space uses. Text form, canonical (features sorted): `cpu -arch=x86_64
// -mattr=+avx,+avx2,+fma -l1d=32768 -l2=262144 -l3=0`. A CPU model name never enters: LLVM's host
// name is wrong on virtual machines, and two models with one feature set share their records.
//
// Short form, read as well: a level of the x86-64 ABI, x86-64, x86-64-v2, x86-64-v3 (AVX2) or
// x86-64-v4 (AVX-512), or aarch64; `+feature` after it adds one, and -l1d and its kind may follow.
// A level has those of its features that decide how kernels are written, as Host() finds them on
// the first processors of that level, so that records measured there are found.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"

namespace whet {

struct Target {
  std::string arch = "x86_64";
  std::vector<std::string> features;  // LLVM names, sorted, without '+'
  int64_t l1d_bytes = 32 << 10;
  int64_t l2_bytes = 256 << 10;
  int64_t l3_bytes = 0;  // 0: none, or not known

  std::string ToString() const;
  // The part that decides whether code runs: "x86_64 +avx,+avx2". Records are keyed on it.
  std::string FeatureSet() const;
  // The short form: the highest level whose features are all there, and the others one by one. It
  // says nothing of caches.
  std::string Name() const;
  bool Has(std::string_view feature) const;
  int VectorBits() const;       // widest vector register worth using
  int VectorRegisters() const;  // of that width
  int Lanes(int64_t element_bytes) const {
    return static_cast<int>(VectorBits() / 8 / element_bytes);
  }

  static StatusOr<Target> Parse(std::string_view text);
  static Target Host();  // by CPUID and the C library; right under an emulator too
};

}  // namespace whet
