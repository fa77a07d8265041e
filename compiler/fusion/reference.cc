#include <algorithm>
#include <cmath>

#include "compiler/fusion/workload.h"
#include "compiler/graph/constant.h"
#include "compiler/graph/evaluate.h"
#include "compiler/support/inputs.h"

namespace whet::fusion {
namespace {

using graph::InputRange;
using graph::RefTensor;
using graph::TensorType;

graph::OpView ViewOf(const Workload& w, const WorkloadOp& o) {
  std::vector<const TensorType*> in;
  for (int v : o.args) in.push_back(&w.type(v));
  return graph::ViewOf(*o.op, o.attrs, in, o.outputs);
}

// Values that an operator wants positive although they are computed (a square root behind an
// addition): everything they are computed from is drawn positive.
std::vector<bool> WantedPositive(const Workload& w) {
  size_t count = w.inputs.size();
  for (const WorkloadOp& o : w.ops) count += o.outputs.size();
  std::vector<bool> positive(count, false);
  size_t end = count;
  for (size_t k = w.ops.size(); k-- > 0;) {
    const WorkloadOp& o = w.ops[k];
    const size_t first = end - o.outputs.size();
    bool inherited = false;
    for (size_t v = first; v < end; ++v) inherited = inherited || positive[v];
    const graph::OpView view = ViewOf(w, o);
    for (size_t i = 0; i < o.args.size(); ++i) {
      const bool wanted = o.op->range && o.op->range(view, static_cast<int>(i)).lo >= 0 &&
                          IsFloat(view.in[i]->dtype);
      if (inherited || wanted) positive[o.args[i]] = true;
    }
    end = first;
  }
  return positive;
}

template <typename F>
void ForEachPhysical(const TensorType& type, F f) {
  // Strides of the logical row-major order, visited in physical order.
  const std::vector<int> order = type.Order();
  std::vector<int64_t> strides(type.shape.size(), 1);
  for (size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * type.shape[d];
  std::vector<int64_t> index(order.size(), 0);
  const int64_t n = type.num_elements();
  int64_t logical = 0;
  for (int64_t physical = 0; physical < n; ++physical) {
    f(physical, logical);
    for (size_t p = order.size(); p-- > 0;) {
      logical += strides[order[p]];
      if (++index[p] < type.shape[order[p]]) break;
      logical -= strides[order[p]] * type.shape[order[p]];
      index[p] = 0;
    }
  }
}

}  // namespace

InputRange InputRangeOf(const Workload& w, int input) {
  InputRange range;
  for (const WorkloadOp& o : w.ops) {
    auto it = std::find(o.args.begin(), o.args.end(), input);
    if (it == o.args.end()) continue;
    if (o.op->range) range = o.op->range(ViewOf(w, o), static_cast<int>(it - o.args.begin()));
    break;
  }
  const DType t = w.type(input).dtype;
  if (IsFloat(t)) {
    if (range.lo < 0 && WantedPositive(w)[input]) range.lo = range.hi / 8;
  } else if (range.hi - range.lo <= 2) {
    range = t == DType::kBool ? InputRange{0, 2}
            : IsUnsigned(t)   ? InputRange{0, 16}
                              : InputRange{-8, 8};
  }
  return range;
}

std::vector<double> MakeInput(const Workload& w, int input, uint64_t seed) {
  const TensorType& type = w.type(input);
  const InputRange range = InputRangeOf(w, input);
  std::string bytes(static_cast<size_t>(type.bytes()), '\0');
  FillInput(type.dtype, seed, static_cast<uint64_t>(input), range.lo, range.hi, {type.shape, {}},
            bytes.data());
  return graph::ReadDoubles(type.dtype, bytes);
}

std::vector<std::vector<double>> MakeInputs(const Workload& w, uint64_t seed) {
  std::vector<std::vector<double>> inputs;
  for (size_t i = 0; i < w.inputs.size(); ++i)
    inputs.push_back(MakeInput(w, static_cast<int>(i), seed));
  return inputs;
}

StatusOr<std::vector<ReferenceOutput>> EvaluateReference(
    const Workload& w, std::span<const std::vector<double>> inputs) {
  if (inputs.size() != w.inputs.size())
    return InvalidArgument("{} inputs, the workload has {}", inputs.size(), w.inputs.size());
  std::vector<RefTensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& t = w.inputs[i].type;
    if (static_cast<int64_t>(inputs[i].size()) != t.num_elements()) {
      return InvalidArgument("input {} has {} elements, not {}", i, inputs[i].size(),
                             t.num_elements());
    }
    values.push_back({t.dtype, t.shape, inputs[i], {}});
  }
  for (const WorkloadOp& o : w.ops) {
    std::vector<const RefTensor*> in;
    for (int v : o.args) in.push_back(&values[v]);
    WHET_ASSIGN_OR_RETURN(std::vector<RefTensor> out,
                          graph::EvaluateOp(ViewOf(w, o), in, /*want_err=*/true));
    for (RefTensor& t : out) values.push_back(std::move(t));
  }
  std::vector<ReferenceOutput> outputs;
  for (const WorkloadOutput& o : w.outputs) {
    RefTensor& t = values[o.value];
    ReferenceOutput r;
    r.tolerance.resize(t.value.size());
    for (int64_t i = 0; i < t.size(); ++i) r.tolerance[i] = graph::ToleranceAt(t, i);
    r.expected = std::move(t.value);
    outputs.push_back(std::move(r));
  }
  return outputs;
}

std::vector<double> LogicalToPhysical(const TensorType& type, std::span<const double> logical) {
  std::vector<double> out(logical.size());
  ForEachPhysical(type, [&](int64_t p, int64_t l) { out[p] = logical[l]; });
  return out;
}

std::vector<double> PhysicalToLogical(const TensorType& type, std::span<const double> physical) {
  std::vector<double> out(physical.size());
  ForEachPhysical(type, [&](int64_t p, int64_t l) { out[l] = physical[p]; });
  return out;
}

std::string PhysicalBytes(const TensorType& type, std::span<const double> logical) {
  return graph::WriteDoubles(type.dtype, LogicalToPhysical(type, logical));
}

}  // namespace whet::fusion
