#include <algorithm>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

Status ImportLrn(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(int64_t size, c.TakeInt("size", 0));
  WHET_ASSIGN_OR_RETURN(double alpha, c.TakeFloat("alpha", 1e-4));
  WHET_ASSIGN_OR_RETURN(double beta, c.TakeFloat("beta", 0.75));
  WHET_ASSIGN_OR_RETURN(double bias, c.TakeFloat("bias", 1));
  const DType t = c.type(0).dtype;
  Emitter e(c);
  const ValueId x = e.Cast(c.inputs[0], t == DType::kF64 ? t : DType::kF32);
  return e.Finish({e.Cast(
      e("LRN", {x}, {{"size", size}, {"alpha", alpha}, {"beta", beta}, {"bias", bias}}), t)});
}

Status InferLrn(const OpView& v, std::vector<TensorType>* out) {
  if (v.in[0]->rank() < 2) return InvalidArgument("input {} has no channels", v.in[0]->ToString());
  const int64_t size = v.attrs->Int("size");
  if (size < 1 || size > 65536) return InvalidArgument("size {} is outside of 1..65536", size);
  out->push_back(TensorType::Of(v.in[0]->dtype, v.in[0]->shape));
  return OkStatus();
}

int64_t ChannelsBefore(const OpView& v) { return (v.attrs->Int("size") - 1) / 2; }

// Stages: "square_sum" over the window of channels, then "lrn".
StatusOr<std::vector<Buffer>> TeLrn(const OpView& v, const std::vector<Buffer>& in,
                                    te::Builder& b) {
  const DType t = v.out[0]->dtype;
  const int64_t size = v.attrs->Int("size"), channels = v.in[0]->shape[1];
  const te::AxisSpec axes = AxesOf(v.out[0]->shape);
  const Buffer sum = b.Reduce(
      "square_sum", t, axes, {{"k", size}}, te::Reducer::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        const Expr c = i[1] + r[0] - ChannelsBefore(v);
        std::vector<Expr> at = i;
        at[1] = expr::Max(expr::Min(c, expr::Int(channels - 1)), expr::Int(0));
        const Expr x = expr::Load(in[0], at);
        const Expr inside = expr::And(expr::Le(expr::Int(0), c), expr::Lt(c, expr::Int(channels)));
        return expr::Select(inside, x * x, Const(t, 0));
      });
  const double scale = v.attrs->Float("alpha") / static_cast<double>(size);
  return std::vector<Buffer>{b.Compute("lrn", t, axes, [&](const std::vector<Expr>& i) {
    const Expr base = Const(t, v.attrs->Float("bias")) + expr::Load(sum, i) * Const(t, scale);
    return expr::Load(in[0], i) /
           expr::Binary(expr::BinaryOp::kPow, base, Const(t, v.attrs->Float("beta")));
  })};
}

Status ReferenceLrn(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const int64_t size = v.attrs->Int("size"), channels = x.shape[1], area = Product(x.shape, 2);
  const double unit = Roundoff(y.dtype), beta = v.attrs->Float("beta"),
               scale = v.attrs->Float("alpha") / static_cast<double>(size);
  if (want_err) y.err.resize(y.value.size());
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t c = i / area % channels;
    const int64_t first = std::max<int64_t>(c - ChannelsBefore(v), 0),
                  end = std::min(c - ChannelsBefore(v) + size, channels);
    double squares = 0, error = 0;
    for (int64_t k = first; k < end; ++k) {
      const int64_t at = i + (k - c) * area;
      squares += x.value[at] * x.value[at];
      error += 2 * std::fabs(x.value[at]) * x.ErrAt(at);
    }
    const double base = v.attrs->Float("bias") + scale * squares;
    const double power = std::pow(base, beta);
    y.value[i] = x.value[i] / power;
    if (!want_err) continue;
    // The power is exp(beta * log(base)): relative errors of the base grow by beta.
    const double base_error =
        std::fabs(scale) * (error + unit * static_cast<double>(size + 2) * squares) +
        unit * std::fabs(base);
    const double relative = std::fabs(beta) * base_error / std::fabs(base) +
                            unit * (20 + 8 * std::fabs(beta * std::log(std::fabs(base))));
    y.err[i] = x.ErrAt(i) / std::fabs(power) + relative * std::fabs(y.value[i]);
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpLRN() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "LRN";
    r.kind = FusionKind::kReduction;
    r.layout = LayoutRole::kFollows;
    r.input_names = {"x"};
    r.types = {DType::kF32, DType::kF64};
    r.attrs = {{"size", AttrType::kInt, std::nullopt},
               {"alpha", AttrType::kFloat, AttrValue(1e-4)},
               {"beta", AttrType::kFloat, AttrValue(0.75)},
               {"bias", AttrType::kFloat, AttrValue(1.0)}};
    r.import = ImportLrn;
    r.infer = InferLrn;
    r.te = TeLrn;
    r.reference = ReferenceLrn;
    r.flops = [](const OpView& v) {
      return graph::FlopsProduct({v.out[0]->num_elements(), 2 * v.attrs->Int("size") + 20});
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
