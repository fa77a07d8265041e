#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {

// A Reshape without some dimensions of 1.
const OpRecord& OpSqueeze() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Squeeze";
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(1, c.opset >= 13 ? 2 : 1));
      WHET_ASSIGN_OR_RETURN(std::vector<int64_t> axes, c.TakeInts("axes", {}));
      if (c.Has(1)) {
        WHET_ASSIGN_OR_RETURN(axes, c.ConstInts(1, "axes"));
      }
      const Shape in = c.type(0).shape;
      WHET_ASSIGN_OR_RETURN(axes, NormalizeAxes(axes, c.type(0).rank()));
      const bool given = !axes.empty();
      Shape shape;
      for (size_t i = 0; i < in.size(); ++i) {
        const bool listed =
            std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
        if (listed && in[i] != 1)
          return InvalidArgument("dimension {} of {} is {}, not 1", i, ShapeText(in), in[i]);
        if (given ? !listed : in[i] != 1) shape.push_back(in[i]);
      }
      return c.Finish("Reshape", {c.inputs[0]}, {{"shape", shape}});
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
