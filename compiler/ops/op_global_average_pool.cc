#include "compiler/ops/pool.h"

namespace whet::ops {

const OpRecord& OpGlobalAveragePool() {
  static const OpRecord op = GlobalPool("GlobalAveragePool", /*average=*/true);
  return op;
}

}  // namespace whet::ops
