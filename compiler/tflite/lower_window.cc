// Operators with a window or weights: convolutions, pools, resizing, matrix products.
#include <algorithm>

#include "compiler/tflite/context.h"

namespace whet::tflite {
namespace {

struct Extents {
  int64_t h, w;
};

Status CheckWindow(Extents kernel, Extents stride, Extents dilation) {
  if (kernel.h < 1 || kernel.w < 1 || stride.h < 1 || stride.w < 1 || dilation.h < 1 ||
      dilation.w < 1) {
    return InvalidArgument("window {}x{}, stride {}x{}, dilation {}x{}: all must be 1 or more",
                           kernel.h, kernel.w, stride.h, stride.w, dilation.h, dilation.w);
  }
  return OkStatus();
}

// ONNX's pads [top, left, bottom, right]. SAME: as many windows as strides fit, what is missing
// split with the larger half at the end.
StatusOr<std::vector<int64_t>> Pads(fb::Padding padding, Extents in, Extents kernel, Extents stride,
                                    Extents dilation) {
  WHET_RETURN_IF_ERROR(CheckWindow(kernel, stride, dilation));
  if (padding == fb::Padding::VALID) return std::vector<int64_t>{0, 0, 0, 0};
  if (padding != fb::Padding::SAME) return InvalidArgument("padding {}", static_cast<int>(padding));
  auto total = [](int64_t in, int64_t k, int64_t s, int64_t d) {
    const int64_t out = (in + s - 1) / s;
    return std::max<int64_t>((out - 1) * s + (k - 1) * d + 1 - in, 0);
  };
  const int64_t h = total(in.h, kernel.h, stride.h, dilation.h);
  const int64_t w = total(in.w, kernel.w, stride.w, dilation.w);
  return std::vector<int64_t>{h / 2, w / 2, h - h / 2, w - w / 2};
}

Status NeedRank4(const OpContext& c, int i) {
  if (c.rank(i) != 4) return InvalidArgument("input {} has rank {}, not 4", i, c.rank(i));
  return OkStatus();
}

template <typename T>
Status Convolve(OpContext& c, const T& o, const std::vector<int64_t>& perm, int64_t group) {
  const Shape x = c.shape(0), w = c.shape(1);
  const Extents kernel = {w[1], w[2]}, stride = {o.stride_h(), o.stride_w()},
                dilation = {o.dilation_h(), o.dilation_w()};
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> pads,
                        Pads(o.padding(), {x[1], x[2]}, kernel, stride, dilation));
  std::vector<ValueId> in(2);
  WHET_ASSIGN_OR_RETURN(in[0], c.Real(0, Order::kChannelsFirst));
  WHET_ASSIGN_OR_RETURN(in[1], c.Weights(1, perm));
  if (c.Has(2)) {
    WHET_ASSIGN_OR_RETURN(const ValueId bias, c.Real(2, Order::kFile));
    in.push_back(bias);
  }
  WHET_ASSIGN_OR_RETURN(const ValueId y,
                        c.Emit("Conv", in,
                               {{"group", group},
                                {"pads", pads},
                                {"strides", std::vector<int64_t>{stride.h, stride.w}},
                                {"dilations", std::vector<int64_t>{dilation.h, dilation.w}}}));
  return c.Finish(y, Order::kChannelsFirst, o.activation());
}

Status LowerConv(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 3));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_Conv2D()));
  WHET_RETURN_IF_ERROR(NeedRank4(c, 0));
  WHET_RETURN_IF_ERROR(NeedRank4(c, 1));
  const int64_t channels = c.shape(0)[3], per_group = c.shape(1)[3];
  if (per_group < 1 || channels % per_group != 0)
    return InvalidArgument("weights for {} of {} input channels", per_group, channels);
  return Convolve(c, *o, kToChannelsFirst, channels / per_group);
}

Status LowerDepthwiseConv(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 3));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_DepthwiseConv2D()));
  WHET_RETURN_IF_ERROR(NeedRank4(c, 0));
  WHET_RETURN_IF_ERROR(NeedRank4(c, 1));
  if (c.shape(1)[0] != 1) return InvalidArgument("weights start with {}, not 1", c.shape(1)[0]);
  return Convolve(c, *o, {3, 0, 1, 2}, c.shape(0)[3]);
}

// Inputs: output shape, weights (out, h, w, in), x, bias. Pads are those of the convolution that
// would lead back; where it would not use the last rows of the output, ONNX calls them output
// padding.
Status LowerTransposeConv(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(3, 4));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_TransposeConv()));
  WHET_RETURN_IF_ERROR(NeedRank4(c, 1));
  WHET_RETURN_IF_ERROR(NeedRank4(c, 2));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> out, c.ConstInts(0, "output shape"));
  if (out.size() != 4) return InvalidArgument("output shape of {} extents, not 4", out.size());
  const Shape w = c.shape(1), x = c.shape(2);
  const Extents kernel = {w[1], w[2]}, stride = {o->stride_h(), o->stride_w()};
  WHET_RETURN_IF_ERROR(CheckWindow(kernel, stride, {1, 1}));
  if (o->padding() != fb::Padding::SAME && o->padding() != fb::Padding::VALID)
    return InvalidArgument("padding {}", static_cast<int>(o->padding()));
  std::vector<int64_t> pads(4), extra(2);
  for (int d = 0; d < 2; ++d) {
    const int64_t s = d == 0 ? stride.h : stride.w, k = d == 0 ? kernel.h : kernel.w;
    const int64_t full = (x[1 + d] - 1) * s + k, surplus = full - out[1 + d];
    if (o->padding() == fb::Padding::SAME && surplus > 0) {
      pads[d] = surplus / 2;
      pads[d + 2] = surplus - surplus / 2;
    } else if (surplus > 0) {
      return InvalidArgument("output extent {} for {} rows of the input", out[1 + d], x[1 + d]);
    }
    extra[d] = std::max<int64_t>(-surplus, 0);
    if (extra[d] >= s)
      return InvalidArgument("output extent {} for {} rows of the input", out[1 + d], x[1 + d]);
  }
  std::vector<ValueId> in(2);
  WHET_ASSIGN_OR_RETURN(in[0], c.Real(2, Order::kChannelsFirst));
  WHET_ASSIGN_OR_RETURN(in[1], c.Weights(1, {3, 0, 1, 2}));
  if (c.Has(3)) {
    WHET_ASSIGN_OR_RETURN(const ValueId bias, c.Real(3, Order::kFile));
    in.push_back(bias);
  }
  WHET_ASSIGN_OR_RETURN(const ValueId y,
                        c.Emit("ConvTranspose", in,
                               {{"pads", pads},
                                {"strides", std::vector<int64_t>{stride.h, stride.w}},
                                {"output_padding", extra}}));
  return c.Finish(y, Order::kChannelsFirst, o->activation());
}

Status LowerPool(OpContext& c, const char* onnx) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_Pool2D()));
  WHET_RETURN_IF_ERROR(NeedRank4(c, 0));
  const Shape x = c.shape(0);
  const Extents kernel = {o->filter_height(), o->filter_width()},
                stride = {o->stride_h(), o->stride_w()};
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> pads,
                        Pads(o->padding(), {x[1], x[2]}, kernel, stride, {1, 1}));
  WHET_ASSIGN_OR_RETURN(const ValueId v, c.Real(0, Order::kChannelsFirst));
  WHET_ASSIGN_OR_RETURN(const ValueId y,
                        c.Emit(onnx, {v},
                               {{"kernel_shape", std::vector<int64_t>{kernel.h, kernel.w}},
                                {"strides", std::vector<int64_t>{stride.h, stride.w}},
                                {"pads", pads}}));
  return c.Finish(y, Order::kChannelsFirst, o->activation());
}

Status Resize(OpContext& c, bool align_corners, bool half_pixel, bool linear) {
  WHET_RETURN_IF_ERROR(NeedRank4(c, 0));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> size, c.ConstInts(1, "size"));
  if (size.size() != 2) return InvalidArgument("size of {} extents, not 2", size.size());
  if (align_corners && half_pixel)
    return InvalidArgument("corners aligned and half pixels exclude each other");
  const Shape x = c.shape(0);
  WHET_ASSIGN_OR_RETURN(const ValueId v, c.Real(0, Order::kChannelsFirst));
  Attrs attrs = {{"mode", std::string(linear ? "linear" : "nearest")},
                 {"coordinate_transformation_mode", std::string(align_corners ? "align_corners"
                                                                : half_pixel  ? "half_pixel"
                                                                              : "asymmetric")}};
  // The format rounds half up where it aligns corners or shifts by half a pixel, and down
  // elsewhere.
  if (!linear)
    attrs.Set("nearest_mode",
              std::string(align_corners || half_pixel ? "round_prefer_ceil" : "floor"));
  WHET_ASSIGN_OR_RETURN(
      const ValueId y,
      c.Emit("Resize", {v, kNoValue, kNoValue, c.Ints({x[0], x[3], size[0], size[1]})},
             std::move(attrs)));
  return c.Finish(y, Order::kChannelsFirst);
}

Status LowerResizeBilinear(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_ResizeBilinear()));
  return Resize(c, o->align_corners(), o->half_pixel_centers(), true);
}

Status LowerResizeNearest(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_ResizeNearest()));
  return Resize(c, o->align_corners(), o->half_pixel_centers(), false);
}

// x is seen as rows of as many elements as the weights (units, inputs) have columns.
Status LowerFullyConnected(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 3));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_FullyConnected()));
  if (o->weights_format() != 0)
    return Unimplemented("shuffled weights (format {}) are not supported", o->weights_format());
  const Shape x = c.shape(0), w = c.shape(1);
  if (w.size() != 2) return InvalidArgument("weights have rank {}, not 2", w.size());
  int64_t elements = 1;
  for (int64_t d : x) elements *= d;  // within the cap on tensors
  if (w[1] < 1 || elements % w[1] != 0)
    return InvalidArgument("{} elements are no rows of {}", elements, w[1]);
  std::vector<ValueId> in(2);
  WHET_ASSIGN_OR_RETURN(in[0], c.Real(0, Order::kFile));
  WHET_ASSIGN_OR_RETURN(in[0], c.Reshape(in[0], {elements / w[1], w[1]}));
  WHET_ASSIGN_OR_RETURN(in[1], c.Weights(1, {0, 1}));
  if (c.Has(2)) {
    WHET_ASSIGN_OR_RETURN(const ValueId bias, c.Real(2, Order::kFile));
    in.push_back(bias);
  }
  WHET_ASSIGN_OR_RETURN(ValueId y, c.Emit("Gemm", in, {{"transB", int64_t{1}}}));
  WHET_ASSIGN_OR_RETURN(y, c.Activate(y, o->activation()));
  if (o->keep_num_dims()) {
    if (x.empty() || x.back() != w[1])
      return InvalidArgument("the last extent of x is not the {} of the weights", w[1]);
    Shape shape = x;
    shape.back() = w[0];
    WHET_ASSIGN_OR_RETURN(y, c.Reshape(y, shape));
  }
  return c.SetReal(0, y, Order::kFile);
}

Status LowerBatchMatMul(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_BatchMatMul()));
  std::vector<ValueId> in(2);
  for (int i = 0; i < 2; ++i) {
    WHET_ASSIGN_OR_RETURN(in[i], c.Real(i, Order::kFile));
    if (!(i == 0 ? o->adj_x() : o->adj_y())) continue;
    std::vector<int64_t> perm;
    for (int64_t d = 0; d < c.rank(i); ++d) perm.push_back(d);
    if (perm.size() < 2) return InvalidArgument("input {} has rank {}", i, perm.size());
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    WHET_ASSIGN_OR_RETURN(in[i], c.Transpose(in[i], perm));
  }
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Emit("MatMul", in));
  return c.Finish(y, Order::kFile);
}

}  // namespace

std::vector<OpEntry> WindowOperators() {
  using enum fb::BuiltinOperator;
  return {
      {AVERAGE_POOL_2D, LowerPool, "AveragePool"},
      {BATCH_MATMUL, LowerBatchMatMul},
      {CONV_2D, LowerConv},
      {DEPTHWISE_CONV_2D, LowerDepthwiseConv},
      {FULLY_CONNECTED, LowerFullyConnected},
      {MAX_POOL_2D, LowerPool, "MaxPool"},
      {RESIZE_BILINEAR, LowerResizeBilinear},
      {RESIZE_NEAREST_NEIGHBOR, LowerResizeNearest},
      {TRANSPOSE_CONV, LowerTransposeConv},
  };
}

}  // namespace whet::tflite
