// graph "face"
//   input x: f32[1,3,8,8]
//   const w: f32[4,3,1,1] @8f3a...            (or = [1.0,2.0] when small)
//   y: f32[1,4,8,8] = Conv(x, w) {group=1} "conv_1"
//   z: f32[1,256] = view Reshape(y) {shape=[1,256]} "flatten"
//   output "scores" = z
#include <fmt/format.h>

#include <charconv>
#include <unordered_map>

#include "compiler/graph/graph.h"

namespace whet::graph {
namespace {

constexpr int64_t kInlineElements = 16;
constexpr size_t kMaxGraphText = size_t{64} << 20;

bool Inline(const Constant& c) { return c.num_elements() <= kInlineElements; }

std::string ConstantText(const Constant& c) {
  if (!Inline(c)) return " @" + c.hash().Hex();
  std::string s = " = [";
  const bool floats = IsFloat(c.dtype()), words = c.dtype() == DType::kU64;
  const std::vector<double> values = floats ? c.Doubles() : std::vector<double>();
  const std::vector<int64_t> ints = floats ? std::vector<int64_t>() : words ? c.Words() : c.Ints();
  for (int64_t i = 0; i < c.num_elements(); ++i) {
    s += (i ? "," : "") + (floats  ? FormatFloat(values[i])
                           : words ? std::to_string(static_cast<uint64_t>(ints[i]))
                                   : std::to_string(ints[i]));
  }
  return s + "]";
}

class Parser {
 public:
  Parser(std::string_view text, const OpCatalog& catalog, const std::vector<ConstantPtr>& constants)
      : in_(text, "graph") {
    g_.catalog = &catalog;
    for (const ConstantPtr& c : constants) constants_.emplace(c->hash().Hex(), c);
  }

  StatusOr<Graph> Run() {
    WHET_RETURN_IF_ERROR(in_.Expect("graph"));
    WHET_ASSIGN_OR_RETURN(g_.name, in_.Quoted());
    while (!in_.AtEnd()) {
      // A value may be called "input" or "output": then a colon follows at once, which these forms
      // do not have.
      if (in_.Accept("input ")) {
        WHET_RETURN_IF_ERROR(Input());
      } else if (in_.Accept("const ")) {
        WHET_RETURN_IF_ERROR(ReadConstant());
      } else if (in_.Accept("output ")) {
        WHET_RETURN_IF_ERROR(Output());
      } else {
        WHET_RETURN_IF_ERROR(ReadNode());
      }
    }
    WHET_RETURN_IF_ERROR(Verify(g_));
    return std::move(g_);
  }

 private:
  StatusOr<std::pair<std::string, TensorType>> Declaration() {
    WHET_ASSIGN_OR_RETURN(std::string name, in_.Name());
    // An unquoted name swallows the colon that ends it.
    const bool colon = name.size() > 1 && name.back() == ':';
    if (colon) name.pop_back();
    if (!colon) WHET_RETURN_IF_ERROR(in_.Expect(":"));
    if (ids_.count(name)) return in_.Error(fmt::format("value '{}' twice", name));
    WHET_ASSIGN_OR_RETURN(TensorType type, ParseTensorType(in_));
    return std::pair(std::move(name), std::move(type));
  }

  ValueId Define(const std::string& name, TensorType type, ConstantPtr c = nullptr) {
    return ids_[name] = g_.AddValue(name, std::move(type), std::move(c));
  }

  Status Input() {
    WHET_ASSIGN_OR_RETURN(auto d, Declaration());
    g_.inputs.push_back(Define(d.first, std::move(d.second)));
    return OkStatus();
  }

  Status ReadConstant() {
    WHET_ASSIGN_OR_RETURN(auto d, Declaration());
    if (in_.Accept("@")) {
      WHET_ASSIGN_OR_RETURN(std::string hash, in_.Word());
      auto it = constants_.find(hash);
      if (it == constants_.end())
        return in_.Error(fmt::format("constant @{} is not at hand", hash));
      Define(d.first, std::move(d.second), it->second);
      return OkStatus();
    }
    WHET_RETURN_IF_ERROR(in_.Expect("="));
    const int64_t n = d.second.num_elements();
    if (d.second.dtype == DType::kU64) {
      WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> words, Words());
      if (static_cast<int64_t>(words.size()) != n)
        return in_.Error(fmt::format("expected {} elements", n));
      Define(d.first, d.second, Constant::OfWords(DType::kU64, d.second.shape, words));
      return OkStatus();
    }
    WHET_ASSIGN_OR_RETURN(AttrValue list, ParseAttrValue(in_));
    if (const auto* ints = std::get_if<std::vector<int64_t>>(&list);
        ints && static_cast<int64_t>(ints->size()) == n) {
      if (d.second.dtype == DType::kI64) {
        Define(d.first, d.second, Constant::OfInts(d.second.shape, *ints));
        return OkStatus();
      }
      const std::vector<double> doubles(ints->begin(), ints->end());
      Define(d.first, d.second, Constant::OfDoubles(d.second.dtype, d.second.shape, doubles));
      return OkStatus();
    }
    const auto* floats = std::get_if<std::vector<double>>(&list);
    if (floats == nullptr || static_cast<int64_t>(floats->size()) != n)
      return in_.Error(fmt::format("expected {} elements", n));
    Define(d.first, d.second, Constant::OfDoubles(d.second.dtype, d.second.shape, *floats));
    return OkStatus();
  }

  // The bits of a list of u64, whose elements an attribute does not hold.
  StatusOr<std::vector<int64_t>> Words() {
    std::vector<int64_t> words;
    WHET_RETURN_IF_ERROR(in_.Expect("["));
    while (!in_.Accept("]")) {
      if (!words.empty()) WHET_RETURN_IF_ERROR(in_.Expect(","));
      WHET_ASSIGN_OR_RETURN(const std::string word, in_.Word());
      uint64_t v = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), v);
      if (error != std::errc() || end != word.data() + word.size())
        return in_.Error(fmt::format("'{}' is no u64", word));
      words.push_back(static_cast<int64_t>(v));
    }
    return words;
  }

  Status Output() {
    WHET_ASSIGN_OR_RETURN(std::string name, in_.Quoted());
    WHET_RETURN_IF_ERROR(in_.Expect("="));
    WHET_ASSIGN_OR_RETURN(ValueId v, Use());
    g_.outputs.push_back({std::move(name), v});
    return OkStatus();
  }

  StatusOr<ValueId> Use() {
    WHET_ASSIGN_OR_RETURN(std::string name, in_.Name());
    auto it = ids_.find(name);
    if (it == ids_.end()) return in_.Error(fmt::format("unknown value '{}'", name));
    return it->second;
  }

  Status ReadNode() {
    std::vector<std::pair<std::string, TensorType>> outs;
    do {
      WHET_ASSIGN_OR_RETURN(auto d, Declaration());
      outs.push_back(std::move(d));
    } while (in_.Accept(","));
    WHET_RETURN_IF_ERROR(in_.Expect("="));
    Node n;
    n.view = in_.Accept("view ");
    WHET_ASSIGN_OR_RETURN(std::string op, in_.Word());
    n.op = g_.catalog->Find(op);
    if (n.op == nullptr) return in_.Error(fmt::format("unknown operator '{}'", op));
    WHET_RETURN_IF_ERROR(in_.Expect("("));
    while (!in_.Accept(")")) {
      if (!n.inputs.empty()) WHET_RETURN_IF_ERROR(in_.Expect(","));
      if (in_.Accept("_ ")) {
        n.inputs.push_back(kNoValue);
        continue;
      }
      WHET_ASSIGN_OR_RETURN(ValueId v, Use());
      n.inputs.push_back(v);
    }
    WHET_ASSIGN_OR_RETURN(Attrs attrs, Attrs::Parse(in_));
    WHET_ASSIGN_OR_RETURN(n.attrs, FillAttrs(*n.op, std::move(attrs)));
    if (in_.Peek("\"")) {
      WHET_ASSIGN_OR_RETURN(n.label, in_.Quoted());
    }
    for (auto& [name, type] : outs) {
      if (ids_.count(name)) return in_.Error(fmt::format("value '{}' twice", name));
      n.outputs.push_back(Define(name, std::move(type)));
    }
    g_.nodes.push_back(std::move(n));
    return OkStatus();
  }

  Scanner in_;
  Graph g_;
  std::unordered_map<std::string, ConstantPtr> constants_;
  std::unordered_map<std::string, ValueId> ids_;
};

std::string NodeText(const Graph& g, const Node& n) {
  std::string s = "  ";
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    const Value& v = g.values[n.outputs[i]];
    s += fmt::format("{}{}: {}", i ? ", " : "", QuoteName(v.name), v.type.ToString());
  }
  s += fmt::format(" = {}{}(", n.view ? "view " : "", n.op->name);
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    s += (i ? ", " : "") + (n.inputs[i] == kNoValue ? "_ " : QuoteName(g.values[n.inputs[i]].name));
  }
  s += ")";
  if (!n.attrs.empty()) s += " " + n.attrs.ToString();
  if (!n.label.empty()) s += " " + Quote(n.label);
  return s + "\n";
}

}  // namespace

std::string ToString(const Graph& g) {
  std::string s = fmt::format("graph {}\n", Quote(g.name));
  for (ValueId v : g.inputs)
    s += fmt::format("  input {}: {}\n", QuoteName(g.values[v].name), g.type(v).ToString());
  for (const Value& v : g.values) {
    if (v.constant)
      s += fmt::format("  const {}: {}{}\n", QuoteName(v.name), v.type.ToString(),
                       ConstantText(*v.constant));
  }
  for (const Node& n : g.nodes) {
    if (n.op != nullptr) s += NodeText(g, n);
  }
  for (const GraphOutput& o : g.outputs)
    s += fmt::format("  output {} = {}\n", Quote(o.name), QuoteName(g.values[o.value].name));
  return s;
}

StatusOr<Graph> ParseGraph(std::string_view text, const OpCatalog& catalog,
                           const std::vector<ConstantPtr>& constants) {
  if (text.size() > kMaxGraphText)
    return InvalidArgument("graph text of {} bytes; the limit is 64 MiB", text.size());
  return Parser(text, catalog, constants).Run();
}

}  // namespace whet::graph
