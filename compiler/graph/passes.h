// Graph passes: each is a function of one graph in one file; the ordered list with the reasons for
// the order is in passes.cc. The wrapper verifies after each pass, reports which changed the graph,
// and can switch one off.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"

namespace whet::graph {

class LayoutCost;

// How a value is stored, and the layout of the one copy that may be made of it.
struct StoredLayout {
  ValueId value = kNoValue;
  expr::IndexMap stored;
  std::optional<expr::IndexMap> copy;
};

// Returns whether it changed the graph.
using PassFn = StatusOr<bool> (*)(Graph&);
struct Pass {
  std::string_view name;
  PassFn run;
};

// The whole list, in order. A name may occur more than once: switching it off switches off all of
// them.
std::span<const Pass> Passes();

// InvalidArgument lists the passes when a name is not one.
Status CheckPassNames(std::span<const std::string> names);

struct PassResult {
  std::string name;
  bool changed = false;
  int64_t nanoseconds = 0;  // 0 without a clock
};
struct PassOptions {
  std::vector<std::string> disabled;
  // Called after a pass that changed the graph; may be null. `--dump-after NAME` filters by name in
  // the caller.
  std::function<void(std::string_view pass, const Graph&)> dump;
  std::function<int64_t()> now_ns;  // monotonic; null: no timing
  // By which assign-layouts selects; null: RooflineLayoutCost.
  const LayoutCost* layout_cost = nullptr;
  // Null, or what assign-layouts is to take instead of selecting.
  const std::vector<StoredLayout>* stored = nullptr;
};

StatusOr<std::vector<PassResult>> RunPasses(Graph& g, const PassOptions& options = {});
// Named passes in the given order, for `whet opt` and golden tests.
StatusOr<std::vector<PassResult>> RunPasses(Graph& g, std::span<const std::string> names,
                                            const PassOptions& options);

StatusOr<bool> FoldConstants(Graph& g);
StatusOr<bool> RemoveIdentities(Graph& g);
StatusOr<bool> RemoveDeadNodes(Graph& g);
StatusOr<bool> MergeCasts(Graph& g);
StatusOr<bool> RecognizeActivations(Graph& g);
StatusOr<bool> RecognizeReductions(Graph& g);
StatusOr<bool> SinkTransposes(Graph& g);
StatusOr<bool> SinkReshapes(Graph& g);
StatusOr<bool> SinkDepthToSpace(Graph& g);
StatusOr<bool> FoldScaleShift(Graph& g);
StatusOr<bool> ConcatToPad(Graph& g);
StatusOr<bool> FoldPad(Graph& g);
StatusOr<bool> MergeEqualNodes(Graph& g);
StatusOr<bool> QdqToInteger(Graph& g);
StatusOr<bool> FoldZeroPoints(Graph& g);
StatusOr<bool> AssignLayouts(Graph& g);
// The same with other costs; `total`, if wanted: what the selection costs by them.
StatusOr<bool> SelectLayouts(Graph& g, const LayoutCost& cost, double* total = nullptr);
// What it would select: the values that are not row-major or have a copy, in order.
std::vector<StoredLayout> ChooseLayouts(const Graph& g, const LayoutCost& cost);
// Takes these layouts; values that are not named are row-major and have no copy. By `cost` a reader
// takes a value or its copy. InvalidArgument when a value or a layout is none of the graph's.
StatusOr<bool> TakeLayouts(Graph& g, const LayoutCost& cost, std::span<const StoredLayout> stored);
StatusOr<bool> MarkViews(Graph& g);
StatusOr<bool> SeparateOutputs(Graph& g);

}  // namespace whet::graph
