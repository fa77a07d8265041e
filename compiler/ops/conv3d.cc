#include "compiler/ops/conv3d.h"

#include "compiler/ops/conv2d.h"
#include "compiler/ops/lists.h"

namespace whet::ops {
namespace {

class Conv3d {
 public:
  Conv3d(ImportContext& c, const WindowLists& window, int64_t group)
      : c_(c), l_(window), group_(group) {}

  StatusOr<ValueId> Run(ValueId x, ValueId w, ValueId b) {
    const Shape weights = c_.builder.type(w).shape;
    Shape in = c_.builder.type(x).shape;
    if (group_ < 1 || in[1] % group_ != 0)
      return InvalidArgument("{} groups of {} channels", group_, in[1]);
    // Depth is padded here, the other axes by the convolution.
    Shape pads(10, 0);
    pads[2] = l_.pads[0];
    pads[7] = l_.pads[3];
    if (pads[2] + pads[7] > 0) {
      WHET_ASSIGN_OR_RETURN(x, c_.builder.Emit("Pad", {x}, {{"pads", pads}}));
    }
    in = c_.builder.type(x).shape;
    const int64_t kd = weights[2], span = (kd - 1) * l_.dilations[0] + 1;
    if (in[2] < span)
      return InvalidArgument(
          "kernel of {} with dilation {} exceeds the padded input of {} along axis 2", kd,
          l_.dilations[0], in[2]);
    depth_ = (in[2] - span) / l_.strides[0] + 1;
    WHET_ASSIGN_OR_RETURN(x, Windows(x, kd));
    WHET_ASSIGN_OR_RETURN(w, c_.builder.Emit("Transpose", {w}, {{"perm", Shape{0, 2, 1, 3, 4}}}));
    WHET_ASSIGN_OR_RETURN(
        w, Reshaped(c_.builder, w, {weights[0], kd * weights[1], weights[3], weights[4]}));
    WindowLists plane;
    for (const auto& [to, from] : {std::pair{&plane.kernel, &l_.kernel},
                                   {&plane.strides, &l_.strides},
                                   {&plane.dilations, &l_.dilations}})
      to->assign(from->begin() + 1, from->end());
    plane.pads = {l_.pads[1], l_.pads[2], l_.pads[4], l_.pads[5]};
    WHET_ASSIGN_OR_RETURN(ValueId y,
                          EmitConv2d(c_, x, w, b, WindowAttrs(ToWindow(plane), false), group_));
    const Shape out = c_.builder.type(y).shape;
    WHET_ASSIGN_OR_RETURN(y, Reshaped(c_.builder, y, {in[0], depth_, out[1], out[2], out[3]}));
    return c_.builder.Emit("Transpose", {y}, {{"perm", Shape{0, 2, 1, 3, 4}}});
  }

 private:
  // (n, g * c, d, h, w) -> (n * depth, g * kd * c, h, w).
  StatusOr<ValueId> Windows(ValueId x, int64_t kd) {
    const Shape in = c_.builder.type(x).shape;
    const Shape grouped = {in[0], group_, 1, in[1] / group_, depth_, in[3], in[4]};
    std::vector<ValueId> taps;
    if (kd > 1024) return InvalidArgument("a kernel of {} along axis 2", kd);
    for (int64_t k = 0; k < kd; ++k) {
      Shape starts(5, 0), steps(5, 1), sizes = in;
      starts[2] = k * l_.dilations[0];
      steps[2] = depth_ > 1 ? l_.strides[0] : 1;
      sizes[2] = depth_;
      WHET_ASSIGN_OR_RETURN(
          ValueId v,
          c_.builder.Emit("Slice", {x}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}}));
      WHET_ASSIGN_OR_RETURN(v, Reshaped(c_.builder, v, grouped));
      taps.push_back(v);
    }
    WHET_ASSIGN_OR_RETURN(ValueId v, Join(c_.builder, std::move(taps), 2, Joined::kConcat));
    WHET_ASSIGN_OR_RETURN(
        v, c_.builder.Emit("Transpose", {v}, {{"perm", Shape{0, 4, 1, 2, 3, 5, 6}}}));
    return Reshaped(c_.builder, v, {in[0] * depth_, kd * in[1], in[3], in[4]});
  }

  ImportContext& c_;
  const WindowLists& l_;
  const int64_t group_;
  int64_t depth_ = 0;
};

}  // namespace

StatusOr<ValueId> EmitConv3d(ImportContext& c, ValueId x, ValueId w, ValueId b,
                             const WindowLists& window, int64_t group) {
  return Conv3d(c, window, group).Run(x, w, b);
}

}  // namespace whet::ops
