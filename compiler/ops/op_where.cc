#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

Status InferWhere(const OpView& v, std::vector<TensorType>* out) {
  if (v.in[1]->dtype != v.in[2]->dtype)
    return InvalidArgument("alternatives of {} and {}", ToString(v.in[1]->dtype),
                           ToString(v.in[2]->dtype));
  WHET_ASSIGN_OR_RETURN(Shape sides, Broadcast(v.in[1]->shape, v.in[2]->shape));
  WHET_ASSIGN_OR_RETURN(Shape shape, Broadcast(v.in[0]->shape, sides));
  out->push_back(TensorType::Of(v.in[1]->dtype, std::move(shape)));
  return OkStatus();
}

// A condition that rounding may turn around admits the other alternative too.
void AdmitOtherSide(Inputs in, RefTensor& y) {
  std::vector<bool> unsure(y.value.size());
  ForEachStrided(y.shape, BroadcastStrides(in[0]->shape, y.shape), 0,
                 [&](int64_t i, int64_t at) { unsure[i] = in[0]->err[at] > 0; });
  for (int side : {1, 2}) {
    ForEachStrided(y.shape, BroadcastStrides(in[side]->shape, y.shape), 0,
                   [&](int64_t i, int64_t at) {
                     if (unsure[i]) AdmitElement(*in[side], at, y, i);
                   });
  }
}

Status ReferenceWhere(const OpView& v, Inputs in, Outputs out, bool want_err) {
  RefTensor& y = out[0];
  std::vector<double> cond(y.value.size());
  ForEachStrided(y.shape, BroadcastStrides(in[0]->shape, y.shape), 0,
                 [&](int64_t i, int64_t at) { cond[i] = in[0]->value[at]; });
  const bool unsure = want_err && !in[0]->err.empty();
  const bool err = unsure || (want_err && (!in[1]->err.empty() || !in[2]->err.empty()));
  if (err) y.err.resize(y.value.size());
  if (!in[1]->ints.empty() || !in[2]->ints.empty()) EnsureWords(y);
  for (int side : {1, 2}) {
    ForEachStrided(y.shape, BroadcastStrides(in[side]->shape, y.shape), 0,
                   [&](int64_t i, int64_t at) {
                     if ((cond[i] != 0) != (side == 1)) return;
                     y.value[i] = in[side]->value[at];
                     if (!y.ints.empty()) y.ints[i] = WordAt(*in[side], at);
                     if (err) y.err[i] = in[side]->ErrAt(at);
                   });
  }
  if (unsure) AdmitOtherSide(in, y);
  return OkStatus();
}

}  // namespace

const OpRecord& OpWhere() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Where";
    r.kind = FusionKind::kBroadcast;
    r.layout = LayoutRole::kFollows;
    r.min_inputs = r.max_inputs = 3;
    r.input_names = {"cond", "x", "y"};
    r.types = {DType::kBool};
    r.infer = InferWhere;
    r.te = [](const OpView& v, const std::vector<Buffer>& in,
              te::Builder& b) -> StatusOr<std::vector<Buffer>> {
      return std::vector<Buffer>{b.Compute(
          "where", v.out[0]->dtype, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
            return expr::Select(LoadBroadcast(in[0], i), LoadBroadcast(in[1], i),
                                LoadBroadcast(in[2], i));
          })};
    };
    r.reference = ReferenceWhere;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
