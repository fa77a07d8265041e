#include "compiler/ops/resize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace whet::ops {
namespace {

constexpr int64_t kMaxTaps = 65536;  // of one output

// The input coordinate of output position x. Lengths computed from scales stay fractions, as the
// definition has them.
StatusOr<double> Coordinate(const std::string& mode, const ResizeAxis& a, int64_t x) {
  const auto in = static_cast<double>(a.in), at = static_cast<double>(x);
  const double out = a.scale * in;
  if (mode == "half_pixel") return (at + 0.5) / a.scale - 0.5;
  if (mode == "pytorch_half_pixel") return a.out == 1 ? -0.5 : (at + 0.5) / a.scale - 0.5;
  if (mode == "asymmetric") return at / a.scale;
  if (mode == "align_corners") return out == 1 || a.out == 1 ? 0 : at * (in - 1) / (out - 1);
  if (mode == "tf_half_pixel_for_nn") return (at + 0.5) / a.scale;
  if (mode == "half_pixel_symmetric") {
    const double adjustment = static_cast<double>(a.out) / out;
    return in / 2 * (1 - adjustment) + (at + 0.5) / a.scale - 0.5;
  }
  if (mode == "tf_crop_and_resize") {
    const double length = (a.roi_end - a.roi_start) * (in - 1);
    const double inside = a.out == 1 ? length / 2 : at * length / (static_cast<double>(a.out) - 1);
    return inside + a.roi_start * (in - 1);
  }
  return InvalidArgument("coordinate_transformation_mode '{}' is unknown", mode);
}

double Cubic(double a, double x) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// Weights of the positions floor(x) + first + k, for x = floor(x) + ratio with ratio in (0, 1].
struct Kernel {
  int64_t first = 0;
  std::vector<double> weight;
};

StatusOr<Kernel> KernelOf(const ResizeMode& m, double ratio, double scale) {
  Kernel k;
  if (m.mode == "nearest") {
    bool up = false;
    if (m.nearest == "round_prefer_floor") {
      up = ratio > 0.5;
    } else if (m.nearest == "round_prefer_ceil") {
      up = ratio >= 0.5;
    } else if (m.nearest == "floor") {
      up = ratio == 1;
    } else if (m.nearest == "ceil") {
      up = true;
    } else {
      return InvalidArgument("nearest_mode '{}' is unknown", m.nearest);
    }
    k.first = up ? 1 : 0;
    k.weight = {1};
    return k;
  }
  if (m.mode != "linear" && m.mode != "cubic")
    return InvalidArgument("mode '{}' is unknown", m.mode);
  const bool cubic = m.mode == "cubic";
  const double narrow = m.antialias ? std::min(scale, 1.0) : 1;
  const double first = std::floor((cubic ? -2 : -1) / narrow) + 1;
  if (!(2 - 2 * first <= kMaxTaps)) return InvalidArgument("a scale of {} is too small", scale);
  k.first = static_cast<int64_t>(first);
  double sum = 0;
  for (int64_t i = k.first; i < 2 - k.first; ++i) {
    const double at = narrow * (static_cast<double>(i) - ratio);
    k.weight.push_back(cubic ? Cubic(m.cubic_a, at) : std::max(1 - std::fabs(at), 0.0));
    sum += k.weight.back();
  }
  if (m.antialias) {
    for (double& w : k.weight) w /= sum;
  }
  return k;
}

}  // namespace

bool ResizeTaps::IsIdentity(int64_t in) const {
  if (any_outside || static_cast<int64_t>(index.size()) != in * taps) return false;
  for (int64_t i = 0; i < in; ++i) {
    double own = 0;
    for (int64_t k = 0; k < taps; ++k) {
      const auto at = static_cast<size_t>(i * taps + k);
      if (index[at] == i) {
        own += weight[at];
      } else if (weight[at] != 0) {
        return false;
      }
    }
    if (own != 1) return false;
  }
  return true;
}

StatusOr<ResizeTaps> TapsOf(const ResizeMode& mode, const ResizeAxis& a) {
  ResizeTaps t;
  t.outside.assign(static_cast<size_t>(a.out), false);
  for (int64_t i = 0; i < a.out; ++i) {
    WHET_ASSIGN_OR_RETURN(double x, Coordinate(mode.coordinates, a, i));
    if (mode.coordinates == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(a.in - 1)))
      t.outside[static_cast<size_t>(i)] = t.any_outside = true;
    // A coordinate on a position counts as the right end of the step before it.
    x = std::clamp(x, -0x1.0p40, 0x1.0p40);
    const double below = std::ceil(x) - 1;
    WHET_ASSIGN_OR_RETURN(Kernel k, KernelOf(mode, x - below, a.scale));
    t.taps = static_cast<int64_t>(k.weight.size());
    if (t.taps > kMaxTaps) return InvalidArgument("a scale of {} is too small", a.scale);
    if (t.taps * a.out > kMaxConstant)
      return ResourceExhausted("{} outputs of {} taps each are more than 2^24", a.out, t.taps);
    double sum = 0;
    for (int64_t j = 0; j < t.taps; ++j) {
      const int64_t at = static_cast<int64_t>(below) + k.first + j;
      if (mode.exclude_outside && mode.mode != "nearest" && (at < 0 || at >= a.in))
        k.weight[static_cast<size_t>(j)] = 0;
      sum += k.weight[static_cast<size_t>(j)];
      t.index.push_back(std::clamp<int64_t>(at, 0, a.in - 1));
    }
    for (double w : k.weight) t.weight.push_back(mode.exclude_outside && sum != 0 ? w / sum : w);
  }
  return t;
}

std::optional<IndexLine> FitLine(const std::vector<int64_t>& index, int64_t in, double scale) {
  const auto n = static_cast<int64_t>(index.size());
  std::vector<std::pair<int64_t, int64_t>> slopes = {{in, n}, {in - 1, n - 1}, {0, 1}};
  // The convergents of 1 / scale.
  double x = 1 / scale;
  int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
  for (int step = 0; step < 16 && std::isfinite(x) && x < 4096; ++step) {
    const auto whole = static_cast<int64_t>(std::floor(x));
    const int64_t p = whole * p1 + p0, q = whole * q1 + q0;
    if (p > 4096 || q > 4096) break;
    slopes.emplace_back(p, q);
    p0 = p1, q0 = q1, p1 = p, q1 = q;
    if (x - static_cast<double>(whole) < 1e-9) break;
    x = 1 / (x - static_cast<double>(whole));
  }
  for (auto [num, den] : slopes) {
    if (num < 0 || den < 1) continue;
    const int64_t common = std::gcd(num, den);
    num /= common, den /= common;
    if (num > (int64_t{1} << 31) || den > (int64_t{1} << 31)) continue;
    // index <= (num * i + offset) / den < index + 1, but for what is clamped.
    int64_t low = -(int64_t{1} << 62), high = int64_t{1} << 62;
    for (int64_t i = 0; i < n; ++i) {
      if (index[static_cast<size_t>(i)] > 0)
        low = std::max(low, index[static_cast<size_t>(i)] * den - num * i);
      if (index[static_cast<size_t>(i)] < in - 1)
        high = std::min(high, (index[static_cast<size_t>(i)] + 1) * den - num * i);
    }
    if (low >= high) continue;
    // Nought where it fits, and preferably no clamping.
    const int64_t unclamped_high = in * den - num * (n - 1);
    int64_t offset = std::max<int64_t>(low, 0);
    if (offset >= high) offset = high - 1;
    if (offset >= unclamped_high) offset = std::max(low, unclamped_high - 1);
    return IndexLine{num, offset, den};
  }
  return std::nullopt;
}

}  // namespace whet::ops
