#include "deploy/runtime/weight_turns.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

namespace whet {
namespace {

constexpr uint64_t kUnknownCache = uint64_t{1} << 20;
// Of a few bytes there would be too many to be worth the list of them.
constexpr uint64_t kMostCopies = 4096;

uint64_t SecondLevelCache() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? static_cast<uint64_t>(bytes) : kUnknownCache;
}

uint64_t Aligned(uint64_t bytes) {
  return (bytes + WHET_ALIGNMENT - 1) / WHET_ALIGNMENT * WHET_ALIGNMENT;
}

bool IsWeight(const whet_tensor& t) {
  return t.storage == WHET_CONSTANT || t.storage == WHET_PACKED || t.storage == WHET_PARAMETER;
}

// The weights of steps [first, last), one behind the other.
struct Laid {
  std::map<uint32_t, uint64_t> at;  // by tensor
  uint64_t bytes = 0;
};
Laid LayOut(const whet_model& m, uint32_t first, uint32_t last) {
  Laid laid;
  for (uint32_t s = first; s < last; ++s) {
    for (uint32_t a = 0; a < m.kernels[m.steps[s].kernel].n_buffers; ++a) {
      const uint32_t t = m.steps[s].tensors[a];
      if (IsWeight(m.tensors[t]) && laid.at.try_emplace(t, laid.bytes).second)
        laid.bytes += Aligned(m.tensors[t].bytes);
    }
  }
  return laid;
}

}  // namespace

uint64_t WeightTurns::WeightBytes(const whet_model& model) {
  return LayOut(model, 0, model.n_steps).bytes;
}

WeightTurns::WeightTurns(Instance* instance, uint32_t first, uint32_t last, uint64_t network_bytes)
    : instance_(instance) {
  const whet_model& m = instance->model().desc();
  const Laid laid = LayOut(m, first, last);
  const uint64_t cache = SecondLevelCache(), wanted = 2 * cache;
  if (network_bytes > 0 && network_bytes <= cache) return;
  if (laid.bytes == 0 || laid.bytes >= wanted) return;
  const uint64_t copies = std::min((wanted + laid.bytes - 1) / laid.bytes, kMostCopies);
  memory_ =
      Memory(static_cast<char*>(std::aligned_alloc(WHET_ALIGNMENT, (copies - 1) * laid.bytes)));
  if (!memory_) {
    error_ = "the system refused " + std::to_string((copies - 1) * laid.bytes) +
             " bytes of memory for weights that take turns";
    return;
  }
  copies_ = copies;
  for (uint32_t step = first; step < last; ++step) {
    for (uint32_t a = 0; a < m.kernels[m.steps[step].kernel].n_buffers; ++a) {
      const uint32_t t = m.steps[step].tensors[a];
      const auto at = laid.at.find(t);
      if (at == laid.at.end()) continue;
      Weights& w = weights_.emplace_back(Weights{step, a, {instance->argument(step, a)}});
      for (uint64_t c = 0; c + 1 < copies; ++c) {
        w.places.push_back(memory_.get() + c * laid.bytes + at->second);
        std::memcpy(w.places.back(), w.places[0], m.tensors[t].bytes);
      }
    }
  }
}

WeightTurns::~WeightTurns() {
  turn_ = copies_ - 1;
  Next();
}

void WeightTurns::Next() {
  if (copies_ == 1) return;
  turn_ = turn_ + 1 == copies_ ? 0 : turn_ + 1;
  for (const Weights& w : weights_) instance_->set_argument(w.step, w.arg, w.places[turn_]);
}

}  // namespace whet
