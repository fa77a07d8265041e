#include "compiler/ops/util.h"

namespace whet::ops {

const OpRecord& OpConstant() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Constant";
    r.note = "numbers only; dense";
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(0, 0));
      graph::ConstantPtr value = c.TakeTensor("value");
      if (value == nullptr && c.HasAttr("value_int")) {
        WHET_ASSIGN_OR_RETURN(int64_t v, c.TakeInt("value_int", 0));
        value = graph::Constant::OfInts({}, std::vector<int64_t>{v});
      } else if (value == nullptr && c.HasAttr("value_ints")) {
        WHET_ASSIGN_OR_RETURN(std::vector<int64_t> v, c.TakeInts("value_ints", {}));
        value = graph::Constant::OfInts({static_cast<int64_t>(v.size())}, v);
      } else if (value == nullptr && c.HasAttr("value_float")) {
        WHET_ASSIGN_OR_RETURN(double v, c.TakeFloat("value_float", 0));
        value = graph::Constant::OfDoubles(DType::kF32, {}, std::vector<double>{v});
      } else if (value == nullptr && c.HasAttr("value_floats")) {
        WHET_ASSIGN_OR_RETURN(std::vector<double> v, c.TakeFloats("value_floats", {}));
        value = graph::Constant::OfDoubles(DType::kF32, {static_cast<int64_t>(v.size())}, v);
      }
      if (value == nullptr) return Unimplemented("only constants of numbers are supported");
      c.outputs = {c.builder.Constant("", std::move(value))};
      return OkStatus();
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
