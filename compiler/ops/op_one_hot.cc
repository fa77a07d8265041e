// OneHot and EyeLike: comparisons with positions, written with the operators there are.
#include <algorithm>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

// where(index == position, on, off); an index outside of [-depth, depth) is off everywhere.
Status ImportOneHot(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(3, 3));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", -1));
  WHET_ASSIGN_OR_RETURN(std::vector<double> depths, c.ConstFloats(1, "depth"));
  if (depths.size() != 1) return InvalidArgument("depth has {} elements, not 1", depths.size());
  if (!(depths[0] >= 1 && depths[0] <= static_cast<double>(kMaxConstant)))
    return InvalidArgument("depth {} is outside of 1..2^24", depths[0]);
  const auto depth = static_cast<int64_t>(depths[0]);
  if (c.type(2).shape != Shape{2})
    return InvalidArgument("values are {}, not 2 elements", ShapeText(c.type(2).shape));
  const int64_t rank = c.type(0).rank() + 1;
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, rank));
  Emitter e(c);
  ValueId at = e.Cast(c.inputs[0], DType::kI64);
  const ValueId negative = e("Less", {at, e.Scalar(DType::kI64, 0)});
  const ValueId shifted = e("Add", {at, e.Scalar(DType::kI64, static_cast<double>(depth))});
  Shape shape = c.type(0).shape;
  shape.insert(shape.begin() + axis, 1);
  at = e.Reshape(e("Where", {negative, shifted, at}), shape);
  const ValueId hit = e("Equal", {at, e.Iota(DType::kI64, depth, rank, axis)});
  auto value = [&](int64_t i) {
    return e("Slice", {c.inputs[2]},
             {{"starts", Shape{i}}, {"steps", Shape{1}}, {"sizes", Shape{1}}});
  };
  return e.Finish({e("Where", {hit, value(1), value(0)})});
}

Status ImportEyeLike(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(int64_t k, c.TakeInt("k", 0));
  WHET_ASSIGN_OR_RETURN(std::string name,
                        c.TakeString("dtype", std::string(ToString(c.type(0).dtype))));
  WHET_ASSIGN_OR_RETURN(DType t, ParseDType(name));
  const Shape shape = c.type(0).shape;
  if (shape.size() != 2) return InvalidArgument("input {} is not a matrix", ShapeText(shape));
  WHET_RETURN_IF_ERROR(graph::CheckShape(t, shape));
  if (Product(shape) > kMaxConstant)
    return ResourceExhausted("{} has more than 2^24 elements", ShapeText(shape));
  std::vector<double> values(static_cast<size_t>(Product(shape)), 0);
  for (int64_t row = 0; row < shape[0]; ++row) {
    if (k >= -row && k < shape[1] - row) values[row * shape[1] + row + k] = 1;
  }
  c.outputs = {c.builder.Constant("", graph::Constant::OfDoubles(t, shape, values))};
  return OkStatus();
}

}  // namespace

const OpRecord& OpOneHot() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "OneHot";
    r.note = "the depth known at compile time";
    r.import = ImportOneHot;
    return r;
  }();
  return op;
}

const OpRecord& OpEyeLike() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "EyeLike";
    r.import = ImportEyeLike;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
