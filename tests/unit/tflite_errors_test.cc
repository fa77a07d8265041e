// TFLite models that are wrong or hostile, what flags make of a model, and how a frontend is
// chosen.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "compiler/frontend/frontend.h"
#include "compiler/graph/evaluate.h"
#include "compiler/tflite/import.h"
#include "tests/support/test_tflite.h"

namespace whet::tflite {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::TestTflite;
using tflite_schema::BuiltinOperator;
using tflite_schema::Options;
using tflite_schema::Padding;
using tflite_schema::TensorType;
namespace fb = tflite_schema;

std::string ErrorOf(const std::string& file, const frontend::ImportOptions& options = {}) {
  auto g = ImportBytes(file, options);
  return g.ok() ? "it was imported" : Message(g.status());
}

TEST(TfliteIf, ASubgraphThatCallsItselfIsAnError) {
  TestTflite m;
  const int x = m.Tensor("x", {2}), y = m.Tensor("y", {2});
  const int c = m.Bytes("c", {}, TensorType::BOOL, std::string(1, 1));
  m.Op(BuiltinOperator::IF, {c, x}, {y}, Options::If,
       fb::CreateIfOptions(m.builder(), 1, 1).Union());
  m.Inputs({x}).Outputs({y}).NextSubgraph();
  const int in = m.Tensor("in", {2}), out = m.Tensor("out", {2});
  const int again = m.Bytes("again", {}, TensorType::BOOL, std::string(1, 1));
  m.Op(BuiltinOperator::IF, {again, in}, {out}, Options::If,
       fb::CreateIfOptions(m.builder(), 1, 1).Union());
  m.Inputs({in}).Outputs({out});
  EXPECT_THAT(ErrorOf(m.Finish()), HasSubstr("nest deeper"));
}

TEST(TfliteErrors, AllProblemsAreReportedWithTheirPlace) {
  TestTflite m;
  const int x = m.Tensor("x", {2}), a = m.Tensor("a", {2}), b = m.Tensor("b", {3});
  const int c = m.Tensor("c", {2}), d = m.Tensor("d", {2});
  m.Op(BuiltinOperator::SVDF, {x}, {a});
  m.Op(BuiltinOperator::RELU, {x}, {b});
  m.Op(BuiltinOperator::RELU, {a}, {c});  // only follows the first
  m.Op(BuiltinOperator::SOFTMAX, {x}, {d});
  const std::string error = ErrorOf(m.Inputs({x}).Outputs({b, c, d}).Finish());
  EXPECT_THAT(error, HasSubstr("3 problems:"));
  EXPECT_THAT(error, HasSubstr("operator 0 (SVDF): the operator is not supported"));
  EXPECT_THAT(error, HasSubstr("operator 1 'b' (RELU): output 0 has shape (2), the file says (3)"));
  EXPECT_THAT(error, HasSubstr("operator 3 'd' (SOFTMAX): its options are missing"));
  EXPECT_THAT(error, HasSubstr("supported operators: ABS ADD"));
}

TEST(TfliteErrors, OperatorsMustBeInTheOrderOfExecution) {
  TestTflite m;
  const int x = m.Tensor("x", {2}), a = m.Tensor("a", {2}), b = m.Tensor("b", {2});
  m.Op(BuiltinOperator::ADD, {x, b}, {a});
  m.Op(BuiltinOperator::RELU, {a}, {b});  // a cycle
  EXPECT_THAT(ErrorOf(m.Inputs({x}).Outputs({b}).Finish()),
              HasSubstr("input 'b' is not computed by an operator before it"));
}

TEST(TfliteErrors, ATensorIsComputedOnce) {
  TestTflite m;
  const int x = m.Tensor("x", {2}), a = m.Tensor("a", {2});
  m.Op(BuiltinOperator::RELU, {x}, {a});
  m.Op(BuiltinOperator::RELU6, {x}, {a});
  m.Op(BuiltinOperator::RELU, {a}, {x});
  const std::string error = ErrorOf(m.Inputs({x}).Outputs({a}).Finish());
  EXPECT_THAT(error, AllOf(HasSubstr("2 problems"), HasSubstr("it computes 'a'"),
                           HasSubstr("it computes 'x'")));
}

TEST(TfliteErrors, NumbersOutOfRangeAreFound) {
  auto with = [](const std::vector<int>& in, const std::vector<int>& out,
                 const std::vector<int>& outputs) {
    TestTflite m;
    m.Tensor("x", {2});
    m.Tensor("y", {2});
    return ErrorOf(m.Op(BuiltinOperator::RELU, in, out).Inputs({0}).Outputs(outputs).Finish());
  };
  EXPECT_THAT(with({7}, {1}, {1}), HasSubstr("tensor 7 of 2"));
  EXPECT_THAT(with({-2}, {1}, {1}), HasSubstr("tensor -2 of 2"));
  EXPECT_THAT(with({0}, {9}, {0}), HasSubstr("tensor 9 of 2"));
  EXPECT_THAT(with({0}, {1}, {5}), HasSubstr("output 0: tensor 5 of 2"));
  EXPECT_THAT(with({0}, {1, 1}, {1}), HasSubstr("it computes 'y'"));
  EXPECT_THAT(with({0}, {}, {0}), HasSubstr("0 outputs; it has 1"));
  EXPECT_THAT(with({0, 0}, {1}, {1}), HasSubstr("2 inputs; it takes at most 1"));
  EXPECT_THAT(with({-1}, {1}, {1}), HasSubstr("input 0 is missing"));
}

TEST(TfliteErrors, TensorsAreChecked) {
  {
    TestTflite m;
    const int x = m.Tensor("x", {2}), w = m.Bytes("w", {2}, TensorType::FLOAT32, "short");
    const int y = m.Tensor("y", {2});
    EXPECT_THAT(ErrorOf(m.Op(BuiltinOperator::ADD, {x, w}, {y}).Inputs({x}).Outputs({y}).Finish()),
                AllOf(HasSubstr("tensor 'w'"), HasSubstr("bytes")));
  }
  {
    TestTflite m;
    const int x = m.Tensor("x", {1 << 30, 1 << 30}), y = m.Tensor("y", {2});
    EXPECT_THAT(ErrorOf(m.Op(BuiltinOperator::RELU, {x}, {y}).Inputs({x}).Outputs({y}).Finish()),
                AllOf(HasSubstr("input 'x'"), HasSubstr("exceeds the limit")));
  }
  {
    TestTflite m;
    const int x = m.Tensor("x", {-4}), y = m.Tensor("y", {2});
    EXPECT_THAT(ErrorOf(m.Op(BuiltinOperator::RELU, {x}, {y}).Inputs({x}).Outputs({y}).Finish()),
                HasSubstr("negative extent"));
  }
  {
    TestTflite m;
    const int x = m.Tensor("x", {2}, TensorType::STRING), y = m.Tensor("y", {2});
    EXPECT_THAT(ErrorOf(m.Op(BuiltinOperator::RELU, {x}, {y}).Inputs({x}).Outputs({y}).Finish()),
                HasSubstr("element type STRING is not supported"));
  }
  {
    TestTflite m;
    const int x = m.Quantized("x", {2}, TensorType::INT8, {0.5F, -1}, {0, 0});
    const int y = m.Tensor("y", {2});
    EXPECT_THAT(
        ErrorOf(m.Op(BuiltinOperator::DEQUANTIZE, {x}, {y}).Inputs({x}).Outputs({y}).Finish()),
        HasSubstr("quantization scale -1"));
  }
}

// Parts of a file may refer to one part many times: what is small in the file is not in memory.
TEST(TfliteErrors, SmallFilesCannotAskForAllMemoryOrTime) {
  {
    TestTflite m;
    const int x = m.Tensor("x", {2});
    m.SamePlace(m.Tensor(std::string(70000, 'n'), {2}), 200);
    EXPECT_THAT(ErrorOf(m.Inputs({x}).Outputs({x}).Finish()),
                HasSubstr("the name of tensor 1 has 70000 bytes; the limit is 65536"));
  }
  {
    TestTflite m;
    const int x = m.Tensor("x", {2}), n = 1 << 18;
    const int w = m.Quantized("w", {n}, TensorType::INT8, std::vector<float>(n, 1), {});
    m.SamePlace(w, 1000);
    const std::string file = m.Inputs({x}).Outputs({x}).Finish();
    EXPECT_LT(file.size(), 2U << 20);
    EXPECT_THAT(ErrorOf(file), HasSubstr("names and scales of more than"));
  }
  for (const bool in : {false, true}) {
    TestTflite m;
    const int x = m.Tensor("x", {2});
    const int first = m.SamePlace(m.Tensor("", {2}), 4097);
    std::vector<int> all(4097);
    for (int i = 0; i < 4097; ++i) all[i] = in ? x : first + i;
    m.Op(BuiltinOperator::ADD, in ? all : std::vector<int>{x, x},
         in ? std::vector<int>{first} : all);
    EXPECT_THAT(ErrorOf(m.Inputs({x}).Outputs({first}).Finish()),
                HasSubstr(in ? "4097 inputs; the limit is 4096" : "4097 outputs; the limit is"));
  }
  {  // Operators, each with the same two million inputs.
    TestTflite m;
    const int x = m.Tensor("x", {2}), y = m.Tensor("y", {2});
    const std::vector<int> many(2'000'000, x);
    const auto in = m.builder().CreateVector(many), out = m.builder().CreateVector(std::vector{y});
    const auto op = fb::CreateOperator(m.builder(), 0, in, out);
    EXPECT_THAT(ErrorOf(m.OpsAt(BuiltinOperator::ADD, op, 1000).Inputs({x}).Outputs({y}).Finish()),
                HasSubstr("more than 16000000 inputs and outputs of all operators"));
  }
  {  // Lists that are read for each operator.
    TestTflite m;
    const int x = m.Tensor("x", {2}), y = m.Tensor("y", {2});
    const int shape = m.Ints("shape", {5000}, std::vector<int32_t>(5000, 1));
    m.Op(BuiltinOperator::RESHAPE, {x, shape}, {y});
    EXPECT_THAT(ErrorOf(m.Inputs({x}).Outputs({y}).Finish()),
                HasSubstr("shape (input 1) has 5000 elements; the limit is 4096"));
  }
}

TEST(TfliteErrors, DamagedFilesAreRefused) {
  TestTflite m;
  const int x = m.Tensor("x", {1, 4, 4, 2}), w = m.Weights("w", {3, 1, 1, 2});
  const int y = m.Tensor("y", {1, 4, 4, 3});
  m.Op(BuiltinOperator::CONV_2D, {x, w}, {y}, Options::Conv2D,
       fb::CreateConv2DOptions(m.builder(), Padding::SAME, 1, 1).Union());
  const std::string good = m.Inputs({x}).Outputs({y}).Finish();
  ASSERT_TRUE(ImportBytes(good).ok());
  EXPECT_THAT(ErrorOf(""), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf("TFL3"), HasSubstr("no TFLite model"));
  for (size_t n = 8; n < good.size(); n += 5) {
    const std::string error = ErrorOf(good.substr(0, n));
    EXPECT_NE(error, "it was imported") << n << " of " << good.size() << " bytes";
  }
  // Any four bytes set to all ones: an offset, a count, a number. Nothing worse than an error.
  for (size_t at = 8; at + 4 <= good.size(); at += 4) {
    std::string bad = good;
    std::memset(bad.data() + at, 0xff, 4);
    (void)ImportBytes(bad);
  }
}

TEST(TfliteShapes, TheFlagSetsAnInputsShape) {
  TestTflite m;
  const int x = m.Tensor("x", {1, 4}), y = m.Tensor("y", {1, 4});
  const std::string file = m.Op(BuiltinOperator::RELU, {x}, {y}).Inputs({x}).Outputs({y}).Finish();
  frontend::ImportOptions options;
  options.shapes["x"] = {3, 4};
  auto g = ImportBytes(file, options);
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->type(g->outputs[0].value).ToString(), "f32[3,4]");
  options.shapes = {{"z", {3, 4}}};
  EXPECT_THAT(ErrorOf(file, options), HasSubstr("--shape names 'z', which is no input; inputs: x"));
}

TEST(TfliteOptions, InputsAreBoundAndValuesGivenOut) {
  TestTflite m;
  const int x = m.Tensor("x", {2}), k = m.Tensor("k", {1}), a = m.Tensor("a", {2});
  const int y = m.Tensor("y", {2});
  m.Op(BuiltinOperator::ADD, {x, k}, {a});
  m.Op(BuiltinOperator::RELU, {a}, {y});
  const std::string file = m.Inputs({x, k}).Outputs({y}).Finish();
  frontend::ImportOptions options;
  options.bind["k"] = "0.5";
  options.outputs = {"a", "y", "a"};
  auto g = ImportBytes(file, options);
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_EQ(g->inputs.size(), 1U);
  ASSERT_EQ(g->outputs.size(), 2U);
  EXPECT_EQ(g->outputs[1].name, "a");
  auto e = graph::EvaluateModel(*g, {{DType::kF32, {2}, {-1, 1}, {}}});
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_THAT(e->values[g->outputs[1].value].value, ElementsAre(-0.5, 1.5));
  EXPECT_THAT(e->values[g->outputs[0].value].value, ElementsAre(0, 1.5));
  options.bind = {{"k", "half"}, {"kk", "1"}};
  options.outputs = {"b"};
  const std::string error = ErrorOf(file, options);
  EXPECT_THAT(error, HasSubstr("input 'k': --bind k=half: 'half' is not a number"));
  EXPECT_THAT(error, HasSubstr("--bind names 'kk', which is no input"));
  EXPECT_THAT(error, HasSubstr("--output names 'b', which is no value of the model; "
                               "whet inspect MODEL --graph lists them"));
}

// ---- the seam

TEST(Frontends, AreChosenByContent) {
  std::vector<std::string> names;
  for (const frontend::Frontend* f : frontend::Frontends()) names.emplace_back(f->name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("ONNX", "TFLite"));
  TestTflite m;
  const int x = m.Tensor("x", {2}), y = m.Tensor("y", {2});
  const std::string file = m.Op(BuiltinOperator::RELU, {x}, {y}).Inputs({x}).Outputs({y}).Finish();
  std::string folder = (std::filesystem::temp_directory_path() / "whet-tflite-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  auto import = [&](const std::string& name, const std::string& bytes) {
    const std::string path = folder + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    auto g = frontend::ImportFile(path);
    return g.ok() ? std::string("ok") : Message(g.status());
  };
  EXPECT_EQ(import("model.tflite", file), "ok");
  EXPECT_EQ(import("misnamed.onnx", file), "ok");
  EXPECT_THAT(import("model.bin", "neither one nor the other"), HasSubstr("no ONNX model"));
  EXPECT_THAT(import("text.tflite", "neither one nor the other"), HasSubstr("no TFLite model"));
  EXPECT_THAT(Message(frontend::ImportFile(folder + "/none.tflite").status()),
              HasSubstr("No such file"));
  EXPECT_THAT(Message(frontend::ImportFile(folder + "/none.onnx").status()),
              HasSubstr("No such file"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace whet::tflite
