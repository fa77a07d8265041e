#include "compiler/ops/emitter.h"

namespace whet::ops {

// A chain of Add.
const OpRecord& OpSum() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Sum";
    r.import = InF32([](ImportContext& c) { return ImportChain(c, "Add"); });
    return r;
  }();
  return op;
}

}  // namespace whet::ops
