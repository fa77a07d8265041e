// Normalisations that are LayerNormalization over other axes, or a short formula.
#include <algorithm>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

// (c) as an operand of (n, c, d...).
ValueId PerChannel(Emitter& e, ValueId v, int64_t rank) {
  Shape shape(static_cast<size_t>(std::max<int64_t>(rank - 1, 1)), 1);
  shape[0] = Product(e.shape(v));
  return e.Reshape(v, shape);
}

Status ImportInstanceNormalization(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(3, 3));
  c.Ignore("consumed_inputs");
  WHET_ASSIGN_OR_RETURN(double epsilon, c.TakeFloat("epsilon", 1e-5));
  const int64_t rank = c.type(0).rank();
  if (rank < 3) return InvalidArgument("input {} has no spatial axes", c.type(0).ToString());
  for (int i : {1, 2}) {
    if (c.type(i).shape != Shape{c.type(0).shape[1]})
      return InvalidArgument("parameter {} is {}, the input has {} channels", i,
                             ShapeText(c.type(i).shape), c.type(0).shape[1]);
  }
  Emitter e(c);
  return e.Finish(
      {e("LayerNormalization",
         {c.inputs[0], PerChannel(e, c.inputs[1], rank), PerChannel(e, c.inputs[2], rank)},
         {{"axes", AxesFrom(2, rank)}, {"epsilon", epsilon}})});
}

// Scale and shift are per group in operator set 18, per channel in later ones: the shapes say
// which.
Status ImportGroupNormalization(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(3, 3));
  WHET_ASSIGN_OR_RETURN(double epsilon, c.TakeFloat("epsilon", 1e-5));
  WHET_ASSIGN_OR_RETURN(int64_t groups, c.TakeInt("num_groups", 0));
  WHET_ASSIGN_OR_RETURN(int64_t stash, c.TakeInt("stash_type", 1));
  if (stash != 1) return Unimplemented("stash_type {} is not supported; 1 (f32) is", stash);
  const Shape x = c.type(0).shape;
  if (x.size() < 3) return InvalidArgument("input {} has no spatial axes", ShapeText(x));
  const int64_t channels = x[1];
  if (groups < 1 || channels % groups != 0)
    return InvalidArgument("{} groups do not divide {} channels", groups, channels);
  for (int i : {1, 2}) {
    if (c.type(i).shape != Shape{groups} && c.type(i).shape != Shape{channels})
      return InvalidArgument("parameter {} is {}, not [{}] or [{}]", i, ShapeText(c.type(i).shape),
                             groups, channels);
  }
  Emitter e(c);
  auto parameter = [&](ValueId v) { return e.Reshape(v, {groups, e.shape(v)[0] / groups, 1}); };
  const ValueId grouped = e.Reshape(c.inputs[0], {x[0], groups, channels / groups, Product(x, 2)});
  const ValueId y =
      e("LayerNormalization", {grouped, parameter(c.inputs[1]), parameter(c.inputs[2])},
        {{"axes", Shape{2, 3}}, {"epsilon", epsilon}});
  return e.Finish({e.Reshape(y, x)});
}

// x / norm; 0 where the norm is 0.
Status ImportLpNormalization(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", -1));
  WHET_ASSIGN_OR_RETURN(int64_t p, c.TakeInt("p", 2));
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
  if (p != 1 && p != 2) return InvalidArgument("p {} is not 1 or 2", p);
  Emitter e(c);
  const ValueId x = c.inputs[0], zero = e.Scalar(c.type(0).dtype, 0);
  ValueId norm = e.Reduce("ReduceSum", p == 1 ? e("Abs", {x}) : e("Mul", {x, x}), {axis}, true);
  if (p == 2) norm = e("Sqrt", {norm});
  return e.Finish({e("Where", {e("Equal", {norm, zero}), zero, e("Div", {x, norm})})});
}

// (x - mean) / (deviation + 1e-9)
Status ImportMeanVarianceNormalization(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> axes, c.TakeInts("axes", {0, 2, 3}));
  WHET_ASSIGN_OR_RETURN(axes, NormalizeAxes(axes, c.type(0).rank()));
  Emitter e(c);
  const ValueId x = c.inputs[0];
  const ValueId d = e("Sub", {x, e.Reduce("ReduceMean", x, axes, true)});
  const ValueId deviation = e("Sqrt", {e.Reduce("ReduceMean", e("Mul", {d, d}), axes, true)});
  return e.Finish({e("Div", {d, e("Add", {deviation, e.Scalar(c.type(0).dtype, 1e-9)})})});
}

Status ImportGlobalLpPool(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(double p, c.TakeFloat("p", 2));
  const int64_t rank = c.type(0).rank();
  if (rank < 3) return InvalidArgument("input {} has no spatial axes", c.type(0).ToString());
  if (!(p >= 1)) return InvalidArgument("p {} is smaller than 1", p);
  Emitter e(c);
  const ValueId x = c.inputs[0];
  auto sum = [&](ValueId v) { return e.Reduce("ReduceSum", v, AxesFrom(2, rank), true); };
  if (p == 1) return e.Finish({sum(e("Abs", {x}))});
  if (p == 2) return e.Finish({e("Sqrt", {sum(e("Mul", {x, x}))})});
  const DType t = c.type(0).dtype;
  const ValueId powers = e("Pow", {e("Abs", {x}), e.Scalar(t, p)});
  return e.Finish({e("Pow", {sum(powers), e.Scalar(t, 1 / p)})});
}

OpRecord ComposedNormalization(const std::string& name,
                               std::function<Status(ImportContext&)> import) {
  OpRecord r;
  r.name = name;
  r.import = std::move(import);
  return r;
}

}  // namespace

const OpRecord& OpInstanceNormalization() {
  static const OpRecord op =
      ComposedNormalization("InstanceNormalization", ImportInstanceNormalization);
  return op;
}

const OpRecord& OpGroupNormalization() {
  static const OpRecord op = ComposedNormalization("GroupNormalization", ImportGroupNormalization);
  return op;
}

const OpRecord& OpLpNormalization() {
  static const OpRecord op = ComposedNormalization("LpNormalization", InF32(ImportLpNormalization));
  return op;
}

const OpRecord& OpMeanVarianceNormalization() {
  static const OpRecord op =
      ComposedNormalization("MeanVarianceNormalization", InF32(ImportMeanVarianceNormalization));
  return op;
}

const OpRecord& OpGlobalLpPool() {
  static const OpRecord op = ComposedNormalization("GlobalLpPool", InF32(ImportGlobalLpPool));
  return op;
}

}  // namespace whet::ops
