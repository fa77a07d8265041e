// Importing what has graphs inside: branches, loops, scans, sequences, optionals and functions of
// the model. The results are evaluated and compared with what the operators are defined to give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/graph/evaluate.h"
#include "compiler/onnx/import.h"
#include "tests/support/test_model.h"

namespace whet::onnx {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing_support::TestModel;

struct Result {
  std::vector<int64_t> shape;
  std::vector<double> value;
};

// Output 0 for the given inputs.
StatusOr<Result> EvaluateBody(const TestModel& m, const std::vector<std::vector<double>>& inputs,
                              const ImportOptions& options = {}) {
  WHET_ASSIGN_OR_RETURN(const graph::Graph g, ImportBytes(m.Serialize(), options));
  std::vector<graph::RefTensor> in;
  for (size_t i = 0; i < g.inputs.size(); ++i)
    in.push_back({g.type(g.inputs[i]).dtype, g.type(g.inputs[i]).shape, inputs[i], {}});
  WHET_ASSIGN_OR_RETURN(graph::Evaluation e, graph::EvaluateModel(g, std::move(in)));
  const graph::ValueId v = g.outputs[0].value;
  return Result{g.type(v).shape, e.values[v].value};
}

void ExpectResult(const TestModel& m, const std::vector<std::vector<double>>& inputs,
                  const std::vector<int64_t>& shape, const std::vector<double>& value) {
  const auto r = EvaluateBody(m, inputs);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->shape, shape);
  EXPECT_EQ(r->value, value);
}

std::string BodyError(const TestModel& m, const ImportOptions& options = {}) {
  const auto g = ImportBytes(m.Serialize(), options);
  EXPECT_FALSE(g.ok());
  return Message(g.status());
}

// A graph of one node that reads "x" from around it.
TestModel Branch(std::string_view op, std::string_view output = "y") {
  TestModel b;
  b.Node(op, {"x"}, {std::string(output)});
  b.Output(output);
  return b;
}

TestModel IfModel(const TestModel& yes, const TestModel& no) {
  TestModel m(13);
  m.Input("x", {2}).Input("flag", {}, DType::kBool);
  m.Node("If", {"flag"}, {"y"}).Graph("then_branch", yes).Graph("else_branch", no);
  m.Output("y");
  return m;
}

TEST(ImportIfTest, AConstantConditionTakesOneBranch) {
  ImportOptions options;
  for (const bool flag : {true, false}) {
    options.bind["flag"] = flag ? "true" : "false";
    const auto g = ImportBytes(IfModel(Branch("Neg"), Branch("Abs")).Serialize(), options);
    ASSERT_TRUE(g.ok()) << g.status();
    ASSERT_EQ(g->nodes.size(), 1u);
    EXPECT_EQ(g->nodes[0].op->name, flag ? "Neg" : "Abs");
    EXPECT_EQ(g->inputs.size(), 1u);
  }
  // The branch not taken need not be importable.
  options.bind["flag"] = "1";
  EXPECT_TRUE(ImportBytes(IfModel(Branch("Neg"), Branch("Frobnicate")).Serialize(), options).ok());
}

TEST(ImportIfTest, AConditionOnDataChoosesBetweenResults) {
  const TestModel m = IfModel(Branch("Neg"), Branch("Abs"));
  ExpectResult(m, {{1, -2}, {1}}, {2}, {-1, 2});
  ExpectResult(m, {{1, -2}, {0}}, {2}, {1, 2});
}

TEST(ImportIfTest, ResultsOfOtherShapesAreRefused) {
  TestModel longer;
  longer.Node("Concat", {"x", "x"}, {"y"}).Int("axis", 0);
  longer.Output("y");
  EXPECT_THAT(BodyError(IfModel(Branch("Neg"), longer)),
              AllOf(HasSubstr("node 'If_0'"), HasSubstr("the condition must be a constant"),
                    HasSubstr("f32[2] or f32[4]")));
}

TEST(ImportIfTest, ProblemsNameThePlace) {
  EXPECT_THAT(BodyError(IfModel(Branch("Frobnicate"), Branch("Quux"))),
              AllOf(HasSubstr("node 'Frobnicate_0' (Frobnicate, operator set 13) in then_branch "
                              "of 'If_0': the operator is not supported"),
                    HasSubstr("supported operators:")));
}

TEST(ImportIfTest, ProblemsNameTheInputThatDecides) {
  TestModel longer;
  longer.Node("Concat", {"x", "x"}, {"y"}).Int("axis", 0);
  longer.Output("y");
  const char* hint = "; --bind NAME=VALUE makes input 'flag' a constant";
  EXPECT_THAT(BodyError(IfModel(Branch("Neg"), longer)), EndsWith(hint));
  // A branch that is wrong for this input, whose condition is computed from a small one.
  TestModel wrong;
  wrong.Node("MatMul", {"x", "five"}, {"y"});
  wrong.Output("y");
  TestModel m(13);
  m.Input("x", {2}).Input("rate", {1}, DType::kI64);
  m.Weights("five", {5}).Ints("usual", {16000});
  m.Node("Equal", {"rate", "usual"}, {"is_usual"});
  m.Node("If", {"is_usual"}, {"y"}).Graph("then_branch", Branch("Neg")).Graph("else_branch", wrong);
  m.Output("y");
  EXPECT_THAT(BodyError(m), AllOf(HasSubstr("in else_branch of 'If_1'"),
                                  EndsWith("; --bind NAME=VALUE makes input 'rate' a constant")));
  ImportOptions options;
  options.bind["rate"] = "44100";
  EXPECT_THAT(BodyError(m, options), EndsWith("; --bind rate decided on this branch"));
  options.bind["rate"] = "16000";
  EXPECT_TRUE(ImportBytes(m.Serialize(), options).ok());
}

TEST(ImportIfTest, InputsTooLargeToBeTypedAreNotToBeBound) {
  for (const bool large : {false, true}) {
    TestModel m(13);
    m.Input("x", {2})
        .Input("shape", {large ? 100 : 3}, DType::kI64)
        .Input("step", {1}, DType::kI64);
    m.Node("Add", {"shape", "step"}, {"sum"});
    m.Node("Expand", {"x", "sum"}, {"y"});
    m.Output("y");
    const std::string error = BodyError(m);
    EXPECT_THAT(error, HasSubstr("must be a constant once shapes are known"));
    const std::string hint = "; --bind NAME=VALUE makes inputs 'shape', 'step' constants";
    EXPECT_EQ(error.ends_with(hint), !large) << error;
    EXPECT_EQ(error.find("--bind") == std::string::npos, large) << error;
  }
}

TEST(ImportIfTest, NestingIsLimited) {
  ImportOptions options;
  options.bind["flag"] = "1";
  for (const int depth : {20, 60}) {
    TestModel inner = Branch("Neg");
    for (int i = 0; i < depth; ++i) {
      TestModel outer;
      outer.Node("If", {"flag"}, {"y"})
          .Graph("then_branch", inner)
          .Graph("else_branch", Branch("Abs"));
      outer.Output("y");
      inner = outer;
    }
    const auto g = ImportBytes(IfModel(inner, Branch("Abs")).Serialize(), options);
    EXPECT_EQ(g.ok(), depth == 20);
    if (!g.ok()) {
      EXPECT_THAT(Message(g.status()), HasSubstr("nested too deeply"));
    }
  }
}

// sum of i * x over the iterations, each partial sum a scan output
TestModel LoopModel() {
  TestModel body;
  body.Input("i", {}, DType::kI64).Input("go", {}, DType::kBool).Input("acc", {2});
  body.Node("Cast", {"i"}, {"f"}).Int("to", 1);
  body.Node("Mul", {"x", "f"}, {"p"});
  body.Node("Add", {"acc", "p"}, {"next"});
  body.Node("Identity", {"next"}, {"each"});
  body.Node("Identity", {"go"}, {"on"});
  body.Output("on").Output("next").Output("each");
  TestModel m(13);
  const double zeros[] = {0, 0};
  m.Input("x", {2}).Input("n", {}, DType::kI64).Constant("start", DType::kF32, {2}, zeros);
  m.Node("Loop", {"n", "", "start"}, {"sum", "sums"}).Graph("body", body);
  return m;
}

TEST(ImportLoopTest, AConstantTripCountUnrolls) {
  ImportOptions options;
  options.bind["n"] = "4";
  TestModel sum = LoopModel(), sums = LoopModel();
  sum.Output("sum");
  sums.Output("sums");
  auto r = EvaluateBody(sum, {{1, 10}}, options);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_THAT(r->value, ElementsAre(6, 60));
  r = EvaluateBody(sums, {{1, 10}}, options);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_THAT(r->shape, ElementsAre(4, 2));
  EXPECT_THAT(r->value, ElementsAre(0, 0, 1, 10, 3, 30, 6, 60));
  options.bind["n"] = "0";
  r = EvaluateBody(sums, {{1, 10}}, options);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_THAT(r->shape, ElementsAre(0, 2));
  EXPECT_THAT(BodyError(sum), HasSubstr("trip count (input 0) must be a constant"));
  options.bind["n"] = "1000000";
  EXPECT_THAT(BodyError(sum, options), HasSubstr("more than 65536 iterations are not unrolled"));
}

TEST(ImportLoopTest, AConditionOnDataStopsTheResults) {
  // while (acc < 5 and i < 6) acc = acc + x
  TestModel body;
  body.Input("i", {}, DType::kI64).Input("go", {}, DType::kBool).Input("acc", {});
  const double five[] = {5};
  body.Constant("five", DType::kF32, {}, five);
  body.Node("Add", {"acc", "x"}, {"next"});
  body.Node("Less", {"next", "five"}, {"on"});
  body.Output("on").Output("next");
  TestModel m(13);
  const double zero[] = {0}, six[] = {6};
  m.Input("x", {}).Constant("start", DType::kF32, {}, zero).Constant("n", DType::kI64, {}, six);
  m.Node("Loop", {"n", "", "start"}, {"y"}).Graph("body", body);
  m.Output("y");
  ExpectResult(m, {{2}}, {}, {6});
  ExpectResult(m, {{0.5}}, {}, {3});
  ExpectResult(m, {{9}}, {}, {9});
}

TEST(ImportLoopTest, LoopsWithinLoopsHitTheNodeLimit) {
  auto wrap = [](const TestModel& inner_body, std::string_view op_output) {
    TestModel body;
    body.Input("i" + std::string(op_output), {}, DType::kI64)
        .Input("go" + std::string(op_output), {}, DType::kBool)
        .Input("acc" + std::string(op_output), {});
    body.Node("Loop", {"n", "", "acc" + std::string(op_output)}, {std::string(op_output)})
        .Graph("body", inner_body);
    body.Output("go" + std::string(op_output)).Output(op_output);
    return body;
  };
  TestModel innermost;
  innermost.Input("i", {}, DType::kI64).Input("go", {}, DType::kBool).Input("acc", {});
  innermost.Output("go").Output("acc");
  TestModel m(13);
  const double many[] = {2000};
  m.Input("x", {}).Constant("n", DType::kI64, {}, many);
  m.Node("Loop", {"n", "", "x"}, {"y"}).Graph("body", wrap(wrap(innermost, "b"), "a"));
  m.Output("y");
  ImportOptions options;
  options.max_nodes = 10000;
  EXPECT_THAT(BodyError(m, options), HasSubstr("more than 10000 nodes"));
}

TEST(ImportScanTest, BothOperatorSets) {
  TestModel body;
  body.Input("sum", {2}).Input("next", {2});
  body.Node("Add", {"sum", "next"}, {"total"});
  body.Node("Identity", {"total"}, {"each"});
  body.Output("total").Output("each");
  for (const int opset : {8, 11}) {
    TestModel m(opset);
    const double zeros[] = {0, 0};
    const bool batch = opset == 8;
    m.Input("x", batch ? std::vector<int64_t>{1, 3, 2} : std::vector<int64_t>{3, 2});
    m.Constant("start", DType::kF32, batch ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2},
               zeros);
    const std::vector<std::string> in =
        batch ? std::vector<std::string>{"", "start", "x"} : std::vector<std::string>{"start", "x"};
    m.Node("Scan", in, {"sum", "y"}).Int("num_scan_inputs", 1).Graph("body", body);
    m.Output("y");
    ExpectResult(m, {{1, 2, 3, 4, 5, 6}},
                 batch ? std::vector<int64_t>{1, 3, 2} : std::vector<int64_t>{3, 2},
                 {1, 2, 4, 6, 9, 12});
  }
  TestModel backwards(11);
  const double zeros[] = {0, 0};
  backwards.Input("x", {2, 3}).Constant("start", DType::kF32, {2}, zeros);
  backwards.Node("Scan", {"start", "x"}, {"sum", "y"})
      .Int("num_scan_inputs", 1)
      .Ints("scan_input_axes", {1})
      .Ints("scan_input_directions", {1})
      .Ints("scan_output_axes", {-1})
      .Ints("scan_output_directions", {1})
      .Graph("body", body);
  backwards.Output("y");
  ExpectResult(backwards, {{1, 2, 3, 4, 5, 6}}, {2, 3}, {6, 5, 3, 15, 11, 6});
}

TEST(ImportSequenceTest, ListsAreBuiltAndTakenApart) {
  TestModel m(13);
  const double first[] = {0}, last[] = {-1};
  m.Input("x", {3, 2}).Constant("first", DType::kI64, {}, first);
  m.Constant("last", DType::kI64, {}, last);
  m.Node("SplitToSequence", {"x"}, {"rows"}).Int("keepdims", 0);  // r0 r1 r2
  m.Node("SequenceAt", {"rows", "last"}, {"r2"});
  m.Node("SequenceErase", {"rows", "first"}, {"rest"});          // r1 r2
  m.Node("SequenceInsert", {"rest", "r2", "first"}, {"three"});  // r2 r1 r2
  m.Node("Identity", {"three"}, {"same"});
  m.Node("SequenceLength", {"same"}, {"count"});
  m.Node("Cast", {"count"}, {"f"}).Int("to", 1);
  m.Node("ConcatFromSequence", {"same"}, {"joined"}).Int("axis", 0).Int("new_axis", 1);
  m.Node("Add", {"joined", "f"}, {"y"});
  m.Output("y");
  ExpectResult(m, {{1, 2, 3, 4, 5, 6}}, {3, 2}, {8, 9, 6, 7, 8, 9});
  m.Node("SequenceAt", {"rest", "count"}, {"z"});
  EXPECT_THAT(BodyError(m), HasSubstr("position 3 is outside of 2 items"));
}

TEST(ImportSequenceTest, LoopsCarrySequences) {
  TestModel body;
  body.Input("i", {}, DType::kI64).Input("go", {}, DType::kBool).Input("list", {});
  body.Node("Cast", {"i"}, {"f"}).Int("to", 1);
  body.Node("Mul", {"x", "f"}, {"item"});
  body.Node("SequenceInsert", {"list", "item"}, {"longer"});
  body.Output("go").Output("longer");
  TestModel m(13);
  const double n[] = {40};
  m.Input("x", {1}).Constant("n", DType::kI64, {}, n);
  m.Node("SequenceEmpty", {}, {"empty"}).Int("dtype", 1);
  m.Node("Loop", {"n", "", "empty"}, {"list"}).Graph("body", body);
  m.Node("ConcatFromSequence", {"list"}, {"y"}).Int("axis", 0);
  m.Output("y");
  std::vector<double> want;
  for (int i = 0; i < 40; ++i) want.push_back(2.0 * i);
  ExpectResult(m, {{2}}, {40}, want);
}

TEST(ImportSequenceTest, ListsThatGrowInALoopAreLimited) {
  TestModel body;
  body.Input("i", {}, DType::kI64).Input("go", {}, DType::kBool).Input("list", {});
  body.Node("SequenceInsert", {"list", "x"}, {"longer"});
  body.Output("go").Output("longer");
  TestModel m(13);
  const double n[] = {6000};
  m.Input("x", {1}).Constant("n", DType::kI64, {}, n);
  m.Node("SequenceEmpty", {}, {"empty"}).Int("dtype", 1);
  m.Node("Loop", {"n", "", "empty"}, {"list"}).Graph("body", body);
  m.Node("ConcatFromSequence", {"list"}, {"y"}).Int("axis", 0);
  m.Output("y");
  EXPECT_THAT(BodyError(m), HasSubstr("sequences hold more than 16777216 items"));
}

TEST(ImportSequenceTest, ConstantsThatANodeBecomesCountAsWork) {
  TestModel body;
  body.Input("i", {}, DType::kI64).Input("go", {}, DType::kBool);
  body.Input("list", {});
  body.Node("SplitToSequence", {"c"}, {"parts"}).Int("keepdims", 0);
  body.Output("go").Output("parts");
  TestModel m(13);
  const double n[] = {100};
  const std::vector<double> c(400, 1);
  m.Input("x", {1}).Constant("n", DType::kI64, {}, n).Constant("c", DType::kF32, {400}, c);
  m.Node("SplitToSequence", {"c"}, {"first"}).Int("keepdims", 0);
  m.Node("Loop", {"n", "", "first"}, {"list"}).Graph("body", body);
  m.Node("ConcatFromSequence", {"list"}, {"y"}).Int("axis", 0).Int("new_axis", 1);
  m.Output("y");
  ImportOptions options;
  options.max_nodes = 1000;
  EXPECT_THAT(BodyError(m, options), HasSubstr("more than 1000 nodes"));
}

TEST(ImportSequenceTest, MapRunsTheBodyPerItem) {
  TestModel body;
  body.Input("item", {2}).Input("more", {2});
  body.Node("Mul", {"item", "more"}, {"out"});
  body.Output("out");
  TestModel m(17);
  m.Input("x", {2}).Input("z", {2});
  m.Node("SequenceConstruct", {"x", "z"}, {"list"});
  m.Node("SequenceMap", {"list", "z"}, {"mapped"}).Graph("body", body);
  m.Node("ConcatFromSequence", {"mapped"}, {"y"}).Int("axis", 0);
  m.Output("y");
  ExpectResult(m, {{1, 2}, {3, 4}}, {4}, {3, 8, 9, 16});
}

TEST(ImportSequenceTest, OperatorsOnTensorsRefuseThem) {
  TestModel m(13);
  m.Input("x", {2});
  m.Node("SequenceConstruct", {"x"}, {"list"});
  m.Node("Relu", {"list"}, {"y"});
  m.Output("y").Output("list");
  EXPECT_THAT(BodyError(m),
              AllOf(HasSubstr("input 'list' is a sequence; the operator takes tensors"),
                    HasSubstr("output 'list' is a sequence; only tensors are supported")));
}

TEST(ImportOptionalTest, OptionalsStandForWhatTheyHold) {
  TestModel m(16);
  m.Input("x", {2});
  m.Node("Optional", {"x"}, {"maybe"});
  m.Node("OptionalHasElement", {"maybe"}, {"has"});
  m.Node("OptionalGetElement", {"maybe"}, {"it"});
  TestModel yes, no;
  yes.Node("Neg", {"it"}, {"y"});
  yes.Output("y");
  no.Node("Abs", {"it"}, {"y"});
  no.Output("y");
  m.Node("If", {"has"}, {"y"}).Graph("then_branch", yes).Graph("else_branch", no);
  m.Output("y");
  ExpectResult(m, {{1, -2}}, {2}, {-1, 2});
}

TEST(ImportOptionalTest, OptionalsOfOptionalsAreRefused) {
  TestModel m(16);
  m.Input("x", {2});
  m.Node("Optional", {"x"}, {"maybe"});
  m.Node("Optional", {"maybe"}, {"twice"});
  m.Node("OptionalGetElement", {"twice"}, {"y"});
  m.Output("y");
  EXPECT_THAT(BodyError(m), HasSubstr("input 0 is an optional itself"));
}

TEST(ImportFunctionTest, FunctionsOfTheModelAreInlined) {
  TestModel m(15);
  m.Input("x", {2});
  auto* f = m.proto().add_functions();
  f->set_name("Scale");
  f->set_domain("mine");
  f->add_input("a");
  f->add_input("unused");
  f->add_output("b");
  f->add_attribute("by");
  auto* with_default = f->add_attribute_proto();
  with_default->set_name("offset");
  with_default->set_type(onnx_schema::AttributeProto::FLOAT);
  with_default->set_f(100);
  auto* set = f->add_opset_import();
  set->set_domain("");
  set->set_version(13);
  auto constant = [&](const char* out, const char* from) {
    auto* n = f->add_node();
    n->set_op_type("Constant");
    n->add_output(out);
    auto* a = n->add_attribute();
    a->set_name("value_float");
    a->set_ref_attr_name(from);
    a->set_type(onnx_schema::AttributeProto::FLOAT);
  };
  auto node = [&](const char* op, const char* a, const char* b, const char* out) {
    auto* n = f->add_node();
    n->set_op_type(op);
    n->add_input(a);
    n->add_input(b);
    n->add_output(out);
  };
  constant("factor", "by");
  constant("add", "offset");
  node("Mul", "a", "factor", "scaled");
  node("Add", "scaled", "add", "b");
  m.Node("Scale", {"x"}, {"t"}).Float("by", 3).Domain("mine");
  m.Node("Scale", {"t"}, {"y"}).Float("by", 2).Float("offset", 1).Domain("mine");
  m.Output("y");
  ExpectResult(m, {{1, 2}}, {2}, {207, 213});

  // A function that calls itself.
  node("Scale", "b", "", "c");
  f->mutable_node(4)->set_domain("mine");
  auto* by = f->mutable_node(4)->add_attribute();
  by->set_name("by");
  by->set_type(onnx_schema::AttributeProto::FLOAT);
  by->set_f(1);
  EXPECT_THAT(BodyError(m), HasSubstr("exceed the nesting limit of 32"));
}

TEST(ImportFunctionTest, CallsThatDoubleAreLimited) {
  TestModel m(15);
  m.Input("x", {2});
  for (int level = 0; level < 30; ++level) {
    auto* f = m.proto().add_functions();
    f->set_name("F" + std::to_string(level));
    f->set_domain("mine");
    f->add_input("a");
    f->add_output("b");
    for (int k = 0; k < 2; ++k) {
      auto* n = f->add_node();
      n->set_op_type(level < 29 ? "F" + std::to_string(level + 1) : "Relu");
      if (level < 29) n->set_domain("mine");
      n->add_input(k == 0 ? "a" : "t");
      n->add_output(k == 0 ? "t" : "b");
    }
  }
  m.Node("F0", {"x"}, {"y"}).Domain("mine");
  m.Output("y");
  ImportOptions options;
  options.max_nodes = 10000;
  EXPECT_THAT(BodyError(m, options), HasSubstr("more than 10000 nodes"));
}

}  // namespace
}  // namespace whet::onnx
