// The value that --bind gives an input, for every frontend. Pure functions.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/graph/constant.h"

namespace whet::frontend {

// "16000", "1,2,3" or "[1,2,3]" as a constant. `shape` has -1 where the declaration leaves the
// extent open, and no value where even the rank is. One number stands for every element.
StatusOr<graph::ConstantPtr> BoundValue(DType dtype, std::string_view text,
                                        std::optional<std::vector<int64_t>> shape);

}  // namespace whet::frontend
