// CumSum without a recurrence: each element is a masked sum. Long rows are cut into blocks of about
// the square root of their length, the sums of whole blocks before an element are added to the sum
// inside of its block, so that a row of n elements takes 3 n^1.5 additions rather than n^2.
#include <algorithm>

#include "compiler/ops/emitter.h"
#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

constexpr int64_t kLongRow = 64;

Status ImportCumSum(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  WHET_ASSIGN_OR_RETURN(int64_t at, c.ConstInt(1, "axis"));
  WHET_ASSIGN_OR_RETURN(int64_t exclusive, c.TakeInt("exclusive", 0));
  WHET_ASSIGN_OR_RETURN(int64_t reverse, c.TakeInt("reverse", 0));
  WHET_ASSIGN_OR_RETURN(at, NormalizeAxis(at, c.type(0).rank()));
  return c.Finish(
      "CumSum", {c.inputs[0]},
      {{"axis", at}, {"exclusive", int64_t{exclusive != 0}}, {"reverse", int64_t{reverse != 0}}});
}

Status InferCumSum(const OpView& v, std::vector<TensorType>* out) {
  const int64_t axis = v.attrs->Int("axis");
  if (axis < 0 || axis >= v.in[0]->rank())
    return InvalidArgument("axis {} is outside of rank {}", axis, v.in[0]->rank());
  out->push_back(TensorType::Of(v.in[0]->dtype, v.in[0]->shape));
  return OkStatus();
}

// Stages: "cum_sum"; or, of long rows, "block" sums, the sum "before" a block, the sum "within" it,
// and "cum_sum".
StatusOr<std::vector<Buffer>> TeCumSum(const OpView& v, const std::vector<Buffer>& in,
                                       te::Builder& b) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const bool exclusive = v.attrs->Int("exclusive") != 0, reverse = v.attrs->Int("reverse") != 0;
  const DType t = v.out[0]->dtype;
  const Shape& shape = v.out[0]->shape;
  const int64_t n = shape[axis];
  const te::AxisSpec full = AxesOf(shape);
  const Expr zero = Const(t, 0);
  // Positions count in the direction of the sum.
  auto place = [&](const Expr& i) { return reverse ? expr::Int(n - 1) - i : i; };
  auto element = [&](std::vector<Expr> i, const Expr& position) {
    i[axis] = place(position);
    return expr::Load(in[0], i);
  };
  auto counts = [&](const Expr& position, const Expr& self) {
    return exclusive ? expr::Lt(position, self) : expr::Le(position, self);
  };
  if (n <= kLongRow) {
    return std::vector<Buffer>{
        b.Reduce("cum_sum", t, full, {{"k", n}}, te::Reducer::kSum,
                 [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                   return expr::Select(counts(r[0], place(i[axis])), element(i, r[0]), zero);
                 })};
  }
  const auto size = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  te::AxisSpec blocks = full;
  blocks[axis].second = (n + size - 1) / size;
  auto inside = [&](const Expr& position) { return expr::Min(position, expr::Int(n - 1)); };
  const Buffer block = b.Reduce("block", t, blocks, {{"k", size}}, te::Reducer::kSum,
                                [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                                  const Expr position = i[axis] * size + r[0];
                                  return expr::Select(expr::Lt(position, expr::Int(n)),
                                                      element(i, inside(position)), zero);
                                });
  const Buffer before =
      b.Reduce("before", t, blocks, {{"k", blocks[axis].second}}, te::Reducer::kSum,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 std::vector<Expr> at = i;
                 at[axis] = r[0];
                 return expr::Select(expr::Lt(r[0], i[axis]), expr::Load(block, at), zero);
               });
  const Buffer within =
      b.Reduce("within", t, full, {{"k", size}}, te::Reducer::kSum,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 const Expr self = place(i[axis]);
                 const Expr position = expr::FloorDiv(self, size) * size + r[0];
                 return expr::Select(counts(position, self), element(i, inside(position)), zero);
               });
  return std::vector<Buffer>{b.Compute("cum_sum", t, full, [&](const std::vector<Expr>& i) {
    std::vector<Expr> at = i;
    at[axis] = expr::FloorDiv(place(i[axis]), size);
    return expr::Load(within, i) + expr::Load(before, at);
  })};
}

Status ReferenceCumSum(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const bool exclusive = v.attrs->Int("exclusive") != 0, reverse = v.attrs->Int("reverse") != 0;
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const int64_t n = x.shape[axis], inner = Product(x.shape, axis + 1);
  const double unit = Roundoff(y.dtype);
  const bool err = want_err && (unit > 0 || !x.err.empty()), integer = !IsFloat(y.dtype);
  if (err) y.err.resize(y.value.size());
  for (int64_t row = 0; n > 0 && row < y.size() / n; ++row) {
    const int64_t base = row / inner * n * inner + row % inner;
    double sum = 0, magnitude = 0, bound = 0;
    uint64_t words = 0;
    for (int64_t p = 0; p < n; ++p) {
      const int64_t at = base + (reverse ? n - 1 - p : p) * inner;
      auto store = [&] {
        if (integer) {
          SetWord(y, at, expr::WrapInt(static_cast<int64_t>(words), y.dtype));
        } else {
          y.value[at] = sum;
        }
        if (err) y.err[at] = bound + unit * static_cast<double>(p + 1) * magnitude;
      };
      if (exclusive) store();
      sum += x.value[at];
      if (integer) words += static_cast<uint64_t>(WordAt(x, at));
      magnitude += std::fabs(x.value[at]);
      bound += x.ErrAt(at);
      if (!exclusive) store();
    }
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpCumSum() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "CumSum";
    r.kind = FusionKind::kReduction;
    r.input_names = {"x"};
    r.types = Numbers();
    r.attrs = {{"axis", AttrType::kInt, std::nullopt},
               {"exclusive", AttrType::kInt, AttrValue(int64_t{0})},
               {"reverse", AttrType::kInt, AttrValue(int64_t{0})}};
    r.note = "the axis known at compile time";
    r.import = InF32(ImportCumSum);
    r.infer = InferCumSum;
    r.te = TeCumSum;
    r.reference = ReferenceCumSum;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
