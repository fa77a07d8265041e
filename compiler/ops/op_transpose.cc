#include <numeric>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

Status ImportTranspose(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  std::vector<int64_t> reversed(c.type(0).shape.size());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> perm, c.TakeInts("perm", reversed));
  return c.Finish("Transpose", {c.inputs[0]}, {{"perm", perm}});
}

Status InferTranspose(const OpView& v, std::vector<TensorType>* out) {
  const std::vector<int64_t>& perm = v.attrs->Ints("perm");
  const Shape& in = v.in[0]->shape;
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> sorted, NormalizeAxes(perm, v.in[0]->rank()));
  for (int64_t p : perm) {
    if (p < 0) return InvalidArgument("perm {} has a negative entry", ShapeText(perm));
  }
  if (sorted.size() != in.size())
    return InvalidArgument("perm {} does not fit shape {}", ShapeText(perm), ShapeText(in));
  Shape shape;
  for (int64_t p : perm) shape.push_back(in[p]);
  out->push_back(TensorType::Of(v.in[0]->dtype, std::move(shape)));
  return OkStatus();
}

}  // namespace

const OpRecord& OpTranspose() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Transpose";
    r.kind = FusionKind::kInjective;
    r.view = ViewRole::kTranspose;
    r.input_names = {"x"};
    r.attrs = {{"perm", AttrType::kInts, std::nullopt}};
    r.import = ImportTranspose;
    r.infer = InferTranspose;
    r.te = [](const OpView& v, const std::vector<Buffer>& in,
              te::Builder& b) -> StatusOr<std::vector<Buffer>> {
      const std::vector<int64_t>& perm = v.attrs->Ints("perm");
      return std::vector<Buffer>{b.Compute("transpose", v.out[0]->dtype, AxesOf(v.out[0]->shape),
                                           [&](const std::vector<Expr>& i) {
                                             std::vector<Expr> at(perm.size());
                                             for (size_t d = 0; d < perm.size(); ++d)
                                               at[perm[d]] = i[d];
                                             return expr::Load(in[0], at);
                                           })};
    };
    r.reference = [](const OpView& v, Inputs in, Outputs out, bool want_err) {
      const std::vector<int64_t>& perm = v.attrs->Ints("perm");
      const Shape strides = Strides(v.in[0]->shape);
      Shape from(perm.size());
      for (size_t d = 0; d < perm.size(); ++d) from[d] = strides[perm[d]];
      CopyStrided(*in[0], from, 0, out[0], want_err);
      return OkStatus();
    };
    r.is_identity = [](const OpView& v) {
      const std::vector<int64_t>& perm = v.attrs->Ints("perm");
      for (size_t d = 0; d < perm.size(); ++d) {
        if (perm[d] != static_cast<int64_t>(d)) return false;
      }
      return true;
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
