#include <algorithm>

#include "compiler/ops/index.h"

namespace whet::ops {
namespace {

Status ImportReverseSequence(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  WHET_ASSIGN_OR_RETURN(int64_t batch, c.TakeInt("batch_axis", 1));
  WHET_ASSIGN_OR_RETURN(int64_t time, c.TakeInt("time_axis", 0));
  return c.Finish("ReverseSequence", c.inputs, {{"batch_axis", batch}, {"time_axis", time}});
}

Status InferReverseSequence(const OpView& v, std::vector<TensorType>* out) {
  const int64_t batch = v.attrs->Int("batch_axis"), time = v.attrs->Int("time_axis");
  const Shape& x = v.in[0]->shape;
  WHET_RETURN_IF_ERROR(CheckIndexType(*v.in[1]));
  if (batch < 0 || time < 0 || batch >= v.in[0]->rank() || time >= v.in[0]->rank() || batch == time)
    return InvalidArgument("batch_axis {} and time_axis {} of {}", batch, time, ShapeText(x));
  if (v.in[1]->shape != Shape{x[batch]})
    return InvalidArgument("sequence_lens {} for {} sequences", ShapeText(v.in[1]->shape),
                           x[batch]);
  out->push_back(TensorType::Of(v.in[0]->dtype, x));
  return OkStatus();
}

StatusOr<std::vector<Buffer>> TeReverseSequence(const OpView& v, const std::vector<Buffer>& in,
                                                te::Builder& b) {
  const auto batch = static_cast<size_t>(v.attrs->Int("batch_axis")),
             time = static_cast<size_t>(v.attrs->Int("time_axis"));
  const int64_t extent = in[0]->shape[time];
  return std::vector<Buffer>{b.Compute(
      "reverse", v.out[0]->dtype, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
        Expr length = expr::Load(in[1], {i[batch]});
        if (length->dtype != DType::kI64) length = expr::Cast(DType::kI64, length);
        length = expr::Max(expr::Min(length, expr::Int(extent)), expr::Int(0));
        std::vector<Expr> at = i;
        const Expr back = expr::Max(length - 1 - i[time], expr::Int(0));
        at[time] = expr::Select(expr::Lt(i[time], length), back, i[time]);
        return expr::Load(in[0], at);
      })};
}

Status ReferenceReverseSequence(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const auto batch = static_cast<size_t>(v.attrs->Int("batch_axis")),
             time = static_cast<size_t>(v.attrs->Int("time_axis"));
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const Shape strides = Strides(x.shape);
  PreparePick(x, *in[1], y, want_err);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t t = i / strides[time] % x.shape[time], s = i / strides[batch] % x.shape[batch];
    const auto length =
        static_cast<int64_t>(std::clamp(in[1]->value[s], 0.0, static_cast<double>(x.shape[time])));
    const int64_t at = t < length ? length - 1 - t : t;
    // Of an inexact length any of the sequence.
    const bool any = want_err && in[1]->ErrAt(s) > 0;
    Pick(x, i - t * strides[time], strides[time], at,
         any ? Reach{0, x.shape[time] - 1} : Reach{at, at}, y, i);
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpReverseSequence() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "ReverseSequence";
    r.kind = FusionKind::kOpaque;
    r.min_inputs = r.max_inputs = 2;
    r.input_names = {"x", "lengths"};
    r.attrs = {{"batch_axis", AttrType::kInt, AttrValue(int64_t{1})},
               {"time_axis", AttrType::kInt, AttrValue(int64_t{0})}};
    r.import = ImportReverseSequence;
    r.infer = InferReverseSequence;
    r.te = TeReverseSequence;
    r.reference = ReferenceReverseSequence;
    r.flops = [](const OpView&) { return int64_t{0}; };
    r.range = [](const OpView& v, int input) {
      if (input == 0) return graph::InputRange{};
      return graph::InputRange{0,
                               static_cast<double>(v.in[0]->shape[v.attrs->Int("time_axis")] + 1)};
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
