// Private to the rules for one reduction with an element-wise prologue and epilogue: how its axes
// are told apart, and the steps of a schedule that all of them write in the same way.
#pragma once
#include <string>
#include <vector>

#include "compiler/schedule/analysis.h"
#include "compiler/schedule/rule.h"

namespace whet::schedule {

inline constexpr int kSpareRegisters = 1;  // one for a broadcast
// Parts of which a few threads get about equally many. More loops are not shared out than are
// needed: each tile that is a part by itself finds its place by a division.
inline constexpr double kEvenParts = 32;

// 1 when `iter` is -1.
int64_t Extent(const AnchorAnalysis& a, int iter);
inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Values above `limit` left out, but for the first.
std::vector<int64_t> UpTo(std::vector<int64_t> values, int64_t limit);

struct ReduceExtents {
  int64_t window = 1;        // all window axes
  int64_t inner_window = 1;  // the innermost window axis
  int64_t longest_window = 1;
  int64_t channels = 1;
};
// Of the reduce axis at `position` of reduce_iters.
bool IsWindow(const AnchorAnalysis& a, size_t position);

// A program's anchor and the numbers that checks and estimates use.
struct TiledContext : RuleContext {
  TiledContext(loop::Program p, Target t, AnchorAnalysis found);
  AnchorAnalysis a;  // points into `program`
  ReduceExtents r;
  int64_t vec = 1, rows = 1, lanes = 1;
  double others = 1, bytes = 0;
};
inline const TiledContext& Tiled(const RuleContext& c) {
  return static_cast<const TiledContext&>(c);
}

// Instructions of a multiply-add: sums of products of integers widen, multiply and add.
inline int64_t StepsOf(const TiledContext& c) { return IsFloat(c.a.anchor->out->dtype) ? 1 : 3; }
// Vectors of results that are unrolled together: what is done to integer sums, scaling and rounding
// above all, takes ten instructions each. Where 12 were the most, 1x1 of 64 to 256 channels and 3x3
// of 64 took 1.45 and 1.25 times as long.
inline int64_t MostResults(const TiledContext& c) { return StepsOf(c) > 1 ? 28 : 512; }

enum class ReduceClass { kNone, kConv, kDepthwise, kPool, kMatmul };
ReduceClass Classify(const AnchorAnalysis& a);

template <ReduceClass kClass>
std::unique_ptr<RuleContext> MatchReduce(const loop::Program& p, const Target& t) {
  loop::Program program = p;
  auto a = AnalyzeAnchor(program);
  if (!a.ok() || Classify(*a) != kClass) return nullptr;
  return std::make_unique<TiledContext>(std::move(program), t, std::move(*a));
}

// Steps of a trace. Names of new loops derive from the anchor's, so that they are unique and
// readable. `tile` is how much of the vector axis is computed at once, `lanes` of it in a vector.
class ReduceWriter {
 public:
  ReduceWriter(Schedule& s, const AnchorAnalysis& a, int64_t lanes)
      : s_(s), a_(a), lanes_(lanes), anchor_(a_.anchor->name) {}

 protected:
  Status Do(const char* primitive, std::vector<std::string> args) {
    return s_.Apply(primitive, std::move(args));
  }
  // Everything element-wise goes into the anchor or into the last block.
  Status InlineAll();
  // weight -> [vector // tile][the rest][channels // block][reduce axes in loop order][channels %
  // block][vector % tile], padded with zeros.
  Status PackWeight(int64_t tile);
  // A matrix that lies across the vectors, as one that is transposed on its way here does, is
  // turned into vectors for all rows: for a tile of columns when these are outside of the rows,
  // else all of it. What each row reads for itself is gathered.
  Status TurnOperand(int64_t tile);
  // Inside of loop `at`; before all loops when empty.
  Status PlaceTurned(const std::string& at);
  // The accumulators' buffer gets the vector axis innermost.
  Status VectorLast();
  // The last block runs on the registers of one tile.
  Status PlaceEpilogue(const std::string& at);
  // The loops, outermost, as one parallel loop; `otherwise` when there are none, unless it is
  // `serial`.
  Status MakeParallel(std::vector<std::string> loops, const std::string& serial,
                      const std::string& otherwise);

  Schedule& s_;
  const AnchorAnalysis& a_;
  const int64_t lanes_;
  int64_t reduce_block_ = 0;  // of the last reduce axis; 0: not in blocks
  std::string anchor_, final_, acc_;
  std::string outermost_;  // the loop of MakeParallel
  std::string turned_;     // block and buffer of TurnOperand; empty: none
  int turned_dim_ = -1;
};

}  // namespace whet::schedule
