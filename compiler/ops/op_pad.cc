#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

// Negative pads crop: a Slice in front takes them.
Status ImportPad(ImportContext& c) {
  const int64_t rank = c.Has(0) ? c.type(0).rank() : 0;
  WHET_RETURN_IF_ERROR(c.NeedInputs(c.opset >= 11 ? 2 : 1, c.opset >= 18   ? 4
                                                           : c.opset >= 11 ? 3
                                                                           : 1));
  WHET_ASSIGN_OR_RETURN(std::string mode, c.TakeString("mode", "constant"));
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    return InvalidArgument("mode '{}' is unknown", mode);
  WHET_ASSIGN_OR_RETURN(double value, c.TakeFloat("value", 0));
  const bool old_name = c.HasAttr("paddings");
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> pads, c.TakeInts(old_name ? "paddings" : "pads", {}));
  if (c.opset >= 11) {
    WHET_ASSIGN_OR_RETURN(pads, c.ConstInts(1, "pads"));
  }
  if (c.Has(2)) {
    WHET_ASSIGN_OR_RETURN(std::vector<double> given, c.ConstFloats(2, "constant_value"));
    if (given.size() != 1)
      return InvalidArgument("constant_value has {} elements, not 1", given.size());
    value = given[0];
  }
  if (c.Has(3)) {
    WHET_ASSIGN_OR_RETURN(std::vector<int64_t> axes, c.ConstInts(3, "axes"));
    if (pads.size() != 2 * axes.size())
      return InvalidArgument("{} pads for {} axes", pads.size(), axes.size());
    std::vector<int64_t> full(static_cast<size_t>(2 * rank), 0);
    for (size_t i = 0; i < axes.size(); ++i) {
      WHET_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(axes[i], rank));
      full[axis] = pads[i];
      full[axis + rank] = pads[i + axes.size()];
    }
    pads = full;
  }
  if (static_cast<int64_t>(pads.size()) != 2 * rank)
    return InvalidArgument("{} pads for rank {}", pads.size(), rank);
  ValueId x = c.inputs[0];
  if (std::any_of(pads.begin(), pads.end(), [](int64_t p) { return p < 0; })) {
    Shape starts(rank, 0), sizes = c.type(0).shape;
    for (int64_t d = 0; d < rank; ++d) {
      if (pads[d] < -sizes[d] || pads[d + rank] < -sizes[d])
        return InvalidArgument("pads {} crop more than {}", ShapeText(pads), ShapeText(sizes));
      starts[d] = std::max<int64_t>(-pads[d], 0);
      sizes[d] = std::max<int64_t>(
          sizes[d] + std::min<int64_t>(pads[d], 0) + std::min<int64_t>(pads[d + rank], 0), 0);
    }
    for (int64_t& p : pads) p = std::max<int64_t>(p, 0);
    WHET_ASSIGN_OR_RETURN(
        x, c.builder.Emit("Slice", {x},
                          {{"starts", starts}, {"steps", Shape(rank, 1)}, {"sizes", sizes}}));
  }
  if (mode == "constant") return c.Finish("Pad", {x}, {{"pads", pads}, {"value", value}});
  if (std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; }))
    return c.Finish("Identity", {x});
  return c.Finish("BorderPad", {x}, {{"pads", pads}, {"mode", mode}});
}

// Crops or extends `axes` to `shape`, evenly on both sides; the odd one is at the end.
Status ImportCenterCropPad(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  const Shape in = c.type(0).shape;
  std::vector<int64_t> all;
  for (size_t d = 0; d < in.size(); ++d) all.push_back(static_cast<int64_t>(d));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> axes, c.TakeInts("axes", all));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> wanted, c.ConstInts(1, "shape"));
  if (axes.size() != wanted.size())
    return InvalidArgument("shape {} for {} axes", ShapeText(wanted), axes.size());
  Shape starts(in.size(), 0), sizes = in, pads(2 * in.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    WHET_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(axes[i], c.type(0).rank()));
    if (wanted[i] < 0) return InvalidArgument("shape {}", ShapeText(wanted));
    const int64_t missing = wanted[i] - in[axis];
    if (missing > 0) {
      pads[axis] = missing / 2;
      pads[axis + in.size()] = missing - missing / 2;
    } else {
      starts[axis] = -missing / 2;
      sizes[axis] = wanted[i];
    }
  }
  WHET_ASSIGN_OR_RETURN(
      ValueId v,
      c.builder.Emit("Slice", {c.inputs[0]},
                     {{"starts", starts}, {"steps", Shape(in.size(), 1)}, {"sizes", sizes}}));
  return c.Finish("Pad", {v}, {{"pads", pads}});
}

Status InferPad(const OpView& v, std::vector<TensorType>* out) {
  const std::vector<int64_t>& pads = v.attrs->Ints("pads");
  Shape shape = v.in[0]->shape;
  const size_t rank = shape.size();
  if (pads.size() != 2 * rank) return InvalidArgument("{} pads for rank {}", pads.size(), rank);
  for (size_t d = 0; d < rank; ++d) {
    if (pads[d] < 0 || pads[d + rank] < 0)
      return InvalidArgument("negative pads {}", ShapeText(pads));
    if (__builtin_add_overflow(shape[d], pads[d], &shape[d]) ||
        __builtin_add_overflow(shape[d], pads[d + rank], &shape[d])) {
      return InvalidArgument("pads {} are too large", ShapeText(pads));
    }
  }
  out->push_back(TensorType::Of(v.in[0]->dtype, std::move(shape)));
  return OkStatus();
}

// ---- BorderPad: what is outside is taken from inside.

Status InferBorderPad(const OpView& v, std::vector<TensorType>* out) {
  WHET_RETURN_IF_ERROR(InferPad(v, out));
  const std::string& mode = v.attrs->Str("mode");
  if (mode != "reflect" && mode != "edge" && mode != "wrap")
    return InvalidArgument("mode '{}' is unknown", mode);
  if (v.in[0]->num_elements() == 0) return InvalidArgument("nothing to pad from");
  return OkStatus();
}

// The position inside of `n` that stands at `t` = position - pads before.
Expr BorderIndex(const std::string& mode, Expr t, int64_t n, int64_t before, int64_t after) {
  if (before == 0 && after == 0) return t;
  if (mode == "wrap") return expr::FloorMod(t, n);
  if (mode == "edge") {
    if (before > 0) t = expr::Max(t, expr::Int(0));
    return after > 0 ? expr::Min(t, expr::Int(n - 1)) : t;
  }
  if (n == 1) return expr::Int(0);
  const int64_t period = 2 * (n - 1);
  const bool once = before < n && after < n;
  if (!once) t = expr::FloorMod(t, period);
  if (once && before > 0) t = expr::Max(t, expr::Int(0) - t);
  return !once || after > 0 ? expr::Min(t, expr::Int(period) - t) : t;
}

int64_t BorderIndexValue(const std::string& mode, int64_t t, int64_t n) {
  auto modulo = [](int64_t a, int64_t b) { return (a % b + b) % b; };
  if (mode == "wrap") return modulo(t, n);
  if (mode == "edge") return std::clamp<int64_t>(t, 0, n - 1);
  if (n == 1) return 0;
  const int64_t m = modulo(t, 2 * (n - 1));
  return std::min(m, 2 * (n - 1) - m);
}

StatusOr<std::vector<Buffer>> TeBorderPad(const OpView& v, const std::vector<Buffer>& in,
                                          te::Builder& b) {
  const std::vector<int64_t>& pads = v.attrs->Ints("pads");
  const Shape& from = in[0]->shape;
  return std::vector<Buffer>{
      b.Compute("pad", v.out[0]->dtype, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
        std::vector<Expr> at;
        for (size_t d = 0; d < i.size(); ++d)
          at.push_back(BorderIndex(v.attrs->Str("mode"), i[d] - pads[d], from[d], pads[d],
                                   pads[d + i.size()]));
        return expr::Load(in[0], at);
      })};
}

Status ReferenceBorderPad(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const std::vector<int64_t>& pads = v.attrs->Ints("pads");
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const Shape strides = Strides(x.shape);
  PrepareCopy(x, y, want_err);
  ForEachIndex(y.shape, [&](int64_t i, const Shape& index) {
    int64_t from = 0;
    for (size_t d = 0; d < index.size(); ++d)
      from += BorderIndexValue(v.attrs->Str("mode"), index[d] - pads[d], x.shape[d]) * strides[d];
    CopyElement(x, from, y, i);
  });
  return OkStatus();
}

StatusOr<std::vector<Buffer>> TePad(const OpView& v, const std::vector<Buffer>& in,
                                    te::Builder& b) {
  const std::vector<int64_t>& pads = v.attrs->Ints("pads");
  const Shape &from = in[0]->shape, &to = v.out[0]->shape;
  const DType t = v.out[0]->dtype;
  return std::vector<Buffer>{b.Compute("pad", t, AxesOf(to), [&](const std::vector<Expr>& i) {
    Expr inside = expr::Bool(true);
    std::vector<Expr> at = i;
    for (size_t d = 0; d < to.size(); ++d) {
      if (pads[d] > 0) inside = expr::And(inside, expr::Le(expr::Int(pads[d]), i[d]));
      if (pads[d] + from[d] < to[d])
        inside = expr::And(inside, expr::Lt(i[d], expr::Int(pads[d] + from[d])));
      at[d] = i[d] - pads[d];
    }
    return expr::Select(inside, expr::Load(in[0], at),
                        Const(t, graph::RoundTo(t, v.attrs->Float("value"))));
  })};
}

Status ReferencePad(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const std::vector<int64_t>& pads = v.attrs->Ints("pads");
  RefTensor& y = out[0];
  const Shape strides = Strides(y.shape);
  int64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) offset += pads[d] * strides[d];
  const double fill = graph::RoundTo(y.dtype, v.attrs->Float("value"));
  std::fill(y.value.begin(), y.value.end(), fill);
  PrepareCopy(*in[0], y, want_err);
  ForEachStrided(in[0]->shape, strides, offset,
                 [&](int64_t i, int64_t to) { CopyElement(*in[0], i, y, to); });
  return OkStatus();
}

}  // namespace

const OpRecord& OpPad() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Pad";
    r.kind = FusionKind::kInjective;
    r.layout = LayoutRole::kFollows;
    r.input_names = {"x"};
    r.attrs = {{"pads", AttrType::kInts, std::nullopt},
               {"value", AttrType::kFloat, AttrValue(0.0)}};
    r.note = "pads known at compile time";
    r.import = ImportPad;
    r.infer = InferPad;
    r.te = TePad;
    r.reference = ReferencePad;
    r.is_identity = [](const OpView& v) {
      const std::vector<int64_t>& pads = v.attrs->Ints("pads");
      return std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; });
    };
    return r;
  }();
  return op;
}

const OpRecord& OpBorderPad() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "BorderPad";
    r.kind = FusionKind::kInjective;
    r.layout = LayoutRole::kFollows;
    r.importable = false;
    r.input_names = {"x"};
    r.attrs = {{"pads", AttrType::kInts, std::nullopt}, {"mode", AttrType::kString, std::nullopt}};
    r.infer = InferBorderPad;
    r.te = TeBorderPad;
    r.reference = ReferenceBorderPad;
    return r;
  }();
  return op;
}

const OpRecord& OpCenterCropPad() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "CenterCropPad";
    r.note = "the shape known at compile time";
    r.import = ImportCenterCropPad;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
