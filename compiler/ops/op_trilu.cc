#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

// Beyond the extents all diagonals are alike; kept small so that index arithmetic cannot overflow.
constexpr int64_t kFarDiagonal = int64_t{1} << 40;

Status ImportTrilu(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 2));
  WHET_ASSIGN_OR_RETURN(int64_t upper, c.TakeInt("upper", 1));
  int64_t k = 0;
  if (c.Has(1)) {
    WHET_ASSIGN_OR_RETURN(k, c.ConstInt(1, "k"));
    k = std::clamp(k, -kFarDiagonal, kFarDiagonal);
  }
  return c.Finish("Trilu", {c.inputs[0]}, {{"k", k}, {"upper", int64_t{upper != 0}}});
}

Status InferTrilu(const OpView& v, std::vector<TensorType>* out) {
  if (v.in[0]->rank() < 2) return InvalidArgument("input {} is no matrix", v.in[0]->ToString());
  const int64_t k = v.attrs->Int("k");
  if (k < -kFarDiagonal || k > kFarDiagonal)
    return InvalidArgument("diagonal {} is outside of -2^40..2^40", k);
  out->push_back(TensorType::Of(v.in[0]->dtype, v.in[0]->shape));
  return OkStatus();
}

StatusOr<std::vector<Buffer>> TeTrilu(const OpView& v, const std::vector<Buffer>& in,
                                      te::Builder& b) {
  const int64_t k = v.attrs->Int("k");
  const bool upper = v.attrs->Int("upper") != 0;
  const DType t = v.out[0]->dtype;
  return std::vector<Buffer>{
      b.Compute("trilu", t, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
        const Expr diagonal = i[i.size() - 2] + k, column = i.back();
        const Expr kept = upper ? expr::Le(diagonal, column) : expr::Le(column, diagonal);
        return expr::Select(kept, expr::Load(in[0], i), Const(t, 0));
      })};
}

Status ReferenceTrilu(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const int64_t k = v.attrs->Int("k");
  const bool upper = v.attrs->Int("upper") != 0;
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const int64_t columns = y.shape.back(), rows = y.shape[y.shape.size() - 2];
  PrepareCopy(x, y, want_err);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t column = i % columns, diagonal = i / columns % rows + k;
    if (upper ? diagonal > column : diagonal < column) continue;
    CopyElement(x, i, y, i);
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpTrilu() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Trilu";
    r.kind = FusionKind::kBroadcast;
    r.layout = LayoutRole::kFollows;
    r.input_names = {"x"};
    r.attrs = {{"k", AttrType::kInt, AttrValue(int64_t{0})},
               {"upper", AttrType::kInt, AttrValue(int64_t{1})}};
    r.note = "the diagonal known at compile time";
    r.import = ImportTrilu;
    r.infer = InferTrilu;
    r.te = TeTrilu;
    r.reference = ReferenceTrilu;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
