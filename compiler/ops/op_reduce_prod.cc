#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpReduceProd() {
  static const OpRecord op =
      Reduce({.name = "ReduceProd", .types = Numbers(), .reducer = te::Reducer::kProd});
  return op;
}

}  // namespace whet::ops
