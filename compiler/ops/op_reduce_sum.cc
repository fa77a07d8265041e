#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpReduceSum() {
  static const OpRecord op = Reduce({.name = "ReduceSum",
                                     .types = Numbers(),
                                     .reducer = te::Reducer::kSum,
                                     .axes_input_since = 13});
  return op;
}

}  // namespace whet::ops
