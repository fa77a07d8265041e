// What takes part in a comparison: an implementation of a case, with buffers of its own, ready to
// run. The peers make theirs of the case's numbers and the same input values as ours.
#pragma once
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/support/status.h"
#include "tests/bench/cases.h"

namespace whet::bench {

struct Problem {
  Case parsed;
  fusion::Workload workload;
  std::vector<std::vector<float>> inputs;  // logical row-major order
};

struct Contender {
  std::string name, detail;   // "onednn direct", its own name for the implementation
  std::function<void()> run;  // once; results are there when it returns
  // Runs once; the output in logical row-major order.
  std::function<std::vector<float>()> result;
};

// Memory that lies the same for everybody: at a multiple of 2 MiB, in huge pages where the system
// has them.
inline std::shared_ptr<float[]> Allocate(size_t bytes) {
  constexpr size_t kHuge = size_t{2} << 20;
  const size_t size = (bytes + 64 + kHuge - 1) / kHuge * kHuge;
  void* p = std::aligned_alloc(kHuge, size);
  if (p == nullptr) std::abort();
  madvise(p, size, MADV_HUGEPAGE);
  std::memset(p, 0, size);
  return {static_cast<float*>(p), [](float* q) { std::free(q); }};
}

struct Peer {
  std::string name, version;
  std::string absent;  // why it is not here, and how to get it; empty: it is
  // All its ways to compute a problem; none when it has no primitive for it.
  std::function<std::vector<Contender>(const Problem&)> open;
  // Convolutions one after the other, each with weights of its own; two buffers take turns. Empty
  // when it cannot. `weights[i]` and `bias[i]` in logical order.
  struct Layer {
    ConvCase conv;
    const std::vector<float>*weights, *bias;
  };
  std::function<std::vector<Contender>(std::span<const Layer>)> chain;
};

Peer OneDnn();
Peer OpenBlas();

// What OPENBLAS_CORETYPE has to be where OpenBLAS does not see what the processor can do; or empty.
std::string OpenBlasCore();

}  // namespace whet::bench
