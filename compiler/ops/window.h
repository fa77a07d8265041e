// Sliding windows over the two last axes of (n, c, h, w): what convolutions and pools share.
// Canonical attributes are kernel, strides, dilations [h, w] and pads [top, left, bottom, right],
// all explicit; one-dimensional operators become two-dimensional with h = 1 at import.
#pragma once
#include <array>

#include "compiler/ops/util.h"

namespace whet::ops {

struct Window {
  std::array<int64_t, 2> kernel{1, 1};
  std::array<int64_t, 2> strides{1, 1};
  std::array<int64_t, 2> dilations{1, 1};
  std::array<int64_t, 4> pads{0, 0, 0, 0};
  bool ceil_mode = false;

  int64_t Span(int d) const {
    return (kernel[d] - 1) * dilations[d] + 1;
  }  // input positions one window covers
  StatusOr<int64_t> OutExtent(int d, int64_t in) const;
  // Positions of the padded input that `out` windows read.
  int64_t Used(int d, int64_t out) const { return (out - 1) * strides[d] + Span(d); }
  // Of axis d: the taps k in [first, last) for which window `o` reads inside of [0, in).
  void Taps(int d, int64_t o, int64_t in, int64_t* first, int64_t* last) const;
};

// A window over any number of axes, as an ONNX node has it; pads are those of all starts, then
// those of all ends.
struct WindowLists {
  Shape kernel, strides, dilations, pads;
  bool ceil_mode = false;
};
// Attributes kernel_shape, strides, dilations, pads, auto_pad, ceil_mode of an ONNX node with
// `spatial` axes of the given extents. `kernel` is what the weights say, or empty for pools, where
// the attribute is required.
StatusOr<WindowLists> TakeWindowLists(ImportContext& c, const Shape& spatial, Shape kernel);
// Of one or two axes.
Window ToWindow(const WindowLists& lists);
StatusOr<Window> TakeWindow(ImportContext& c, const Shape& spatial, Shape kernel);
// [s] -> [1, s] for one spatial axis.
Attrs WindowAttrs(const Window& w, bool with_kernel);
StatusOr<Window> WindowOf(const Attrs& attrs,
                          const Shape& kernel);  // checked: text may come from a peer

// (n, c, l) -> (n, c, 1, l) and back, as Reshape nodes; other ranks are left alone.
StatusOr<ValueId> ToTwoAxes(ImportContext& c, ValueId v);
StatusOr<ValueId> FromTwoAxes(ImportContext& c, ValueId v);

}  // namespace whet::ops
