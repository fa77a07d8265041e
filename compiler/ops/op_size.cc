#include "compiler/ops/util.h"

namespace whet::ops {

// Shapes are static: a constant.
const OpRecord& OpSize() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Size";
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
      const int64_t n[] = {c.type(0).num_elements()};
      c.outputs = {c.builder.Constant("size", graph::Constant::OfInts({}, n))};
      return OkStatus();
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
