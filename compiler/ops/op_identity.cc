#include "compiler/ops/util.h"

namespace whet::ops {

// Also what passes use for a copy: into another layout, or of a value that a graph output must own.
const OpRecord& OpIdentity() {
  static const OpRecord op = [] {
    OpRecord r = Unary({
        .name = "Identity",
        .types = AllTypes(),
        .te = [](const OpView& v, const Expr& x) -> Expr { return x; },
        .value = [](const OpView& v, double x) -> double { return x; },
        .is_identity = [](const OpView&) { return true; },
        .flops_per_element = 0,
    });
    r.kind = FusionKind::kInjective;
    r.view = ViewRole::kReshape;
    r.takes_lists = true;
    r.import = [](ImportContext& c) -> Status {
      WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
      if (c.List(0) == nullptr && c.builder.graph().constant(c.inputs[0]) == nullptr)
        return ImportPlain(c);
      c.outputs = c.inputs;
      return OkStatus();
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
