// Importing ONNX: what good files become, and what bad ones say. Models are written by
// tests/support.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "compiler/graph/evaluate.h"
#include "compiler/onnx/import.h"
#include "compiler/support/rng.h"
#include "tests/support/test_model.h"

namespace whet::onnx {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::TestModel;

graph::Graph Import(const TestModel& m, const ImportOptions& options = {}) {
  auto g = ImportBytes(m.Serialize(), options);
  EXPECT_TRUE(g.ok()) << g.status();
  return g.ok() ? *std::move(g) : graph::Graph();
}

std::string ErrorOf(const TestModel& m, const ImportOptions& options = {}) {
  auto g = ImportBytes(m.Serialize(), options);
  EXPECT_FALSE(g.ok());
  return Message(g.status());
}

class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "whet-onnx-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string File(std::string_view name, std::string_view bytes) const {
    const std::string path = path_ + "/" + std::string(name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(ImportFileTest, BadFilesSayWhatIsWrong) {
  const TempDir dir;
  auto error = [](const std::string& path) { return Message(ImportFile(path).status()); };
  EXPECT_THAT(error(dir.path() + "/none.onnx"),
              AllOf(HasSubstr("none.onnx"), HasSubstr("No such file")));
  EXPECT_THAT(error(dir.path()), HasSubstr("it is a folder"));
  EXPECT_THAT(error("/dev/null"), HasSubstr("not a regular file"));
  EXPECT_THAT(error(dir.File("empty.onnx", "")), HasSubstr("is empty"));
  std::string random(4096, '\0');
  for (size_t i = 0; i < random.size(); ++i) random[i] = static_cast<char>(CounterBits(1, 2, i));
  EXPECT_THAT(error(dir.File("random.onnx", random)), HasSubstr("no ONNX model"));
  const std::string model = testing_support::BlazeFaceLike().Serialize();
  EXPECT_THAT(error(dir.File("short.onnx", model.substr(0, model.size() / 2))),
              HasSubstr("truncated"));
  EXPECT_TRUE(ImportFile(dir.File("good.onnx", model)).ok());
}

TEST(ImportFileTest, EveryTruncationIsAnErrorOrAWholeModel) {
  const std::string model = testing_support::TinyClassifier().Serialize();
  for (size_t n = 0; n < model.size(); n += 7)
    EXPECT_FALSE(ImportBytes(std::string_view(model).substr(0, n)).ok()) << n;
}

TEST(ImportTest, ValuesKeepTheModelsNames) {
  const graph::Graph g = Import(testing_support::TinyClassifier());
  const std::string text = graph::ToString(g);
  EXPECT_THAT(text, HasSubstr("norm: f32[1,8,16,16] = BatchNormalization(conv, scale, shift, mean, "
                              "variance) {epsilon=1e-05} \"BatchNormalization_1\""));
  EXPECT_THAT(text, HasSubstr("output \"probabilities\" = probabilities"));
}

TEST(ImportTest, ShapeArithmeticFolds) {
  // reshape(x, concat(gather(shape(x), 0), [-1]))
  TestModel m(13);
  m.Input("x", {2, 3, 4}).Ints("zero", {0}).Ints("rest", {-1});
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Gather", {"shape", "zero"}, {"first"}).Int("axis", 0);
  m.Node("Concat", {"first", "rest"}, {"wanted"}).Int("axis", 0);
  m.Node("Reshape", {"x", "wanted"}, {"y"});
  m.Output("y");
  const graph::Graph g = Import(m);
  ASSERT_EQ(g.nodes.size(), 1u);
  EXPECT_EQ(g.type(g.outputs[0].value).shape, (std::vector<int64_t>{2, 12}));
}

TEST(ImportTest, SymbolicDimensionsNeedAShape) {
  TestModel m(13);
  m.SymbolicInput("image", {"batch", "3", "height", ""}).SymbolicInput("mask", {"batch"});
  m.Node("Relu", {"image"}, {"y"});
  m.Node("Relu", {"mask"}, {"z"});
  m.Output("y").Output("z");
  EXPECT_THAT(ErrorOf(m), AllOf(HasSubstr("input 'image'"), HasSubstr("dimension 0 ('batch')"),
                                HasSubstr("--shape image=1,3,1,1")));
  ImportOptions options;
  options.shapes["image"] = {2, 3, 8, 8};
  const graph::Graph g = Import(m, options);
  EXPECT_EQ(g.type(g.inputs[1]).shape, std::vector<int64_t>{2})
      << "bound through the parameter 'batch'";
  options.shapes["mask"] = {3};
  EXPECT_THAT(ErrorOf(m, options), HasSubstr("'batch' is 2 elsewhere, not 3"));
  options.shapes = {{"image", {2, 4, 8, 8}}};
  EXPECT_THAT(ErrorOf(m, options), HasSubstr("dimension 1 of the input is 3, not 4"));
  options.shapes = {{"image", {2, 3, 8}}};
  EXPECT_THAT(ErrorOf(m, options), HasSubstr("the input has 4 dimensions"));
  options.shapes = {{"imgae", {2}}};
  EXPECT_THAT(ErrorOf(m, options),
              HasSubstr("--shape names 'imgae', which is no input (did you mean 'image'?); inputs: "
                        "image, mask"));
}

// Some exporters write -1 for what they leave open.
TEST(ImportTest, NegativeDimensionsAreOpen) {
  TestModel m(13);
  m.Input("x", {-1, 3});
  m.Node("Relu", {"x"}, {"y"});
  m.Output("y");
  EXPECT_THAT(ErrorOf(m), AllOf(HasSubstr("dimension 0 ('?') of shape (?,3) is not fixed"),
                                HasSubstr("--shape x=1,3")));
  ImportOptions options;
  options.shapes["x"] = {5, 3};
  const graph::Graph g = Import(m, options);
  EXPECT_EQ(g.type(g.outputs[0].value).shape, (std::vector<int64_t>{5, 3}));
  options.shapes.clear();
  options.bind["x"] = "1,2,3";
  EXPECT_THAT(ErrorOf(m, options), HasSubstr("its shape has symbolic dimensions"));
}

TEST(ImportTest, UnsupportedOperatorsAreAllNamed) {
  TestModel m(13);
  m.Input("x", {2});
  m.Node("Relu", {"x"}, {"a"});
  m.Node("Frobnicate", {"a"}, {"b"});
  m.Node("Relu", {"b"}, {"c"});  // has an input without a type: not reported again
  m.Node("Quux", {"c"}, {"y"});
  m.Output("y");
  const std::string error = ErrorOf(m);
  EXPECT_THAT(error, HasSubstr("2 problems"));
  EXPECT_THAT(
      error,
      HasSubstr(
          "node 'Frobnicate_1' (Frobnicate, operator set 13): the operator is not supported"));
  EXPECT_THAT(error, HasSubstr("node 'Quux_3'"));
  EXPECT_THAT(error, Not(HasSubstr("Relu_2")));
  EXPECT_THAT(error,
              AllOf(HasSubstr("supported operators:"), HasSubstr(" Conv "), HasSubstr(" Relu ")));
}

TEST(ImportTest, ReportsAtMostTwentyProblems) {
  TestModel m(13);
  m.Input("x", {2});
  for (int i = 0; i < 30; ++i) m.Node("Frobnicate", {"x"}, {"y" + std::to_string(i)});
  m.Output("y0");
  const std::string error = ErrorOf(m);
  EXPECT_THAT(error, AllOf(HasSubstr("30 problems"), HasSubstr("Frobnicate_19"),
                           Not(HasSubstr("Frobnicate_20")), HasSubstr("and 10 more")));
}

TEST(ImportTest, HostileGraphsAreRefused) {
  auto relu = [](TestModel m) {
    m.Input("x", {2});
    m.Node("Relu", {"x"}, {"y"});
    m.Output("y");
    return m;
  };
  TestModel cycle(13);
  cycle.Input("x", {2}).Output("a");
  cycle.Node("Add", {"x", "b"}, {"a"});
  cycle.Node("Relu", {"a"}, {"b"});
  EXPECT_THAT(ErrorOf(cycle), HasSubstr("cycle"));

  TestModel twice = relu(TestModel(13));
  twice.Node("Neg", {"x"}, {"y"});
  EXPECT_THAT(ErrorOf(twice), HasSubstr("both compute 'y'"));

  TestModel shadow = relu(TestModel(13));
  shadow.Node("Neg", {"y"}, {"x"});
  EXPECT_THAT(ErrorOf(shadow), HasSubstr("which is an input or initializer"));

  TestModel missing = relu(TestModel(13));
  missing.Node("Neg", {"nowhere"}, {"z"});
  EXPECT_THAT(ErrorOf(missing), HasSubstr("input 'nowhere' is computed by nothing"));

  TestModel no_output(13);
  no_output.Input("x", {2});
  EXPECT_THAT(ErrorOf(no_output), HasSubstr("no outputs"));

  TestModel lost = relu(TestModel(13));
  lost.Output("z");
  EXPECT_THAT(ErrorOf(lost), HasSubstr("output 'z' is computed by nothing"));

  TestModel same_inputs = relu(TestModel(13));
  same_inputs.Input("x", {3});
  EXPECT_THAT(ErrorOf(same_inputs), HasSubstr("two inputs are called 'x'"));

  TestModel rank(13);
  rank.Input("x", {1, 1, 1, 1, 1, 1, 1, 1, 1}).Output("x");
  EXPECT_THAT(ErrorOf(rank), HasSubstr("rank 9 exceeds the limit of 8"));

  TestModel huge(13);
  huge.Input("x", {int64_t{1} << 40, int64_t{1} << 40}).Output("x");
  EXPECT_THAT(ErrorOf(huge), HasSubstr("exceeds the limit of 2^40 bytes"));

  TestModel bomb(13);
  bomb.Ints("shape", {1 << 20, 1 << 10});
  bomb.Node("ConstantOfShape", {"shape"}, {"y"});
  bomb.Output("y");
  EXPECT_THAT(ErrorOf(bomb), HasSubstr("more than 2^26 elements"));

  EXPECT_THAT(ErrorOf(relu(TestModel(99))),
              HasSubstr("operator set version 99 is not supported; 1 to 20 are"));
}

TEST(ImportTest, InitializersMustBeWhole) {
  auto with = [](auto change) {
    TestModel m(13);
    m.Input("x", {2}).Weights("w", {2});
    change(m.proto().mutable_graph()->mutable_initializer(0));
    m.Node("Add", {"x", "w"}, {"y"});
    m.Output("y");
    return m;
  };
  EXPECT_THAT(ErrorOf(with([](auto* t) { t->mutable_raw_data()->pop_back(); })),
              HasSubstr("initializer 'w': f32[2] holds 8 bytes, not 7"));
  EXPECT_THAT(
      ErrorOf(with([](auto* t) { t->set_data_location(onnx_schema::TensorProto::EXTERNAL); })),
      HasSubstr("its external data has no location"));
  EXPECT_THAT(ErrorOf(with([](auto* t) { t->set_data_type(onnx_schema::TensorProto::COMPLEX64); })),
              HasSubstr("element type complex64 is not supported"));
  EXPECT_THAT(ErrorOf(with([](auto* t) { t->set_dims(0, -2); })), HasSubstr("negative extent"));
}

// y = x + w, w in a file beside the model.
struct ExternalModel {
  explicit ExternalModel(std::string_view location, std::string_view offset = "8",
                         std::string_view length = "8") {
    model.Input("x", {2}).Weights("w", {2});
    auto* w = model.proto().mutable_graph()->mutable_initializer(0);
    w->clear_raw_data();
    w->set_data_location(onnx_schema::TensorProto::EXTERNAL);
    Entry("location", location);
    if (!offset.empty()) Entry("offset", offset);
    if (!length.empty()) Entry("length", length);
    model.Node("Add", {"x", "w"}, {"y"});
    model.Output("y");
  }
  void Entry(std::string_view key, std::string_view value) {
    auto* e = model.proto().mutable_graph()->mutable_initializer(0)->add_external_data();
    e->set_key(std::string(key));
    e->set_value(std::string(value));
  }
  TestModel model{13};
};

TEST(ExternalDataTest, IsReadFromBeneathTheModelsFolder) {
  const TempDir dir;
  std::filesystem::create_directories(dir.path() + "/data/more");
  const float values[] = {0, 0, 1.5f, -2};
  const std::string bytes(reinterpret_cast<const char*>(values), sizeof values);
  dir.File("data/more/w.bin", bytes);
  for (const char* location : {"data/more/w.bin", "./data/more/w.bin"}) {
    const auto g = ImportFile(dir.File("m.onnx", ExternalModel(location).model.Serialize()));
    ASSERT_TRUE(g.ok()) << g.status();
    EXPECT_THAT(graph::ToString(*g), HasSubstr("const w: f32[2] = [1.5,-2.0]"));
  }
  // Without offset and length: from the beginning, as much as the type takes.
  const auto g =
      ImportFile(dir.File("m.onnx", ExternalModel("data/more/w.bin", "", "").model.Serialize()));
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_THAT(graph::ToString(*g), HasSubstr("const w: f32[2] = [0.0,0.0]"));
  EXPECT_THAT(ErrorOf(ExternalModel("data/more/w.bin").model),
              HasSubstr("the model was not read from a folder"));
}

TEST(ExternalDataTest, WhatLeavesTheFolderIsRefused) {
  const TempDir dir;
  namespace fs = std::filesystem;
  fs::create_directories(dir.path() + "/models/data");
  dir.File("secret.bin", std::string(16, 's'));
  dir.File("models/good.bin", std::string(16, 'g'));
  fs::create_symlink("../secret.bin", dir.path() + "/models/link.bin");
  fs::create_symlink("good.bin", dir.path() + "/models/inside.bin");
  fs::create_directory_symlink("..", dir.path() + "/models/up");
  auto error = [&](const ExternalModel& m) {
    return Message(ImportFile(dir.File("models/m.onnx", m.model.Serialize())).status());
  };
  EXPECT_EQ(error(ExternalModel("good.bin")), "");
  const std::string rule = "must be a relative path beneath the model's folder";
  for (const std::string& bad :
       {std::string("../secret.bin"), dir.path() + "/secret.bin", std::string("data/../good.bin"),
        std::string("data/./../../secret.bin"), std::string(".."), std::string("data//x"),
        std::string("good.bin/"), std::string("..\\secret.bin"), std::string("a\0b", 3),
        std::string(5000, 'a')}) {
    EXPECT_THAT(error(ExternalModel(bad)), HasSubstr(rule)) << bad;
  }
  for (const char* link : {"link.bin", "inside.bin", "up/secret.bin", "up/models/good.bin"})
    EXPECT_THAT(error(ExternalModel(link)), HasSubstr("links are not followed")) << link;
  EXPECT_THAT(error(ExternalModel("data")), HasSubstr("not a regular file"));
  EXPECT_THAT(error(ExternalModel("none.bin")), HasSubstr("No such file"));
  ASSERT_EQ(mkfifo((dir.path() + "/models/pipe").c_str(), 0600), 0);
  EXPECT_THAT(error(ExternalModel("pipe")), HasSubstr("not a regular file"));
}

TEST(ExternalDataTest, OffsetAndLengthAreBounded) {
  const TempDir dir;
  dir.File("w.bin", std::string(16, 'w'));
  auto error = [&](const ExternalModel& m) {
    return Message(ImportFile(dir.File("m.onnx", m.model.Serialize())).status());
  };
  EXPECT_EQ(error(ExternalModel("w.bin", "8", "8")), "");
  EXPECT_THAT(error(ExternalModel("w.bin", "9", "8")), HasSubstr("has 16 bytes, not the 8 from 9"));
  EXPECT_THAT(error(ExternalModel("w.bin", "9223372036854775807", "")), HasSubstr("has 16 bytes"));
  EXPECT_THAT(error(ExternalModel("w.bin", "0", "16")), HasSubstr("takes 8 bytes"));
  for (const char* bad : {"-1", "x", "8x", "99999999999999999999", ""}) {
    ExternalModel m("w.bin", "", "");
    m.Entry("offset", bad);
    EXPECT_THAT(error(m), HasSubstr("is not a number of bytes")) << bad;
  }
  // A type that asks for far more than there is allocates nothing.
  ExternalModel huge("w.bin", "0", "");
  huge.model.proto().mutable_graph()->mutable_initializer(0)->set_dims(0, int64_t{1} << 33);
  EXPECT_THAT(error(huge), HasSubstr("external data of more than"));
}

TEST(ExternalDataTest, TheSameBytesAreNotReadAgainAndAgain) {
  const TempDir dir;
  dir.File("w.bin", std::string(1 << 20, '\0'));
  auto model = [&](int tensors) {
    ExternalModel m("w.bin", "0", "");
    auto* graph = m.model.proto().mutable_graph();
    graph->mutable_initializer(0)->set_dims(0, 1 << 18);
    for (int i = 1; i < tensors; ++i) {
      *graph->add_initializer() = graph->initializer(0);
      graph->mutable_initializer(i)->set_name("w" + std::to_string(i));
    }
    return Message(ImportFile(dir.File("m.onnx", m.model.Serialize())).status());
  };
  EXPECT_THAT(model(20), Not(HasSubstr("again and again")));  // 4 x 1 MiB, and 16 MiB
  EXPECT_THAT(model(21), HasSubstr("20971520 bytes in all for files of 1048576 bytes"));
}

TEST(ExternalDataTest, AFileMayHaveHolesOfAnySize) {
  const char* in_memory = "/dev/shm";  // where files may be larger than on a disk
  if (access(in_memory, W_OK) != 0) GTEST_SKIP() << "there is no " << in_memory;
  const TempDir dir(in_memory);
  dir.File("w.bin", std::string(16, '\0'));
  std::filesystem::resize_file(dir.path() + "/w.bin", uint64_t{6} << 60);
  const auto g = ImportFile(dir.File("m.onnx", ExternalModel("w.bin").model.Serialize()));
  EXPECT_TRUE(g.ok()) << g.status();
}

TEST(ExternalDataTest, AFileThatIsGoingToBeWrittenIsRefused) {
  const TempDir dir;
  dir.File("w.bin", std::string(16, 'w'));
  const std::string model = dir.File("m.onnx", ExternalModel("w.bin").model.Serialize());
  ImportOptions options;
  options.writes = {dir.path() + "/none.bin", dir.path() + "/m.onnx"};
  EXPECT_TRUE(onnx::ImportFile(model, options).ok());
  options.writes.push_back(dir.path() + "/./w.bin");
  EXPECT_THAT(Message(onnx::ImportFile(model, options).status()),
              HasSubstr("external data 'w.bin' is read by this command"));
}

TEST(BindTest, InputsBecomeConstants) {
  auto model = [](DType t, const std::vector<std::string>& dims) {
    TestModel m(13);
    m.SymbolicInput("v", dims, t).SymbolicInput("x", {"n"});
    m.Node("Identity", {"v"}, {"y"});
    m.Node("Relu", {"x"}, {"z"});
    m.Output("y").Output("z");
    return m;
  };
  auto bound = [&](DType t, const std::vector<std::string>& dims, const std::string& value) {
    ImportOptions options;
    options.bind = {{"v", value}, {"n", "7"}};
    auto g = ImportBytes(model(t, dims).Serialize(), options);
    if (!g.ok()) return Message(g.status());
    EXPECT_EQ(g->inputs.size(), 1u);
    EXPECT_EQ(g->type(g->inputs[0]).shape, std::vector<int64_t>{7});
    const std::string text = graph::ToString(*g);
    const size_t at = text.find(": ", text.find("const ")) + 2;
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(bound(DType::kI64, {}, "9007199254740993"), "i64[] = [9007199254740993]");
  // No double holds these.
  EXPECT_EQ(bound(DType::kU64, {}, "9007199254740993"), "u64[] = [9007199254740993]");
  ImportOptions most;
  most.bind = {{"v", "18446744073709551615"}, {"n", "7"}};
  const graph::Graph g = Import(model(DType::kU64, {}), most);
  ASSERT_NE(g.constant(g.outputs[0].value), nullptr);
  EXPECT_EQ(g.constant(g.outputs[0].value)->bytes(), std::string(8, '\xff'));
  EXPECT_THAT(bound(DType::kU64, {}, "-1"), HasSubstr("-1 does not fit u64"));
  EXPECT_THAT(bound(DType::kU64, {}, "18446744073709551616"),
              HasSubstr("is not an integer within"));
  EXPECT_EQ(bound(DType::kI64, {"3"}, "1,-2,3"), "i64[3] = [1,-2,3]");
  EXPECT_EQ(bound(DType::kI64, {"k"}, "[4,5]"), "i64[2] = [4,5]");
  EXPECT_EQ(bound(DType::kF32, {"2"}, "0.5"), "f32[2] = [0.5,0.5]");
  EXPECT_EQ(bound(DType::kBool, {}, "true"), "bool[] = [1]");
  EXPECT_THAT(bound(DType::kI8, {}, "300"), HasSubstr("300 does not fit i8"));
  EXPECT_THAT(bound(DType::kI64, {}, "1.5"), HasSubstr("'1.5' is not an integer"));
  EXPECT_THAT(bound(DType::kF32, {}, "abc"), HasSubstr("'abc' is not a number"));
  EXPECT_THAT(bound(DType::kF32, {"3"}, "1,2"), HasSubstr("2 values, the input has 3 elements"));
  EXPECT_THAT(bound(DType::kF32, {"a", "b"}, "1"), HasSubstr("symbolic dimensions"));
  ImportOptions options;
  options.bind = {{"sr", "1"}};
  EXPECT_THAT(ErrorOf(model(DType::kF32, {}), options),
              AllOf(HasSubstr("--bind names 'sr'"), HasSubstr("inputs: v, x; dimensions: n"),
                    HasSubstr("--shape x=1, or --bind n=1")));
  options.bind = {{"n", "many"}};
  EXPECT_THAT(ErrorOf(model(DType::kF32, {}), options), HasSubstr("takes a number from 0"));
}

TEST(ExtraOutputsTest, IntermediateValuesAreGivenOut) {
  TestModel m(13);
  m.Input("x", {2});
  m.Node("Relu", {"x"}, {"hidden"});
  m.Node("Neg", {"hidden"}, {"y"});
  m.Output("y");
  ImportOptions options;
  options.outputs = {"hidden", "y", "hidden"};
  const graph::Graph g = Import(m, options);
  ASSERT_EQ(g.outputs.size(), 2u);
  EXPECT_EQ(g.outputs[1].name, "hidden");
  options.outputs = {"hiden"};
  EXPECT_THAT(ErrorOf(m, options),
              AllOf(HasSubstr("--output names 'hiden'"), HasSubstr("did you mean 'hidden'?"),
                    HasSubstr("whet inspect MODEL --graph lists them")));
}

TEST(FoldOnDemandTest, LargeConstantsAreEvaluatedWhereTheyAreAskedFor) {
  // The extent is found by a reduction of a constant too large to be folded at once.
  TestModel m(13);
  m.Input("x", {3});
  m.Ints("shape", {100, 100});
  const double one[] = {1};
  m.Node("ConstantOfShape", {"shape"}, {"ones"}).Tensor("value", DType::kI64, {1}, one);
  m.Node("Add", {"ones", "ones"}, {"twos"});
  m.Node("ReduceMax", {"twos"}, {"two"}).Int("keepdims", 0);
  m.Ints("axes", {0}).Node("Unsqueeze", {"two", "axes"}, {"row"});
  m.Ints("three", {3}).Node("Concat", {"row", "three"}, {"wanted"}).Int("axis", 0);
  m.Node("Expand", {"x", "wanted"}, {"y"});
  m.Output("y");
  const graph::Graph g = Import(m);
  EXPECT_EQ(g.type(g.outputs[0].value).shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(g.nodes.size(), 1u);
}

TEST(ImportTest, TypedFieldsAreReadLikeRawOnes) {
  TestModel m(13);
  m.Input("x", {2});
  auto* t = m.proto().mutable_graph()->add_initializer();
  t->set_name("w");
  t->set_data_type(onnx_schema::TensorProto::FLOAT);
  t->add_dims(2);
  t->add_float_data(1.5f);
  t->add_float_data(-2.f);
  m.Node("Add", {"x", "w"}, {"y"});
  m.Output("y");
  EXPECT_THAT(graph::ToString(Import(m)), HasSubstr("const w: f32[2] = [1.5,-2.0]"));
}

TEST(ImportTest, UnsortedFilesAndListedInitializersAreAccepted) {
  TestModel m(13);
  m.Input("x", {2}).Input("w", {2}).Weights("w", {2});
  m.Node("Relu", {"a"}, {"y"});
  m.Node("Add", {"x", "w"}, {"a"});
  m.Output("y");
  const graph::Graph g = Import(m);
  EXPECT_EQ(g.inputs.size(), 1u);
  EXPECT_EQ(g.nodes[0].op->name, "Add");
}

TEST(ImportTest, UnknownAttributesAreNeverIgnored) {
  TestModel m(13);
  m.Input("x", {2});
  m.Node("Relu", {"x"}, {"y"}).Float("threshold", 3);
  m.Output("y");
  EXPECT_THAT(ErrorOf(m), HasSubstr("Relu has no attribute 'threshold'"));
}

// Forms that operator sets spell differently must become one canonical node.
TEST(ImportTest, OperatorSetsAgreeOnTheCanonicalForm) {
  auto text = [](int opset, const std::function<void(TestModel&)>& body) {
    TestModel m(opset);
    m.Input("x", {2, 3, 4, 4});
    body(m);
    m.Output("y");
    graph::Graph g = Import(m);
    g.Compact();
    std::string nodes;
    for (const graph::Node& n : g.nodes) nodes += n.op->name + n.attrs.ToString() + "\n";
    return nodes;
  };
  using Body = std::function<void(TestModel&)>;
  struct Case {
    int old_set;
    Body old_form;
    int new_set;
    Body new_form;
  };
  const std::vector<double> zero = {0}, six = {6}, half = {0.5};
  const std::vector<Case> cases = {
      {11, [](TestModel& m) { m.Node("Unsqueeze", {"x"}, {"y"}).Ints("axes", {0, -1}); }, 13,
       [](TestModel& m) { m.Ints("axes", {0, -1}).Node("Unsqueeze", {"x", "axes"}, {"y"}); }},
      {6, [](TestModel& m) { m.Node("Clip", {"x"}, {"y"}).Float("min", 0).Float("max", 6); }, 12,
       [&](TestModel& m) {
         m.Constant("lo", DType::kF32, {}, zero)
             .Constant("hi", DType::kF32, {}, six)
             .Node("Clip", {"x", "lo", "hi"}, {"y"});
       }},
      {9,
       [](TestModel& m) {
         m.Node("Slice", {"x"}, {"y"})
             .Ints("starts", {1, -3})
             .Ints("ends", {9999, -1})
             .Ints("axes", {1, 3});
       },
       13,
       [](TestModel& m) {
         m.Ints("s", {1, 1})
             .Ints("e", {3, 3})
             .Ints("a", {-3, 3})
             .Ints("t", {1, 1})
             .Node("Slice", {"x", "s", "e", "a", "t"}, {"y"});
       }},
      {2,
       [](TestModel& m) {
         m.Node("Pad", {"x"}, {"y"}).Ints("pads", {0, 0, 1, 1, 0, 0, 2, 0}).Float("value", 0.5f);
       },
       18,
       [&](TestModel& m) {
         m.Ints("p", {1, 1, 2, 0})
             .Ints("a", {2, -1})
             .Constant("v", DType::kF32, {}, half)
             .Node("Pad", {"x", "p", "v", "a"}, {"y"});
       }},
      {11,
       [](TestModel& m) {
         m.Node("ReduceSum", {"x"}, {"y"}).Ints("axes", {-1, 1}).Int("keepdims", 0);
       },
       13,
       [](TestModel& m) {
         m.Ints("a", {1, 3}).Node("ReduceSum", {"x", "a"}, {"y"}).Int("keepdims", 0);
       }},
      {13, [](TestModel& m) { m.Node("ReduceMean", {"x"}, {"y"}).Ints("axes", {2, 3}); }, 18,
       [](TestModel& m) { m.Ints("a", {-2, -1}).Node("ReduceMean", {"x", "a"}, {"y"}); }},
      {1, [](TestModel& m) { m.Node("Reshape", {"x"}, {"y"}).Ints("shape", {0, -1}); }, 13,
       [](TestModel& m) { m.Ints("s", {0, 48}).Node("Reshape", {"x", "s"}, {"y"}); }},
      {6,
       [](TestModel& m) {
         m.Weights("c", {3}).Node("Add", {"x", "c"}, {"y"}).Int("axis", 1).Int("broadcast", 1);
       },
       13, [](TestModel& m) { m.Weights("c", {3, 1, 1}).Node("Add", {"x", "c"}, {"y"}); }},
      {11, [](TestModel& m) { m.Node("Softmax", {"x"}, {"y"}).Int("axis", 3); }, 13,
       [](TestModel& m) { m.Node("Softmax", {"x"}, {"y"}); }},
      {11,
       [](TestModel& m) {
         m.Node("Split", {"x"}, {"y", "z"}).Int("axis", 1).Ints("split", {1, 2});
       },
       13,
       [](TestModel& m) {
         m.Ints("s", {1, 2}).Node("Split", {"x", "s"}, {"y", "z"}).Int("axis", 1);
       }},
      {1,
       [](TestModel& m) { m.Node("Dropout", {"x"}, {"y"}).Int("is_test", 1).Float("ratio", 0.3f); },
       12, [](TestModel& m) { m.Node("Dropout", {"x"}, {"y"}); }},
  };
  for (const Case& c : cases) EXPECT_EQ(text(c.old_set, c.old_form), text(c.new_set, c.new_form));
}

TEST(ImportTest, AutoPadIsResolved) {
  auto pads = [](const char* mode) {
    TestModel m(13);
    m.Input("x", {1, 1, 8, 8}).Weights("w", {1, 1, 3, 3});
    m.Node("Conv", {"x", "w"}, {"y"}).Str("auto_pad", mode).Ints("strides", {2, 2});
    m.Output("y");
    return Import(m).nodes[0].attrs.Ints("pads");
  };
  EXPECT_EQ(pads("SAME_UPPER"), (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(pads("SAME_LOWER"), (std::vector<int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(pads("VALID"), (std::vector<int64_t>{0, 0, 0, 0}));
}

TEST(ImportTest, OperatorErrorsNameNodeAndBound) {
  TestModel m(13);
  m.Input("x", {1, 4, 2, 2}).Weights("w", {2, 3, 1, 1}).Weights("big", {2, 4, 5, 5});
  m.Node("Conv", {"x", "w"}, {"a"});
  m.Node("Conv", {"x", "big"}, {"b"});
  m.Node("Transpose", {"x"}, {"c"}).Ints("perm", {0, 1});
  m.Node("Pad", {"x"}, {"d"}).Str("mode", "reflect");
  m.Output("a").Output("b").Output("c").Output("d");
  const std::string error = ErrorOf(m);
  EXPECT_THAT(error, HasSubstr("node 'Conv_0' (Conv, operator set 13): weights [2,3,1,1] need 3 "
                               "input channels per group, the input has 4"));
  EXPECT_THAT(error, HasSubstr("node 'Conv_1' (Conv, operator set 13): kernel of 5 with dilation 1 "
                               "exceeds the padded input of 2"));
  EXPECT_THAT(error, HasSubstr("node 'Transpose_2'"));
  EXPECT_THAT(error, HasSubstr("node 'Pad_3'"));
}

}  // namespace
}  // namespace whet::onnx
