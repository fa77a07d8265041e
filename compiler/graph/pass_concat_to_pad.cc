// Concat(zeros.., x, zeros..) with one operand that is not constant zeros -> Pad(x) along that
// axis. Convolutional nets extend the channels of a residual this way; a Pad fuses into the
// addition, a Concat of a constant would read zeros.
#include "compiler/graph/passes.h"
#include "compiler/graph/pattern.h"

namespace whet::graph {
namespace {

bool ToPad(PatternRewriter& r, Node& n) {
  if (n.op->name != "Concat" || n.inputs.size() < 2) return false;
  const auto axis = static_cast<size_t>(n.attrs.Int("axis"));
  int64_t before = 0, after = 0;
  ValueId x = kNoValue;
  for (ValueId v : n.inputs) {
    const bool zeros =
        r.constant(v) && (r.type(v).num_elements() == 0 || r.constant(v)->AllEqual(0));
    if (zeros) {
      (x == kNoValue ? before : after) += r.type(v).shape[axis];
    } else if (x == kNoValue) {
      x = v;
    } else {
      return false;
    }
  }
  if (x == kNoValue) return false;
  const size_t rank = r.type(x).shape.size();
  std::vector<int64_t> pads(2 * rank, 0);
  pads[axis] = before;
  pads[axis + rank] = after;
  return r.Become(n, "Pad", {x}, {{"pads", pads}});
}

}  // namespace

StatusOr<bool> ConcatToPad(Graph& g) { return PatternRewriter(g).Run(ToPad); }

}  // namespace whet::graph
