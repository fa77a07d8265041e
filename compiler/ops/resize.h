// Coordinates of Resize and Upsample, as the operator's definition computes them: which input
// positions, with which weights, an output position of one axis is made of. Used at import only:
// everything becomes constants or whole numbers there. Pure functions.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/util.h"

namespace whet::ops {

struct ResizeMode {
  std::string mode = "nearest";  // nearest, linear, cubic
  std::string coordinates = "half_pixel";
  std::string nearest = "round_prefer_floor";
  double cubic_a = -0.75;
  bool exclude_outside = false;
  bool antialias = false;
};

struct ResizeAxis {
  int64_t in = 1, out = 1;
  double scale = 1;
  double roi_start = 0, roi_end = 1;
};

// Row-major [out, taps]: input positions (inside of the axis) and their weights.
struct ResizeTaps {
  int64_t taps = 1;
  std::vector<int64_t> index;
  std::vector<double> weight;
  std::vector<bool> outside;  // per output position: takes the extrapolation value
  bool any_outside = false;
  bool IsIdentity(int64_t in) const;
};
StatusOr<ResizeTaps> TapsOf(const ResizeMode& mode, const ResizeAxis& axis);

// Whole numbers with clamp((num * i + offset) // den, 0, in - 1) == index[i] for all i; num and den
// are small. None where no such line exists.
struct IndexLine {
  int64_t num = 1, offset = 0, den = 1;
};
std::optional<IndexLine> FitLine(const std::vector<int64_t>& index, int64_t in, double scale);

}  // namespace whet::ops
