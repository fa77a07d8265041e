// Physical layouts of values, for the whole graph at once: the assignment of least cost, copies
// between layouts included (see layout_cost.h and min_sum.h). A value may be stored row-major,
// channels-last, or as a transpose leaves it when it costs nothing, and may have one copy in
// another layout, made once for all that read it so. Inputs and outputs of the graph are row-major,
// as callers have them; so is what operators write that follow no layout of their operands.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "compiler/graph/layout_cost.h"
#include "compiler/graph/min_sum.h"
#include "compiler/graph/passes.h"

namespace whet::graph {
namespace {

using expr::IndexMap;

// Of one value; more are of no use to any operator and make tables large.
constexpr size_t kMaxCandidates = 4;

TensorType WithLayout(TensorType t, const IndexMap& layout) {
  t.layout = layout;
  return t;
}

bool SameBytes(const TensorType& t, const IndexMap& a, const IndexMap& b) {
  return SignificantOrder(WithLayout(t, a)) == SignificantOrder(WithLayout(t, b));
}

// One spelling for equal bytes, so that workloads that differ in the name of a layout are one.
IndexMap Spelled(const TensorType& t, const IndexMap& layout) {
  const IndexMap row_major = IndexMap::Identity(t.rank());
  if (t.rank() == 0 || SameBytes(t, layout, row_major)) return row_major;
  if (t.rank() == 4 && SameBytes(t, layout, ChannelsLast())) return ChannelsLast();
  return layout;
}

// The layout that makes a transpose of a value stored as `in` a view.
IndexMap ThroughTranspose(const IndexMap& in, const std::vector<int64_t>& perm) {
  std::vector<int> inverse(perm.size()), order;
  for (size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<size_t>(perm[i])] = static_cast<int>(i);
  for (int d : in.AsPermutation()) order.push_back(inverse[static_cast<size_t>(d)]);
  return IndexMap::Permutation(order);
}

// The layout that makes a reshape of `in` a view where that only adds or drops extents of 1;
// row-major otherwise.
IndexMap ThroughReshape(const TensorType& in, const TensorType& out) {
  std::vector<int> from, to, order;
  for (int d = 0; d < in.rank(); ++d) {
    if (in.shape[static_cast<size_t>(d)] != 1) from.push_back(d);
  }
  for (int d = 0; d < out.rank(); ++d)
    (out.shape[static_cast<size_t>(d)] != 1 ? to : order).push_back(d);
  if (WithoutUnits(in.shape) != WithoutUnits(out.shape)) return IndexMap::Identity(out.rank());
  for (int d : SignificantOrder(in)) {
    const auto at = std::find(from.begin(), from.end(), d) - from.begin();
    order.push_back(to[static_cast<size_t>(at)]);
  }
  return IndexMap::Permutation(order);
}

Node CopyNode(Graph& g, ValueId from, ValueId to, std::string label) {
  Node n;
  n.op = g.catalog->Find("Identity");
  n.inputs = {from};
  n.outputs = {to};
  n.label = std::move(label);
  return n;
}

// A value's layout, and that of its copy (null: none).
struct State {
  IndexMap stored;
  std::optional<IndexMap> copy;
};

class Selection {
 public:
  Selection(Graph& g, const LayoutCost& cost)
      : g_(g), cost_(cost), users_(g.Users()), states_(g.values.size()) {}

  void Select(double* total) {
    for (ValueId v : g_.inputs) AddValue(v, {IndexMap::Identity(g_.type(v).rank())});
    for (const Node& n : g_.nodes) {
      for (size_t o = 0; o < n.outputs.size(); ++o) AddValue(n.outputs[o], Candidates(n));
      AddCosts(n);
    }
    for (const GraphOutput& o : g_.outputs) AddOutputCost(o.value);
    const std::vector<int> chosen = Solve();
    *total = problem_.CostOf(chosen);
    for (size_t v = 0; v < states_.size(); ++v) {
      if (states_[v].empty()) continue;
      states_[v] = {states_[v][static_cast<size_t>(chosen[static_cast<size_t>(variable_.at(v))])]};
    }
  }

  // Instead of selecting.
  Status Take(std::span<const StoredLayout> stored) {
    for (size_t v = 0; v < states_.size(); ++v) {
      if (!g_.values[v].constant)
        states_[v] = {{IndexMap::Identity(g_.type(static_cast<ValueId>(v)).rank()), std::nullopt}};
    }
    for (const StoredLayout& s : stored) {
      auto fits = [&](const IndexMap& layout) {
        return static_cast<int>(layout.AsPermutation().size()) == g_.type(s.value).rank();
      };
      if (s.value < 0 || static_cast<size_t>(s.value) >= states_.size() || g_.constant(s.value) ||
          !fits(s.stored) || (s.copy && !fits(*s.copy)))
        return InvalidArgument("layouts of value {} are given, and the graph has no such value",
                               s.value);
      states_[static_cast<size_t>(s.value)] = {{s.stored, s.copy}};
    }
    return OkStatus();
  }

  std::vector<StoredLayout> Selected() const {
    std::vector<StoredLayout> list;
    for (size_t v = 0; v < states_.size(); ++v) {
      if (states_[v].empty()) continue;
      const State& s = states_[v][0];
      if (!s.stored.IsIdentity() || s.copy)
        list.push_back({static_cast<ValueId>(v), s.stored, s.copy});
    }
    return list;
  }

  // Stores values as was chosen and inserts the copies; every reader takes what is cheaper for it.
  bool Write() {
    for (size_t v = 0; v < states_.size(); ++v) {
      if (!states_[v].empty()) g_.values[v].type.layout = states_[v][0].stored;
    }
    bool changed = false;
    std::vector<Node> nodes;
    for (Node& n : g_.nodes) {
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        const ValueId x = n.inputs[i];
        if (x == kNoValue || g_.constant(x)) continue;
        bool use_copy = false;
        BestRead(n, i, StatesOf(x)[0], g_.type(n.outputs[0]).layout, &use_copy);
        if (!use_copy) continue;
        n.inputs[i] = CopyOf(x, n.label, nodes);
        changed = true;
      }
      for (ValueId o : n.outputs) changed |= !g_.type(o).layout.IsIdentity();
      nodes.push_back(std::move(n));
    }
    for (GraphOutput& o : g_.outputs) {
      if (g_.type(o.value).IsRowMajor()) continue;
      if (!StatesOf(o.value)[0].copy || !StatesOf(o.value)[0].copy->IsIdentity())
        states_[static_cast<size_t>(o.value)][0].copy = IndexMap::Identity(g_.type(o.value).rank());
      o.value = CopyOf(o.value, o.name, nodes);
      changed = true;
    }
    g_.nodes = std::move(nodes);
    return changed;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  void AddValue(ValueId v, const std::vector<IndexMap>& stored) {
    const TensorType& t = g_.type(v);
    std::vector<IndexMap> others = {IndexMap::Identity(t.rank())};
    if (t.rank() == 4) others.push_back(ChannelsLast());
    std::vector<double> costs;
    for (const IndexMap& s : stored) {
      states_[static_cast<size_t>(v)].push_back({s, std::nullopt});
      costs.push_back(0);
      for (const IndexMap& c : others) {
        if (SameBytes(t, s, c)) continue;
        states_[static_cast<size_t>(v)].push_back({s, c});
        costs.push_back(cost_.Copy(WithLayout(t, s), WithLayout(t, c)));
      }
    }
    const int variable = problem_.AddVariable(static_cast<int>(costs.size()));
    variable_[static_cast<size_t>(v)] = variable;
    problem_.AddCost(variable, std::move(costs));
  }

  // Where the tables of the exact solution would be too large, its bound is compared with what
  // comes of both uniform layouts, which are finite: with a copy of each value, every reader has
  // the form that it can read.
  std::vector<int> Solve() const {
    bool exact = true;
    std::vector<int> best = problem_.Solve(&exact);
    if (exact) return best;
    best = problem_.Improve(std::move(best));
    for (const bool channels_last : {true, false}) {
      std::vector<int> uniform = problem_.Improve(Uniform(channels_last));
      if (problem_.CostOf(uniform) < problem_.CostOf(best)) best = std::move(uniform);
    }
    return best;
  }

  // Every value in one layout where it can have it, and all the copies.
  std::vector<int> Uniform(bool channels_last) const {
    std::vector<int> values(variable_.size(), 0);
    for (const auto& [v, variable] : variable_) {
      const TensorType& t = g_.type(static_cast<ValueId>(v));
      const IndexMap wanted =
          channels_last && t.rank() == 4 ? ChannelsLast() : IndexMap::Identity(t.rank());
      int most = -1;
      for (size_t i = 0; i < states_[v].size(); ++i) {
        const State& s = states_[v][i];
        const int fits = 2 * SameBytes(t, s.stored, wanted) + s.copy.has_value() +
                         (s.copy && SameBytes(t, *s.copy, wanted));
        if (fits <= most) continue;
        most = fits;
        values[static_cast<size_t>(variable)] = static_cast<int>(i);
      }
    }
    return values;
  }

  std::vector<IndexMap> Candidates(const Node& n) const {
    const TensorType& t = g_.type(n.outputs[0]);
    std::vector<IndexMap> list = {IndexMap::Identity(t.rank())};
    auto add = [&](const IndexMap& layout) {
      const IndexMap spelled = Spelled(t, layout);
      for (const IndexMap& have : list) {
        if (SameBytes(t, have, spelled)) return;
      }
      if (list.size() < kMaxCandidates) list.push_back(spelled);
    };
    if (n.outputs.size() != 1 || t.rank() == 0) return list;
    if (n.op->view == ViewRole::kTranspose) {
      for (const State& s : StatesOf(n.inputs[0]))
        add(ThroughTranspose(s.stored, n.attrs.Ints("perm")));
    } else if (n.op->view == ViewRole::kReshape) {
      for (const State& s : StatesOf(n.inputs[0]))
        add(ThroughReshape(WithLayout(g_.type(n.inputs[0]), s.stored), t));
    } else if (n.op->kind == FusionKind::kOutFusable && n.op->layout == LayoutRole::kRowMajor) {
      // A product writes its rows wherever a transpose after it wants them, as long as they stay
      // rows.
      if (const Node* next = TransposeAfter(n)) {
        const std::vector<int64_t>& perm = next->attrs.Ints("perm");
        if (perm.back() == t.rank() - 1)
          add(IndexMap::Permutation(std::vector<int>(perm.begin(), perm.end())));
      }
    } else if (n.op->layout != LayoutRole::kRowMajor) {
      if (t.rank() == 4) add(ChannelsLast());
      for (ValueId v : n.inputs) {
        if (v == kNoValue || g_.type(v).rank() != t.rank()) continue;
        for (const State& s : StatesOf(v)) add(s.stored);
      }
    }
    return list;
  }

  // The transpose that reads the result, by way of operators that follow its layout.
  const Node* TransposeAfter(const Node& n) const {
    ValueId v = n.outputs[0];
    while (users_[static_cast<size_t>(v)].size() == 1) {
      const Node& user = g_.nodes[static_cast<size_t>(users_[static_cast<size_t>(v)][0])];
      if (user.op->view == ViewRole::kTranspose) return &user;
      if (user.op->layout != LayoutRole::kFollows || user.op->kind > FusionKind::kBroadcast ||
          user.outputs.size() != 1 || g_.type(user.outputs[0]).shape != g_.type(v).shape)
        break;
      v = user.outputs[0];
    }
    return nullptr;
  }

  const std::vector<State>& StatesOf(ValueId v) const { return states_[static_cast<size_t>(v)]; }

  // What reading operand `input` costs when it is stored as `in` and the output as `out`.
  double ReadCost(const Node& n, size_t input, const IndexMap& in, const IndexMap& out) const {
    const TensorType from = WithLayout(g_.type(n.inputs[input]), in),
                     to = WithLayout(g_.type(n.outputs[0]), out);
    OpView v = View(n);
    if (n.op->view == ViewRole::kNone) return cost_.Read(v, static_cast<int>(input), from, to);
    v.in[0] = &from;
    v.out[0] = &to;
    return IsPhysicalView(v) ? 0 : cost_.Move(v);
  }

  OpView View(const Node& n) const {
    OpView v = g_.View(n);
    v.node = static_cast<int>(&n - g_.nodes.data());
    return v;
  }

  // The same with the better of the stored value and its copy; `use_copy` says which.
  double BestRead(const Node& n, size_t input, const State& s, const IndexMap& out,
                  bool* use_copy) const {
    const double stored = ReadCost(n, input, s.stored, out);
    const double copy = s.copy ? ReadCost(n, input, *s.copy, out) : kNever;
    *use_copy = copy < stored;
    return std::min(copy, stored);
  }

  void AddCosts(const Node& n) {
    const ValueId y = n.outputs[0];
    const int out = variable_.at(static_cast<size_t>(y));
    const std::vector<State>& outs = StatesOf(y);
    if (n.op->view == ViewRole::kNone) {
      const OpView v = View(n);
      std::vector<double> costs;
      for (const State& s : outs)
        costs.push_back(cost_.Compute(v, WithLayout(g_.type(y), s.stored)));
      problem_.AddCost(out, std::move(costs));
    }
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const ValueId x = n.inputs[i];
      if (x == kNoValue || g_.constant(x)) continue;
      std::vector<double> costs;
      for (const State& in : StatesOf(x)) {
        for (const State& s : outs) {
          bool ignored = false;
          costs.push_back(BestRead(n, i, in, s.stored, &ignored));
        }
      }
      problem_.AddCost(variable_.at(static_cast<size_t>(x)), out, std::move(costs));
    }
  }

  void AddOutputCost(ValueId v) {
    if (g_.constant(v)) return;
    const TensorType& t = g_.type(v);
    const IndexMap row_major = IndexMap::Identity(t.rank());
    std::vector<double> costs;
    for (const State& s : StatesOf(v)) {
      const bool have =
          SameBytes(t, s.stored, row_major) || (s.copy && SameBytes(t, *s.copy, row_major));
      costs.push_back(have ? 0 : cost_.Copy(WithLayout(t, s.stored), t));
    }
    problem_.AddCost(variable_.at(static_cast<size_t>(v)), std::move(costs));
  }

  ValueId CopyOf(ValueId x, const std::string& label, std::vector<Node>& nodes) {
    const IndexMap layout = *StatesOf(x)[0].copy;
    for (ValueId made : copies_[x]) {
      if (SameBytes(g_.type(x), g_.type(made).layout, layout)) return made;
    }
    const ValueId copy =
        g_.AddValue(g_.values[x].name + (layout.IsIdentity() ? "_row_major" : "_channels_last"),
                    WithLayout(g_.type(x), layout));
    nodes.push_back(CopyNode(g_, x, copy, label));
    copies_[x].push_back(copy);
    return copy;
  }

  Graph& g_;
  const LayoutCost& cost_;
  const std::vector<std::vector<int>> users_;  // before copies are inserted
  MinSum problem_;
  std::vector<std::vector<State>> states_;  // per value; empty for constants; one once chosen
  std::map<size_t, int> variable_;
  std::map<ValueId, std::vector<ValueId>> copies_;
};

}  // namespace

StatusOr<bool> AssignLayouts(Graph& g) { return SelectLayouts(g, RooflineLayoutCost()); }

StatusOr<bool> SelectLayouts(Graph& g, const LayoutCost& cost, double* total) {
  double ignored = 0;
  Selection s(g, cost);
  s.Select(total ? total : &ignored);
  return s.Write();
}

std::vector<StoredLayout> ChooseLayouts(const Graph& g, const LayoutCost& cost) {
  Graph copy = g;
  double ignored = 0;
  Selection s(copy, cost);
  s.Select(&ignored);
  return s.Selected();
}

StatusOr<bool> TakeLayouts(Graph& g, const LayoutCost& cost, std::span<const StoredLayout> stored) {
  Selection s(g, cost);
  WHET_RETURN_IF_ERROR(s.Take(stored));
  return s.Write();
}

StatusOr<bool> MarkViews(Graph& g) {
  bool changed = false;
  for (Node& n : g.nodes) {
    const bool view = IsPhysicalView(g.View(n));
    changed |= view != n.view;
    n.view = view;
  }
  return changed;
}

// Each graph output must be memory of its own that a kernel writes: one that shares bytes with a
// graph input, a constant or another output is copied.
StatusOr<bool> SeparateOutputs(Graph& g) {
  std::vector<ValueId> root(g.values.size());
  for (size_t i = 0; i < root.size(); ++i) root[i] = static_cast<ValueId>(i);
  for (const Node& n : g.nodes) {
    if (n.view) root[n.outputs[0]] = root[n.inputs[0]];
  }
  std::vector<bool> taken(g.values.size(), false);
  for (ValueId v : g.inputs) taken[v] = true;
  bool changed = false;
  for (GraphOutput& o : g.outputs) {
    const ValueId r = root[o.value];
    if (!taken[r] && !g.constant(r)) {
      taken[r] = true;
      continue;
    }
    const ValueId copy = g.AddValue(g.values[o.value].name + "_output",
                                    TensorType::Of(g.type(o.value).dtype, g.type(o.value).shape));
    g.nodes.push_back(CopyNode(g, o.value, copy, o.name));
    o.value = copy;
    changed = true;
  }
  return changed;
}

}  // namespace whet::graph
