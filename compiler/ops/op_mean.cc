#include "compiler/ops/emitter.h"

namespace whet::ops {

// A chain of Add, divided by the number of inputs.
const OpRecord& OpMean() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Mean";
    r.import = InF32([](ImportContext& c) -> Status {
      const auto n = static_cast<double>(c.num_inputs());
      WHET_RETURN_IF_ERROR(c.NeedInputs(1));
      const DType t = c.type(0).dtype;
      WHET_RETURN_IF_ERROR(ImportChain(c, "Add"));
      const double count[] = {n};
      const ValueId divisor = c.builder.Constant("count", graph::Constant::OfDoubles(t, {}, count));
      return c.Finish("Div", {c.outputs[0], divisor});
    });
    return r;
  }();
  return op;
}

}  // namespace whet::ops
