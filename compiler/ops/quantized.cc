#include "compiler/ops/quantized.h"

#include <algorithm>

namespace whet::ops {

std::vector<DType> IntegerOperands() { return {DType::kU8, DType::kI8, DType::kI32}; }

Status CheckIntegerOperands(const OpView& v) {
  const std::vector<DType> types = IntegerOperands();
  if (std::find(types.begin(), types.end(), v.in[1]->dtype) == types.end())
    return InvalidArgument("weights are {}; u8, i8 and i32 are supported",
                           ToString(v.in[1]->dtype));
  for (size_t i = 2; i < v.in.size(); ++i) {
    const TensorType &zero = *v.in[i], &of = *v.in[i - 2];
    if (zero.dtype != of.dtype)
      return InvalidArgument("zero point {} of an operand of {}", ToString(zero.dtype),
                             ToString(of.dtype));
    WHET_ASSIGN_OR_RETURN(const Shape both, Broadcast(zero.shape, of.shape));
    if (both != of.shape)
      return InvalidArgument("zero point {} does not broadcast to {}", ShapeText(zero.shape),
                             ShapeText(of.shape));
  }
  return OkStatus();
}

Buffer Centered(const OpView& v, const std::vector<Buffer>& in, size_t input, te::Builder& b) {
  if (in.size() <= input + 2) return in[input];
  return b.Compute("center", DType::kI32, AxesOf(v.in[input]->shape),
                   [&](const std::vector<Expr>& i) {
                     return expr::Cast(DType::kI32, expr::Load(in[input], i)) -
                            expr::Cast(DType::kI32, LoadBroadcast(in[input + 2], i));
                   });
}

RefTensor Centered(Inputs in, size_t input) {
  RefTensor x = *in[input];
  if (in.size() <= input + 2) return x;
  const RefTensor& zero = *in[input + 2];
  x.dtype = DType::kI32;  // what a difference is
  ForEachStrided(x.shape, BroadcastStrides(zero.shape, x.shape), 0, [&](int64_t i, int64_t at) {
    x.value[i] = Wrap(DType::kI32, x.value[i] - zero.value[at]);
  });
  if (zero.err.empty()) return x;
  x.err.resize(x.value.size(), 0);
  ForEachStrided(x.shape, BroadcastStrides(zero.shape, x.shape), 0,
                 [&](int64_t i, int64_t at) { x.err[i] += zero.err[at]; });
  return x;
}

Expr IntegerProduct(const Expr& a, const Expr& b) {
  return expr::Cast(DType::kI32, a) * expr::Cast(DType::kI32, b);
}

graph::InputRange IntegerRange(const OpView& v, int input) {
  if (input >= 2) return {0, 16};
  switch (v.in[input]->dtype) {
    case DType::kU8: return {0, 256};
    case DType::kI8: return {-128, 128};
    default: return {-256, 256};
  }
}

StatusOr<ValueId> EmitRequantize(ImportContext& c, ValueId sum, ValueId x_scale, ValueId w_scale,
                                 ValueId y_scale, ValueId y_zero) {
  graph::GraphBuilder& b = c.builder;
  WHET_ASSIGN_OR_RETURN(ValueId multiplier, b.Emit("Mul", {x_scale, w_scale}));
  WHET_ASSIGN_OR_RETURN(multiplier, b.Emit("Div", {multiplier, y_scale}));
  const bool is_signed = b.type(y_zero).dtype == DType::kI8;
  return b.Emit("Requantize", {sum, multiplier, y_zero},
                {{"lo", int64_t{is_signed ? -128 : 0}}, {"hi", int64_t{is_signed ? 127 : 255}}});
}

StatusOr<ValueId> AsScalar(ImportContext& c, ValueId v, std::string_view what) {
  const Shape shape = c.builder.type(v).shape;
  if (shape.empty()) return v;
  if (Product(shape) != 1)
    return InvalidArgument("{} {} must have one element", what, ShapeText(shape));
  return Reshaped(c.builder, v, {});
}

ValueId NoZeroPoint(ImportContext& c, DType t) {
  const double zero[] = {0};
  return c.builder.Constant("zero_point", graph::Constant::OfDoubles(t, {}, zero));
}

StatusOr<ValueId> PerLine(ImportContext& c, ValueId v, const Shape& operand, size_t along,
                          std::string_view what) {
  const Shape shape = c.builder.type(v).shape;
  if (Product(shape) == 1) return Reshaped(c.builder, v, {});
  if (shape.size() == operand.size() && operand.size() >= 2) return v;
  if (shape.size() != 1 || operand.size() < 2 || shape[0] != operand[operand.size() - along])
    return InvalidArgument("{} {} of an operand {}", what, ShapeText(shape), ShapeText(operand));
  return along == 2 ? Reshaped(c.builder, v, {shape[0], 1}) : v;
}

StatusOr<ValueId> EmitMatMulInteger(ImportContext& c, ValueId p, ValueId q, ValueId p_zero,
                                    ValueId q_zero) {
  graph::GraphBuilder& b = c.builder;
  std::vector<ValueId> in = {p, q};
  if (p_zero == graph::kNoValue && q_zero != graph::kNoValue)
    p_zero = NoZeroPoint(c, b.type(p).dtype);
  if (p_zero != graph::kNoValue) {
    WHET_ASSIGN_OR_RETURN(p_zero, PerLine(c, p_zero, b.type(p).shape, 2, "zero point"));
    in.push_back(p_zero);
  }
  if (q_zero != graph::kNoValue) {
    WHET_ASSIGN_OR_RETURN(q_zero, PerLine(c, q_zero, b.type(q).shape, 1, "zero point"));
    in.push_back(q_zero);
  }
  return b.Emit("MatMulInteger", std::move(in));
}

}  // namespace whet::ops
