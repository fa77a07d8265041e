// The operator catalog: every record, by name. Explicit calls, because a self-registering static in
// a static library is dropped by the linker.
#pragma once
#include "compiler/graph/op.h"

namespace whet::ops {

const graph::OpCatalog& Catalog();

}  // namespace whet::ops
