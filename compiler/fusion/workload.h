// A workload is a tuning task: a small DAG of operators over typed inputs, free of the model's
// names. It has one canonical text and a 128-bit fingerprint of it; both are stored in tuning logs,
// so the text changes only with meaning: operators carry the version of their semantics, attributes
// are complete, commutative operands are sorted by a Merkle hash, and inputs are numbered by first
// use.
//
//   whet-workload 1
//   input f32[1,24,64,64]<(a, b, c, d) -> (a, c, d, b)>
//   input const f32[24,24,1,1]
//   op Conv.1(0, 1) {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]}
//   op Relu.1(2)
//   output 3 f32[1,24,64,64]<(a, b, c, d) -> (a, c, d, b)>
//
// Operands are value numbers: inputs first, then the outputs of the operators in order. Types of
// inner values are inferred. Plain data, immutable once made. The text may come from a peer: Parse
// is total and has caps.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/op.h"
#include "compiler/support/fingerprint.h"
#include "compiler/te/te.h"

namespace whet::fusion {

// Caps on one workload, and on its text: far above what grouping makes (see partition.h), far below
// what would hurt.
inline constexpr int kMaxOps = 64;
inline constexpr int kMaxInputs = 64;
inline constexpr size_t kMaxTextBytes = 64 * 1024;

struct WorkloadInput {
  graph::TensorType type;
  bool constant = false;  // a weight: known at compile time, may be prepacked
};

struct WorkloadOp {
  const graph::OpRecord* op = nullptr;
  graph::Attrs attrs;
  std::vector<int> args;                   // value numbers
  std::vector<graph::TensorType> outputs;  // inferred; row-major
};

struct WorkloadOutput {
  int value = 0;
  graph::TensorType type;  // with the layout in which it is stored
};

struct Workload {
  std::vector<WorkloadInput> inputs;
  std::vector<WorkloadOp> ops;
  std::vector<WorkloadOutput> outputs;

  static StatusOr<Workload> Parse(std::string_view text, const graph::OpCatalog& catalog);
  std::string ToString() const;
  Fingerprint fingerprint() const { return FingerprintOf(ToString()); }
  int64_t flops() const;  // multiply-add counts two
  int64_t bytes() const;  // of inputs and outputs, each once
  const graph::TensorType& type(int value) const;
  // "Conv+Add+Relu 1x24x64x64 -> 1x24x64x64", for people: operators, first input, first output.
  std::string Title() const;
};

// The tensor expressions of a workload, in logical index space, and the physical layout of each
// input and output. Input buffers are named after their role at first use ("x", "w", "b"); stages
// after operators.
struct TeWorkload {
  te::Func func;
  std::vector<expr::IndexMap> input_layouts;
  std::vector<expr::IndexMap> output_layouts;
};
StatusOr<TeWorkload> BuildTe(const Workload& w);

// ---- measurement inputs and expected outputs
// ------------------------------------------------------------------------ Element e (row-major
// LOGICAL index) of input i is  lo + (u + 1) / 2 * (hi - lo)  with u = CounterUniform(seed, i, e)
// and the range of InputRangeOf, computed in f64 and rounded to the element type; integers take the
// floor (FillInput of compiler/support/inputs.h). Anybody who has the ranges and layouts can make
// the inputs alone, and two layouts of one workload see the same values.
graph::InputRange InputRangeOf(const Workload& w, int input);
std::vector<double> MakeInput(const Workload& w, int input,
                              uint64_t seed);  // logical order, exact in the element type
std::vector<std::vector<double>> MakeInputs(const Workload& w, uint64_t seed);

struct ReferenceOutput {
  std::vector<double> expected;   // logical row-major order
  std::vector<double> tolerance;  // |actual - expected| <= tolerance passes; 0 for exact integers;
                                  // infinite: any number; NaN must meet NaN
};
// `inputs` in logical order. One output per workload output.
StatusOr<std::vector<ReferenceOutput>> EvaluateReference(
    const Workload& w, std::span<const std::vector<double>> inputs);

// Layouts are permutations: data[logical row-major] <-> data[physical row-major], element for
// element.
std::vector<double> LogicalToPhysical(const graph::TensorType& type,
                                      std::span<const double> logical);
std::vector<double> PhysicalToLogical(const graph::TensorType& type,
                                      std::span<const double> physical);
// The bytes that a kernel reads: physical order, element type of `type`.
std::string PhysicalBytes(const graph::TensorType& type, std::span<const double> logical);

}  // namespace whet::fusion
