// GatherElements and GatherND: reading at indices that come as data.
#include "compiler/ops/index.h"

namespace whet::ops {
namespace {

Status ImportGatherElements(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", 0));
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
  return c.Finish("GatherElements", c.inputs, {{"axis", axis}});
}

Status InferGatherElements(const OpView& v, std::vector<TensorType>* out) {
  const int64_t axis = v.attrs->Int("axis");
  const Shape &x = v.in[0]->shape, &index = v.in[1]->shape;
  WHET_RETURN_IF_ERROR(CheckIndexType(*v.in[1]));
  if (axis < 0 || axis >= v.in[0]->rank())
    return InvalidArgument("axis {} is outside of rank {}", axis, x.size());
  if (index.size() != x.size())
    return InvalidArgument("indices {} must have the rank of {}", ShapeText(index), ShapeText(x));
  for (size_t d = 0; d < x.size(); ++d) {
    if (static_cast<int64_t>(d) != axis && index[d] > x[d])
      return InvalidArgument("indices {} exceed {} in dimension {}", ShapeText(index), ShapeText(x),
                             d);
  }
  if (x[axis] == 0 && v.in[1]->num_elements() > 0)
    return InvalidArgument("nothing to gather from in dimension {}", axis);
  out->push_back(TensorType::Of(v.in[0]->dtype, index));
  return OkStatus();
}

StatusOr<std::vector<Buffer>> TeGatherElements(const OpView& v, const std::vector<Buffer>& in,
                                               te::Builder& b) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const int64_t extent = in[0]->shape[axis];
  return std::vector<Buffer>{b.Compute("gather", v.out[0]->dtype, AxesOf(v.out[0]->shape),
                                       [&](const std::vector<Expr>& i) {
                                         std::vector<Expr> at = i;
                                         at[axis] = ClampIndex(LoadIndex(in[1], i, extent), extent);
                                         return expr::Load(in[0], at);
                                       })};
}

Status ReferenceGatherElements(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const RefTensor &x = *in[0], &index = *in[1];
  RefTensor& y = out[0];
  PreparePick(x, index, y, want_err);
  Shape strides = Strides(x.shape);
  const int64_t step = strides[axis];
  strides[axis] = 0;
  ForEachStrided(y.shape, strides, 0, [&](int64_t i, int64_t base) {
    const int64_t at = ClampedValue(index, i, x.shape[axis]);
    Pick(x, base, step, at, want_err ? ReachOf(index, i, x.shape[axis]) : Reach{at, at}, y, i);
  });
  return OkStatus();
}

// ---- GatherND: indices [batch.., outer.., k] pick x[batch.., k indices, rest..].

Status ImportGatherNd(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  WHET_ASSIGN_OR_RETURN(int64_t batch, c.TakeInt("batch_dims", 0));
  return c.Finish("GatherND", c.inputs, {{"batch_dims", batch}});
}

Status InferGatherNd(const OpView& v, std::vector<TensorType>* out) {
  const int64_t batch = v.attrs->Int("batch_dims");
  const Shape &x = v.in[0]->shape, &index = v.in[1]->shape;
  WHET_RETURN_IF_ERROR(CheckIndexType(*v.in[1]));
  const auto xr = static_cast<int64_t>(x.size()), ir = static_cast<int64_t>(index.size());
  if (ir < 1 || xr < 1) return InvalidArgument("data and indices must have a dimension");
  if (batch < 0 || batch >= std::min(xr, ir))
    return InvalidArgument("batch_dims {} with ranks {} and {}", batch, xr, ir);
  const int64_t k = index.back();
  if (k < 1 || batch + k > xr)
    return InvalidArgument("indices {} index {} dimensions of {}", ShapeText(index), k,
                           ShapeText(x));
  for (int64_t d = 0; d < batch; ++d) {
    if (x[d] != index[d])
      return InvalidArgument("batch dimensions of {} and {} differ", ShapeText(x),
                             ShapeText(index));
  }
  Shape shape(index.begin(), index.end() - 1);
  shape.insert(shape.end(), x.begin() + batch + k, x.end());
  // Products may overflow before the result's shape is checked.
  const auto empty = [](const Shape& s) { return std::find(s.begin(), s.end(), 0) != s.end(); };
  if (!empty(shape) && empty(x))
    return InvalidArgument("nothing to gather from in {}", ShapeText(x));
  out->push_back(TensorType::Of(v.in[0]->dtype, std::move(shape)));
  return OkStatus();
}

StatusOr<std::vector<Buffer>> TeGatherNd(const OpView& v, const std::vector<Buffer>& in,
                                         te::Builder& b) {
  const int64_t batch = v.attrs->Int("batch_dims"), k = in[1]->shape.back();
  const auto picked = static_cast<int64_t>(in[1]->shape.size()) - 1;
  return std::vector<Buffer>{b.Compute(
      "gather", v.out[0]->dtype, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
        std::vector<Expr> at(i.begin(), i.begin() + batch);
        for (int64_t j = 0; j < k; ++j) {
          std::vector<Expr> where(i.begin(), i.begin() + picked);
          where.push_back(expr::Int(j));
          const int64_t extent = in[0]->shape[batch + j];
          at.push_back(ClampIndex(LoadIndex(in[1], std::move(where), extent), extent));
        }
        at.insert(at.end(), i.begin() + picked, i.end());
        return expr::Load(in[0], at);
      })};
}

Status ReferenceGatherNd(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const RefTensor &x = *in[0], &index = *in[1];
  RefTensor& y = out[0];
  const auto batch = static_cast<size_t>(v.attrs->Int("batch_dims"));
  const int64_t k = index.shape.back();
  const int64_t rest = Product(x.shape, batch + static_cast<size_t>(k));
  const int64_t batch_size = Product(x.shape, batch);
  const int64_t per_batch = Product(index.shape, batch, index.shape.size() - 1);
  PreparePick(x, index, y, want_err);
  for (int64_t p = 0; p < index.size() / k; ++p) {
    int64_t at = 0;
    Reach reach;  // of places before `rest`; all between the first and the last
    for (int64_t j = 0; j < k; ++j) {
      const int64_t extent = x.shape[batch + static_cast<size_t>(j)];
      const int64_t one = ClampedValue(index, p * k + j, extent);
      const Reach some = want_err ? ReachOf(index, p * k + j, extent) : Reach{one, one};
      at = at * extent + one;
      reach = {reach.first * extent + some.first, reach.last * extent + some.last};
    }
    const int64_t base = p / per_batch * batch_size;
    for (int64_t i = 0; i < rest; ++i) Pick(x, base + i, rest, at, reach, y, p * rest + i);
  }
  return OkStatus();
}

OpRecord Gathering(const std::string& name, const std::string& attr) {
  OpRecord r;
  r.name = name;
  r.kind = FusionKind::kOpaque;
  r.min_inputs = r.max_inputs = 2;
  r.input_names = {"x", "indices"};
  r.attrs = {{attr, AttrType::kInt, AttrValue(int64_t{0})}};
  r.flops = [](const OpView&) { return int64_t{0}; };
  return r;
}

}  // namespace

const OpRecord& OpGatherElements() {
  static const OpRecord op = [] {
    OpRecord r = Gathering("GatherElements", "axis");
    r.import = ImportGatherElements;
    r.infer = InferGatherElements;
    r.te = TeGatherElements;
    r.reference = ReferenceGatherElements;
    r.range = [](const OpView& v, int input) {
      if (input == 0) return graph::InputRange{};
      return graph::InputRange{0, static_cast<double>(v.in[0]->shape[v.attrs->Int("axis")])};
    };
    return r;
  }();
  return op;
}

const OpRecord& OpGatherND() {
  static const OpRecord op = [] {
    OpRecord r = Gathering("GatherND", "batch_dims");
    r.import = ImportGatherNd;
    r.infer = InferGatherNd;
    r.te = TeGatherNd;
    r.reference = ReferenceGatherNd;
    // One range for all columns: what is valid for the shortest dimension.
    r.range = [](const OpView& v, int input) {
      if (input == 0) return graph::InputRange{};
      const auto first = v.in[0]->shape.begin() + v.attrs->Int("batch_dims");
      return graph::InputRange{
          0, static_cast<double>(*std::min_element(first, first + v.in[1]->shape.back()))};
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
