// What rules need to know of an initial program: its one reduction ("anchor"), what is computed
// before and after it, and the roles of its axes. Axes are told by how buffers are indexed, never
// by an operator's name.
#pragma once
#include <string>
#include <vector>

#include "compiler/loop/loop.h"

namespace whet::schedule {

struct AnchorAnalysis {
  const loop::BlockNode* anchor = nullptr;
  // Blocks the anchor or the epilogue read, in program order; all element-wise.
  std::vector<std::string> before;
  std::vector<std::string>
      after;                      // element-wise blocks that depend on the anchor, in program order
  bool anchor_is_output = false;  // nothing comes after: the anchor writes an output itself

  // Iteration variables of the anchor (indices into anchor->iters).
  int vector_iter = -1;           // contiguous in the output
  std::vector<int> output_iters;  // per dimension of the program's output; -1: of extent 1
  int vector_dim = 0;             // its dimension of the output; those after it have extent 1
  // The next spatial axis outwards with extent > 1 along which an operand stays the same, or just
  // the next; -1: none.
  int row_iter = -1;
  std::vector<int> other_iters;   // remaining spatial axes, in the output's physical order
  std::vector<int> reduce_iters;  // window axes first, channels last; best order for accumulation
  expr::Buffer weight;            // the constant operand indexed by the vector axis; null: none
  bool weight_uses_reduce = false;
  // How far the row axis moves in the input per output row (the stride); 1 when unknown.
  int64_t row_stride = 1;
  // Depthwise and pooling: the data operand is indexed by the vector axis.
  bool input_uses_vector = false;
  // Grouped convolutions: the data operand is indexed by the vector axis divided by this; 0: not. A
  // vector that lies within one group reads one number for all of its lanes, any other gathers.
  int64_t vector_group = 0;
};

// NotFound (with the reason) when the program is not "element-wise*, one reduction, element-wise*,
// one output".
StatusOr<AnchorAnalysis> AnalyzeAnchor(const loop::Program& p);

// "oc" of a variable "v_oc".
std::string AxisName(const expr::Var& v);
std::string LoopName(const loop::BlockNode& b, int iter);

}  // namespace whet::schedule
