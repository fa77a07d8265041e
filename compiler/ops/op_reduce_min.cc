#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpReduceMin() {
  static const OpRecord op =
      Reduce({.name = "ReduceMin", .types = Numbers(), .reducer = te::Reducer::kMin});
  return op;
}

}  // namespace whet::ops
