#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {

// One Slice per output.
const OpRecord& OpSplit() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Split";
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(1, 2));
      WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", 0));
      WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
      WHET_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, c.TakeInts("split", {}));
      if (c.Has(1)) {
        WHET_ASSIGN_OR_RETURN(sizes, c.ConstInts(1, "split"));
      }
      const Shape in = c.type(0).shape;
      int64_t parts = 0;
      while (c.Wanted(static_cast<int>(parts))) ++parts;
      WHET_ASSIGN_OR_RETURN(parts, c.TakeInt("num_outputs", parts));
      if (sizes.empty()) {
        if (parts <= 0 || parts > 65536) return InvalidArgument("{} parts", parts);
        const int64_t each = (in[axis] + parts - 1) / parts;
        for (int64_t i = 0; i < parts; ++i)
          sizes.push_back(std::clamp<int64_t>(in[axis] - i * each, 0, each));
      }
      int64_t at = 0;
      for (int64_t size : sizes) {
        if (size < 0 || size > in[axis] - at)
          return InvalidArgument("sizes {} do not add up to {}", ShapeText(sizes), in[axis]);
        Shape starts(in.size(), 0), steps(in.size(), 1), extents = in;
        starts[axis] = at;
        extents[axis] = size;
        WHET_ASSIGN_OR_RETURN(
            ValueId v, c.builder.Emit("Slice", {c.inputs[0]},
                                      {{"starts", starts}, {"steps", steps}, {"sizes", extents}}));
        c.outputs.push_back(v);
        at += size;
      }
      if (at != in[axis])
        return InvalidArgument("sizes {} do not add up to {}", ShapeText(sizes), in[axis]);
      return OkStatus();
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
