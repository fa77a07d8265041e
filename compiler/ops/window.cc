#include "compiler/ops/window.h"

#include <algorithm>

namespace whet::ops {
namespace {

constexpr int64_t kMaxStep =
    int64_t{1} << 31;  // strides, dilations, pads: products with extents stay in 64 bits

Status CheckPositive(const std::vector<int64_t>& list, std::string_view name, int64_t least) {
  for (int64_t v : list) {
    if (v < least || v > kMaxStep)
      return InvalidArgument("{} {} must be between {} and 2^31", name, ShapeText(list), least);
  }
  return OkStatus();
}

int64_t CeilDiv(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

// SAME_UPPER and SAME_LOWER: ceil(in / stride) windows; an odd total pads more at the end or at the
// start.
Status ResolveAutoPad(const std::string& auto_pad, const Shape& spatial, std::vector<int64_t>* pads,
                      const Shape& kernel, const std::vector<int64_t>& strides,
                      const std::vector<int64_t>& dilations) {
  const size_t n = spatial.size();
  if (auto_pad == "NOTSET" || auto_pad.empty()) return OkStatus();
  pads->assign(2 * n, 0);
  if (auto_pad == "VALID") return OkStatus();
  if (auto_pad != "SAME_UPPER" && auto_pad != "SAME_LOWER")
    return InvalidArgument("auto_pad '{}' is unknown", auto_pad);
  for (size_t d = 0; d < n; ++d) {
    const int64_t out = CeilDiv(spatial[d], strides[d]);
    const int64_t span = (kernel[d] - 1) * dilations[d] + 1;
    const int64_t total = std::max<int64_t>((out - 1) * strides[d] + span - spatial[d], 0);
    (*pads)[d] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    (*pads)[d + n] = total - (*pads)[d];
  }
  return OkStatus();
}

}  // namespace

StatusOr<int64_t> Window::OutExtent(int d, int64_t in) const {
  const int64_t padded = in + pads[d] + pads[d + 2];
  if (padded < Span(d)) {
    return InvalidArgument(
        "kernel of {} with dilation {} exceeds the padded input of {} along axis {}", kernel[d],
        dilations[d], padded, d + 2);
  }
  int64_t out = (padded - Span(d)) / strides[d] + 1;
  if (ceil_mode) {
    out = CeilDiv(padded - Span(d), strides[d]) + 1;
    // A window that would start in the padding at the end does not exist.
    if ((out - 1) * strides[d] >= in + pads[d]) --out;
  }
  return out;
}

void Window::Taps(int d, int64_t o, int64_t in, int64_t* first, int64_t* last) const {
  const int64_t start = o * strides[d] - pads[d];
  *first = std::clamp<int64_t>(CeilDiv(-start, dilations[d]), 0, kernel[d]);
  *last = std::clamp<int64_t>(CeilDiv(in - start, dilations[d]), *first, kernel[d]);
}

StatusOr<WindowLists> TakeWindowLists(ImportContext& c, const Shape& spatial, Shape kernel) {
  const size_t n = spatial.size();
  if (n < 1 || n > 3) return Unimplemented("{} spatial axes are not supported; 1 to 3 are", n);
  const bool from_weights = !kernel.empty();
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> shape, c.TakeInts("kernel_shape", kernel));
  if (shape.size() != n)
    return InvalidArgument("kernel_shape {} for {} spatial axes", ShapeText(shape), n);
  if (from_weights && shape != kernel)
    return InvalidArgument("kernel_shape {} differs from the weights' {}", ShapeText(shape),
                           ShapeText(kernel));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> strides,
                        c.TakeInts("strides", std::vector<int64_t>(n, 1)));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> dilations,
                        c.TakeInts("dilations", std::vector<int64_t>(n, 1)));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> pads,
                        c.TakeInts("pads", std::vector<int64_t>(2 * n, 0)));
  WHET_ASSIGN_OR_RETURN(std::string auto_pad, c.TakeString("auto_pad", "NOTSET"));
  WHET_ASSIGN_OR_RETURN(int64_t ceil_mode, c.TakeInt("ceil_mode", 0));
  if (strides.size() != n || dilations.size() != n || pads.size() != 2 * n)
    return InvalidArgument("strides, dilations or pads do not fit {} spatial axes", n);
  WHET_RETURN_IF_ERROR(CheckPositive(shape, "kernel_shape", 1));
  WHET_RETURN_IF_ERROR(CheckPositive(strides, "strides", 1));
  WHET_RETURN_IF_ERROR(CheckPositive(dilations, "dilations", 1));
  WHET_RETURN_IF_ERROR(ResolveAutoPad(auto_pad, spatial, &pads, shape, strides, dilations));
  WHET_RETURN_IF_ERROR(CheckPositive(pads, "pads", 0));
  return WindowLists{std::move(shape), std::move(strides), std::move(dilations), std::move(pads),
                     ceil_mode != 0};
}

Window ToWindow(const WindowLists& lists) {
  Window w;
  w.ceil_mode = lists.ceil_mode;
  const size_t n = lists.kernel.size();
  for (size_t d = 0; d < n; ++d) {
    const size_t to = d + 2 - n;
    w.kernel[to] = lists.kernel[d];
    w.strides[to] = lists.strides[d];
    w.dilations[to] = lists.dilations[d];
    w.pads[to] = lists.pads[d];
    w.pads[to + 2] = lists.pads[d + n];
  }
  return w;
}

StatusOr<Window> TakeWindow(ImportContext& c, const Shape& spatial, Shape kernel) {
  if (spatial.empty() || spatial.size() > 2)
    return Unimplemented("{} spatial axes are not supported; 1 and 2 are", spatial.size());
  WHET_ASSIGN_OR_RETURN(WindowLists lists, TakeWindowLists(c, spatial, std::move(kernel)));
  return ToWindow(lists);
}

Attrs WindowAttrs(const Window& w, bool with_kernel) {
  Attrs a{{"strides", Shape(w.strides.begin(), w.strides.end())},
          {"dilations", Shape(w.dilations.begin(), w.dilations.end())},
          {"pads", Shape(w.pads.begin(), w.pads.end())}};
  if (with_kernel) {
    a.Set("kernel", Shape(w.kernel.begin(), w.kernel.end()));
    a.Set("ceil_mode", int64_t{w.ceil_mode});
  }
  return a;
}

StatusOr<Window> WindowOf(const Attrs& attrs, const Shape& kernel) {
  const Shape &strides = attrs.Ints("strides"), &dilations = attrs.Ints("dilations"),
              &pads = attrs.Ints("pads");
  if (kernel.size() != 2 || strides.size() != 2 || dilations.size() != 2 || pads.size() != 4) {
    return InvalidArgument("kernel, strides and dilations need 2 entries, pads 4");
  }
  WHET_RETURN_IF_ERROR(CheckPositive(kernel, "kernel", 1));
  WHET_RETURN_IF_ERROR(CheckPositive(strides, "strides", 1));
  WHET_RETURN_IF_ERROR(CheckPositive(dilations, "dilations", 1));
  WHET_RETURN_IF_ERROR(CheckPositive(pads, "pads", 0));
  Window w;
  std::copy(kernel.begin(), kernel.end(), w.kernel.begin());
  std::copy(strides.begin(), strides.end(), w.strides.begin());
  std::copy(dilations.begin(), dilations.end(), w.dilations.begin());
  std::copy(pads.begin(), pads.end(), w.pads.begin());
  if (const AttrValue* ceil = attrs.Find("ceil_mode")) w.ceil_mode = std::get<int64_t>(*ceil) != 0;
  return w;
}

StatusOr<ValueId> ToTwoAxes(ImportContext& c, ValueId v) {
  const Shape s = c.builder.type(v).shape;
  if (s.size() != 3) return v;
  return c.builder.Emit("Reshape", {v}, {{"shape", Shape{s[0], s[1], 1, s[2]}}});
}

StatusOr<ValueId> FromTwoAxes(ImportContext& c, ValueId v) {
  const Shape s = c.builder.type(v).shape;
  return c.builder.Emit("Reshape", {v}, {{"shape", Shape{s[0], s[1], s[3]}}});
}

}  // namespace whet::ops
