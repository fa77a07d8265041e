#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

Status ImportConcat(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1));
  if (c.opset >= 4 && !c.HasAttr("axis")) return InvalidArgument("attribute 'axis' is missing");
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", 1));
  // Parts without elements need no reading, and an empty vector may stand for one of any rank.
  std::vector<ValueId> parts;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.Has(i)) return InvalidArgument("input {} is missing", i);
    if (c.type(i).dtype != c.type(0).dtype)
      return InvalidArgument("inputs of {} and {}; they must have one element type",
                             ToString(c.type(0).dtype), ToString(c.type(i).dtype));
    if (c.type(i).num_elements() > 0) parts.push_back(c.inputs[i]);
  }
  if (parts.empty()) parts = c.inputs;
  const int64_t rank = c.builder.type(parts[0]).rank();
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, rank));
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.type(i).rank() != rank && c.type(i).shape != Shape{0})
      return InvalidArgument("{} does not concatenate with rank {}", c.type(i).ToString(), rank);
  }
  return c.Finish("Concat", parts, {{"axis", axis}});
}

Status InferConcat(const OpView& v, std::vector<TensorType>* out) {
  WHET_RETURN_IF_ERROR(SameTypes(v));
  const int64_t axis = v.attrs->Int("axis");
  if (axis < 0 || axis >= v.in[0]->rank())
    return InvalidArgument("axis {} is outside of rank {}", axis, v.in[0]->rank());
  Shape shape = v.in[0]->shape;
  shape[axis] = 0;
  for (const TensorType* t : v.in) {
    if (t == nullptr) return InvalidArgument("an input is missing");
    Shape other = t->shape;
    if (other.size() == shape.size()) other[axis] = shape[axis];
    if (other != shape)
      return InvalidArgument("{} does not concatenate with {} along axis {}", t->ToString(),
                             v.in[0]->ToString(), axis);
    if (__builtin_add_overflow(shape[axis], t->shape[axis], &shape[axis]))
      return InvalidArgument("too large");
  }
  out->push_back(TensorType::Of(v.in[0]->dtype, std::move(shape)));
  return OkStatus();
}

// Each input is loaded under its own complete condition: a load must be guarded even where the
// other side of a condition is evaluated for all lanes of a vector.
StatusOr<std::vector<Buffer>> TeConcat(const OpView& v, const std::vector<Buffer>& in,
                                       te::Builder& b) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const DType t = v.out[0]->dtype;
  return std::vector<Buffer>{
      b.Compute("concat", t, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
        if (in.size() == 1) return expr::Load(in[0], i);
        Expr value = Const(t, 0);
        int64_t end = v.out[0]->shape[axis];
        for (size_t k = in.size(); k-- > 0;) {
          const int64_t begin = end - in[k]->shape[axis];
          if (begin == end) continue;
          Expr cond = begin > 0 ? expr::Le(expr::Int(begin), i[axis]) : expr::Bool(true);
          if (end < v.out[0]->shape[axis])
            cond = expr::And(cond, expr::Lt(i[axis], expr::Int(end)));
          std::vector<Expr> at = i;
          at[axis] = at[axis] - begin;
          value = expr::Select(cond, expr::Load(in[k], at), value);
          end = begin;
        }
        return value;
      })};
}

Status ReferenceConcat(const OpView& v, Inputs in, Outputs out, bool want_err) {
  RefTensor& y = out[0];
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const int64_t outer = Product(y.shape, 0, axis), row = Product(y.shape, axis);
  int64_t at = 0;
  for (const RefTensor* x : in) {
    const int64_t n = Product(x->shape, axis);
    PrepareCopy(*x, y, want_err);
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < n; ++i) CopyElement(*x, o * n + i, y, o * row + at + i);
    }
    at += n;
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpConcat() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Concat";
    r.kind = FusionKind::kInjective;
    r.layout = LayoutRole::kFollows;
    r.max_inputs = -1;
    r.input_names = {"x"};
    r.attrs = {{"axis", AttrType::kInt, std::nullopt}};
    r.import = ImportConcat;
    r.infer = InferConcat;
    r.te = TeConcat;
    r.reference = ReferenceConcat;
    r.is_identity = [](const OpView& v) { return v.in.size() == 1; };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
