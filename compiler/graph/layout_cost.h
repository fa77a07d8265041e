// What a choice of physical layouts costs, as the layout selection asks it. The estimate that comes
// with it is a roofline of bytes and floating-point operations; times of tasks take its place where
// they decide something (compiler/driver/task_layouts.h). Operators come with their position in the
// graph. Times are nanoseconds of one inference, of one thread, and only differences between
// layouts matter. Implementations are immutable.
#pragma once
#include "compiler/graph/op.h"

namespace whet::graph {

class LayoutCost {
 public:
  virtual ~LayoutCost() = default;
  // Computing the operator's first output in the layout of `out`, with operands as they suit it.
  virtual double Compute(const OpView& v, const TensorType& out) const = 0;
  // What is added when operand `input` lies as in `in`, of equal shape, and the output as in `out`.
  // Infinity: no schedule reads it so; a copy has to be made.
  virtual double Read(const OpView& v, int input, const TensorType& in,
                      const TensorType& out) const = 0;
  // A kernel that copies a tensor of the type of `from` into the layout of `to`.
  virtual double Copy(const TensorType& from, const TensorType& to) const = 0;
  // A transpose or reshape that is no view with operand and result as they are in `v`.
  virtual double Move(const OpView& v) const { return Copy(*v.in[0], *v.out[0]); }
};

const LayoutCost& RooflineLayoutCost();
// The same estimate, but values of four dimensions are stored in this one layout wherever an
// operator can write it; copies are made for what has to be read in another.
const LayoutCost& RowMajorLayoutCost();
const LayoutCost& ChannelsLastLayoutCost();

// Equal bytes for equal elements, as far as dimensions of both that are longer than one say. The
// types may differ in extents, not in rank.
bool SameOrder(const TensorType& a, const TensorType& b);

}  // namespace whet::graph
