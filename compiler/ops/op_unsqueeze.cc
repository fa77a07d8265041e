#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {

// A Reshape with more dimensions of 1.
const OpRecord& OpUnsqueeze() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Unsqueeze";
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(c.opset >= 13 ? 2 : 1, c.opset >= 13 ? 2 : 1));
      WHET_ASSIGN_OR_RETURN(std::vector<int64_t> axes, c.TakeInts("axes", {}));
      if (c.Has(1)) {
        WHET_ASSIGN_OR_RETURN(axes, c.ConstInts(1, "axes"));
      }
      const Shape in = c.type(0).shape;
      const auto rank = static_cast<int64_t>(in.size() + axes.size());
      WHET_ASSIGN_OR_RETURN(axes, NormalizeAxes(axes, rank));
      Shape shape;
      size_t next = 0;
      for (int64_t i = 0; i < rank; ++i) {
        const bool inserted = std::find(axes.begin(), axes.end(), i) != axes.end();
        shape.push_back(inserted ? 1 : in[next++]);
      }
      return c.Finish("Reshape", {c.inputs[0]}, {{"shape", shape}});
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
