#include "compiler/ops/util.h"

namespace whet::ops {

namespace {
constexpr int64_t kMaxFilled = int64_t{1} << 26;
}  // namespace

const OpRecord& OpConstantOfShape() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "ConstantOfShape";
    r.note = "the shape known at compile time";
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
      WHET_ASSIGN_OR_RETURN(Shape shape, c.ConstInts(0, "shape"));
      graph::ConstantPtr value = c.TakeTensor("value");
      if (value != nullptr && value->num_elements() != 1)
        return InvalidArgument("'value' has {} elements, not 1", value->num_elements());
      const DType t = value ? value->dtype() : DType::kF32;
      WHET_RETURN_IF_ERROR(graph::CheckShape(t, shape));
      const int64_t n = Product(shape);
      // Filled in memory: a model of a few bytes must not ask for more than a real one would.
      if (n > kMaxFilled)
        return ResourceExhausted("{} has more than 2^26 elements", ShapeText(shape));
      std::string bytes;
      const std::string one =
          value ? value->bytes() : std::string(static_cast<size_t>(SizeOf(t)), '\0');
      bytes.reserve(static_cast<size_t>(n) * one.size());
      for (int64_t i = 0; i < n; ++i) bytes += one;
      WHET_ASSIGN_OR_RETURN(graph::ConstantPtr filled,
                            graph::Constant::Make(t, shape, std::move(bytes)));
      c.outputs = {c.builder.Constant("", std::move(filled))};
      return OkStatus();
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
