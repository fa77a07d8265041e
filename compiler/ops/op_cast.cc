#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

DType To(const OpView& v) { return *ParseDType(v.attrs->Str("to")); }

Status ImportCast(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  c.Ignore("saturate");  // concerns the 8-bit float types only, which are refused by name
  // The importer hands element types over by name; operator sets before 6 name them themselves, in
  // capitals.
  WHET_ASSIGN_OR_RETURN(std::string to, c.TakeString("to", ""));
  for (const auto& [name, type] : {std::pair{"FLOAT", "f32"},
                                   {"DOUBLE", "f64"},
                                   {"FLOAT16", "f16"},
                                   {"BFLOAT16", "bf16"},
                                   {"INT16", "i16"},
                                   {"UINT16", "u16"},
                                   {"UINT32", "u32"},
                                   {"UINT64", "u64"},
                                   {"INT32", "i32"},
                                   {"INT64", "i64"},
                                   {"INT8", "i8"},
                                   {"UINT8", "u8"},
                                   {"BOOL", "bool"}}) {
    if (to == name) to = type;
  }
  return c.Finish("Cast", {c.inputs[0]}, {{"to", to}});
}

// The type of the second input, whose values do not matter.
Status ImportCastLike(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  c.Ignore("saturate");
  return c.Finish("Cast", {c.inputs[0]}, {{"to", std::string(ToString(c.type(1).dtype))}});
}

// How far the integer that `v` becomes may move when `v` does by `e`.
double MovedToInteger(DType from, DType to, double v, double e) {
  auto saturated = [to](double t) { return graph::RoundTo(to, t); };
  if (to == DType::kBool) return MovedBetween(saturated, v, e, {0});
  if (IsFloat(from)) return MovedBetween(saturated, v, e);
  // An integer that may be wrapped around may become any.
  return saturated(v - e) == v - e && saturated(v + e) == v + e ? e : HUGE_VAL;
}

Status ReferenceCast(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const bool to_float = IsFloat(y.dtype), from_float = IsFloat(x.dtype);
  const bool narrower = to_float && Roundoff(y.dtype) > (from_float ? Roundoff(x.dtype) : 0);
  const bool err = want_err && (narrower || !x.err.empty());
  if (err) y.err.resize(y.value.size());
  for (size_t i = 0; i < y.value.size(); ++i) {
    // Integers keep the low bits; a float out of range saturates (undefined in ONNX). A cast to a
    // half precision is there to round; elsewhere the reference keeps its own precision.
    const double p = x.value[i];
    const bool rounds =
        from_float ? !to_float || y.dtype == DType::kF16 || y.dtype == DType::kBF16 : to_float;
    y.value[i] = rounds ? graph::RoundTo(y.dtype, p) : to_float ? p : Wrap(y.dtype, p);
    if (!err) continue;
    const double e = x.ErrAt(static_cast<int64_t>(i));
    // Rounded already, the value may be half a step from what its input rounds to, on either side.
    const double steps = rounds && e > 0 ? 2 : 1, moved = e * kErrUnit;
    const double own = narrower ? Roundoff(y.dtype) * (steps * std::fabs(p) + moved) : 0;
    const bool infinite = to_float && std::isinf(y.value[i]);
    y.err[i] = infinite && std::isfinite(graph::RoundTo(y.dtype, std::fabs(p) - moved))
                   ? graph::kUndecided
               : to_float ? e + own
               : e > 0    ? MovedToInteger(x.dtype, y.dtype, p, e * kErrUnit) / kErrUnit
                          : 0;
  }
  if (!x.ints.empty() && !to_float) {
    for (int64_t i = 0; i < y.size(); ++i) {
      const int64_t exact = expr::WrapInt(WordAt(x, i), y.dtype);
      if (IsWord(y.dtype)) SetWord(y, i, exact);
      if (!IsWord(y.dtype)) y.value[static_cast<size_t>(i)] = static_cast<double>(exact);
    }
  }
  return OkStatus();
}

Expr CastTe(DType to, const Expr& x) {
  if (x->dtype == to) return x;
  if (to == DType::kBool) return expr::Not(expr::Eq(x, Const(x->dtype, 0)));
  if (x->dtype == DType::kBool) return expr::Select(x, Const(to, 1), Const(to, 0));
  return expr::Cast(to, x);
}

}  // namespace

const OpRecord& OpCast() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Cast";
    r.kind = FusionKind::kElementwise;
    r.layout = LayoutRole::kFollows;
    r.input_names = {"x"};
    r.attrs = {{"to", AttrType::kString, std::nullopt}};
    r.note = "no strings, no 8-bit floats";
    r.import = ImportCast;
    r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
      WHET_ASSIGN_OR_RETURN(DType to, ParseDType(v.attrs->Str("to")));
      out->push_back(TensorType::Of(to, v.in[0]->shape));
      return OkStatus();
    };
    r.te = [](const OpView& v, const std::vector<Buffer>& in,
              te::Builder& b) -> StatusOr<std::vector<Buffer>> {
      return std::vector<Buffer>{b.Compute(
          "cast", To(v), AxesOf(v.out[0]->shape),
          [&](const std::vector<Expr>& i) { return CastTe(To(v), expr::Load(in[0], i)); })};
    };
    r.reference = ReferenceCast;
    r.is_identity = [](const OpView& v) { return v.in[0]->dtype == To(v); };
    return r;
  }();
  return op;
}

const OpRecord& OpCastLike() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "CastLike";
    r.import = ImportCastLike;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
