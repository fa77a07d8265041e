#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

// Inference: the identity, and a mask that keeps everything. So is training at a ratio of 0.
Status ImportDropout(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 3));
  c.Ignore("consumed_inputs");
  c.Ignore("seed");
  WHET_ASSIGN_OR_RETURN(double ratio, c.TakeFloat("ratio", 0.5));
  if (c.Has(1)) {
    WHET_ASSIGN_OR_RETURN(std::vector<double> given, c.ConstFloats(1, "ratio"));
    if (!given.empty()) ratio = given[0];
  }
  WHET_ASSIGN_OR_RETURN(int64_t is_test, c.TakeInt("is_test", c.opset < 7 ? 0 : 1));
  bool training = is_test == 0 && c.opset < 7;
  if (c.Has(2)) {
    WHET_ASSIGN_OR_RETURN(std::vector<double> mode, c.ConstFloats(2, "training_mode"));
    training = !mode.empty() && mode[0] != 0;
  }
  if (training && ratio != 0) return Unimplemented("training mode is not supported");
  const TensorType type = c.type(0);
  WHET_RETURN_IF_ERROR(c.Finish("Identity", {c.inputs[0]}));
  if (!c.Wanted(1)) return OkStatus();
  const double one[] = {1};
  const DType mask_type = c.opset < 10 ? type.dtype : DType::kBool;
  const ValueId keep = c.builder.Constant("", graph::Constant::OfDoubles(mask_type, {}, one));
  WHET_ASSIGN_OR_RETURN(ValueId mask, c.builder.Emit("Expand", {keep}, {{"shape", type.shape}}));
  c.outputs.push_back(mask);
  return OkStatus();
}

}  // namespace

const OpRecord& OpDropout() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Dropout";
    r.note = "inference only";
    r.import = ImportDropout;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
