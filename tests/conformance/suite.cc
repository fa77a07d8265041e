#include "tests/conformance/suite.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "compiler/onnx/tensor.h"

namespace whet::conformance {
namespace {

namespace fs = std::filesystem;
using onnx_schema::GraphProto;
using onnx_schema::NodeProto;
using onnx_schema::TensorProto;

StatusOr<std::string> ReadWhole(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot open '{}'", path.string());
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// What a model mentions, in any of its graphs.
struct Mentioned {
  std::set<int> element_types;
  std::set<std::string> ops;
  bool sequence = false, training = false;
};

void Visit(const onnx_schema::TypeProto& t, Mentioned& m) {
  if (t.has_tensor_type()) m.element_types.insert(t.tensor_type().elem_type());
  m.sequence |= t.has_sequence_type() || t.has_optional_type() || t.has_map_type();
}

void Visit(const GraphProto& g, Mentioned& m);

void Visit(const NodeProto& n, Mentioned& m) {
  m.ops.insert(n.op_type());
  m.training |= n.domain() == "ai.onnx.preview.training";
  // Dropout and BatchNormalization compute something else while a network is being trained.
  for (const auto& a : n.attribute()) {
    m.training |= a.name() == "training_mode" && a.i() != 0;
    if (a.has_t()) m.element_types.insert(a.t().data_type());
    if (a.has_g()) Visit(a.g(), m);
    if (n.op_type() == "Cast" && a.name() == "to") m.element_types.insert(static_cast<int>(a.i()));
    if (n.op_type() == "Constant" && a.name().starts_with("value_string"))
      m.element_types.insert(TensorProto::STRING);
  }
}

void Visit(const GraphProto& g, Mentioned& m) {
  for (const auto* list : {&g.input(), &g.output()}) {
    for (const auto& v : *list) Visit(v.type(), m);
  }
  for (const auto& t : g.initializer()) m.element_types.insert(t.data_type());
  for (const auto& n : g.node()) Visit(n, m);
}

}  // namespace

StatusOr<std::vector<TestCase>> FindTests(const std::string& data) {
  std::vector<TestCase> tests;
  std::error_code error;
  for (const auto& suite : fs::directory_iterator(data, error)) {
    if (!suite.is_directory()) continue;
    for (const auto& test : fs::directory_iterator(suite.path(), error)) {
      if (!fs::exists(test.path() / "model.onnx")) continue;
      tests.push_back({suite.path().filename().string() + "/" + test.path().filename().string(),
                       test.path().string()});
    }
  }
  if (tests.empty()) {
    return NotFound("no ONNX test data in '{}'; install libonnx-testdata or set WHET_ONNX_TESTDATA",
                    data);
  }
  std::sort(tests.begin(), tests.end(),
            [](const TestCase& a, const TestCase& b) { return a.name < b.name; });
  return tests;
}

StatusOr<Vectors> ReadVectors(const TestCase& test) {
  Vectors v;
  WHET_ASSIGN_OR_RETURN(const std::string model, ReadWhole(fs::path(test.folder) / "model.onnx"));
  if (!v.model.ParseFromString(model)) return InvalidArgument("model.onnx does not parse");
  std::set<std::string> initialized;
  for (const auto& t : v.model.graph().initializer()) initialized.insert(t.name());
  for (const auto& i : v.model.graph().input()) {
    if (!initialized.count(i.name())) v.input_infos.push_back(i);
  }
  const fs::path set = fs::path(test.folder) / "test_data_set_0";
  for (size_t k = 0; k < v.input_infos.size(); ++k) {
    WHET_ASSIGN_OR_RETURN(std::string bytes, ReadWhole(set / fmt::format("input_{}.pb", k)));
    v.inputs.push_back(std::move(bytes));
  }
  for (int k = 0; k < v.model.graph().output_size(); ++k) {
    WHET_ASSIGN_OR_RETURN(std::string bytes, ReadWhole(set / fmt::format("output_{}.pb", k)));
    v.outputs.push_back(std::move(bytes));
  }
  return v;
}

std::string OutOfScope(const onnx_schema::ModelProto& model) {
  Mentioned m;
  Visit(model.graph(), m);
  if (m.element_types.count(TensorProto::STRING)) return "string";
  if (m.sequence) return "sequence";
  if (m.training || m.ops.count("Gradient")) return "training";
  for (int t : m.element_types) {
    if (t != TensorProto::UNDEFINED && !onnx::DTypeOf(t).ok()) return "type";
  }
  return "";
}

}  // namespace whet::conformance
