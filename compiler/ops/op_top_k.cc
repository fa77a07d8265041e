// TopK without a sort: the rank of an element is how many come before it, and the element of rank r
// is the r-th of the result. That is n^2 comparisons a row, all independent of each other. Results
// are always sorted; equal elements keep their order; a NaN counts as the largest number.
#include <algorithm>
#include <numeric>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

Status ImportTopK(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(c.opset >= 10 ? 2 : 1, c.opset >= 10 ? 2 : 1));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", -1));
  WHET_ASSIGN_OR_RETURN(int64_t largest, c.TakeInt("largest", 1));
  c.Ignore("sorted");  // the order of an unsorted result is not defined: sorted is one
  int64_t k = 0;
  if (c.opset >= 10) {
    WHET_ASSIGN_OR_RETURN(k, c.ConstInt(1, "k"));
  } else {
    if (!c.HasAttr("k")) return InvalidArgument("attribute 'k' is missing");
    WHET_ASSIGN_OR_RETURN(k, c.TakeInt("k", 0));
  }
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
  WHET_ASSIGN_OR_RETURN(
      c.outputs, c.builder.EmitAll("TopK", {c.inputs[0]},
                                   {{"axis", axis}, {"k", k}, {"largest", int64_t{largest != 0}}}));
  return OkStatus();
}

Status InferTopK(const OpView& v, std::vector<TensorType>* out) {
  const int64_t axis = v.attrs->Int("axis"), k = v.attrs->Int("k");
  Shape shape = v.in[0]->shape;
  if (axis < 0 || axis >= v.in[0]->rank())
    return InvalidArgument("axis {} is outside of rank {}", axis, shape.size());
  int64_t& extent = shape[static_cast<size_t>(axis)];
  if (k < 0 || k > extent)
    return InvalidArgument("k {} is outside of 0..{}, the extent of axis {}", k, extent, axis);
  extent = k;
  out->push_back(TensorType::Of(v.in[0]->dtype, shape));
  out->push_back(TensorType::Of(DType::kI64, std::move(shape)));
  return OkStatus();
}

// a > b, with NaN above everything.
Expr Above(const Expr& a, const Expr& b) {
  const Expr greater = expr::Lt(b, a);
  if (!IsFloat(a->dtype)) return greater;
  return expr::Or(greater, expr::And(expr::Not(expr::Eq(a, a)), expr::Eq(b, b)));
}

// Stages: "rank" of each element, "index" of the element of each rank, and the "value" there.
StatusOr<std::vector<Buffer>> TeTopK(const OpView& v, const std::vector<Buffer>& in,
                                     te::Builder& b) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const bool largest = v.attrs->Int("largest") != 0;
  const Buffer& x = in[0];
  const int64_t n = x->shape[axis];
  const te::AxisSpec along = {{"k", n}};
  auto at = [&](const Buffer& t, std::vector<Expr> i, const Expr& k) {
    i[axis] = k;
    return expr::Load(t, i);
  };
  const Buffer rank =
      b.Reduce("rank", DType::kI32, AxesOf(x->shape), along, te::Reducer::kSum,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 const Expr self = expr::Load(x, i), other = at(x, i, r[0]);
                 const Expr before = largest ? Above(other, self) : Above(self, other);
                 const Expr after = largest ? Above(self, other) : Above(other, self);
                 const Expr first = expr::And(expr::Not(after), expr::Lt(r[0], i[axis]));
                 return expr::Select(expr::Or(before, first), expr::Int(1, DType::kI32),
                                     expr::Int(0, DType::kI32));
               });
  const te::AxisSpec spec = AxesOf(v.out[0]->shape);
  const Buffer index = b.Reduce("index", DType::kI64, spec, along, te::Reducer::kSum,
                                [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                                  const Expr here =
                                      expr::Eq(at(rank, i, r[0]), expr::Cast(DType::kI32, i[axis]));
                                  return expr::Select(here, r[0], expr::Int(0));
                                });
  const Buffer value = b.Compute("value", x->dtype, spec, [&](const std::vector<Expr>& i) {
    return at(x, i, expr::Max(expr::Min(expr::Load(index, i), expr::Int(n - 1)), expr::Int(0)));
  });
  return std::vector<Buffer>{value, index};
}

Status ReferenceTopK(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const bool largest = v.attrs->Int("largest") != 0;
  const RefTensor& x = *in[0];
  const int64_t n = x.shape[axis], k = v.attrs->Int("k"), inner = Product(x.shape, axis + 1);
  const bool err = want_err && !x.err.empty();
  if (err) {
    for (RefTensor& o : out) o.err.assign(o.value.size(), 0);
  }
  if (!x.ints.empty()) EnsureWords(out[0]);
  auto above = [&](int64_t a, int64_t b) {
    return LessAt(x, b, a) || (std::isnan(x.value[a]) && !std::isnan(x.value[b]));
  };
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t row = 0; k > 0 && row < out[0].size() / k; ++row) {
    const int64_t base = row / inner * n * inner + row % inner,
                  to = row / inner * k * inner + row % inner;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) {
      const int64_t a = base + p * inner, c = base + q * inner;
      return largest ? above(a, c) : above(c, a);
    });
    double worst = 0;
    for (int64_t j = 0; err && j < n; ++j) worst = std::max(worst, x.err[base + j * inner]);
    for (int64_t r = 0; r < k; ++r) {
      const int64_t from = base + order[r] * inner;
      CopyElement(x, from, out[0], to + r * inner);
      out[1].value[to + r * inner] = static_cast<double>(order[r]);
      if (worst == 0) continue;
      out[0].err[to + r * inner] = worst;
      // Neighbours in the order that rounding may exchange admit any index.
      for (int64_t next : {r - 1, r + 1}) {
        if (next < 0 || next >= n) continue;
        const double gap = std::fabs(x.value[base + order[next] * inner] - x.value[from]);
        if (gap <= 0x1.0p-23 * worst)
          out[1].err[to + r * inner] = static_cast<double>(n) * 0x1.0p24;
      }
    }
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpTopK() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "TopK";
    r.kind = FusionKind::kOpaque;
    r.input_names = {"x"};
    r.types = Numbers();
    r.attrs = {{"axis", AttrType::kInt, std::nullopt},
               {"k", AttrType::kInt, std::nullopt},
               {"largest", AttrType::kInt, AttrValue(int64_t{1})}};
    r.note = "k known at compile time; always sorted";
    r.import = ImportTopK;
    r.infer = InferTopK;
    r.te = TeTopK;
    r.reference = ReferenceTopK;
    r.flops = [](const OpView& v) {
      return graph::FlopsProduct({v.in[0]->num_elements(), v.in[0]->shape[v.attrs->Int("axis")]});
    };
    r.reference_flops = [](const OpView& v) { return 32 * v.in[0]->num_elements(); };  // sorts
    return r;
  }();
  return op;
}

}  // namespace whet::ops
