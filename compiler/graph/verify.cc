#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "compiler/graph/graph.h"

namespace whet::graph {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& g) : g_(g), defined_(g.values.size(), false) {}

  Status Run() {
    WHET_RETURN_IF_ERROR(Values());
    for (const Node& n : g_.nodes) {
      if (n.op == nullptr) return Internal("a removed node is left in the graph");
      WHET_RETURN_IF_ERROR(
          Annotate(OneNode(n), fmt::format("node '{}' ({})", n.label, n.op->name)));
    }
    for (const GraphOutput& o : g_.outputs) {
      if (!Known(o.value)) return Internal("graph output '{}' has no value", o.name);
    }
    return OkStatus();
  }

 private:
  bool Known(ValueId v) const {
    return v >= 0 && v < static_cast<ValueId>(defined_.size()) && defined_[v];
  }

  Status Values() {
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < g_.values.size(); ++i) {
      const Value& v = g_.values[i];
      if (!names.insert(v.name).second) return Internal("two values are called '{}'", v.name);
      if (v.type.rank() > 0 && v.type.Order().size() != v.type.shape.size()) {
        return Internal("value '{}': layout of {} is not a permutation", v.name, v.type.ToString());
      }
      if (v.constant == nullptr) continue;
      if (!(v.constant->type() == v.type))
        return Internal("constant '{}' is not a {}", v.name, v.type.ToString());
      defined_[i] = true;
    }
    for (ValueId v : g_.inputs) {
      if (v < 0 || v >= static_cast<ValueId>(defined_.size()) || defined_[v])
        return Internal("bad graph input {}", v);
      defined_[v] = true;
    }
    return OkStatus();
  }

  Status OneNode(const Node& n) {
    std::vector<const TensorType*> types;
    for (ValueId v : n.inputs) {
      if (v != kNoValue && !Known(v)) return Internal("an input is used before it is computed");
      types.push_back(v == kNoValue ? nullptr : &g_.values[v].type);
    }
    WHET_ASSIGN_OR_RETURN(std::vector<TensorType> out, InferTypes(*n.op, n.attrs, types));
    if (out.size() != n.outputs.size())
      return Internal("{} outputs, not {}", n.outputs.size(), out.size());
    for (size_t i = 0; i < out.size(); ++i) {
      const ValueId v = n.outputs[i];
      if (v < 0 || v >= static_cast<ValueId>(defined_.size()) || defined_[v])
        return Internal("output {} is defined twice", i);
      const TensorType& t = g_.values[v].type;
      if (t.dtype != out[i].dtype || t.shape != out[i].shape) {
        return Internal("output {} is {}, inference says {}", i, t.ToString(), out[i].ToString());
      }
      defined_[v] = true;
    }
    if (n.view && !IsPhysicalView(g_.View(n)))
      return Internal("marked as a view, but the bytes would differ");
    return OkStatus();
  }

  const Graph& g_;
  std::vector<bool> defined_;
};

}  // namespace

Status Verify(const Graph& g) { return Annotate(Verifier(g).Run(), "graph verifier"); }

}  // namespace whet::graph
