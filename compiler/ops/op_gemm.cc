#include <algorithm>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

// Of integers: products and sums with integral factors.
Status ImportIntegerGemm(ImportContext& c, bool trans_a, bool trans_b, double alpha, double beta) {
  if (alpha != std::trunc(alpha) || beta != std::trunc(beta))
    return InvalidArgument("alpha {} and beta {} of integers must be integers", alpha, beta);
  Emitter e(c);
  const DType t = c.type(0).dtype;
  ValueId operands[2];
  for (int i : {0, 1}) {
    if (c.type(i).rank() != 2)
      return InvalidArgument("operand {} must have two dimensions", ShapeText(c.type(i).shape));
    const bool transposed = i == 0 ? trans_a : trans_b;
    operands[i] = transposed ? e.Transpose(c.inputs[i], {1, 0}) : c.inputs[i];
  }
  ValueId y = e("MatMul", {operands[0], operands[1]});
  if (alpha != 1) y = e("Mul", {y, e.Scalar(t, alpha)});
  if (c.Has(2)) {
    const ValueId scaled = beta == 1 ? c.inputs[2] : e("Mul", {c.inputs[2], e.Scalar(t, beta)});
    y = e("Add", {y, scaled});
  }
  return e.Finish({y});
}

// Without a C, and with C of any broadcastable shape. Operator sets before 7 say `broadcast`, which
// the shapes imply.
Status ImportGemm(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 3));
  c.Ignore("broadcast");
  WHET_ASSIGN_OR_RETURN(int64_t trans_a, c.TakeInt("transA", 0));
  WHET_ASSIGN_OR_RETURN(int64_t trans_b, c.TakeInt("transB", 0));
  WHET_ASSIGN_OR_RETURN(double alpha, c.TakeFloat("alpha", 1));
  WHET_ASSIGN_OR_RETURN(double beta, c.TakeFloat("beta", 1));
  if (!c.Has(2)) c.inputs.resize(2);
  // Without a C, beta has no meaning: one form for all.
  if (!c.Has(2)) beta = 1;
  const DType t = c.type(0).dtype;
  if (!IsFloat(t)) return ImportIntegerGemm(c, trans_a != 0, trans_b != 0, alpha, beta);
  Emitter e(c);
  // Half precisions multiply and accumulate in f32.
  const DType inner = t == DType::kF64 ? t : DType::kF32;
  std::vector<ValueId> in;
  for (int i = 0; i < c.num_inputs(); ++i)
    in.push_back(c.type(i).dtype == t ? e.Cast(c.inputs[i], inner) : c.inputs[i]);
  return e.Finish({e.Cast(e("Gemm", in,
                            {{"transA", int64_t{trans_a != 0}},
                             {"transB", int64_t{trans_b != 0}},
                             {"alpha", alpha},
                             {"beta", beta}}),
                          t)});
}

struct GemmShape {
  int64_t m, n, k;
  bool ta, tb;
};

StatusOr<GemmShape> ShapeOfGemm(const OpView& v) {
  const Shape &a = v.in[0]->shape, &b = v.in[1]->shape;
  if (a.size() != 2 || b.size() != 2)
    return InvalidArgument("operands {} and {} must have two dimensions", ShapeText(a),
                           ShapeText(b));
  GemmShape s{0, 0, 0, v.attrs->Int("transA") != 0, v.attrs->Int("transB") != 0};
  s.m = a[s.ta ? 1 : 0];
  s.k = a[s.ta ? 0 : 1];
  s.n = b[s.tb ? 0 : 1];
  if (b[s.tb ? 1 : 0] != s.k)
    return InvalidArgument("inner extents {} and {} differ", s.k, b[s.tb ? 1 : 0]);
  return s;
}

Status InferGemm(const OpView& v, std::vector<TensorType>* out) {
  WHET_RETURN_IF_ERROR(SameTypes(v));
  WHET_ASSIGN_OR_RETURN(GemmShape s, ShapeOfGemm(v));
  const Shape shape = {s.m, s.n};
  if (v.in.size() > 2) {
    WHET_ASSIGN_OR_RETURN(Shape both, Broadcast(v.in[2]->shape, shape));
    if (both != shape)
      return InvalidArgument("C {} does not broadcast to {}", ShapeText(v.in[2]->shape),
                             ShapeText(shape));
  }
  out->push_back(TensorType::Of(v.in[0]->dtype, shape));
  return OkStatus();
}

// Stages: "matmul", then "scale" and "bias" where there is something to do.
StatusOr<std::vector<Buffer>> TeGemm(const OpView& v, const std::vector<Buffer>& in,
                                     te::Builder& b) {
  WHET_ASSIGN_OR_RETURN(const GemmShape s, ShapeOfGemm(v));
  const DType t = v.out[0]->dtype;
  const te::AxisSpec axes = {{"m", s.m}, {"n", s.n}};
  auto at = [](const Buffer& x, bool transposed, const Expr& row, const Expr& column) {
    return transposed ? expr::Load(x, {column, row}) : expr::Load(x, {row, column});
  };
  Buffer y = b.Reduce("matmul", t, axes, {{"k", s.k}}, te::Reducer::kSum,
                      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                        return at(in[0], s.ta, i[0], r[0]) * at(in[1], s.tb, r[0], i[1]);
                      });
  const double alpha = v.attrs->Float("alpha"), beta = v.attrs->Float("beta");
  if (alpha != 1)
    y = b.Compute("scale", t, axes,
                  [&](const std::vector<Expr>& i) { return expr::Load(y, i) * Const(t, alpha); });
  if (in.size() > 2) {
    y = b.Compute("bias", t, axes, [&](const std::vector<Expr>& i) {
      const Expr c = LoadBroadcast(in[2], i);
      return expr::Load(y, i) + (beta == 1 ? c : c * Const(t, beta));
    });
  }
  return std::vector<Buffer>{y};
}

RefTensor Transposed(const RefTensor& x) {
  RefTensor y{x.dtype, {x.shape[1], x.shape[0]}, std::vector<double>(x.value.size()), {}};
  CopyStrided(x, {1, x.shape[1]}, 0, y, true);
  return y;
}

Status ReferenceGemm(const OpView& v, Inputs in, Outputs out, bool want_err) {
  WHET_ASSIGN_OR_RETURN(const GemmShape s, ShapeOfGemm(v));
  RefTensor& y = out[0];
  const RefTensor a = s.ta ? Transposed(*in[0]) : *in[0], b = s.tb ? Transposed(*in[1]) : *in[1];
  const auto terms = static_cast<double>(s.k);
  Bilinear(a, b, terms, y, want_err,
           [&](const auto* p, const auto* q, auto* r) { MatMulAdd(s.m, s.n, s.k, p, q, r); });
  const double alpha = v.attrs->Float("alpha"), beta = v.attrs->Float("beta"),
               unit = Roundoff(y.dtype);
  if (alpha != 1) y.terms = 0;
  for (double& d : y.value) d *= alpha;
  for (size_t i = 0; i < y.err.size(); ++i)
    y.err[i] = y.err[i] * std::fabs(alpha) + unit * std::fabs(y.value[i]);
  if (in.size() > 2) {
    ForEachStrided(y.shape, BroadcastStrides(in[2]->shape, y.shape), 0, [&](int64_t i, int64_t at) {
      const double c = beta * in[2]->value[at];
      y.value[i] += c;
      if (!y.err.empty())
        y.err[i] += std::fabs(beta) * in[2]->ErrAt(at) + unit * (terms + 1) * std::fabs(c) +
                    unit * std::fabs(y.value[i]);
    });
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpGemm() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Gemm";
    r.kind = FusionKind::kOutFusable;
    r.min_inputs = 2;
    r.max_inputs = 3;
    r.input_names = {"a", "b", "c"};
    r.types = {DType::kF32, DType::kF64};
    r.attrs = {{"transA", AttrType::kInt, AttrValue(int64_t{0})},
               {"transB", AttrType::kInt, AttrValue(int64_t{0})},
               {"alpha", AttrType::kFloat, AttrValue(1.0)},
               {"beta", AttrType::kFloat, AttrValue(1.0)}};
    r.import = ImportGemm;
    r.infer = InferGemm;
    r.te = TeGemm;
    r.reference = ReferenceGemm;
    r.flops = [](const OpView& v) {
      const int64_t k = v.in[0]->shape[v.attrs->Int("transA") != 0 ? 0 : 1];
      return graph::FlopsProduct({v.out[0]->num_elements(), 2 * k + (v.in.size() > 2 ? 1 : 0)});
    };
    r.range = [](const OpView& v, int input) {
      const int64_t k = v.in[0]->shape[v.attrs->Int("transA") != 0 ? 0 : 1];
      const double s =
          input == 1 ? std::sqrt(3.0 / static_cast<double>(std::max<int64_t>(k, 1))) : 1;
      return graph::InputRange{-s, s};
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
