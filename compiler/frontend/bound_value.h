// The value that --bind gives an input, for every frontend. Pure functions.
#pragma once
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/graph/constant.h"

namespace whet::frontend {

// The whole text as a number.
template <typename T>
bool ReadNumber(std::string_view text, T* v) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), *v);
  return failed == std::errc() && end == text.data() + text.size();
}

// "16000", "1,2,3" or "[1,2,3]" as a constant. `shape` has -1 where the declaration leaves the
// extent open, and no value where even the rank is. One number stands for every element.
StatusOr<graph::ConstantPtr> BoundValue(DType dtype, std::string_view text,
                                        std::optional<std::vector<int64_t>> shape);

}  // namespace whet::frontend
