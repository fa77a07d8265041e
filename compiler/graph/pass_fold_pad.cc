// Conv(Pad(x, 0)) -> Conv(x) with larger pads; ConvInteger(Pad(x, v)) with pad_value v;
// MaxPool(Pad(x, -inf)) and AveragePool(Pad(x, 0)) with count_include_pad likewise. Only the two
// last axes may be padded. Pad(Pad(x)) with equal values -> Pad(x).
//
// An average that does not count its own padding would count the folded one differently, so it is
// left alone unless it has no padding of its own and can be told to count all.
#include <algorithm>
#include <limits>

#include "compiler/graph/passes.h"

namespace whet::graph {
namespace {

enum class Target { kNone, kConv, kConvInteger, kMaxPool, kAveragePool };

struct Records {
  const OpRecord *pad, *conv, *conv_integer, *max_pool, *average_pool;
};

Target TargetOf(const Node& n, const Records& r) {
  if (n.op == r.conv) return Target::kConv;
  if (n.op == r.conv_integer) return Target::kConvInteger;
  if (n.op == r.max_pool) return Target::kMaxPool;
  if (n.op == r.average_pool) return Target::kAveragePool;
  return Target::kNone;
}

bool AllZero(const std::vector<int64_t>& v) {
  return std::all_of(v.begin(), v.end(), [](int64_t p) { return p == 0; });
}

bool FoldInto(Node& n, const Node& pad, Target target) {
  const std::vector<int64_t>& extra = pad.attrs.Ints("pads");
  if (extra.size() != 8 || extra[0] != 0 || extra[1] != 0 || extra[4] != 0 || extra[5] != 0)
    return false;
  const double value = pad.attrs.Float("value");
  std::vector<int64_t> pads = n.attrs.Ints("pads");
  const bool unpadded = AllZero(pads);
  const std::vector<int64_t> sum = {pads[0] + extra[2], pads[1] + extra[3], pads[2] + extra[6],
                                    pads[3] + extra[7]};
  if (target == Target::kConv && value != 0) return false;
  if (target == Target::kConvInteger) {
    // With a zero point of its own, that is what padding holds; else any value, but one only.
    if (n.inputs.size() > 2) return false;
    if (!unpadded && value != static_cast<double>(n.attrs.Int("pad_value"))) return false;
    n.attrs.Set("pad_value", static_cast<int64_t>(value));
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
  if (target == Target::kAveragePool) n.attrs.Set("count_include_pad", int64_t{1});
  n.attrs.Set("pads", sum);
  n.inputs[0] = pad.inputs[0];
  return true;
}

bool MergePads(Node& n, const Node& first) {
  if (n.attrs.Float("value") != first.attrs.Float("value")) return false;
  std::vector<int64_t> pads = n.attrs.Ints("pads");
  const std::vector<int64_t>& inner = first.attrs.Ints("pads");
  for (size_t i = 0; i < pads.size(); ++i) pads[i] += inner[i];
  n.attrs.Set("pads", pads);
  n.inputs[0] = first.inputs[0];
  return true;
}

}  // namespace

StatusOr<bool> FoldPad(Graph& g) {
  bool changed = false;
  const Records r = {g.catalog->Find("Pad"), g.catalog->Find("Conv"),
                     g.catalog->Find("ConvInteger"), g.catalog->Find("MaxPool"),
                     g.catalog->Find("AveragePool")};
  const std::vector<int> producers = g.Producers();
  for (Node& n : g.nodes) {
    const Target target = TargetOf(n, r);
    if (target == Target::kNone && n.op != r.pad) continue;
    // A pad that others read too stays for them; this node still saves reading its result.
    while (producers[n.inputs[0]] >= 0) {
      const Node& producer = g.nodes[producers[n.inputs[0]]];
      if (producer.op != r.pad) break;
      if (!(n.op == r.pad ? MergePads(n, producer) : FoldInto(n, producer, target))) break;
      changed = true;
    }
  }
  return changed;
}

}  // namespace whet::graph
