#include "compiler/ops/index.h"

namespace whet::ops {
namespace {

// One constant index, or constant indices in steps, are a Slice; the rest stays a Gather.
StatusOr<bool> ImportAsSlice(ImportContext& c, int64_t axis) {
  if (!c.IsConst(1)) return false;
  const std::vector<int64_t> indices = c.builder.graph().constant(c.inputs[1])->Ints();
  const Shape in = c.type(0).shape;
  if (indices.empty()) return false;
  std::vector<int64_t> at;
  for (int64_t i : indices) {
    if (i < -in[axis] || i >= in[axis])
      return InvalidArgument("index {} is outside of dimension {} of {}", i, axis, ShapeText(in));
    at.push_back(i < 0 ? i + in[axis] : i);
  }
  const int64_t step = at.size() > 1 ? at[1] - at[0] : 1;
  for (size_t k = 1; k < at.size(); ++k) {
    if (at[k] - at[k - 1] != step) return false;
  }
  if (step == 0) return false;
  Shape starts(in.size(), 0), steps(in.size(), 1), sizes = in;
  starts[axis] = at[0];
  steps[axis] = step;
  sizes[axis] = static_cast<int64_t>(at.size());
  WHET_ASSIGN_OR_RETURN(ValueId v,
                        c.builder.Emit("Slice", {c.inputs[0]},
                                       {{"starts", starts}, {"steps", steps}, {"sizes", sizes}}));
  Shape shape(in.begin(), in.begin() + axis);
  shape.insert(shape.end(), c.type(1).shape.begin(), c.type(1).shape.end());
  shape.insert(shape.end(), in.begin() + axis + 1, in.end());
  WHET_RETURN_IF_ERROR(c.Finish("Reshape", {v}, {{"shape", shape}}));
  return true;
}

Status ImportGather(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", 0));
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
  if (IsFloat(c.type(1).dtype))
    return InvalidArgument("indices are {}, not integers", ToString(c.type(1).dtype));
  WHET_ASSIGN_OR_RETURN(bool done, ImportAsSlice(c, axis));
  if (done) return OkStatus();
  return c.Finish("Gather", c.inputs, {{"axis", axis}});
}

Status InferGather(const OpView& v, std::vector<TensorType>* out) {
  const int64_t axis = v.attrs->Int("axis");
  const Shape& in = v.in[0]->shape;
  if (axis < 0 || axis >= v.in[0]->rank())
    return InvalidArgument("axis {} is outside of rank {}", axis, in.size());
  if (v.in[1]->dtype != DType::kI64 && v.in[1]->dtype != DType::kI32)
    return InvalidArgument("indices must be i32 or i64");
  if (in[axis] == 0 && v.in[1]->num_elements() > 0)
    return InvalidArgument("nothing to gather from in dimension {}", axis);
  Shape shape(in.begin(), in.begin() + axis);
  shape.insert(shape.end(), v.in[1]->shape.begin(), v.in[1]->shape.end());
  shape.insert(shape.end(), in.begin() + axis + 1, in.end());
  out->push_back(TensorType::Of(v.in[0]->dtype, std::move(shape)));
  return OkStatus();
}

// An index outside of the dimension is clamped: data must never make a kernel read out of bounds.
StatusOr<std::vector<Buffer>> TeGather(const OpView& v, const std::vector<Buffer>& in,
                                       te::Builder& b) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const size_t index_rank = in[1]->shape.size();
  const int64_t extent = in[0]->shape[axis];
  return std::vector<Buffer>{b.Compute(
      "gather", v.out[0]->dtype, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
        const std::vector<Expr> where(i.begin() + axis, i.begin() + axis + index_rank);
        std::vector<Expr> at(i.begin(), i.begin() + axis);
        at.push_back(ClampIndex(LoadIndex(in[1], where, extent), extent));
        at.insert(at.end(), i.begin() + axis + index_rank, i.end());
        return expr::Load(in[0], at);
      })};
}

Status ReferenceGather(const OpView& v, Inputs in, Outputs out, bool want_err) {
  const auto axis = static_cast<size_t>(v.attrs->Int("axis"));
  const RefTensor &x = *in[0], &index = *in[1];
  const int64_t outer = Product(x.shape, 0, axis), inner = Product(x.shape, axis + 1),
                extent = x.shape[axis];
  PreparePick(x, index, out[0], want_err);
  int64_t to = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < index.size(); ++i) {
      const int64_t at = ClampedValue(index, i, extent);
      const Reach reach = want_err ? ReachOf(index, i, extent) : Reach{at, at};
      for (int64_t j = 0; j < inner; ++j)
        Pick(x, o * extent * inner + j, inner, at, reach, out[0], to++);
    }
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpGather() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Gather";
    r.kind = FusionKind::kOpaque;
    r.min_inputs = r.max_inputs = 2;
    r.input_names = {"x", "indices"};
    r.attrs = {{"axis", AttrType::kInt, AttrValue(int64_t{0})}};
    r.import = ImportGather;
    r.infer = InferGather;
    r.te = TeGather;
    r.reference = ReferenceGather;
    r.flops = [](const OpView&) { return int64_t{0}; };
    r.range = [](const OpView& v, int input) {
      if (input == 0) return graph::InputRange{};
      return graph::InputRange{0, static_cast<double>(v.in[0]->shape[v.attrs->Int("axis")])};
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
