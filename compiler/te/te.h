// Tensor expressions: *what* is computed, one stage per tensor, in logical index space (physical
// layouts are applied later, to the loop program). An operator's record writes its stages with
// `Builder`.
//
// A stage is out[axes] = value, or, with reduce axes, out[axes] = reducer over the reduce axes of
// value, from init. Reads outside a tensor are not allowed: padding is a stage of its own, out =
// select(inside, x[...], 0), whose load indices may leave the tensor only where the condition is
// false.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/expr/expr.h"

namespace whet::te {

using expr::Buffer;
using expr::Expr;

enum class Reducer : uint8_t { kNone, kSum, kProd, kMax, kMin };
std::string_view ToString(Reducer r);
double Identity(Reducer r);  // 0, 1, -inf, +inf
Expr Combine(Reducer r, Expr acc, Expr value);

struct Axis {
  std::string name;  // "oc"; unique in its stage
  int64_t extent = 1;
  expr::Var var;
};

struct Stage {
  std::string name;  // unique in its function; names loops ("conv.oc") and blocks
  Buffer out;        // shape = extents of `axes`
  std::vector<Axis> axes;
  std::vector<Axis> reduce;
  Reducer reducer = Reducer::kNone;
  Expr value;
};

struct Func {
  std::vector<Buffer> inputs;   // in the workload's order
  std::vector<Buffer> outputs;  // each is the `out` of a stage
  std::vector<Stage> stages;    // producers before consumers
};

// Names and extents of axes: {{"n", 1}, {"oc", 32}}.
using AxisSpec = std::vector<std::pair<std::string, int64_t>>;

class Builder {
 public:
  Buffer Input(std::string name, DType dtype, std::vector<int64_t> shape, bool constant);
  // value(indices): one index per axis.
  Buffer Compute(std::string name, DType dtype, const AxisSpec& axes,
                 const std::function<Expr(const std::vector<Expr>&)>& value);
  // value(indices, reduce_indices). Sums and products of half precisions are accumulated in f32
  // and rounded by a stage of its own, "NAME_round".
  Buffer Reduce(
      std::string name, DType dtype, const AxisSpec& axes, const AxisSpec& reduce, Reducer reducer,
      const std::function<Expr(const std::vector<Expr>&, const std::vector<Expr>&)>& value);
  // A name not yet taken by a stage: "relu", "relu1", ...
  std::string Unique(const std::string& base) const;
  Func Finish(std::vector<Buffer> outputs);

 private:
  bool Taken(const std::string& name) const;
  Func func_;
};

// `stage relu[n:1, c:24] = max(conv[n, c], 0f)` a line per stage, for tests and --dump.
std::string ToString(const Func& f);

}  // namespace whet::te
