#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {

// Shapes are static: a constant.
const OpRecord& OpShape() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Shape";
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
      const Shape& s = c.type(0).shape;
      const auto rank = static_cast<int64_t>(s.size());
      WHET_ASSIGN_OR_RETURN(int64_t start, c.TakeInt("start", 0));
      WHET_ASSIGN_OR_RETURN(int64_t end, c.TakeInt("end", rank));
      auto clamp = [rank](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
      start = clamp(start);
      end = std::max(start, clamp(end));
      c.outputs = {c.builder.Ints(Shape(s.begin() + start, s.begin() + end))};
      return OkStatus();
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
