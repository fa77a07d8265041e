#include "compiler/ops/util.h"

namespace whet::ops {

// Inference only: the identity.
const OpRecord& OpDropout() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Dropout";
    r.note = "inference only; no mask";
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(1, 3));
      c.Ignore("consumed_inputs");
      c.Ignore("ratio");
      c.Ignore("seed");
      WHET_ASSIGN_OR_RETURN(int64_t is_test, c.TakeInt("is_test", c.opset < 7 ? 0 : 1));
      bool training = is_test == 0 && c.opset < 7;
      if (c.Has(2)) {
        WHET_ASSIGN_OR_RETURN(std::vector<double> mode, c.ConstFloats(2, "training_mode"));
        training = !mode.empty() && mode[0] != 0;
      }
      if (training) return Unimplemented("training mode is not supported");
      if (c.Wanted(1)) return Unimplemented("the mask output is not supported");
      return c.Finish("Identity", {c.inputs[0]});
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
