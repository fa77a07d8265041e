// Builds the nodes of a decomposition one after the other. The first error stays: later calls do
// nothing, and `status` or `Finish` reports it, so that a formula of ten nodes reads as a formula.
// Lives on the stack of an import function.
#pragma once
#include <string_view>
#include <vector>

#include "compiler/ops/util.h"

namespace whet::ops {

class Emitter {
 public:
  // From here on a sum of everything takes two steps.
  static constexpr int64_t kLongSum = 2048;

  explicit Emitter(ImportContext& c) : c_(c) {}

  ValueId operator()(std::string_view op, std::vector<ValueId> in, Attrs attrs = {});
  ValueId Cast(ValueId v, DType to);  // `v` itself when it has that type
  ValueId Reshape(ValueId v, Shape shape);
  ValueId Transpose(ValueId v, std::vector<int64_t> perm);
  // ReduceSum, ReduceMean, ... over the axes.
  ValueId Reduce(std::string_view op, ValueId v, std::vector<int64_t> axes, bool keepdims);
  // ReduceSum or ReduceMean over everything, to a scalar. Long ones in two steps of about the
  // square root of the length: the first is many sums side by side, and rounding errors stay small.
  ValueId ReduceAll(std::string_view op, ValueId v);
  ValueId Scalar(DType t, double v);
  ValueId Tensor(DType t, Shape shape, const std::vector<double>& values);
  // 0, 1, ..., extent-1 along dimension `axis` of `rank`, all other extents 1.
  ValueId Iota(DType t, int64_t extent, int64_t rank, int64_t axis);

  const TensorType& type(ValueId v) const;
  const Shape& shape(ValueId v) const { return type(v).shape; }
  DType dtype(ValueId v) const { return type(v).dtype; }
  const Status& status() const { return status_; }
  // Makes `outputs` those of the node, or reports the error.
  Status Finish(std::vector<ValueId> outputs);

 private:
  ImportContext& c_;
  Status status_ = OkStatus();
};

// `import`, where it adds up or takes several steps, with half precisions widened: they are
// computed in f32, and what comes out is rounded once. Constants are widened at once, so that
// `import` sees them as constants.
std::function<Status(ImportContext&)> InF32(std::function<Status(ImportContext&)> import);

}  // namespace whet::ops
