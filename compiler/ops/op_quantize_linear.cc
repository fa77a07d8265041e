// The linear quantization q = saturate(round(x / scale) + zero), half to even, and its inverse
// x = (q - zero) * scale.
//
// Canonical forms take scale and zero point as inputs that broadcast to x as in arithmetic: what
// ONNX says by `axis` is a reshaped constant after import. The order of operations is part of the
// meaning, so that every implementation gives the same integers, all in f32:
//   QuantizeLinear    saturate(round(f32(x) / scale) + zero)
//   Requantize        min(max(round(f32(x) * multiplier) + zero, lo), hi), x an i32 sum
//   DequantizeLinear  f32(x - zero) * scale, the difference in i32
// With inputs that are exact the references compute these very operations; where the input of a
// quantization carries an error, the bound covers the integers it may round to.
#include <algorithm>
#include <limits>

#include "compiler/ops/quantized.h"

namespace whet::ops {
namespace {

double Lowest(DType t) { return t == DType::kU8 ? 0 : -128; }
double Highest(DType t) { return t == DType::kU8 ? 255 : 127; }

double Bound(const OpView& v, const char* name) { return static_cast<double>(v.attrs->Int(name)); }

bool IsQuantized(DType t) { return t == DType::kU8 || t == DType::kI8; }

// The operand as it broadcasts to x: one element stays a scalar, a vector goes to `axis`.
StatusOr<ValueId> AlongAxis(ImportContext& c, ValueId v, const Shape& x, int64_t axis,
                            std::string_view what) {
  const Shape shape = c.builder.type(v).shape;
  if (shape.empty()) return v;
  if (shape == Shape{1}) return c.builder.Emit("Reshape", {v}, {{"shape", Shape{}}});
  if (shape.size() != 1)
    return InvalidArgument("{} {} must be a scalar or a vector", what, ShapeText(shape));
  const auto rank = static_cast<int64_t>(x.size());
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, rank));
  if (shape[0] != x[axis])
    return InvalidArgument("{} has {} elements, axis {} of the input {} has {}", what, shape[0],
                           axis, ShapeText(x), x[axis]);
  Shape to(static_cast<size_t>(rank - axis), 1);
  to[0] = shape[0];
  return c.builder.Emit("Reshape", {v}, {{"shape", to}});
}

Status ImportQuantize(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 3));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", 1));
  c.Ignore("saturate");  // concerns the 8-bit float types only, which are refused by name
  const Shape x = c.type(0).shape;
  const bool quantizes = c.op_type == "QuantizeLinear";
  // Without a zero point the result is u8; a dequantization just has nothing to subtract.
  if (!c.Has(2) && quantizes) {
    c.inputs.resize(2);
    c.inputs.push_back(NoZeroPoint(c, DType::kU8));
  }
  if (!c.Has(2)) c.inputs.resize(2);
  WHET_ASSIGN_OR_RETURN(c.inputs[1], AlongAxis(c, c.inputs[1], x, axis, "scale"));
  if (c.Has(2)) {
    WHET_ASSIGN_OR_RETURN(c.inputs[2], AlongAxis(c, c.inputs[2], x, axis, "zero point"));
  }
  return c.Finish(c.op_type, c.inputs);
}

Status FitsInto(const OpView& v, size_t input, std::string_view what) {
  WHET_ASSIGN_OR_RETURN(const Shape both, Broadcast(v.in[input]->shape, v.in[0]->shape));
  if (both != v.in[0]->shape)
    return InvalidArgument("{} {} does not broadcast to {}", what, ShapeText(v.in[input]->shape),
                           ShapeText(v.in[0]->shape));
  return OkStatus();
}

double LargestError(const RefTensor& t) {
  return t.err.empty() ? 0 : *std::max_element(t.err.begin(), t.err.end());
}

// x, factor and zero of one element of a reference.
template <typename F>
void ForEachQuantized(const Shape& shape, Inputs in, const F& f) {
  std::vector<int64_t> zero_at;
  if (in.size() > 2) {
    zero_at.resize(static_cast<size_t>(Product(shape)));
    ForEachStrided(shape, BroadcastStrides(in[2]->shape, shape), 0,
                   [&](int64_t i, int64_t at) { zero_at[i] = at; });
  }
  ForEachStrided(shape, BroadcastStrides(in[1]->shape, shape), 0, [&](int64_t i, int64_t at) {
    f(i, at, in.size() > 2 ? in[2]->value[zero_at[i]] : 0);
  });
}

// ---- to integers

struct Quantizer {
  bool divides = true;  // by a scale; else multiplies
  std::function<double(const OpView&)> lo, hi;
};

// max as a comparison, so that NaN becomes the lower bound: the cast must see a number in range.
Expr Saturate(const Expr& rounded, DType t, double lo, double hi) {
  const Expr low = Const(DType::kF32, lo);
  const Expr x = expr::Select(expr::Lt(low, rounded), rounded, low);
  return expr::Cast(t, expr::Cast(DType::kI32, expr::Min(x, Const(DType::kF32, hi))));
}

double ToF32(double v) { return static_cast<double>(static_cast<float>(v)); }

double Saturated(double rounded, double lo, double hi) {
  return rounded > lo ? std::min(rounded, hi) : lo;
}

Status InferQuantized(const OpView& v, std::vector<TensorType>* out) {
  if (v.in[1]->dtype != DType::kF32 && v.in[1]->dtype != v.in[0]->dtype)
    return InvalidArgument("scale is {}, not f32", ToString(v.in[1]->dtype));
  if (!IsQuantized(v.in[2]->dtype))
    return InvalidArgument("quantization to {} is not supported; u8 and i8 are",
                           ToString(v.in[2]->dtype));
  WHET_RETURN_IF_ERROR(FitsInto(v, 1, "scale"));
  WHET_RETURN_IF_ERROR(FitsInto(v, 2, "zero point"));
  out->push_back(TensorType::Of(v.in[2]->dtype, v.in[0]->shape));
  return OkStatus();
}

StatusOr<std::vector<Buffer>> TeQuantized(const Quantizer& q, const OpView& v,
                                          const std::vector<Buffer>& in, te::Builder& b) {
  const DType t = v.out[0]->dtype;
  return std::vector<Buffer>{b.Compute(
      q.divides ? "quantize" : "requantize", t, AxesOf(v.out[0]->shape),
      [&](const std::vector<Expr>& i) {
        const Expr x = expr::Cast(DType::kF32, expr::Load(in[0], i));
        const Expr factor = expr::Cast(DType::kF32, LoadBroadcast(in[1], i));
        const Expr zero = expr::Cast(DType::kF32, expr::Cast(DType::kI32, LoadBroadcast(in[2], i)));
        const Expr rounded =
            expr::Call(expr::Intrinsic::kRound, q.divides ? x / factor : x * factor) + zero;
        return Saturate(rounded, t, q.lo(v), q.hi(v));
      })};
}

Status ReferenceQuantized(const Quantizer& q, const OpView& v, Inputs in, Outputs out,
                          bool want_err) {
  const RefTensor &x = *in[0], &factor = *in[1];
  RefTensor& y = out[0];
  const double lo = q.lo(v), hi = q.hi(v);
  const bool err = want_err && (!x.err.empty() || !factor.err.empty() || !in[2]->err.empty());
  if (err) y.err.resize(y.value.size());
  // A zero point that may differ moves the result by as much.
  const double ez = LargestError(*in[2]);
  auto apply = [&](double p, double f) { return q.divides ? p / f : p * f; };
  ForEachQuantized(y.shape, in, [&](int64_t i, int64_t at, double zero) {
    const double p = ToF32(x.value[i]), f = ToF32(factor.value[at]);
    auto quantize = [&](double real) {
      return Saturated(ToF32(std::nearbyint(real) + zero), lo, hi);
    };
    y.value[i] = quantize(ToF32(apply(p, f)));
    if (!err) return;
    // The integers that the ends of the interval of the quotient round to.
    const double ex = x.ErrAt(i) * kErrUnit, ef = factor.ErrAt(at) * kErrUnit;
    if (ex == 0 && ef == 0 && ez == 0) return;
    const double real = apply(x.value[i], factor.value[at]);
    double spread = std::fabs(apply(ex, f)) + std::fabs(real) * 2 * kErrUnit;
    if (f != 0) spread += std::fabs(real * ef / f);
    if (!std::isfinite(real) || !std::isfinite(spread)) {
      y.err[i] = (hi - lo) / kErrUnit;
      return;
    }
    const double least = quantize(real - spread), most = quantize(real + spread);
    y.err[i] = std::max(y.value[i] - least, most - y.value[i]) / kErrUnit + ez;
  });
  return OkStatus();
}

OpRecord Quantized(std::string name, Quantizer q) {
  OpRecord r;
  r.name = std::move(name);
  r.kind = FusionKind::kBroadcast;
  r.layout = LayoutRole::kFollows;
  r.min_inputs = r.max_inputs = 3;
  r.input_names = {"x", q.divides ? "scale" : "multiplier", "zero"};
  r.infer = InferQuantized;
  r.te = [q](const OpView& v, const std::vector<Buffer>& in, te::Builder& b) {
    return TeQuantized(q, v, in, b);
  };
  r.reference = [q](const OpView& v, Inputs in, Outputs out, bool want_err) {
    return ReferenceQuantized(q, v, in, out, want_err);
  };
  r.flops = [](const OpView& v) { return 4 * v.out[0]->num_elements(); };
  return r;
}

}  // namespace

const OpRecord& OpQuantizeLinear() {
  static const OpRecord op = [] {
    OpRecord r = Quantized("QuantizeLinear",
                           {.divides = true,
                            .lo = [](const OpView& v) { return Lowest(v.out[0]->dtype); },
                            .hi = [](const OpView& v) { return Highest(v.out[0]->dtype); }});
    r.types = {DType::kF32, DType::kF16, DType::kBF16, DType::kI32};
    r.note = "to u8 and i8, per tensor or per axis";
    r.import = ImportQuantize;
    r.range = [](const OpView& v, int input) {
      return input == 0   ? graph::InputRange{-2, 2}
             : input == 1 ? graph::InputRange{1.0 / 128, 1.0 / 32}
                          : graph::InputRange{0, 16};
    };
    return r;
  }();
  return op;
}

const OpRecord& OpRequantize() {
  static const OpRecord op = [] {
    OpRecord r = Quantized("Requantize", {.divides = false,
                                          .lo = [](const OpView& v) { return Bound(v, "lo"); },
                                          .hi = [](const OpView& v) { return Bound(v, "hi"); }});
    r.types = {DType::kI32};
    // Clipping that follows in the model narrows the range of the type.
    r.attrs = {{"lo", AttrType::kInt, std::nullopt}, {"hi", AttrType::kInt, std::nullopt}};
    r.importable = false;
    r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
      WHET_RETURN_IF_ERROR(InferQuantized(v, out));
      const DType t = out->back().dtype;
      const double lo = Bound(v, "lo"), hi = Bound(v, "hi");
      if (!(Lowest(t) <= lo && lo <= hi && hi <= Highest(t)))
        return InvalidArgument("the range {} to {} is not one of {}", lo, hi, ToString(t));
      return OkStatus();
    };
    r.range = [](const OpView& v, int input) {
      return input == 0   ? graph::InputRange{-20000, 20000}
             : input == 1 ? graph::InputRange{1.0 / 256, 1.0 / 64}
                          : graph::InputRange{0, 16};
    };
    return r;
  }();
  return op;
}

// ---- from integers

namespace {

Status InferDequantize(const OpView& v, std::vector<TensorType>* out) {
  if (!IsFloat(v.in[1]->dtype) || v.in[1]->dtype == DType::kF64)
    return InvalidArgument("scale is {}, not f32, f16 or bf16", ToString(v.in[1]->dtype));
  WHET_RETURN_IF_ERROR(FitsInto(v, 1, "scale"));
  if (v.in.size() > 2) {
    if (v.in[2]->dtype != v.in[0]->dtype)
      return InvalidArgument("zero point is {}, the input {}", ToString(v.in[2]->dtype),
                             ToString(v.in[0]->dtype));
    WHET_RETURN_IF_ERROR(FitsInto(v, 2, "zero point"));
  }
  out->push_back(TensorType::Of(v.in[1]->dtype, v.in[0]->shape));
  return OkStatus();
}

StatusOr<std::vector<Buffer>> TeDequantize(const OpView& v, const std::vector<Buffer>& in,
                                           te::Builder& b) {
  const DType t = v.out[0]->dtype;
  return std::vector<Buffer>{
      b.Compute("dequantize", t, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
        Expr x = expr::Cast(DType::kI32, expr::Load(in[0], i));
        if (in.size() > 2) x = x - expr::Cast(DType::kI32, LoadBroadcast(in[2], i));
        return expr::Cast(
            t, expr::Cast(DType::kF32, x) * expr::Cast(DType::kF32, LoadBroadcast(in[1], i)));
      })};
}

// The product may be rounded, or be part of a fused multiply-add; a large i32 rounds before it.
Status ReferenceDequantize(const OpView& v, Inputs in, Outputs out, bool want_err) {
  RefTensor& y = out[0];
  const RefTensor &x = *in[0], &scale = *in[1];
  const double unit = std::max(Roundoff(y.dtype), x.dtype == DType::kI32 ? 2.0 : 1.0);
  if (want_err) y.err.resize(y.value.size());
  const double ez = in.size() > 2 ? LargestError(*in[2]) : 0;
  ForEachQuantized(y.shape, in, [&](int64_t i, int64_t at, double zero) {
    const double difference = Wrap(DType::kI32, x.value[i] - zero);
    y.value[i] = difference * scale.value[at];
    if (!want_err) return;
    y.err[i] = unit * std::fabs(y.value[i]) + (x.ErrAt(i) + ez) * std::fabs(scale.value[at]) +
               std::fabs(difference) * scale.ErrAt(at);
  });
  return OkStatus();
}

}  // namespace

const OpRecord& OpDequantizeLinear() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "DequantizeLinear";
    r.kind = FusionKind::kBroadcast;
    r.layout = LayoutRole::kFollows;
    r.min_inputs = 2;
    r.max_inputs = 3;
    r.input_names = {"x", "scale", "zero"};
    r.types = {DType::kU8, DType::kI8, DType::kI32};
    r.note = "from u8, i8 and i32, per tensor or per axis";
    r.import = ImportQuantize;
    r.infer = InferDequantize;
    r.te = TeDequantize;
    r.reference = ReferenceDequantize;
    r.flops = [](const OpView& v) { return 2 * v.out[0]->num_elements(); };
    r.range = [](const OpView& v, int input) {
      if (input == 1) return graph::InputRange{1.0 / 128, 1.0 / 32};
      switch (v.in[0]->dtype) {
        case DType::kU8: return graph::InputRange{0, 256};
        case DType::kI8: return graph::InputRange{-128, 128};
        default: return graph::InputRange{-20000, 20000};
      }
    };
    return r;
  }();
  return op;
}

// scale = (max(x, 0) - min(x, 0)) / 255, zero = saturate(round(0 - min / scale)). All zeros have
// the scale 1, so that nothing is divided by zero.
const OpRecord& OpDynamicQuantizeLinear() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "DynamicQuantizeLinear";
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
      if (c.type(0).dtype != DType::kF32)
        return Unimplemented("input of {} is not supported; f32 is", ToString(c.type(0).dtype));
      graph::GraphBuilder& b = c.builder;
      auto scalar = [&](DType t, double v) {
        return b.Constant("", graph::Constant::OfDoubles(t, {}, std::vector<double>{v}));
      };
      Shape axes;
      for (int64_t d = 0; d < c.type(0).rank(); ++d) axes.push_back(d);
      const Attrs all = {{"axes", axes}, {"keepdims", int64_t{0}}};
      const ValueId x = c.inputs[0], zero = scalar(DType::kF32, 0);
      WHET_ASSIGN_OR_RETURN(ValueId lo, b.Emit("ReduceMin", {x}, all));
      WHET_ASSIGN_OR_RETURN(lo, b.Emit("Min", {lo, zero}));
      WHET_ASSIGN_OR_RETURN(ValueId hi, b.Emit("ReduceMax", {x}, all));
      WHET_ASSIGN_OR_RETURN(hi, b.Emit("Max", {hi, zero}));
      WHET_ASSIGN_OR_RETURN(ValueId scale, b.Emit("Sub", {hi, lo}));
      WHET_ASSIGN_OR_RETURN(scale, b.Emit("Div", {scale, scalar(DType::kF32, 255)}));
      WHET_ASSIGN_OR_RETURN(const ValueId none, b.Emit("Equal", {scale, zero}));
      WHET_ASSIGN_OR_RETURN(scale, b.Emit("Where", {none, scalar(DType::kF32, 1), scale}));
      // Negation is exact, so this is round(0 - min / scale).
      WHET_ASSIGN_OR_RETURN(ValueId zero_point, b.Emit("Sub", {zero, lo}));
      WHET_ASSIGN_OR_RETURN(zero_point,
                            b.Emit("QuantizeLinear", {zero_point, scale, scalar(DType::kU8, 0)}));
      WHET_ASSIGN_OR_RETURN(const ValueId y, b.Emit("QuantizeLinear", {x, scale, zero_point}));
      c.outputs = {y, scale, zero_point};
      return OkStatus();
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
