#include <algorithm>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

using AxisOperator = ValueId (*)(Emitter& e, ValueId x, int64_t axis);

// Before operator set 13 these run over everything from `axis` on, as one axis.
Status ImportAlongAxis(ImportContext& c, AxisOperator along) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", c.opset >= 13 ? -1 : 1));
  const Shape x = c.type(0).shape;
  const int64_t rank = c.type(0).rank();
  Emitter e(c);
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, rank));
  if (c.opset >= 13 || axis == rank - 1) return e.Finish({along(e, c.inputs[0], axis)});
  const Shape flat = {Product(x, 0, static_cast<size_t>(axis)),
                      Product(x, static_cast<size_t>(axis))};
  return e.Finish({e.Reshape(along(e, e.Reshape(c.inputs[0], flat), 1), x)});
}

ValueId EmitSoftmax(Emitter& e, ValueId x, int64_t axis) {
  return e("Softmax", {x}, {{"axis", axis}});
}

ValueId EmitLogSoftmax(Emitter& e, ValueId x, int64_t axis) {
  return e("LogSoftmax", {x}, {{"axis", axis}});
}

// 1 at the first largest element, else 0.
ValueId EmitHardmax(Emitter& e, ValueId x, int64_t axis) {
  const ValueId at = e("ArgMax", {x}, {{"axis", axis}, {"keepdims", int64_t{1}}});
  const Shape shape = e.shape(x);
  if (!e.status().ok()) return graph::kNoValue;
  const auto rank = static_cast<int64_t>(shape.size());
  const ValueId k = e.Iota(DType::kI64, shape[static_cast<size_t>(axis)], rank, axis);
  return e.Cast(e("Equal", {k, at}), e.dtype(x));
}

Status InferSoftmax(const OpView& v, std::vector<TensorType>* out) {
  const int64_t axis = v.attrs->Int("axis");
  if (axis < 0 || axis >= v.in[0]->rank())
    return InvalidArgument("axis {} is outside of rank {}", axis, v.in[0]->rank());
  out->push_back(TensorType::Of(v.in[0]->dtype, v.in[0]->shape));
  return OkStatus();
}

// Stages: "max", "exp" of the difference, "sum", and the quotient or the difference of logarithms.
StatusOr<std::vector<Buffer>> TeSoftmax(const OpView& v, const std::vector<Buffer>& in,
                                        te::Builder& b, bool log) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const Shape& shape = v.out[0]->shape;
  const DType t = v.out[0]->dtype;
  Shape outer = shape;
  outer.erase(outer.begin() + axis);
  te::AxisSpec full = AxesOf(shape), rows;
  for (size_t d = 0; d < full.size(); ++d) {
    if (d != axis) rows.push_back(full[d]);
  }
  const te::AxisSpec along = {{"k", shape[axis]}};
  auto with = [axis](std::vector<Expr> i, const Expr& k) {
    i.insert(i.begin() + axis, k);
    return i;
  };
  auto without = [axis](std::vector<Expr> i) {
    i.erase(i.begin() + axis);
    return i;
  };
  const Buffer top = b.Reduce("max", t, rows, along, te::Reducer::kMax,
                              [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                                return expr::Load(in[0], with(i, r[0]));
                              });
  const Buffer e = b.Compute("exp", t, full, [&](const std::vector<Expr>& i) {
    return expr::Call(expr::Intrinsic::kExp, expr::Load(in[0], i) - expr::Load(top, without(i)));
  });
  const Buffer sum = b.Reduce("sum", t, rows, along, te::Reducer::kSum,
                              [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                                return expr::Load(e, with(i, r[0]));
                              });
  if (log) {
    return std::vector<Buffer>{b.Compute("log_softmax", t, full, [&](const std::vector<Expr>& i) {
      return expr::Load(in[0], i) - expr::Load(top, without(i)) -
             expr::Call(expr::Intrinsic::kLog, expr::Load(sum, without(i)));
    })};
  }
  return std::vector<Buffer>{b.Compute("softmax", t, full, [&](const std::vector<Expr>& i) {
    return expr::Load(e, i) / expr::Load(sum, without(i));
  })};
}

Status ReferenceSoftmax(const OpView& v, Inputs in, Outputs out, bool want_err, bool log) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const int64_t n = x.shape[axis], inner = Product(x.shape, axis + 1),
                outer = Product(x.shape, 0, axis);
  if (want_err) y.err.resize(y.value.size());
  const double unit = Roundoff(y.dtype);
  for (int64_t row = 0; row < outer * inner; ++row) {
    const int64_t base = row / inner * n * inner + row % inner;
    double top = -HUGE_VAL, sum = 0, worst = 0;
    for (int64_t k = 0; k < n; ++k) top = std::max(top, x.value[base + k * inner]);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = base + k * inner;
      y.value[at] = std::exp(x.value[at] - top);
      sum += y.value[at];
      worst = std::max(worst, x.ErrAt(at));
    }
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = base + k * inner;
      if (log) {
        y.value[at] = x.value[at] - top - std::log(sum);
        if (want_err)
          y.err[at] = x.ErrAt(at) + worst +
                      unit * (static_cast<double>(n) + 16 + 2 * std::fabs(x.value[at] - top) +
                              4 * std::log(sum) + std::fabs(y.value[at]));
        continue;
      }
      y.value[at] /= sum;
      if (!want_err) continue;
      // Relative: the rounding of x - max is |x - max| units in the exponent, then exp, the sum and
      // the quotient; an uncertain input moves the element and the sum.
      if (y.value[at] == 0) continue;
      const double spread = std::fabs(x.value[at] - top);
      const double moved = std::expm1(std::min(2 * worst * kErrUnit, 64.0)) / kErrUnit;
      y.err[at] = std::min(
          y.value[at] * (moved + unit * (2 * spread + static_cast<double>(n) + 24)), 1 / kErrUnit);
    }
  }
  return OkStatus();
}

OpRecord SoftmaxRecord(const std::string& name, AxisOperator along, bool log) {
  OpRecord r;
  r.name = name;
  r.kind = FusionKind::kReduction;
  r.input_names = {"x"};
  r.types = Floats();
  r.attrs = {{"axis", AttrType::kInt, std::nullopt}};
  r.import = InF32([along](ImportContext& c) { return ImportAlongAxis(c, along); });
  r.infer = InferSoftmax;
  r.te = [log](const OpView& v, const std::vector<Buffer>& in, te::Builder& b) {
    return TeSoftmax(v, in, b, log);
  };
  r.reference = [log](const OpView& v, Inputs in, Outputs out, bool want_err) {
    return ReferenceSoftmax(v, in, out, want_err, log);
  };
  r.flops = [](const OpView& v) { return 14 * v.out[0]->num_elements(); };
  return r;
}

}  // namespace

const OpRecord& OpSoftmax() {
  static const OpRecord op = SoftmaxRecord("Softmax", EmitSoftmax, false);
  return op;
}

const OpRecord& OpLogSoftmax() {
  static const OpRecord op = SoftmaxRecord("LogSoftmax", EmitLogSoftmax, true);
  return op;
}

const OpRecord& OpHardmax() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Hardmax";
    r.import = [](ImportContext& c) { return ImportAlongAxis(c, EmitHardmax); };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
