// Concat(zeros.., x, zeros..) with one operand that is not constant zeros -> Pad(x) along that
// axis. Convolutional nets extend the channels of a residual this way; a Pad fuses into the
// addition, a Concat of a constant would read zeros.
#include "compiler/graph/passes.h"

namespace whet::graph {

StatusOr<bool> ConcatToPad(Graph& g) {
  bool changed = false;
  const OpRecord* concat = g.catalog->Find("Concat");
  const OpRecord* pad = g.catalog->Find("Pad");
  for (Node& n : g.nodes) {
    if (n.op != concat || n.inputs.size() < 2) continue;
    const auto axis = static_cast<size_t>(n.attrs.Int("axis"));
    int64_t before = 0, after = 0;
    ValueId x = kNoValue;
    int others = 0;
    for (ValueId v : n.inputs) {
      const bool zeros =
          g.constant(v) && (g.type(v).num_elements() == 0 || g.constant(v)->AllEqual(0));
      if (zeros) {
        (x == kNoValue ? before : after) += g.type(v).shape[axis];
      } else {
        x = v;
        ++others;
      }
    }
    if (others != 1) continue;
    const size_t rank = g.type(x).shape.size();
    std::vector<int64_t> pads(2 * rank, 0);
    pads[axis] = before;
    pads[axis + rank] = after;
    n.op = pad;
    n.inputs = {x};
    WHET_ASSIGN_OR_RETURN(n.attrs, FillAttrs(*pad, {{"pads", pads}}));
    changed = true;
  }
  g.Compact();
  return changed;
}

}  // namespace whet::graph
