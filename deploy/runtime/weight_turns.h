// Weights as a step finds them inside a network: the other layers' have passed through the caches
// since it last used its own. A step that is run over and over would find its own there, and its
// time would not be what it adds to the network. So it runs on copies of its weights that take
// turns, together twice as large as the second-level cache. Those of a network that fits into that
// cache stay what they are. Inputs and outputs stay: the layer before has just written the
// ones, and the others lie where values of before lay. For timing.
#pragma once
#include <cstdint>
#include <vector>

#include "deploy/runtime/model.h"

namespace whet {

class WeightTurns {
 public:
  // Of steps [first, last) of an instance that outlives this and whose weights are packed. Copies
  // them as they are now. `network_bytes`: of all of the network's weights; 0: many.
  WeightTurns(Instance* instance, uint32_t first, uint32_t last, uint64_t network_bytes);
  // Gives the instance its own weights back.
  ~WeightTurns();
  WeightTurns(const WeightTurns&) = delete;
  WeightTurns& operator=(const WeightTurns&) = delete;

  // Of all steps of a model, each counted once.
  static uint64_t WeightBytes(const whet_model& model);

  // Nothing was copied when memory was refused: then the reason.
  const std::string& error() const { return error_; }
  // How many take turns, the instance's own among them; 1 without weights, or with more than
  // enough.
  size_t copies() const { return copies_; }

  // The next run is on the next copy. No more than some stores.
  void Next();

 private:
  struct Weights {  // an argument
    uint32_t step, arg;
    std::vector<void*> places;  // by copy
  };

  Instance* instance_;
  std::string error_;
  Memory memory_;
  std::vector<Weights> weights_;
  size_t copies_ = 1, turn_ = 0;
};

}  // namespace whet
