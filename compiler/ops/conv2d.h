// A convolution over two spatial axes as the canonical operator it is best made of. Few channels in
// a group leave vectors empty: neighbouring groups are joined to one, with zeros in the weights
// between them, and a single input channel per group is repeated for each of its outputs, which
// makes a depthwise convolution. Used at import only.
#pragma once
#include "compiler/ops/window.h"

namespace whet::ops {

// x (n, c, h, w), w (oc, c / group, kh, kw), b (oc) or kNoValue; `attrs` are the window's.
StatusOr<ValueId> EmitConv2d(ImportContext& c, ValueId x, ValueId w, ValueId b, Attrs attrs,
                             int64_t group);

}  // namespace whet::ops
