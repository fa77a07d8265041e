// What operators with bodies, and those on sequences, make of values at import: joining and taking
// apart along an axis, and choosing between results. Used by compiler/ops/op_*.cc only.
#pragma once
#include <cstdint>
#include <vector>

#include "compiler/ops/util.h"

namespace whet::ops {

// Of loops: more are not unrolled.
inline constexpr int64_t kMaxIterations = 65536;

// `items` joined along an axis, which a new dimension makes room for where `stack` says so. Long
// lists are joined in steps, so that no node has too many inputs.
enum class Joined : uint8_t { kConcat, kStack };
StatusOr<ValueId> Join(graph::GraphBuilder& b, std::vector<ValueId> items, int64_t axis,
                       Joined how);
// [begin, begin + count) of an axis, which may be dropped when count is 1.
enum class Axis : uint8_t { kKeep, kDrop };
StatusOr<ValueId> Part(graph::GraphBuilder& b, ValueId v, int64_t axis, int64_t begin,
                       int64_t count, Axis keep);
// `a` where the condition holds, else `b`. Both are computed; sequences are chosen from item by
// item.
StatusOr<ValueId> Choose(ImportContext& c, ValueId condition, ValueId a, ValueId b);
// A bool or number of one element as a scalar.
StatusOr<ValueId> Scalar(graph::GraphBuilder& b, ValueId v);

}  // namespace whet::ops
