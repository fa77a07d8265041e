#include "compiler/ops/pool.h"

namespace whet::ops {

const OpRecord& OpGlobalMaxPool() {
  static const OpRecord op = GlobalPool("GlobalMaxPool", /*average=*/false);
  return op;
}

}  // namespace whet::ops
