#include <algorithm>

#include "compiler/ops/emitter.h"
#include "compiler/ops/quantized.h"

namespace whet::ops {
namespace {

// One-dimensional operands get a dimension of 1, which the result loses again: `finish` is given
// the two operands and makes the matrix product.
Status ImportProduct(ImportContext& c, ValueId p, ValueId q,
                     const std::function<StatusOr<ValueId>(ValueId, ValueId)>& finish) {
  const Shape a = c.builder.type(p).shape, b = c.builder.type(q).shape;
  if (a.empty() || b.empty()) return InvalidArgument("a scalar operand");
  if (a.size() == 1) {
    WHET_ASSIGN_OR_RETURN(p, Reshaped(c.builder, p, {1, a[0]}));
  }
  if (b.size() == 1) {
    WHET_ASSIGN_OR_RETURN(q, Reshaped(c.builder, q, {b[0], 1}));
  }
  WHET_ASSIGN_OR_RETURN(const ValueId y, finish(p, q));
  c.outputs = {y};
  Shape shape = c.builder.type(y).shape;
  if (a.size() == 1) shape.erase(shape.end() - 2);
  if (b.size() == 1) shape.pop_back();
  if (a.size() > 1 && b.size() > 1) return OkStatus();
  return c.Finish("Reshape", {y}, {{"shape", shape}});
}

Status ImportMatMul(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  // Half precisions multiply and accumulate in f32.
  const DType t = c.type(0).dtype;
  const bool half = t == c.type(1).dtype && (t == DType::kF16 || t == DType::kBF16);
  return ImportProduct(c, c.inputs[0], c.inputs[1], [&](ValueId p, ValueId q) -> StatusOr<ValueId> {
    if (!half) return c.builder.Emit("MatMul", {p, q});
    Emitter e(c);
    const ValueId y = e.Cast(e("MatMul", {e.Cast(p, DType::kF32), e.Cast(q, DType::kF32)}), t);
    WHET_RETURN_IF_ERROR(e.status());
    return y;
  });
}

Shape Batch(const Shape& s) { return Shape(s.begin(), s.end() - 2); }

StatusOr<Shape> ShapeOfMatMul(const OpView& v) {
  const Shape &a = v.in[0]->shape, &b = v.in[1]->shape;
  if (a.size() < 2 || b.size() < 2)
    return InvalidArgument("operands {} and {} need two dimensions", ShapeText(a), ShapeText(b));
  if (a.back() != b[b.size() - 2])
    return InvalidArgument("{} by {}: inner extents {} and {} differ", ShapeText(a), ShapeText(b),
                           a.back(), b[b.size() - 2]);
  WHET_ASSIGN_OR_RETURN(Shape shape, Broadcast(Batch(a), Batch(b)));
  shape.push_back(a[a.size() - 2]);
  shape.push_back(b.back());
  return shape;
}

Status InferMatMul(const OpView& v, std::vector<TensorType>* out) {
  WHET_RETURN_IF_ERROR(SameTypes(v));
  WHET_ASSIGN_OR_RETURN(Shape shape, ShapeOfMatMul(v));
  out->push_back(TensorType::Of(v.in[0]->dtype, std::move(shape)));
  return OkStatus();
}

Buffer MatMulSum(const OpView& v, const Buffer& p, const Buffer& q, te::Builder& b,
                 Expr (*product)(const Expr&, const Expr&)) {
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
  return b.Reduce("matmul", v.out[0]->dtype, axes, {{"k", p->shape.back()}}, te::Reducer::kSum,
                  [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                    return product(at(p, i, i[i.size() - 2], r[0]), at(q, i, r[0], i.back()));
                  });
}

StatusOr<std::vector<Buffer>> TeMatMul(const OpView& v, const std::vector<Buffer>& in,
                                       te::Builder& b) {
  return std::vector<Buffer>{
      MatMulSum(v, in[0], in[1], b, [](const Expr& p, const Expr& q) { return p * q; })};
}

void ReferenceProduct(const RefTensor& p, const RefTensor& q, RefTensor& out, bool want_err) {
  const Shape& y = out.shape;
  const int64_t m = y[y.size() - 2], n = y.back(), k = p.shape.back();
  const Shape batch = Batch(y);
  std::vector<int64_t> from_a, from_b;
  auto offsets = [&](const Shape& s, int64_t matrix, std::vector<int64_t>* to) {
    ForEachStrided(batch, BroadcastStrides(Batch(s), batch), 0,
                   [&](int64_t, int64_t at) { to->push_back(at * matrix); });
  };
  offsets(p.shape, m * k, &from_a);
  offsets(q.shape, k * n, &from_b);
  Bilinear(p, q, static_cast<double>(k), out, want_err, [&](const auto* a, const auto* b, auto* c) {
    for (size_t i = 0; i < from_a.size(); ++i)
      MatMulAdd(m, n, k, a + from_a[i], b + from_b[i], c + static_cast<int64_t>(i) * m * n);
  });
}

Status ReferenceMatMul(const OpView& v, Inputs in, Outputs out, bool want_err) {
  ReferenceProduct(*in[0], *in[1], out[0], want_err);
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
    r.types = {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU32, DType::kU64};
    r.import = ImportMatMul;
    r.infer = InferMatMul;
    r.te = TeMatMul;
    r.reference = ReferenceMatMul;
    r.flops = [](const OpView& v) {
      return graph::FlopsProduct({2, v.out[0]->num_elements(), v.in[0]->shape.back()});
    };
    r.range = [](const OpView& v, int input) {
      if (IsUnsigned(v.in[0]->dtype)) return graph::InputRange{0, 16};
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

// ---- integers

namespace {

Status ImportMatMulInteger(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 4));
  c.inputs.resize(4, graph::kNoValue);
  const std::vector<ValueId> in = c.inputs;
  return ImportProduct(c, in[0], in[1], [&](ValueId p, ValueId q) {
    return EmitMatMulInteger(c, p, q, in[2], in[3]);
  });
}

// a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero.
Status ImportQLinearMatMul(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(8, 8));
  const std::vector<ValueId> in = c.inputs;
  return ImportProduct(c, in[0], in[3], [&](ValueId p, ValueId q) -> StatusOr<ValueId> {
    WHET_ASSIGN_OR_RETURN(const ValueId sum, EmitMatMulInteger(c, p, q, in[2], in[5]));
    const Shape left = c.builder.type(p).shape, right = c.builder.type(q).shape,
                result = c.builder.type(sum).shape;
    WHET_ASSIGN_OR_RETURN(const ValueId p_scale, PerLine(c, in[1], left, 2, "scale"));
    WHET_ASSIGN_OR_RETURN(const ValueId q_scale, PerLine(c, in[4], right, 1, "scale"));
    WHET_ASSIGN_OR_RETURN(const ValueId y_scale, PerLine(c, in[6], result, 2, "scale"));
    WHET_ASSIGN_OR_RETURN(const ValueId y_zero, PerLine(c, in[7], result, 2, "zero point"));
    return EmitRequantize(c, sum, p_scale, q_scale, y_scale, y_zero);
  });
}

}  // namespace

const OpRecord& OpMatMulInteger() {
  static const OpRecord op = [] {
    OpRecord r = OpMatMul();
    r.name = "MatMulInteger";
    r.max_inputs = 4;
    r.input_names = {"a", "b", "a_zero", "b_zero"};
    r.types = IntegerOperands();
    r.import = ImportMatMulInteger;
    r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
      WHET_ASSIGN_OR_RETURN(Shape shape, ShapeOfMatMul(v));
      WHET_RETURN_IF_ERROR(CheckIntegerOperands(v));
      out->push_back(TensorType::Of(DType::kI32, std::move(shape)));
      return OkStatus();
    };
    r.te = [](const OpView& v, const std::vector<Buffer>& in,
              te::Builder& b) -> StatusOr<std::vector<Buffer>> {
      const Buffer p = Centered(v, in, 0, b), q = Centered(v, in, 1, b);
      return std::vector<Buffer>{MatMulSum(v, p, q, b, IntegerProduct)};
    };
    r.reference = [](const OpView& v, Inputs in, Outputs out, bool want_err) -> Status {
      ReferenceProduct(Centered(in, 0), Centered(in, 1), out[0], want_err);
      return OkStatus();
    };
    r.range = IntegerRange;
    return r;
  }();
  return op;
}

const OpRecord& OpQLinearMatMul() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "QLinearMatMul";
    r.import = ImportQLinearMatMul;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
