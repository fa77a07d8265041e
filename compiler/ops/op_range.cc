#include "compiler/ops/util.h"

namespace whet::ops {

// Folded: its operands must be constants.
const OpRecord& OpRange() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Range";
    r.note = "folded at import";
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(3, 3));
      WHET_ASSIGN_OR_RETURN(std::vector<double> start, c.ConstFloats(0, "start"));
      WHET_ASSIGN_OR_RETURN(std::vector<double> limit, c.ConstFloats(1, "limit"));
      WHET_ASSIGN_OR_RETURN(std::vector<double> delta, c.ConstFloats(2, "delta"));
      if (start.size() != 1 || limit.size() != 1 || delta.size() != 1)
        return InvalidArgument("start, limit and delta must be scalars");
      const double count = std::ceil((limit[0] - start[0]) / delta[0]);
      if (delta[0] == 0 || !(count < 0x1.0p26))
        return InvalidArgument("a range from {} to {} by {} is too long", start[0], limit[0],
                               delta[0]);
      std::vector<double> values;
      for (int64_t i = 0; i < static_cast<int64_t>(count); ++i)
        values.push_back(start[0] + static_cast<double>(i) * delta[0]);
      const Shape shape = {static_cast<int64_t>(values.size())};
      c.outputs = {
          c.builder.Constant("", graph::Constant::OfDoubles(c.type(0).dtype, shape, values))};
      return OkStatus();
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
