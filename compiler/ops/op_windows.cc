// Hann, Hamming and Blackman windows, and the mel filter bank: constants, once their scalar inputs
// are known.
#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

constexpr double kWindowPi = 3.14159265358979323846;

StatusOr<double> TakeScalar(const ImportContext& c, int i, std::string_view what) {
  WHET_ASSIGN_OR_RETURN(std::vector<double> values, c.ConstFloats(i, what));
  if (values.size() != 1) return InvalidArgument("{} has {} elements, not 1", what, values.size());
  return values[0];
}

StatusOr<int64_t> TakeCount(const ImportContext& c, int i, std::string_view what) {
  WHET_ASSIGN_OR_RETURN(double v, TakeScalar(c, i, what));
  if (!(v >= 0 && v <= static_cast<double>(kMaxConstant)))
    return InvalidArgument("{} is {}, outside of 0..2^24", what, v);
  return static_cast<int64_t>(v);
}

Status FinishConstant(ImportContext& c, const Shape& shape, const std::vector<double>& values) {
  WHET_ASSIGN_OR_RETURN(std::string name, c.TakeString("output_datatype", "f32"));
  WHET_ASSIGN_OR_RETURN(DType t, ParseDType(name));
  c.outputs = {c.builder.Constant("", graph::Constant::OfDoubles(t, shape, values))};
  return OkStatus();
}

// w[0] - w[1] cos(2 pi i / n) + w[2] cos(4 pi i / n), n the size, or one less when symmetric.
Status ImportWindow(ImportContext& c, const std::vector<double>& w) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(int64_t size, TakeCount(c, 0, "size"));
  WHET_ASSIGN_OR_RETURN(int64_t periodic, c.TakeInt("periodic", 1));
  const auto n = static_cast<double>(periodic != 0 ? size : size - 1);
  std::vector<double> values;
  for (int64_t i = 0; i < size; ++i) {
    const double angle = 2 * kWindowPi * static_cast<double>(i) / n;
    values.push_back(size == 1 ? 1 : w[0] - w[1] * std::cos(angle) + w[2] * std::cos(2 * angle));
  }
  return FinishConstant(c, {size}, values);
}

OpRecord WindowRecord(const std::string& name, std::vector<double> w) {
  OpRecord r;
  r.name = name;
  r.note = "folded at import";
  r.import = [w = std::move(w)](ImportContext& c) { return ImportWindow(c, w); };
  return r;
}

// Triangles whose corners are evenly spaced in mel, one a column.
Status ImportMelWeights(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(5, 5));
  WHET_ASSIGN_OR_RETURN(int64_t bins, TakeCount(c, 0, "num_mel_bins"));
  WHET_ASSIGN_OR_RETURN(int64_t length, TakeCount(c, 1, "dft_length"));
  WHET_ASSIGN_OR_RETURN(double rate, TakeScalar(c, 2, "sample_rate"));
  WHET_ASSIGN_OR_RETURN(double low, TakeScalar(c, 3, "lower_edge_hertz"));
  WHET_ASSIGN_OR_RETURN(double high, TakeScalar(c, 4, "upper_edge_hertz"));
  const int64_t rows = length / 2 + 1;
  if (bins > 65536 || rows * bins > kMaxConstant)
    return ResourceExhausted("{} mel bins by {} frequencies exceed the limit of 2^24 weights", bins,
                             rows);
  auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double step = (mel(high) - mel(low)) / static_cast<double>(bins + 2);
  std::vector<int64_t> corners;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz =
        700 * (std::pow(10, (static_cast<double>(i) * step + mel(low)) / 2595) - 1);
    const double corner = std::floor(static_cast<double>(length + 1) * hertz / rate);
    if (!(corner >= 0 && corner < static_cast<double>(rows)))
      return InvalidArgument("a frequency of {} Hz is outside of the {} of a transform", hertz,
                             rows);
    corners.push_back(static_cast<int64_t>(corner));
  }
  std::vector<double> values(static_cast<size_t>(rows * bins), 0);
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t from = corners[i], peak = corners[i + 1], to = corners[i + 2];
    if (from == peak) values[peak * bins + i] = 1;
    for (int64_t j = from; j <= peak && from < peak; ++j)
      values[j * bins + i] = static_cast<double>(j - from) / static_cast<double>(peak - from);
    for (int64_t j = peak; j < to; ++j)
      values[j * bins + i] = static_cast<double>(to - j) / static_cast<double>(to - peak);
  }
  return FinishConstant(c, {rows, bins}, values);
}

}  // namespace

const OpRecord& OpHannWindow() {
  static const OpRecord op = WindowRecord("HannWindow", {0.5, 0.5, 0});
  return op;
}

const OpRecord& OpHammingWindow() {
  static const OpRecord op = WindowRecord("HammingWindow", {25.0 / 46, 21.0 / 46, 0});
  return op;
}

const OpRecord& OpBlackmanWindow() {
  static const OpRecord op = WindowRecord("BlackmanWindow", {0.42, 0.5, 0.08});
  return op;
}

const OpRecord& OpMelWeightMatrix() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "MelWeightMatrix";
    r.note = "folded at import";
    r.import = ImportMelWeights;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
