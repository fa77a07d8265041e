#include "compiler/ops/pool.h"

namespace whet::ops {

const OpRecord& OpAveragePool() {
  static const OpRecord op = Pool("AveragePool", /*average=*/true);
  return op;
}

}  // namespace whet::ops
