// What the integer contractions (ConvInteger, MatMulInteger and the forms that requantize) share.
//
// A contraction of integers is exact: products and sums are i32, which wraps around. Its canonical
// form is sum((x - x_zero) * (w - w_zero)) with zero points as optional inputs that broadcast to x
// and w; a graph pass moves constant ones out of the sum, so that x and w are multiplied as they
// are stored.
#pragma once
#include "compiler/ops/util.h"

namespace whet::ops {

// u8, i8 and i32 may meet in any combination.
std::vector<DType> IntegerOperands();
Status CheckIntegerOperands(const OpView& v);
// Operand `input` (0 or 1) as i32, its zero point subtracted: the buffer itself when there is none.
Buffer Centered(const OpView& v, const std::vector<Buffer>& in, size_t input, te::Builder& b);
RefTensor Centered(Inputs in, size_t input);
// The product of two loads, as i32.
Expr IntegerProduct(const Expr& a, const Expr& b);
graph::InputRange IntegerRange(const OpView& v, int input);

// multiplier = x_scale * w_scale / y_scale in f32, in this order; then Requantize of `sum` to the
// type of `y_zero`. Scales and zero point broadcast to the sum.
StatusOr<ValueId> EmitRequantize(ImportContext& c, ValueId sum, ValueId x_scale, ValueId w_scale,
                                 ValueId y_scale, ValueId y_zero);
// A constant or computed operand of one element as a scalar.
StatusOr<ValueId> AsScalar(ImportContext& c, ValueId v, std::string_view what);
// Zero, for an operand whose zero point is left out.
ValueId NoZeroPoint(ImportContext& c, DType t);
// A scale or zero point as it broadcasts to the operand: one element, one per row of the left
// operand ("along" is the dimension from the end: 2) or per column of the right one (1). A vector,
// or a tensor of the operand's rank.
StatusOr<ValueId> PerLine(ImportContext& c, ValueId v, const Shape& operand, size_t along,
                          std::string_view what);
// MatMulInteger of p and q, whose zero points may be absent.
StatusOr<ValueId> EmitMatMulInteger(ImportContext& c, ValueId p, ValueId q, ValueId p_zero,
                                    ValueId q_zero);

}  // namespace whet::ops
