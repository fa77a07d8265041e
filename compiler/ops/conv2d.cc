#include "compiler/ops/conv2d.h"
#include <algorithm>

namespace whet::ops {
namespace {

// Output channels that fill a vector of f32 on every processor we know.
constexpr int64_t kFullGroup = 16;
// Joining m groups multiplies the work by m.
constexpr int64_t kMaxJoinedGroups = 8;

// How many neighbouring groups to join: as few as fill a vector.
int64_t JoinedGroups(int64_t group, int64_t outputs) {
  for (int64_t m = 1; m <= std::min(group, kMaxJoinedGroups); ++m) {
    if (group % m == 0 && m * outputs >= kFullGroup && m * outputs % (kFullGroup / 2) == 0)
      return m;
  }
  return 1;
}

// (group * oc, ic, kh, kw) -> the same for group / m groups of m * ic input channels: blocks on the
// diagonal.
StatusOr<ValueId> JoinWeights(ImportContext& c, ValueId w, int64_t group, int64_t m) {
  const TensorType t = c.builder.type(w);
  const int64_t oc = t.shape[0] / group, ic = t.shape[1], kh = t.shape[2], kw = t.shape[3];
  std::vector<double> diagonal(static_cast<size_t>(m * m), 0.0);
  for (int64_t i = 0; i < m; ++i) diagonal[static_cast<size_t>(i * m + i)] = 1;
  const ValueId mask = c.builder.Constant(
      "", graph::Constant::OfDoubles(DType::kBool, {1, m, 1, m, 1, 1, 1}, diagonal));
  // A product with 0 would make NaN of an infinite weight.
  const double nothing[] = {0};
  const ValueId zero = c.builder.Constant("", graph::Constant::OfDoubles(t.dtype, {}, nothing));
  WHET_ASSIGN_OR_RETURN(
      w, c.builder.Emit("Reshape", {w}, {{"shape", Shape{group / m, m, oc, 1, ic, kh, kw}}}));
  WHET_ASSIGN_OR_RETURN(w, c.builder.Emit("Where", {mask, w, zero}));
  return c.builder.Emit("Reshape", {w}, {{"shape", Shape{group * oc, m * ic, kh, kw}}});
}

}  // namespace

StatusOr<ValueId> EmitConv2d(ImportContext& c, ValueId x, ValueId w, ValueId b, Attrs attrs,
                             int64_t group) {
  const Shape in = c.builder.type(x).shape, weights = c.builder.type(w).shape;
  const bool whole = group > 1 && in[1] > 0 && in[1] % group == 0 && weights[0] > 0 &&
                     weights[0] % group == 0 && weights[1] == in[1] / group;
  if (whole && weights[1] == 1 && weights[0] > group) {
    Shape sizes = in, den(4, 1);
    sizes[1] = weights[0];
    den[1] = weights[0] / group;
    WHET_ASSIGN_OR_RETURN(
        x, c.builder.Emit(
               "ResizeNearest", {x},
               {{"sizes", sizes}, {"num", Shape(4, 1)}, {"offset", Shape(4, 0)}, {"den", den}}));
    group = weights[0];
  } else if (whole && weights[1] > 1 && c.builder.graph().constant(w) != nullptr) {
    const int64_t m = JoinedGroups(group, weights[0] / group);
    if (m > 1) {
      WHET_ASSIGN_OR_RETURN(w, JoinWeights(c, w, group, m));
      group /= m;
    }
  }
  attrs.Set("group", group);
  std::vector<ValueId> inputs = {x, w};
  if (b != graph::kNoValue) inputs.push_back(b);
  return c.builder.Emit("Conv", std::move(inputs), std::move(attrs));
}

}  // namespace whet::ops
