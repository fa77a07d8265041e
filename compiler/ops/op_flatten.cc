#include "compiler/ops/util.h"

namespace whet::ops {

// A Reshape to two dimensions.
const OpRecord& OpFlatten() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Flatten";
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
      WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", 1));
      const Shape& s = c.type(0).shape;
      // The axis may equal the rank: everything before it.
      if (axis != c.type(0).rank()) {
        WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
      }
      const Shape shape = {Product(s, 0, static_cast<size_t>(axis)),
                           Product(s, static_cast<size_t>(axis))};
      return c.Finish("Reshape", {c.inputs[0]}, {{"shape", shape}});
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
