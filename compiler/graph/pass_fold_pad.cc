// Conv(Pad(x, 0)) -> Conv(x) with larger pads; ConvInteger(Pad(x, v)) with pad_value v;
// MaxPool(Pad(x, -inf)) and AveragePool(Pad(x, 0)) with count_include_pad likewise. Only the two
// last axes may be padded. Pad(Pad(x)) with equal values -> Pad(x).
//
// An average that does not count its own padding would count the folded one differently, so it is
// left alone unless it has no padding of its own and can be told to count all.
#include <algorithm>
#include <limits>

#include "compiler/graph/passes.h"
#include "compiler/graph/pattern.h"

namespace whet::graph {
namespace {

enum class Target { kNone, kConv, kConvInteger, kMaxPool, kAveragePool };

Target TargetOf(const Node& n) {
  const std::string& op = n.op->name;
  if (op == "Conv") return Target::kConv;
  if (op == "ConvInteger") return Target::kConvInteger;
  if (op == "MaxPool") return Target::kMaxPool;
  if (op == "AveragePool") return Target::kAveragePool;
  return Target::kNone;
}

bool AllZero(const std::vector<int64_t>& v) {
  return std::all_of(v.begin(), v.end(), [](int64_t p) { return p == 0; });
}

// `n` reads what `pad` reads.
bool BecomePadded(PatternRewriter& r, Node& n, const Node& pad, Attrs attrs) {
  std::vector<ValueId> inputs = n.inputs;
  inputs[0] = pad.inputs[0];
  return r.Become(n, n.op->name, std::move(inputs), std::move(attrs));
}

bool FoldInto(PatternRewriter& r, Node& n, const Node& pad) {
  const Target target = TargetOf(n);
  if (target == Target::kNone) return false;
  const std::vector<int64_t>& extra = pad.attrs.Ints("pads");
  if (extra.size() != 8 || extra[0] != 0 || extra[1] != 0 || extra[4] != 0 || extra[5] != 0)
    return false;
  const double value = pad.attrs.Float("value");
  Attrs attrs = n.attrs;
  const std::vector<int64_t>& pads = n.attrs.Ints("pads");
  const bool unpadded = AllZero(pads);
  const std::vector<int64_t> sum = {pads[0] + extra[2], pads[1] + extra[3], pads[2] + extra[6],
                                    pads[3] + extra[7]};
  if (target == Target::kConv && value != 0) return false;
  if (target == Target::kConvInteger) {
    // With a zero point of its own, that is what padding holds; else any value, but one only.
    if (n.inputs.size() > 2) return false;
    if (!unpadded && value != static_cast<double>(n.attrs.Int("pad_value"))) return false;
    attrs.Set("pad_value", static_cast<int64_t>(value));
  }
  if (target == Target::kMaxPool && value != -std::numeric_limits<double>::infinity()) return false;
  if (target == Target::kAveragePool) {
    if (value != 0 || n.attrs.Int("ceil_mode") != 0) return false;
    if (n.attrs.Int("count_include_pad") == 0 && !unpadded) return false;
  }
  if (target == Target::kMaxPool || target == Target::kAveragePool) {
    // A pool's window must not lie wholly in its padding.
    const std::vector<int64_t>&kernel = n.attrs.Ints("kernel"),
          &dilations = n.attrs.Ints("dilations");
    for (size_t i = 0; i < 4; ++i) {
      if (sum[i] >= (kernel[i % 2] - 1) * dilations[i % 2] + 1) return false;
    }
  }
  if (target == Target::kAveragePool) attrs.Set("count_include_pad", int64_t{1});
  attrs.Set("pads", sum);
  return BecomePadded(r, n, pad, std::move(attrs));
}

bool MergePads(PatternRewriter& r, Node& n, const Node& first) {
  if (n.attrs.Float("value") != first.attrs.Float("value")) return false;
  std::vector<int64_t> pads = n.attrs.Ints("pads");
  const std::vector<int64_t>& inner = first.attrs.Ints("pads");
  for (size_t i = 0; i < pads.size(); ++i) pads[i] += inner[i];
  Attrs attrs = n.attrs;
  attrs.Set("pads", pads);
  return BecomePadded(r, n, first, std::move(attrs));
}

// A pad that others read too stays for them; this node still saves reading its result.
bool FoldPads(PatternRewriter& r, Node& n) {
  bool changed = false;
  while (!n.inputs.empty()) {
    const Node* pad = r.Producer(n.inputs[0], "Pad");
    if (pad == nullptr || !(n.op->name == "Pad" ? MergePads(r, n, *pad) : FoldInto(r, n, *pad)))
      break;
    changed = true;
  }
  return changed;
}

}  // namespace

StatusOr<bool> FoldPad(Graph& g) { return PatternRewriter(g).Run(FoldPads); }

}  // namespace whet::graph
