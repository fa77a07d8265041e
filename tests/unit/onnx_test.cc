// Importing ONNX: what good files become, and what bad ones say. Models are written by
// tests/support.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "whet-onnx-XXXXXX").string();
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
              HasSubstr("--shape names 'imgae', which is no input; inputs: image, mask"));
}

TEST(ImportTest, ShapeOptionText) {
  auto s = ParseShapeOption("a=b=1,3,224");
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->first, "a=b");
  EXPECT_EQ(s->second, (std::vector<int64_t>{1, 3, 224}));
  EXPECT_TRUE(ParseShapeOption("scalar=").ok());
  for (const char* bad :
       {"", "x", "=1", "x=1,", "x=1,,2", "x=-1", "x=a", "x=1 2", "x=99999999999999999999"}) {
    EXPECT_FALSE(ParseShapeOption(bad).ok()) << bad;
  }
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
      HasSubstr("external file, which is not supported"));
  EXPECT_THAT(ErrorOf(with([](auto* t) { t->set_data_type(onnx_schema::TensorProto::COMPLEX64); })),
              HasSubstr("element type complex64 is not supported"));
  EXPECT_THAT(ErrorOf(with([](auto* t) { t->set_dims(0, -2); })), HasSubstr("negative extent"));
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
