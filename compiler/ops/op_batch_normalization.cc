#include <algorithm>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

// With constant parameters it is a scale and a shift per channel, which the batch-norm pass makes
// of it or folds into the convolution in front.
ValueId EmitBatchNorm(Emitter& e, const std::vector<ValueId>& in, double epsilon) {
  return e("BatchNormalization", in, {{"epsilon", epsilon}});
}

// Statistics of the batch take the place of the given ones, which become running averages.
Status ImportTraining(ImportContext& c, std::vector<ValueId> in, double epsilon, double momentum) {
  Emitter e(c);
  WHET_RETURN_IF_ERROR(e.status());
  const Shape x = e.shape(in[0]);
  std::vector<int64_t> axes = {0};
  for (size_t d = 2; d < x.size(); ++d) axes.push_back(static_cast<int64_t>(d));
  const DType t = e.dtype(in[0]);
  const ValueId mean = e.Reduce("ReduceMean", in[0], axes, true);
  const ValueId d = e("Sub", {in[0], mean});
  const ValueId batch[2] = {e.Reshape(mean, {x[1]}),
                            e.Reduce("ReduceMean", e("Mul", {d, d}), axes, false)};
  const ValueId given[2] = {in[3], in[4]};
  in[3] = batch[0];
  in[4] = batch[1];
  std::vector<ValueId> outputs = {e.Cast(EmitBatchNorm(e, in, epsilon), c.type(0).dtype)};
  for (int k = 0; k < 2 && (c.Wanted(1) || c.Wanted(2)); ++k) {
    const ValueId running = e("Add", {e("Mul", {given[k], e.Scalar(t, momentum)}),
                                      e("Mul", {batch[k], e.Scalar(t, 1 - momentum)})});
    outputs.push_back(e.Cast(running, c.type(3 + k).dtype));
  }
  return e.Finish(std::move(outputs));
}

Status ImportBatchNorm(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(5, 5));
  c.Ignore("consumed_inputs");
  WHET_ASSIGN_OR_RETURN(double momentum, c.TakeFloat("momentum", 0.9));
  WHET_ASSIGN_OR_RETURN(int64_t is_test, c.TakeInt("is_test", c.opset < 7 ? 0 : 1));
  WHET_ASSIGN_OR_RETURN(int64_t training, c.TakeInt("training_mode", 0));
  WHET_ASSIGN_OR_RETURN(int64_t spatial, c.TakeInt("spatial", 1));
  WHET_ASSIGN_OR_RETURN(double epsilon, c.TakeFloat("epsilon", 1e-5));
  const Shape x = c.type(0).shape;
  if (x.size() < 2) return InvalidArgument("input {} has no channels", ShapeText(x));
  bool extra = false;
  for (int i = 1; i < 5; ++i) extra |= c.Wanted(i);
  if (is_test == 0 || (c.opset < 14 && extra))
    return Unimplemented("training mode is not supported before operator set 14");
  if (training == 0 && extra)
    return InvalidArgument("running statistics are outputs of the training mode only");
  Emitter e(c);
  const DType t = c.type(0).dtype, inner = t == DType::kF64 ? t : DType::kF32;
  std::vector<ValueId> in;
  for (ValueId v : c.inputs) in.push_back(e.Cast(v, inner));
  // Without `spatial`, each element of a sample has parameters of its own.
  if (spatial == 0) {
    const int64_t features = Product(x, 1);
    in[0] = e.Reshape(in[0], {x[0], features});
    for (int i = 1; i < 5; ++i) in[i] = e.Reshape(in[i], {features});
  }
  if (training != 0) return ImportTraining(c, std::move(in), epsilon, momentum);
  const ValueId y = e.Cast(EmitBatchNorm(e, in, epsilon), t);
  return e.Finish({spatial == 0 ? e.Reshape(y, x) : y});
}

Status InferBatchNormalization(const OpView& v, std::vector<TensorType>* out) {
  WHET_RETURN_IF_ERROR(SameTypes(v));
  if (v.in[0]->rank() < 2) return InvalidArgument("input {} has no channels", v.in[0]->ToString());
  for (int i = 1; i < 5; ++i) {
    if (v.in[i]->shape != Shape{v.in[0]->shape[1]})
      return InvalidArgument("parameter {} is {}, the input has {} channels", i,
                             ShapeText(v.in[i]->shape), v.in[0]->shape[1]);
  }
  out->push_back(TensorType::Of(v.in[0]->dtype, v.in[0]->shape));
  return OkStatus();
}

StatusOr<std::vector<Buffer>> TeBatchNormalization(const OpView& v, const std::vector<Buffer>& in,
                                                   te::Builder& b) {
  const DType t = v.out[0]->dtype;
  return std::vector<Buffer>{
      b.Compute("batch_norm", t, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
        auto p = [&](int k) { return expr::Load(in[k], {i[1]}); };
        const Expr deviation =
            expr::Call(expr::Intrinsic::kSqrt, p(4) + Const(t, v.attrs->Float("epsilon")));
        return (expr::Load(in[0], i) - p(3)) / deviation * p(1) + p(2);
      })};
}

Status ReferenceBatchNormalization(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const int64_t channels = x.shape[1], area = Product(x.shape, 2);
  const double unit = Roundoff(y.dtype);
  if (want_err) y.err.resize(y.value.size());
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t c = i / std::max<int64_t>(area, 1) % channels;
    const double k = in[1]->value[c] / std::sqrt(in[4]->value[c] + v.attrs->Float("epsilon"));
    const double mean = in[3]->value[c], shift = in[2]->value[c];
    y.value[i] = (x.value[i] - mean) * k + shift;
    // Also right for x * k + (shift - mean * k), as folding computes it.
    if (!want_err) continue;
    const double variance = in[4]->value[c] + v.attrs->Float("epsilon"), size = std::fabs(k);
    const double least = variance - in[4]->ErrAt(c) * kErrUnit;
    double of_k = 0;  // the error of k
    if (in[1]->ErrAt(c) > 0 || in[4]->ErrAt(c) > 0)
      of_k = least > 0 ? in[1]->ErrAt(c) / std::sqrt(least) + size * in[4]->ErrAt(c) / (2 * least)
                       : HUGE_VAL;
    const double of_d = x.ErrAt(i) + in[3]->ErrAt(c);
    y.err[i] = size * of_d + in[2]->ErrAt(c) +
               (of_k > 0 ? (std::fabs(x.value[i] - mean) + of_d * kErrUnit) * of_k : 0) +
               8 * unit * (size * (std::fabs(x.value[i]) + std::fabs(mean)) + std::fabs(shift)) +
               x.terms * unit * std::fabs(shift - mean * k);  // as the bias of a convolution
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpBatchNormalization() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "BatchNormalization";
    r.kind = FusionKind::kBroadcast;
    r.layout = LayoutRole::kFollows;
    r.min_inputs = r.max_inputs = 5;
    r.input_names = {"x", "scale", "shift", "mean", "variance"};
    r.types = {DType::kF32, DType::kF64};
    r.attrs = {{"epsilon", AttrType::kFloat, AttrValue(1e-5)}};
    r.note = "training mode from operator set 14 on";
    r.import = ImportBatchNorm;
    r.infer = InferBatchNormalization;
    r.te = TeBatchNormalization;
    r.reference = ReferenceBatchNormalization;
    r.flops = [](const OpView& v) { return 2 * v.out[0]->num_elements(); };
    r.range = [](const OpView&, int input) {
      return input == 4 ? graph::InputRange{0.5, 1.5} : graph::InputRange{};
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
