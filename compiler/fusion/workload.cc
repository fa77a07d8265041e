#include "compiler/fusion/workload.h"

#include <fmt/format.h>

#include <algorithm>

namespace whet::fusion {
namespace {

using graph::Scanner;
using graph::TensorType;

constexpr std::string_view kHeader = "whet-workload 1";

class Parser {
 public:
  Parser(std::string_view text, const graph::OpCatalog& catalog)
      : in_(text, "workload"), catalog_(catalog) {}

  StatusOr<Workload> Run() {
    WHET_RETURN_IF_ERROR(in_.Expect("whet-workload"));
    WHET_RETURN_IF_ERROR(in_.Expect("1"));
    while (in_.Accept("input")) WHET_RETURN_IF_ERROR(Input());
    while (in_.Accept("op")) WHET_RETURN_IF_ERROR(Op());
    while (in_.Accept("output")) WHET_RETURN_IF_ERROR(Output());
    if (!in_.AtEnd()) return in_.Error("expected 'input', 'op' or 'output' lines, in this order");
    if (w_.ops.empty() || w_.outputs.empty())
      return in_.Error("a workload has an operator and an output at least");
    return std::move(w_);
  }

 private:
  StatusOr<TensorType> Type() {
    WHET_ASSIGN_OR_RETURN(TensorType t, graph::ParseTensorType(in_));
    if (t.num_elements() == 0) return in_.Error(fmt::format("{} has no elements", t.ToString()));
    return t;
  }

  Status Input() {
    if (w_.inputs.size() >= kMaxInputs)
      return in_.Error(fmt::format("more than {} inputs", kMaxInputs));
    WorkloadInput i;
    i.constant = in_.Accept("const");
    WHET_ASSIGN_OR_RETURN(i.type, Type());
    w_.inputs.push_back(std::move(i));
    ++values_;
    return OkStatus();
  }

  StatusOr<int> Value() {
    WHET_ASSIGN_OR_RETURN(int64_t v, in_.Integer());
    if (v < 0 || v >= values_) return in_.Error(fmt::format("value {} is not defined", v));
    return static_cast<int>(v);
  }

  Status Op() {
    if (w_.ops.size() >= kMaxOps) return in_.Error(fmt::format("more than {} operators", kMaxOps));
    WorkloadOp o;
    WHET_ASSIGN_OR_RETURN(std::string word, in_.Word());
    const size_t dot = word.rfind('.');
    o.op = catalog_.Find(word.substr(0, dot));
    if (o.op == nullptr || !o.op->infer)
      return in_.Error(fmt::format("unknown operator '{}'", word));
    const std::string version = dot == std::string::npos ? "" : word.substr(dot + 1);
    if (version != std::to_string(o.op->version)) {
      return in_.Error(fmt::format("{} has version '{}', this program knows {}", o.op->name,
                                   version, o.op->version));
    }
    WHET_RETURN_IF_ERROR(in_.Expect("("));
    std::vector<const TensorType*> types;
    while (!in_.Accept(")")) {
      if (!o.args.empty()) WHET_RETURN_IF_ERROR(in_.Expect(","));
      if (o.args.size() >= kMaxInputs)
        return in_.Error(fmt::format("more than {} operands", kMaxInputs));
      WHET_ASSIGN_OR_RETURN(int v, Value());
      o.args.push_back(v);
    }
    for (int v : o.args) types.push_back(&w_.type(v));
    WHET_ASSIGN_OR_RETURN(graph::Attrs attrs, graph::Attrs::Parse(in_));
    WHET_ASSIGN_OR_RETURN(o.attrs, Located(graph::FillAttrs(*o.op, std::move(attrs))));
    WHET_ASSIGN_OR_RETURN(o.outputs, Located(graph::InferTypes(*o.op, o.attrs, types)));
    for (const TensorType& t : o.outputs) {
      if (t.num_elements() == 0) return in_.Error(fmt::format("{} has no elements", t.ToString()));
    }
    values_ += static_cast<int>(o.outputs.size());
    w_.ops.push_back(std::move(o));
    return OkStatus();
  }

  Status Output() {
    if (w_.outputs.size() >= kMaxInputs)
      return in_.Error(fmt::format("more than {} outputs", kMaxInputs));
    WorkloadOutput o;
    WHET_ASSIGN_OR_RETURN(o.value, Value());
    WHET_ASSIGN_OR_RETURN(o.type, Type());
    const TensorType& inferred = w_.type(o.value);
    if (o.value < static_cast<int>(w_.inputs.size()))
      return in_.Error("an output must be computed");
    for (const WorkloadOutput& other : w_.outputs) {
      if (other.value == o.value)
        return in_.Error(fmt::format("value {} is an output twice", o.value));
    }
    if (o.type.dtype != inferred.dtype || o.type.shape != inferred.shape) {
      return in_.Error(
          fmt::format("output {} is {}, not {}", o.value, inferred.ToString(), o.type.ToString()));
    }
    w_.outputs.push_back(std::move(o));
    return OkStatus();
  }

  template <typename T>
  StatusOr<T> Located(StatusOr<T> r) {
    if (!r.ok()) return in_.Error(Message(r.status()));
    return r;
  }

  Scanner in_;
  const graph::OpCatalog& catalog_;
  Workload w_;
  int values_ = 0;
};

}  // namespace

StatusOr<Workload> Workload::Parse(std::string_view text, const graph::OpCatalog& catalog) {
  if (text.size() > kMaxTextBytes)
    return InvalidArgument("workload text of {} bytes; the limit is {}", text.size(),
                           kMaxTextBytes);
  return Parser(text, catalog).Run();
}

std::string Workload::ToString() const {
  std::string s(kHeader);
  s += "\n";
  for (const WorkloadInput& i : inputs)
    s += fmt::format("input {}{}\n", i.constant ? "const " : "", i.type.ToString());
  for (const WorkloadOp& o : ops) {
    s += fmt::format("op {}.{}({})", o.op->name, o.op->version, fmt::join(o.args, ", "));
    if (!o.attrs.empty()) s += " " + o.attrs.ToString();
    s += "\n";
  }
  for (const WorkloadOutput& o : outputs)
    s += fmt::format("output {} {}\n", o.value, o.type.ToString());
  return s;
}

const TensorType& Workload::type(int value) const {
  const int n = static_cast<int>(inputs.size());
  if (value < n) return inputs[value].type;
  int at = value - n;
  for (const WorkloadOp& o : ops) {
    if (at < static_cast<int>(o.outputs.size())) return o.outputs[at];
    at -= static_cast<int>(o.outputs.size());
  }
  WHET_CHECK(false, "value {} of a workload", value);
}

int64_t Workload::flops() const {
  int64_t n = 0;
  for (const WorkloadOp& o : ops) {
    std::vector<const TensorType*> in;
    for (int v : o.args) in.push_back(&type(v));
    n += graph::FlopsOf(graph::ViewOf(*o.op, o.attrs, in, o.outputs));
  }
  return n;
}

int64_t Workload::bytes() const {
  int64_t n = 0;
  for (const WorkloadInput& i : inputs) n += i.type.bytes();
  for (const WorkloadOutput& o : outputs) n += o.type.bytes();
  return n;
}

std::string Workload::Title() const {
  std::string s;
  for (const WorkloadOp& o : ops) s += (s.empty() ? "" : "+") + o.op->name;
  if (!inputs.empty()) s += fmt::format(" {}", fmt::join(inputs[0].type.shape, "x"));
  return s + fmt::format(" -> {}", fmt::join(outputs[0].type.shape, "x"));
}

}  // namespace whet::fusion
