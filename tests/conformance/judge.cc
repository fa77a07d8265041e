#include "tests/conformance/judge.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "compiler/builder/model_build.h"
#include "compiler/codegen/codegen.h"
#include "compiler/driver/model_request.h"
#include "compiler/graph/passes.h"
#include "compiler/ops/catalog.h"
#include "deploy/runtime/model.h"
#include "tests/conformance/binding.h"

namespace whet::conformance {
namespace {

Outcome Passed(bool folded) { return {Verdict::kPassed, "", "", folded}; }
Outcome Unsupported(std::string reason, std::string detail) {
  return {Verdict::kUnsupported, std::move(reason), std::move(detail), false};
}
Outcome Fault(std::string detail) { return {Verdict::kFault, "", std::move(detail), false}; }

// "node 'x' (NAME, operator set 13): ..." names the operator that is missing, or a form of it.
Outcome NotImported(const Status& s) {
  std::string message = Message(s);
  message = message.substr(0, message.find("\nsupported operators"));
  if (WantsConstant(s)) return Unsupported("dynamic-output", message);
  if (message.find("element type") != std::string::npos) return Unsupported("type", message);
  const size_t at = message.find("' (");
  const size_t end = message.find(", operator set", at);
  if (at == std::string::npos || end == std::string::npos) return Fault(message);
  return Unsupported("operator-not-yet " + message.substr(at + 3, end - at - 3), message);
}

// "NAME: what of it cannot be compiled".
Outcome NotBuilt(const Status& s) {
  const std::string message = Message(s);
  const std::string name = message.substr(0, message.find(':'));
  if (s.code() != absl::StatusCode::kUnimplemented || !ops::Catalog().Find(name))
    return Fault(message);
  return Unsupported("operator-not-yet " + name, message);
}

Status BuildArtifact(graph::Graph& g, const std::string& path) {
  WHET_RETURN_IF_ERROR(graph::RunPasses(g).status());
  WHET_ASSIGN_OR_RETURN(const fusion::Partition p, fusion::PartitionGraph(g));
  v1::ModelBuildRequest request;
  request.set_name("conformance");
  request.set_target(Target::Host().ToString());
  request.set_out_path(path);
  const std::vector<std::string> default_schedules(p.tasks.size());
  WHET_RETURN_IF_ERROR(driver::FillModelRequest(g, p, default_schedules, request));
  return builder::BuildModelOf(std::move(request)).status();
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, Free>;
Memory Aligned(uint64_t bytes) {
  const size_t size = (bytes / WHET_ALIGNMENT + 1) * WHET_ALIGNMENT;
  return Memory(std::aligned_alloc(WHET_ALIGNMENT, size));
}

// Inputs that only lend their type: some vectors have fewer elements for them than the model says.
std::set<std::string> UnreadInputs(const graph::Graph& g) {
  std::set<std::string> names;
  const auto users = g.Users();
  for (graph::ValueId v : g.inputs) {
    if (users[v].empty() && !g.IsOutput(v)) names.insert(g.values[v].name);
  }
  return names;
}

// The outputs' bytes.
StatusOr<std::vector<std::string>> RunArtifact(const std::string& path,
                                               const std::vector<Tensor>& inputs,
                                               const std::set<std::string>& unread) {
  std::string error;
  const std::shared_ptr<const Model> model = Model::Load(path, &error);
  if (!model) return Internal("the artifact does not load: {}", error);
  std::vector<Memory> memory;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const whet_tensor& t : model->inputs()) {
    const auto given =
        std::find_if(inputs.begin(), inputs.end(), [&](auto& x) { return x.name == t.name; });
    if (given == inputs.end()) return Internal("the artifact has an input '{}'", t.name);
    const std::string& bytes = given->value->bytes();
    if (bytes.size() != t.bytes && !unread.count(t.name))
      return Internal("input '{}' has {} bytes in the artifact, not {}", t.name, t.bytes,
                      bytes.size());
    memory.push_back(Aligned(t.bytes));
    std::memcpy(memory.back().get(), bytes.data(), std::min<size_t>(bytes.size(), t.bytes));
    in.push_back(memory.back().get());
  }
  for (const whet_tensor& t : model->outputs()) {
    memory.push_back(Aligned(t.bytes));
    // What a kernel forgets to write is seen.
    std::memset(memory.back().get(), 0xA5, t.bytes);
    out.push_back(memory.back().get());
  }
  Instance instance(model, 1);
  if (!instance.error().empty()) return Internal("{}", instance.error());
  instance.Run(in, out);
  std::vector<std::string> results;
  for (size_t i = 0; i < out.size(); ++i)
    results.emplace_back(static_cast<const char*>(out[i]), model->outputs()[i].bytes);
  return results;
}

// The expected values of windows were computed with 3.1415 for pi, those of RoiAlign written down
// with four digits.
bool IsRough(const TestCase& test) {
  for (const char* rough :
       {"test_hannwindow", "test_hammingwindow", "test_blackmanwindow", "test_roialign"}) {
    if (test.name.find(rough) != std::string::npos) return true;
  }
  return false;
}

double Tolerance(DType t, bool rough) {
  if (rough && IsFloat(t)) return 1e-4;
  switch (t) {
    case DType::kF16: return 0x1p-10;
    case DType::kBF16: return 0x1p-7;
    case DType::kF32:
    case DType::kF64: return 1e-5;
    default: return 0;
  }
}

// The first difference in words, or "".
std::string Compare(const graph::Constant& want, const std::string& got_bytes, bool rough) {
  if (want.bytes() == got_bytes) return "";
  if (want.bytes().size() != got_bytes.size())
    return fmt::format("{} bytes instead of {}", got_bytes.size(), want.bytes().size());
  const double tolerance = Tolerance(want.dtype(), rough);
  const std::vector<double> w = want.Doubles(), g = graph::ReadDoubles(want.dtype(), got_bytes);
  double largest = 0;
  for (double x : w) largest = std::max(largest, std::isfinite(x) ? std::fabs(x) : 0);
  // What ONNX's own runner allows each element, and no more than a share of the largest one, which
  // is stricter where sums cancel least.
  const double own = std::max(tolerance, 1e-3);
  for (size_t i = 0; i < w.size(); ++i) {
    const double allowed = std::min(tolerance * largest, 1e-7 + own * std::fabs(w[i]));
    const bool same = std::isnan(w[i]) ? std::isnan(g[i])
                                       : w[i] == g[i] || (tolerance > 0 && std::isfinite(w[i]) &&
                                                          std::fabs(w[i] - g[i]) <= allowed);
    if (!same) return fmt::format("element {} is {}, not {}", i, g[i], w[i]);
  }
  return tolerance > 0 ? "" : "other bytes that read as the same numbers";
}

}  // namespace

Status Prepare() { return codegen::WarmUp(Target::Host()); }

Outcome Judge(const TestCase& test, const std::string& artifact_path) {
  auto read = ReadVectors(test);
  if (!read.ok()) return Fault(Message(read.status()));
  const Vectors& v = *read;
  if (std::string reason = OutOfScope(v.model); !reason.empty()) return Unsupported(reason, "");
  std::vector<Tensor> inputs, want;
  for (size_t i = 0; i < v.inputs.size(); ++i) {
    auto t = ParseTensor(v.inputs[i], v.input_infos[i]);
    if (!t.ok()) return Fault(Message(t.status()));
    inputs.push_back(std::move(*t));
  }
  for (size_t i = 0; i < v.outputs.size(); ++i) {
    auto t = ParseTensor(v.outputs[i], v.model.graph().output(static_cast<int>(i)));
    if (!t.ok()) return Fault(Message(t.status()));
    want.push_back(std::move(*t));
  }
  std::vector<bool> bound;
  auto g = ImportWithFewestBound(v, inputs, &bound);
  if (!g.ok()) return NotImported(g.status());
  for (size_t i = 0; i < want.size(); ++i) {
    const graph::TensorType& got = g->type(g->outputs[i].value);
    if (got.dtype != want[i].value->dtype() || got.shape != want[i].value->shape())
      return Fault(fmt::format("output {} is {}, not {}", i, got.ToString(),
                               want[i].value->type().ToString()));
  }
  const bool folded = std::all_of(g->outputs.begin(), g->outputs.end(),
                                  [&](auto& o) { return g->constant(o.value) != nullptr; });
  const std::set<std::string> unread = UnreadInputs(*g);
  if (Status s = BuildArtifact(*g, artifact_path); !s.ok()) return NotBuilt(s);
  const auto got = RunArtifact(artifact_path, inputs, unread);
  unlink(artifact_path.c_str());
  if (!got.ok()) return Fault(Message(got.status()));
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::string difference = Compare(*want[i].value, (*got)[i], IsRough(test));
        !difference.empty())
      return Fault(fmt::format("output {}: {}", i, difference));
  }
  return Passed(folded);
}

}  // namespace whet::conformance
