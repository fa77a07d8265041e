#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

// One axis of an ONNX slice: clamps starts and ends, which may be any 64-bit number, to the extent.
Status NormalizeRange(int64_t extent, int64_t start, int64_t end, int64_t step, int64_t* first,
                      int64_t* count) {
  if (step == 0) return InvalidArgument("a step of 0");
  auto clamp = [extent](int64_t i, int64_t lo, int64_t hi) {
    return std::clamp(i < 0 ? i + extent : i, lo, hi);
  };
  if (step > 0) {
    *first = clamp(start, 0, extent);
    const int64_t stop = clamp(end, 0, extent);
    // Written without adding the step, which may be close to the largest integer.
    *count = stop > *first ? (stop - *first - 1) / step + 1 : 0;
  } else {
    *first = clamp(start, -1, extent - 1);
    const int64_t stop = clamp(end, -1, extent - 1);
    *count = *first > stop ? (stop - *first + 1) / step + 1 : 0;
  }
  if (*count == 0) *first = 0;
  return OkStatus();
}

Status ImportSlice(ImportContext& c) {
  const bool inputs = c.opset >= 10;
  WHET_RETURN_IF_ERROR(c.NeedInputs(inputs ? 3 : 1, inputs ? 5 : 1));
  const Shape in = c.type(0).shape;
  const auto rank = static_cast<int64_t>(in.size());
  std::vector<int64_t> starts, ends, axes, steps;
  if (inputs) {
    WHET_ASSIGN_OR_RETURN(starts, c.ConstInts(1, "starts"));
    WHET_ASSIGN_OR_RETURN(ends, c.ConstInts(2, "ends"));
    if (c.Has(3)) {
      WHET_ASSIGN_OR_RETURN(axes, c.ConstInts(3, "axes"));
    }
    if (c.Has(4)) {
      WHET_ASSIGN_OR_RETURN(steps, c.ConstInts(4, "steps"));
    }
  } else {
    WHET_ASSIGN_OR_RETURN(starts, c.TakeInts("starts", {}));
    WHET_ASSIGN_OR_RETURN(ends, c.TakeInts("ends", {}));
    WHET_ASSIGN_OR_RETURN(axes, c.TakeInts("axes", {}));
  }
  if (axes.empty()) {
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    return InvalidArgument("{} starts, {} ends, {} axes, {} steps", starts.size(), ends.size(),
                           axes.size(), steps.size());
  }
  Shape first(in.size(), 0), stride(in.size(), 1), sizes = in;
  std::vector<bool> seen(in.size(), false);
  for (size_t i = 0; i < starts.size(); ++i) {
    WHET_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(axes[i], rank));
    if (seen[axis]) return InvalidArgument("axis {} occurs twice", axis);
    seen[axis] = true;
    WHET_RETURN_IF_ERROR(
        NormalizeRange(in[axis], starts[i], ends[i], steps[i], &first[axis], &sizes[axis]));
    // With at most one element the step has no meaning; one form for all.
    stride[axis] = sizes[axis] <= 1 ? 1 : steps[i];
  }
  return c.Finish("Slice", {c.inputs[0]}, {{"starts", first}, {"steps", stride}, {"sizes", sizes}});
}

Status InferSlice(const OpView& v, std::vector<TensorType>* out) {
  const Shape &in = v.in[0]->shape, &starts = v.attrs->Ints("starts"),
              &steps = v.attrs->Ints("steps"), &sizes = v.attrs->Ints("sizes");
  if (starts.size() != in.size() || steps.size() != in.size() || sizes.size() != in.size()) {
    return InvalidArgument("starts, steps and sizes must have {} entries each", in.size());
  }
  for (size_t d = 0; d < in.size(); ++d) {
    if (sizes[d] == 0) continue;
    int64_t last = 0;
    if (sizes[d] < 0 || __builtin_mul_overflow(sizes[d] - 1, steps[d], &last) ||
        __builtin_add_overflow(last, starts[d], &last) || starts[d] < 0 || starts[d] >= in[d] ||
        last < 0 || last >= in[d]) {
      return InvalidArgument("slice of {} from {} by {}, {} long, leaves dimension {}",
                             ShapeText(in), starts[d], steps[d], sizes[d], d);
    }
  }
  out->push_back(TensorType::Of(v.in[0]->dtype, sizes));
  return OkStatus();
}

}  // namespace

const OpRecord& OpSlice() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Slice";
    r.kind = FusionKind::kInjective;
    r.layout = LayoutRole::kFollows;
    r.input_names = {"x"};
    r.attrs = {{"starts", AttrType::kInts, std::nullopt},
               {"steps", AttrType::kInts, std::nullopt},
               {"sizes", AttrType::kInts, std::nullopt}};
    r.note = "bounds known at compile time";
    r.import = ImportSlice;
    r.infer = InferSlice;
    r.te = [](const OpView& v, const std::vector<Buffer>& in,
              te::Builder& b) -> StatusOr<std::vector<Buffer>> {
      const Shape &starts = v.attrs->Ints("starts"), &steps = v.attrs->Ints("steps");
      return std::vector<Buffer>{b.Compute("slice", v.out[0]->dtype, AxesOf(v.out[0]->shape),
                                           [&](const std::vector<Expr>& i) {
                                             std::vector<Expr> at;
                                             for (size_t d = 0; d < i.size(); ++d)
                                               at.push_back(i[d] * steps[d] + starts[d]);
                                             return expr::Load(in[0], at);
                                           })};
    };
    r.reference = [](const OpView& v, Inputs in, Outputs out, bool want_err) {
      const Shape strides = Strides(in[0]->shape);
      const Shape &starts = v.attrs->Ints("starts"), &steps = v.attrs->Ints("steps");
      Shape from(strides.size());
      int64_t offset = 0;
      for (size_t d = 0; d < strides.size(); ++d) {
        from[d] = steps[d] * strides[d];
        offset += starts[d] * strides[d];
      }
      CopyStrided(*in[0], from, offset, out[0], want_err);
      return OkStatus();
    };
    r.is_identity = [](const OpView& v) {
      const Shape& steps = v.attrs->Ints("steps");
      return v.attrs->Ints("sizes") == v.in[0]->shape &&
             std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s == 1; });
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
