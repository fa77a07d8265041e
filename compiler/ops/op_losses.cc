// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, written with the operators there are. The
// target's element of the class axis is selected by comparing with positions: an index outside of
// the classes, as an ignored one usually is, selects nothing.
#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

// Inputs of shapes (n, c, d...), (n, d...) and, optionally, (c).
struct LossInputs {
  ValueId x, target, weight;
};

// Half precisions are computed in f32: they do not count beyond some thousands of positions.
LossInputs WideInputs(ImportContext& c, Emitter& e) {
  auto wide = [&](int i) {
    return IsHalf(c.type(i).dtype) ? e.Cast(c.inputs[i], DType::kF32) : c.inputs[i];
  };
  return {wide(0), c.inputs[1], c.Has(2) ? wide(2) : graph::kNoValue};
}

StatusOr<ValueId> EmitLoss(ImportContext& c, Emitter& e, const LossInputs& in) {
  WHET_ASSIGN_OR_RETURN(std::string reduction, c.TakeString("reduction", "mean"));
  const bool has_ignored = c.HasAttr("ignore_index");
  WHET_ASSIGN_OR_RETURN(int64_t ignored, c.TakeInt("ignore_index", 0));
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    return InvalidArgument("reduction '{}' is not none, sum or mean", reduction);
  const Shape x = e.shape(in.x);
  const DType t = e.dtype(in.x), index = e.dtype(in.target);
  if (x.size() < 2) return InvalidArgument("input {} has no classes", ShapeText(x));
  Shape target = x;
  target.erase(target.begin() + 1);
  if (e.shape(in.target) != target)
    return InvalidArgument("target {} for input {}", ShapeText(e.shape(in.target)), ShapeText(x));
  if (IsFloat(index)) return InvalidArgument("target is {}, not an integer", ToString(index));
  if (in.weight != graph::kNoValue && e.shape(in.weight) != Shape{x[1]})
    return InvalidArgument("weight {} for {} classes", ShapeText(e.shape(in.weight)), x[1]);

  const auto rank = static_cast<int64_t>(x.size());
  const ValueId zero = e.Scalar(t, 0);
  target.insert(target.begin() + 1, 1);
  ValueId hit = e("Equal", {e.Reshape(in.target, target), e.Iota(index, x[1], rank, 1)});
  if (has_ignored) {
    WHET_RETURN_IF_ERROR(e.status());
    std::vector<double> counted(static_cast<size_t>(x[1]), 1);
    if (ignored >= 0 && ignored < x[1]) counted[static_cast<size_t>(ignored)] = 0;
    Shape classes(x.size(), 1);
    classes[1] = x[1];
    hit = e("And", {hit, e.Tensor(DType::kBool, classes, counted)});
  }
  auto select = [&](ValueId v) {
    return e.Reduce("ReduceSum", e("Where", {hit, v, zero}), {1}, false);
  };
  ValueId loss = e("Neg", {select(in.x)});
  ValueId weights = graph::kNoValue;
  if (in.weight != graph::kNoValue) {
    Shape classes(x.size(), 1);
    classes[1] = x[1];
    weights = select(e.Reshape(in.weight, classes));
    loss = e("Mul", {loss, weights});
  } else if (reduction == "mean") {
    weights = select(e.Scalar(t, 1));
  }
  if (reduction == "none") return loss;
  const ValueId sum = e.ReduceAll("ReduceSum", loss);
  if (reduction == "sum") return sum;
  return e("Div", {sum, e.ReduceAll("ReduceSum", weights)});
}

Status ImportLikelihood(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 3));
  Emitter e(c);
  WHET_ASSIGN_OR_RETURN(ValueId loss, EmitLoss(c, e, WideInputs(c, e)));
  return e.Finish({e.Cast(loss, c.type(0).dtype)});
}

Status ImportCrossEntropy(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 3));
  if (c.type(0).rank() < 2)
    return InvalidArgument("input {} has no classes", ShapeText(c.type(0).shape));
  Emitter e(c);
  LossInputs in = WideInputs(c, e);
  in.x = e("LogSoftmax", {in.x}, {{"axis", int64_t{1}}});
  WHET_RETURN_IF_ERROR(e.status());
  WHET_ASSIGN_OR_RETURN(ValueId loss, EmitLoss(c, e, in));
  const DType t = c.type(0).dtype;
  std::vector<ValueId> outputs = {e.Cast(loss, t)};
  if (c.Wanted(1)) outputs.push_back(e.Cast(in.x, t));
  return e.Finish(std::move(outputs));
}

}  // namespace

const OpRecord& OpNegativeLogLikelihoodLoss() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "NegativeLogLikelihoodLoss";
    r.import = ImportLikelihood;
    return r;
  }();
  return op;
}

const OpRecord& OpSoftmaxCrossEntropyLoss() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "SoftmaxCrossEntropyLoss";
    r.import = ImportCrossEntropy;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
