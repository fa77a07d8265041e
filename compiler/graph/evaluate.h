// Reference evaluation of a graph through the operators' own f64 references: the oracle of `whet
// verify`, of constant folding and of measured candidates. Independent of te, loops and code
// generation. Pure functions.
#pragma once
#include <span>
#include <vector>

#include "compiler/graph/graph.h"

namespace whet::graph {

// Larger results are refused: 2^27 elements are 1 GiB of doubles.
inline constexpr int64_t kMaxReferenceElements = int64_t{1} << 27;

// One application. `out` types are inferred ones.
StatusOr<std::vector<RefTensor>> EvaluateOp(const OpView& v, std::span<const RefTensor* const> in,
                                            bool want_err);

// How far an element of a right implementation may be from `value`; infinite where rounding decides
// what the result is at all: then anything will do, NaN too.
double ToleranceAt(const RefTensor& t, int64_t i);

RefTensor ToRef(const Constant& c);

// A node all of whose inputs are constants, as constants of the given types. The node need not be
// in the graph.
StatusOr<std::vector<ConstantPtr>> EvaluateConstantNode(const Graph& g, const Node& n,
                                                        const std::vector<TensorType>& out);

struct Evaluation {
  // Per value of the graph; an empty shape and no elements where it was not kept.
  std::vector<RefTensor> values;
};
struct EvaluateOptions {
  bool want_err = false;
  bool keep_all = false;  // else intermediate values are freed after their last reader
};
// `inputs` in the order of the graph's inputs, rounded to their types already.
StatusOr<Evaluation> EvaluateModel(const Graph& g, std::vector<RefTensor> inputs,
                                   const EvaluateOptions& options = {});

}  // namespace whet::graph
