// Pools over the two last axes: MaxPool and AveragePool differ in the reducer and the division.
// Used by their records only.
#pragma once
#include "compiler/ops/window.h"

namespace whet::ops {

OpRecord Pool(const std::string& name, bool average);
// Where the maxima of a MaxPool stand.
OpRecord PoolIndices();
// Global pools: one window that is the whole image.
OpRecord GlobalPool(const std::string& name, bool average);

}  // namespace whet::ops
