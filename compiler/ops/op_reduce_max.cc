#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpReduceMax() {
  static const OpRecord op =
      Reduce({.name = "ReduceMax", .types = Numbers(), .reducer = te::Reducer::kMax});
  return op;
}

}  // namespace whet::ops
