// Convolutions over three spatial axes, in terms of those over two: the depths that one window
// covers lie side by side as channels. Used at import only.
#pragma once
#include "compiler/ops/window.h"

namespace whet::ops {

// x (n, c, d, h, w), w (oc, c / group, kd, kh, kw), b (oc) or kNoValue.
StatusOr<ValueId> EmitConv3d(ImportContext& c, ValueId x, ValueId w, ValueId b,
                             const WindowLists& window, int64_t group);

}  // namespace whet::ops
