#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpReduceMean() {
  static const OpRecord op =
      Reduce({.name = "ReduceMean", .types = Floats(), .reducer = te::Reducer::kSum, .mean = true});
  return op;
}

}  // namespace whet::ops
