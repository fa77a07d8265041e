// DFT as a product with a constant matrix, STFT as a convolution with the same matrix under the
// window: the transforms of audio models are short, and products are what is tuned.
#include <algorithm>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

constexpr double kDftPi = 3.14159265358979323846;
constexpr int64_t kMaxDftMatrix = int64_t{1} << 26;  // audio models have transforms of 4096

struct Transform {
  int64_t length = 0;   // of the transform
  int64_t samples = 0;  // given; the rest is zero
  int64_t parts = 1;    // 1 real, 2 complex input
  bool inverse = false;
  bool onesided = false;
  int64_t frequencies() const { return onesided ? length / 2 + 1 : length; }
};

Status CheckTransform(const Transform& t) {
  if (t.length < 1) return InvalidArgument("a transform of length {}", t.length);
  if (t.onesided && (t.inverse || t.parts == 2))
    return Unimplemented("onesided is supported for forward transforms of real input only");
  const int64_t limit = kMaxDftMatrix / (2 * t.parts);
  if (t.length > limit || t.samples > limit / t.frequencies())
    return ResourceExhausted("a transform of length {} needs a matrix of more than 2^26 elements",
                             t.length);
  return OkStatus();
}

// exp(-+ 2 pi i k s / length) as (real, imaginary) contributions of part `part` of sample s to part
// `to` of frequency k.
double Coefficient(const Transform& t, int64_t k, int64_t s, int64_t part, int64_t to) {
  const double turn =
      2 * kDftPi * static_cast<double>(k * s % t.length) / static_cast<double>(t.length);
  const double cosine = std::cos(turn), sine = (t.inverse ? 1 : -1) * std::sin(turn);
  const double v = part == to ? cosine : part == 0 ? sine : -sine;
  return t.inverse ? v / static_cast<double>(t.length) : v;
}

// An optional scalar input; `missing` without it.
StatusOr<int64_t> TakeOptional(const ImportContext& c, int i, std::string_view what,
                               int64_t missing) {
  return c.Has(i) ? c.ConstInt(i, what) : missing;
}

Status ImportDft(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, c.opset >= 20 ? 3 : 2));
  Transform t;
  WHET_ASSIGN_OR_RETURN(int64_t inverse, c.TakeInt("inverse", 0));
  WHET_ASSIGN_OR_RETURN(int64_t onesided, c.TakeInt("onesided", 0));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", 1));
  if (c.opset >= 20) {
    WHET_ASSIGN_OR_RETURN(axis, TakeOptional(c, 2, "axis", -2));
  }
  Shape x = c.type(0).shape;
  const auto rank = static_cast<int64_t>(x.size());
  if (rank < 2 || (x.back() != 1 && x.back() != 2))
    return InvalidArgument("the last dimension of {} is not 1 (real) or 2 (complex)", ShapeText(x));
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, rank));
  if (axis == rank - 1) return InvalidArgument("axis {} is that of real and imaginary parts", axis);
  WHET_ASSIGN_OR_RETURN(t.length, TakeOptional(c, 1, "dft_length", x[axis]));
  t.samples = std::min(x[axis], t.length);
  t.parts = x.back();
  t.inverse = inverse != 0;
  t.onesided = onesided != 0;
  WHET_RETURN_IF_ERROR(CheckTransform(t));
  Emitter e(c);
  const DType type = c.type(0).dtype, inner = type == DType::kF64 ? type : DType::kF32;
  ValueId v = e.Cast(c.inputs[0], inner);
  if (t.samples < x[axis]) {
    Shape sizes = x;
    sizes[axis] = t.samples;
    v = e("Slice", {v},
          {{"starts", Shape(x.size(), 0)}, {"steps", Shape(x.size(), 1)}, {"sizes", sizes}});
  }
  // Rows of samples: the axis goes next to the last.
  std::vector<int64_t> perm;
  Shape outer;
  for (int64_t d = 0; d + 1 < rank; ++d) {
    if (d == axis) continue;
    perm.push_back(d);
    outer.push_back(x[d]);
  }
  perm.push_back(axis);
  perm.push_back(rank - 1);
  std::vector<int64_t> back;  // where each dimension of the result is
  for (int64_t d = 0; d < rank; ++d)
    back.push_back(std::find(perm.begin(), perm.end(), d) - perm.begin());
  const int64_t in = t.samples * t.parts, out = t.frequencies() * 2;
  v = e.Reshape(e.Transpose(v, perm), {Product(outer), in});
  std::vector<double> matrix;
  matrix.reserve(static_cast<size_t>(in * out));
  for (int64_t s = 0; s < t.samples; ++s) {
    for (int64_t part = 0; part < t.parts; ++part) {
      for (int64_t k = 0; k < t.frequencies(); ++k) {
        for (int64_t to : {0, 1}) matrix.push_back(Coefficient(t, k, s, part, to));
      }
    }
  }
  v = e("MatMul", {v, e.Tensor(inner, {in, out}, matrix)});
  Shape shape = outer;
  shape.push_back(t.frequencies());
  shape.push_back(2);
  return e.Finish({e.Cast(e.Transpose(e.Reshape(v, shape), back), type)});
}

// signal (b, samples[, parts]) -> (b, frames, frequencies, 2)
Status ImportStft(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 4));
  WHET_ASSIGN_OR_RETURN(int64_t onesided, c.TakeInt("onesided", 1));
  const Shape x = c.type(0).shape;
  if (x.size() < 2 || x.size() > 3 || (x.size() == 3 && x[2] != 1 && x[2] != 2))
    return InvalidArgument("signal {} is not (batch, samples, 1 or 2)", ShapeText(x));
  WHET_ASSIGN_OR_RETURN(int64_t step, TakeOptional(c, 1, "frame_step", 1));
  const int64_t window = c.Has(2) ? Product(c.type(2).shape) : x[1];
  Transform t;
  WHET_ASSIGN_OR_RETURN(t.length, TakeOptional(c, 3, "frame_length", window));
  t.samples = t.length;
  t.parts = x.size() == 3 ? x[2] : 1;
  t.onesided = onesided != 0 && t.parts == 1;
  if (step < 1) return InvalidArgument("frame_step {} is not positive", step);
  if (t.length > x[1])
    return InvalidArgument("frames of {} samples of a signal of {}", t.length, x[1]);
  WHET_RETURN_IF_ERROR(CheckTransform(t));
  if (c.Has(2) && c.type(2).shape != Shape{t.length})
    return InvalidArgument("window {} for frames of {} samples", ShapeText(c.type(2).shape),
                           t.length);
  Emitter e(c);
  const DType type = c.type(0).dtype, inner = type == DType::kF64 ? type : DType::kF32;
  ValueId v = e.Reshape(e.Cast(c.inputs[0], inner), {x[0], x[1], t.parts});
  v = e.Reshape(e.Transpose(v, {0, 2, 1}), {x[0], t.parts, 1, x[1]});
  const int64_t out = t.frequencies() * 2;
  std::vector<double> matrix;
  matrix.reserve(static_cast<size_t>(out * t.parts * t.length));
  for (int64_t k = 0; k < t.frequencies(); ++k) {
    for (int64_t to : {0, 1}) {
      for (int64_t part = 0; part < t.parts; ++part) {
        for (int64_t s = 0; s < t.length; ++s) matrix.push_back(Coefficient(t, k, s, part, to));
      }
    }
  }
  ValueId weights = e.Tensor(inner, {out, t.parts, 1, t.length}, matrix);
  if (c.Has(2))
    weights = e("Mul", {weights, e.Reshape(e.Cast(c.inputs[2], inner), {1, 1, 1, t.length})});
  v = e("Conv", {v, weights}, {{"strides", Shape{1, step}}});
  const int64_t frames = (x[1] - t.length) / step + 1;
  v = e.Transpose(e.Reshape(v, {x[0], out, frames}), {0, 2, 1});
  return e.Finish({e.Cast(e.Reshape(v, {x[0], frames, t.frequencies(), 2}), type)});
}

}  // namespace

const OpRecord& OpDFT() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "DFT";
    r.note = "the length known at compile time; onesided for forward transforms of real input only";
    r.import = ImportDft;
    return r;
  }();
  return op;
}

const OpRecord& OpSTFT() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "STFT";
    r.note = "frame length and step known at compile time";
    r.import = ImportStft;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
