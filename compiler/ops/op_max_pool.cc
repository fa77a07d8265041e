#include "compiler/ops/pool.h"

namespace whet::ops {

const OpRecord& OpMaxPool() {
  static const OpRecord op = Pool("MaxPool", /*average=*/false);
  return op;
}

const OpRecord& OpMaxPoolIndices() {
  static const OpRecord op = PoolIndices();
  return op;
}

}  // namespace whet::ops
