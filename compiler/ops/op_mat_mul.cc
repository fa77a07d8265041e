#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

// One-dimensional operands get a dimension of 1, which the result loses again.
Status ImportMatMul(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  const Shape a = c.type(0).shape, b = c.type(1).shape;
  if (a.empty() || b.empty()) return InvalidArgument("a scalar operand");
  if (a.size() == 1) {
    WHET_ASSIGN_OR_RETURN(c.inputs[0],
                          c.builder.Emit("Reshape", {c.inputs[0]}, {{"shape", Shape{1, a[0]}}}));
  }
  if (b.size() == 1) {
    WHET_ASSIGN_OR_RETURN(c.inputs[1],
                          c.builder.Emit("Reshape", {c.inputs[1]}, {{"shape", Shape{b[0], 1}}}));
  }
  WHET_RETURN_IF_ERROR(c.Finish("MatMul", c.inputs));
  Shape shape = c.builder.type(c.outputs[0]).shape;
  if (a.size() == 1) shape.erase(shape.end() - 2);
  if (b.size() == 1) shape.pop_back();
  if (a.size() > 1 && b.size() > 1) return OkStatus();
  return c.Finish("Reshape", {c.outputs[0]}, {{"shape", shape}});
}

Shape Batch(const Shape& s) { return Shape(s.begin(), s.end() - 2); }

Status InferMatMul(const OpView& v, std::vector<TensorType>* out) {
  WHET_RETURN_IF_ERROR(SameTypes(v));
  const Shape &a = v.in[0]->shape, &b = v.in[1]->shape;
  if (a.size() < 2 || b.size() < 2)
    return InvalidArgument("operands {} and {} need two dimensions", ShapeText(a), ShapeText(b));
  if (a.back() != b[b.size() - 2])
    return InvalidArgument("{} by {}: inner extents {} and {} differ", ShapeText(a), ShapeText(b),
                           a.back(), b[b.size() - 2]);
  WHET_ASSIGN_OR_RETURN(Shape shape, Broadcast(Batch(a), Batch(b)));
  shape.push_back(a[a.size() - 2]);
  shape.push_back(b.back());
  out->push_back(TensorType::Of(v.in[0]->dtype, std::move(shape)));
  return OkStatus();
}

StatusOr<std::vector<Buffer>> TeMatMul(const OpView& v, const std::vector<Buffer>& in,
                                       te::Builder& b) {
  const Shape& out = v.out[0]->shape;
  te::AxisSpec axes;
  for (size_t d = 0; d + 2 < out.size(); ++d) axes.emplace_back("b" + std::to_string(d), out[d]);
  axes.emplace_back("m", out[out.size() - 2]);
  axes.emplace_back("n", out.back());
  auto at = [&](const Buffer& x, const std::vector<Expr>& i, const Expr& row, const Expr& column) {
    std::vector<Expr> index;
    const size_t skip = out.size() - x->shape.size();
    for (size_t d = 0; d + 2 < x->shape.size(); ++d)
      index.push_back(x->shape[d] == 1 ? expr::Int(0) : i[skip + d]);
    index.push_back(row);
    index.push_back(column);
    return expr::Load(x, index);
  };
  return std::vector<Buffer>{
      b.Reduce("matmul", v.out[0]->dtype, axes, {{"k", in[0]->shape.back()}}, te::Reducer::kSum,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 return at(in[0], i, i[i.size() - 2], r[0]) * at(in[1], i, r[0], i.back());
               })};
}

Status ReferenceMatMul(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const Shape& y = out[0].shape;
  const int64_t m = y[y.size() - 2], n = y.back(), k = in[0]->shape.back();
  const Shape batch = Batch(y);
  std::vector<int64_t> from_a, from_b;
  auto offsets = [&](const Shape& s, int64_t matrix, std::vector<int64_t>* to) {
    ForEachStrided(batch, BroadcastStrides(Batch(s), batch), 0,
                   [&](int64_t, int64_t at) { to->push_back(at * matrix); });
  };
  offsets(in[0]->shape, m * k, &from_a);
  offsets(in[1]->shape, k * n, &from_b);
  Bilinear(*in[0], *in[1], static_cast<double>(k), out[0], want_err,
           [&](const double* a, const double* b, double* c) {
             for (size_t i = 0; i < from_a.size(); ++i)
               MatMulAdd(m, n, k, a + from_a[i], b + from_b[i],
                         c + static_cast<int64_t>(i) * m * n);
           });
  if (!IsFloat(out[0].dtype)) {
    for (double& d : out[0].value) d = Wrap(out[0].dtype, d);
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpMatMul() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "MatMul";
    r.kind = FusionKind::kOutFusable;
    r.min_inputs = r.max_inputs = 2;
    r.input_names = {"a", "b"};
    r.types = {DType::kF32, DType::kF64, DType::kI32, DType::kI64};
    r.import = ImportMatMul;
    r.infer = InferMatMul;
    r.te = TeMatMul;
    r.reference = ReferenceMatMul;
    r.flops = [](const OpView& v) { return 2 * v.out[0]->num_elements() * v.in[0]->shape.back(); };
    r.range = [](const OpView& v, int input) {
      if (!IsFloat(v.in[0]->dtype)) return graph::InputRange{-8, 8};
      const double s =
          input == 1
              ? std::sqrt(3.0 / static_cast<double>(std::max<int64_t>(v.in[0]->shape.back(), 1)))
              : 1;
      return graph::InputRange{-s, s};
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
