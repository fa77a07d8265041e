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

void SortByName(std::vector<TestCase>& tests) {
  std::sort(tests.begin(), tests.end(),
            [](const TestCase& a, const TestCase& b) { return a.name < b.name; });
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
  for (const auto& a : n.attribute()) {
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
  SortByName(tests);
  return tests;
}

StatusOr<std::vector<TestCase>> FindOwnVectors(const std::string& folder) {
  std::vector<TestCase> tests;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder, error)) {
    if (file.path().extension() != ".onnx") continue;
    tests.push_back({"vectors/" + file.path().stem().string(), file.path().string()});
  }
  if (tests.empty()) return NotFound("no vectors in '{}'", folder);
  SortByName(tests);
  return tests;
}

// The values are initializers of one graph, under the names they have in the model.
StatusOr<Vectors> ReadOwn(const fs::path& path, Vectors v) {
  WHET_ASSIGN_OR_RETURN(const std::string bytes, ReadWhole(path));
  GraphProto data;
  if (!data.ParseFromString(bytes)) return InvalidArgument("'{}' does not parse", path.string());
  auto find = [&](const std::string& name) -> StatusOr<std::string> {
    for (const TensorProto& t : data.initializer()) {
      if (t.name() == name) return t.SerializeAsString();
    }
    return NotFound("'{}' has no '{}'", path.string(), name);
  };
  for (const auto& i : v.input_infos) {
    WHET_ASSIGN_OR_RETURN(std::string tensor, find(i.name()));
    v.inputs.push_back(std::move(tensor));
  }
  for (const auto& o : v.model.graph().output()) {
    WHET_ASSIGN_OR_RETURN(std::string tensor, find(o.name()));
    v.outputs.push_back(std::move(tensor));
  }
  return v;
}

StatusOr<Vectors> ReadVectors(const TestCase& test) {
  Vectors v;
  const bool own = test.path.ends_with(".onnx");
  WHET_ASSIGN_OR_RETURN(const std::string model,
                        ReadWhole(own ? fs::path(test.path) : fs::path(test.path) / "model.onnx"));
  if (!v.model.ParseFromString(model)) return InvalidArgument("model.onnx does not parse");
  std::set<std::string> initialized;
  for (const auto& t : v.model.graph().initializer()) initialized.insert(t.name());
  for (const auto& i : v.model.graph().input()) {
    if (!initialized.count(i.name())) v.input_infos.push_back(i);
  }
  if (own) return ReadOwn(fs::path(test.path).replace_extension(".data"), std::move(v));
  const fs::path set = fs::path(test.path) / "test_data_set_0";
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
