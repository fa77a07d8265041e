#include "compiler/graph/passes.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/layout_cost.h"

namespace whet::graph {
namespace {

constexpr Pass kPasses[] = {
    {"remove-identities", RemoveIdentities},
    // Quantizations of one value by equal constants become one; and before weights are folded to
    // float: quantized operators are recognised by the dequantization of their weights.
    {"merge-equal-nodes", MergeEqualNodes},
    {"qdq-to-integer", QdqToInteger},
    // What only depends on constants goes first: every later pattern wants to see its weights and
    // zeros as constants.
    {"fold-constants", FoldConstants},
    {"remove-dead-nodes", RemoveDeadNodes},
    // Equal nodes merge before patterns ask whether a value has a single reader.
    {"merge-equal-nodes", MergeEqualNodes},
    // Needs constant weights, which may have been transposed; leaves constant biases.
    {"fold-zero-points", FoldZeroPoints},
    {"merge-casts", MergeCasts},
    // Data movement gets out of the way first: patterns and folding look at neighbours.
    {"sink-transposes", SinkTransposes},
    {"sink-reshapes", SinkReshapes},
    {"sink-depth-to-space", SinkDepthToSpace},
    {"remove-identities", RemoveIdentities},
    {"fold-constants", FoldConstants},
    // Before scales and shifts are folded, which would take the constants of these apart.
    {"recognize-activations", RecognizeActivations},
    {"recognize-reductions", RecognizeReductions},
    {"fold-scale-shift", FoldScaleShift},
    // Zeros joined to the channels are a Pad, which fuses into the addition of a residual...
    {"concat-to-pad", ConcatToPad},
    // ...and a Pad of the two last axes goes into the window of a convolution or pool.
    {"fold-pad", FoldPad},
    // The passes above leave constant expressions and what they replaced behind.
    {"fold-constants", FoldConstants},
    {"remove-identities", RemoveIdentities},
    {"merge-equal-nodes", MergeEqualNodes},
    {"remove-dead-nodes", RemoveDeadNodes},
    // From here on types have physical layouts. Nothing above looks at one, nothing below rewrites
    // operators.
    {"assign-layouts", AssignLayouts},
    // Which transposes and reshapes are free depends on the layouts.
    {"mark-views", MarkViews},
    // Last: it inserts the copies that graph outputs need once it is known which values share
    // bytes.
    {"separate-outputs", SeparateOutputs},
};

StatusOr<PassResult> RunOne(Graph& g, const Pass& pass, const PassOptions& options) {
  PassResult r;
  r.name = std::string(pass.name);
  if (std::find(options.disabled.begin(), options.disabled.end(), pass.name) !=
      options.disabled.end())
    return r;
  const int64_t start = options.now_ns ? options.now_ns() : 0;
  const LayoutCost& cost = options.layout_cost ? *options.layout_cost : RooflineLayoutCost();
  auto changed = pass.run != AssignLayouts ? pass.run(g)
                 : options.stored          ? TakeLayouts(g, cost, *options.stored)
                                           : SelectLayouts(g, cost);
  if (!changed.ok()) return Annotate(changed.status(), fmt::format("graph pass {}", pass.name));
  r.changed = *changed;
  if (options.now_ns) r.nanoseconds = options.now_ns() - start;
  if (Status s = Verify(g); !s.ok())
    return Annotate(s, fmt::format("after graph pass {}", pass.name));
  if (r.changed && options.dump) options.dump(pass.name, g);
  return r;
}

}  // namespace

std::span<const Pass> Passes() { return kPasses; }

Status CheckPassNames(std::span<const std::string> names) {
  for (const std::string& name : names) {
    if (std::any_of(std::begin(kPasses), std::end(kPasses),
                    [&](const Pass& p) { return p.name == name; }))
      continue;
    std::string known;
    for (const Pass& p : kPasses) {
      if (known.find(p.name) == std::string::npos) known += " " + std::string(p.name);
    }
    return InvalidArgument("unknown graph pass '{}'; passes:{}", name, known);
  }
  return OkStatus();
}

StatusOr<std::vector<PassResult>> RunPasses(Graph& g, const PassOptions& options) {
  WHET_RETURN_IF_ERROR(CheckPassNames(options.disabled));
  std::vector<PassResult> results;
  for (const Pass& p : kPasses) {
    WHET_ASSIGN_OR_RETURN(PassResult r, RunOne(g, p, options));
    results.push_back(std::move(r));
  }
  return results;
}

StatusOr<std::vector<PassResult>> RunPasses(Graph& g, std::span<const std::string> names,
                                            const PassOptions& options) {
  WHET_RETURN_IF_ERROR(CheckPassNames(names));
  WHET_RETURN_IF_ERROR(CheckPassNames(options.disabled));
  std::vector<PassResult> results;
  for (const std::string& name : names) {
    const Pass* pass = std::find_if(std::begin(kPasses), std::end(kPasses),
                                    [&](const Pass& p) { return p.name == name; });
    WHET_ASSIGN_OR_RETURN(PassResult r, RunOne(g, *pass, options));
    results.push_back(std::move(r));
  }
  return results;
}

}  // namespace whet::graph
