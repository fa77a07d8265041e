#include "tests/golden/accepted_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>

#include "compiler/onnx/tensor.h"
#include "compiler/ops/catalog.h"
#include "tests/conformance/binding.h"
#include "tests/support/test_model.h"

namespace whet {
namespace {

using conformance::Tensor;
using conformance::Vectors;
using onnx_schema::GraphProto;
using onnx_schema::TensorProto;
using testing_support::OnnxType;
using testing_support::TestModel;

constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI8,
                            DType::kI16, DType::kI32,  DType::kI64, DType::kU8,  DType::kU16,
                            DType::kU32, DType::kU64,  DType::kBool};

// Where the data is not the first input.
const std::map<std::string, int> kDataInput = {
    {"OneHot", 2}, {"Where", 1}, {"com.microsoft.QLinearConcat", 2}};
// No input is data: an attribute or a body says what the result is of.
const std::set<std::string> kTypedElsewhere = {"Constant", "ConstantOfShape", "If", "Loop"};

struct Sample {
  std::string op;
  Vectors v;
  std::vector<Tensor> inputs;
};

std::string OperatorOf(const GraphProto& g) {
  const auto& n = g.node(0);
  const bool standard = n.domain().empty() || n.domain() == "ai.onnx";
  return standard ? n.op_type() : n.domain() + "." + n.op_type();
}

// The name of the only node's data; "" where it has none.
std::string DataOf(const GraphProto& g) {
  const auto it = kDataInput.find(OperatorOf(g));
  const int at = it == kDataInput.end() ? 0 : it->second;
  return at < g.node(0).input_size() ? g.node(0).input(at) : "";
}

// The element type of the data; 0 where that is no tensor.
int DataType(const GraphProto& g) {
  for (const auto& i : g.input()) {
    if (i.name() == DataOf(g)) return i.type().tensor_type().elem_type();
  }
  for (const auto& t : g.initializer()) {
    if (t.name() == DataOf(g)) return t.data_type();
  }
  return 0;
}

void Retype(TensorProto& t, DType to) {
  TensorProto copy = t;
  const auto value = onnx::TakeTensor(copy);
  if (!value.ok()) return;
  t.clear_float_data();
  t.clear_int32_data();
  t.clear_int64_data();
  t.clear_double_data();
  t.clear_uint64_data();
  t.set_data_type(OnnxType(to));
  t.set_raw_data(graph::WriteDoubles(to, (*value)->Doubles()));
}

// The sample with `to` for the type of the data: in everything of that type, or in `only`.
Sample Retyped(Sample s, DType to, const std::string& only) {
  GraphProto& g = *s.v.model.mutable_graph();
  const int from = DataType(g);
  auto changes = [&](const std::string& name, int type) {
    return type == from && (only.empty() || name == only);
  };
  for (Tensor& t : s.inputs) {
    if (!changes(t.name, t.proto.data_type())) continue;
    Retype(t.proto, to);
    t.value = graph::Constant::OfDoubles(to, t.value->shape(), t.value->Doubles());
  }
  for (auto& t : *g.mutable_initializer()) {
    if (changes(t.name(), t.data_type())) Retype(t, to);
  }
  for (auto& i : *g.mutable_input()) {
    auto& type = *i.mutable_type()->mutable_tensor_type();
    if (changes(i.name(), type.elem_type())) type.set_elem_type(OnnxType(to));
  }
  return s;
}

bool Imports(const Sample& s) {
  std::vector<bool> bound;
  return conformance::ImportWithFewestBound(s.v, s.inputs, &bound).ok();
}

bool DoesSomething(const Sample& s) {
  std::vector<bool> bound;
  const auto g = conformance::ImportWithFewestBound(s.v, s.inputs, &bound);
  return g.ok() && std::any_of(g->nodes.begin(), g->nodes.end(), [](const graph::Node& n) {
           return n.op != nullptr && n.op->name != "Identity";
         });
}

bool Takes(const Sample& s, DType t) {
  return Imports(Retyped(s, t, "")) || Imports(Retyped(s, t, DataOf(s.v.model.graph())));
}

StatusOr<std::vector<Sample>> ConformanceSamples() {
  WHET_ASSIGN_OR_RETURN(auto tests, conformance::FindTests(WHET_ONNX_TESTDATA));
  WHET_ASSIGN_OR_RETURN(const auto own,
                        conformance::FindOwnVectors(WHET_CONFORMANCE_DIR "/vectors"));
  tests.insert(tests.end(), own.begin(), own.end());
  std::vector<Sample> samples;
  for (const conformance::TestCase& test : tests) {
    auto v = conformance::ReadVectors(test);
    if (!v.ok() || v->model.graph().node_size() != 1 || DataType(v->model.graph()) == 0) continue;
    Sample s{OperatorOf(v->model.graph()), *std::move(v), {}};
    bool whole = true;
    for (size_t i = 0; i < s.v.inputs.size(); ++i) {
      auto t = conformance::ParseTensor(s.v.inputs[i], s.v.input_infos[i]);
      whole &= t.ok();
      if (t.ok()) s.inputs.push_back(*std::move(t));
    }
    if (whole) samples.push_back(std::move(s));
  }
  return samples;
}

// Of operators that the data has no test of.
class OwnSamples {
 public:
  std::vector<Sample> All() {
    const Shape image = {1, 2, 4, 4};
    Add("GlobalLpPool", {F32(image)});
    Add("LpNormalization", {F32(image)});
    Add("MaxRoiPool", {F32(image), F32({1, 5})}).Ints("pooled_shape", {2, 2});
    Add("RMSNormalization", {F32({2, 4}), F32({4})});
    Add("SimplifiedLayerNormalization", {F32({2, 4}), F32({4})});
    Contrib("DynamicQuantizeMatMul", {F32({2, 4}), U8({4, 2}), F32({})});
    Contrib("MatMulIntegerToFloat", {U8({2, 4}), U8({4, 2}), F32({}), F32({})});
    Contrib("QGemm",
            {U8({2, 4}), F32({}), U8({}), U8({4, 2}), F32({}), U8({}), "", F32({}), U8({})});
    for (const char* op : {"QLinearAdd", "QLinearMul"})
      Contrib(op, {U8({4}), F32({}), U8({}), U8({4}), F32({}), U8({}), F32({}), U8({})});
    for (const char* op : {"QLinearLeakyRelu", "QLinearSigmoid"})
      Contrib(op, {U8({4}), F32({}), U8({}), F32({}), U8({})});
    Contrib("QLinearSoftmax", {U8({1, 4}), F32({}), U8({}), F32({}), U8({})})
        .Int("opset", 13)
        .Int("axis", 1);
    Contrib("QLinearAveragePool", {U8(image), F32({}), U8({}), F32({}), U8({})})
        .Ints("kernel_shape", {2, 2});
    Contrib("QLinearGlobalAveragePool", {U8(image), F32({}), U8({}), F32({}), U8({})});
    Contrib("QLinearConcat", {F32({}), U8({}), U8({4}), F32({}), U8({})}).Int("axis", 0);
    std::vector<Sample> samples;
    for (TestModel& m : models_) {
      Sample s;
      s.v.model = m.proto();
      s.op = OperatorOf(s.v.model.graph());
      samples.push_back(std::move(s));
    }
    return samples;
  }

 private:
  using Shape = std::vector<int64_t>;
  std::string Tensor(DType t, const Shape& shape) {
    next_.push_back({t, shape});
    return fmt::format("i{}", next_.size() - 1);
  }
  std::string F32(const Shape& shape) { return Tensor(DType::kF32, shape); }
  std::string U8(const Shape& shape) { return Tensor(DType::kU8, shape); }
  // The data is an input, everything else of ones.
  TestModel::NodeWriter Add(const std::string& op, const std::vector<std::string>& inputs) {
    TestModel& m = models_.emplace_back(17);
    const auto it = kDataInput.find("com.microsoft." + op);
    const size_t data = it == kDataInput.end() ? 0 : static_cast<size_t>(it->second);
    // Evaluated in any order, so by number.
    for (size_t i = 0; i < next_.size(); ++i) {
      const auto& [t, shape] = next_[i];
      const std::string name = fmt::format("i{}", i);
      if (name == inputs[data]) {
        m.Input(name, shape, t);
        continue;
      }
      int64_t n = 1;
      for (int64_t d : shape) n *= d;
      m.Constant(name, t, shape, std::vector<double>(static_cast<size_t>(n), 1));
    }
    next_.clear();
    auto node = m.Node(op, inputs, {"y"});
    m.Output("y");
    return node;
  }
  TestModel::NodeWriter Contrib(const std::string& op, const std::vector<std::string>& inputs) {
    return Add(op, inputs).Domain("com.microsoft");
  }

  std::deque<TestModel> models_;
  std::vector<std::pair<DType, Shape>> next_;
};

}  // namespace

StatusOr<std::map<std::string, std::string>> AcceptedTypes() {
  WHET_ASSIGN_OR_RETURN(std::vector<Sample> samples, ConformanceSamples());
  for (Sample& s : OwnSamples().All()) samples.push_back(std::move(s));
  // A node that does nothing, as a sum of one tensor, takes more types than the operator does.
  const auto end = std::stable_partition(samples.begin(), samples.end(), DoesSomething);
  std::map<std::string, std::set<DType>> found;
  for (auto s = samples.begin(); s != samples.end(); ++s) {
    if (s >= end && found.count(s->op)) continue;
    std::set<DType>& types = found[s->op];
    for (DType t : kTypes) {
      if (!types.count(t) && Takes(*s, t)) types.insert(t);
    }
  }
  std::map<std::string, std::string> words;
  std::string missing;
  for (const graph::OpRecord* op : ops::Catalog().All()) {
    if (!op->importable) continue;
    const auto it = found.find(op->name);
    // Sequences and optionals hold tensors of any type.
    if (kTypedElsewhere.count(op->name) || (it == found.end() && op->takes_lists)) {
      words[op->name] = "any";
    } else if (it == found.end() || it->second.empty()) {
      missing += " " + op->name;
    } else {
      std::vector<std::string_view> names;
      for (DType t : kTypes) {
        if (it->second.count(t)) names.push_back(ToString(t));
      }
      const bool all = names.size() == std::size(kTypes);
      words[op->name] = all ? "any" : fmt::format("{}", fmt::join(names, ", "));
    }
  }
  if (!missing.empty()) return NotFound("no sample of{}", missing);
  return words;
}

}  // namespace whet
