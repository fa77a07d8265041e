#include <algorithm>

#include "compiler/fusion/workload.h"

namespace whet::fusion {
namespace {

// What the first operator that reads an input calls it.
std::string RoleOf(const Workload& w, int input) {
  for (const WorkloadOp& o : w.ops) {
    for (size_t i = 0; i < o.args.size(); ++i) {
      if (o.args[i] == input && !o.op->input_names.empty())
        return o.op->input_names[std::min(i, o.op->input_names.size() - 1)];
    }
  }
  return "x";
}

}  // namespace

StatusOr<TeWorkload> BuildTe(const Workload& w) {
  TeWorkload result;
  te::Builder b;
  std::vector<expr::Buffer> values;
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    const WorkloadInput& in = w.inputs[i];
    values.push_back(
        b.Input(RoleOf(w, static_cast<int>(i)), in.type.dtype, in.type.shape, in.constant));
    result.input_layouts.push_back(in.type.layout);
  }
  for (const WorkloadOp& o : w.ops) {
    if (!o.op->te) return Unimplemented("{} has no tensor expression", o.op->name);
    std::vector<const graph::TensorType*> types;
    std::vector<expr::Buffer> in;
    for (int v : o.args) {
      types.push_back(&w.type(v));
      in.push_back(values[v]);
    }
    auto out = o.op->te(graph::ViewOf(*o.op, o.attrs, types, o.outputs), in, b);
    if (!out.ok()) return Annotate(out.status(), o.op->name);
    values.insert(values.end(), out->begin(), out->end());
  }
  std::vector<expr::Buffer> outputs;
  for (const WorkloadOutput& o : w.outputs) {
    outputs.push_back(values[o.value]);
    result.output_layouts.push_back(o.type.layout);
  }
  result.func = b.Finish(std::move(outputs));
  return result;
}

}  // namespace whet::fusion
