// NaN, infinities and zeros of either sign through operators: generated kernels, with the
// instructions of the host and without any beyond the base, against one table of what IEEE 754 and
// ONNX say, and the references against the same table. And integers of quantized arithmetic, which
// are exact.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/schedule/space.h"
#include "compiler/support/rng.h"
#include "tests/unit/op_workload.h"
#include "tests/unit/run_program.h"

namespace whet {
namespace {

using testing_support::OpProgram;
using testing_support::OpWorkload;
using Values = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Row {
  std::string op;
  std::vector<std::string> inputs;  // "?" is the number of copies of `values`
  std::vector<Values> values;
  Values want;
  bool signed_zeros = false;  // the sign of a zero is part of the answer
};

// Vectors, and a rest.
constexpr int64_t kCopies = 13;

Values Repeated(const Values& v) {
  Values all;
  for (int64_t i = 0; i < kCopies; ++i) all.insert(all.end(), v.begin(), v.end());
  return all;
}

// ---- the table

constexpr bool kSigned = true;

std::vector<Row> Unaries(const std::string& type) {
  const Values x = {kNan, kInf, -kInf, -0.0, 0.0, 3, -3};
  std::vector<Row> rows;
  auto add = [&](const std::string& op, const Values& want, bool signed_zeros = false) {
    rows.push_back({op, {type + "[?,7]"}, {x}, want, signed_zeros});
  };
  add("Identity.1(0)", x, kSigned);
  add("Relu.1(0)", {kNan, kInf, 0, 0, 0, 3, 0});
  add("LeakyRelu.1(0) {alpha=0.5}", {kNan, kInf, -kInf, -0.0, 0, 3, -1.5}, kSigned);
  add("ThresholdedRelu.1(0) {alpha=1.0}", {kNan, kInf, 0, 0, 0, 3, 0});
  add("HardSwish.1(0)", {kNan, kInf, kNan, 0, 0, 3, 0});  // an infinity times a gate of 0
  add("HardSigmoid.1(0) {alpha=0.2, beta=0.5}", {kNan, 1, 0, 0.5, 0.5, 1, 0});
  add("Clip.1(0) {max=2.0, min=-1.0}", {kNan, 2, -1, 0, 0, 2, -1});
  add("Clip.1(0) {max=inf, min=-1.0}", {kNan, kInf, -1, 0, 0, 3, -1});
  add("Sign.1(0)", {kNan, 1, -1, 0, 0, 1, -1});
  add("Abs.1(0)", {kNan, kInf, kInf, 0, 0, 3, 3}, kSigned);
  add("Neg.1(0)", {kNan, -kInf, kInf, 0, -0.0, -3, 3}, kSigned);
  for (const char* round : {"Floor", "Ceil", "Round"})
    add(fmt::format("{}.1(0)", round), x, kSigned);
  add("Sqrt.1(0)", {kNan, kInf, kNan, -0.0, 0, 1.7320508075688772, kNan}, kSigned);
  add("Reciprocal.1(0)", {kNan, 0, -0.0, -kInf, kInf, 1.0 / 3, -1.0 / 3}, kSigned);
  add("Exp.1(0)", {kNan, kInf, 0, 1, 1, 20.085536923187668, 0.049787068367863944});
  add("Log.1(0)", {kNan, kInf, kNan, -kInf, -kInf, 1.0986122886681098, kNan});
  add("Sigmoid.1(0)", {kNan, 1, 0, 0.5, 0.5, 0.9525741268224334, 0.04742587317756678});
  add("Tanh.1(0)", {kNan, 1, -1, -0.0, 0, 0.9950547536867305, -0.9950547536867305}, kSigned);
  add("Erf.1(0)", {kNan, 1, -1, -0.0, 0, 0.9999779095030014, -0.9999779095030014}, kSigned);
  add("Softplus.1(0)",
      {kNan, kInf, 0, std::log(2), std::log(2), 3.048587351573742, 0.04858735157374206});
  add("Elu.1(0)", {kNan, kInf, -1, -0.0, 0, 3, -0.950212931632136}, kSigned);
  add("Celu.1(0)", {kNan, kInf, -1, -0.0, 0, 3, -0.950212931632136}, kSigned);
  add("Selu.1(0)", {kNan, kInf, -1.7580993, -0.0, 0, 3.1521031, -1.6705687}, kSigned);
  // By their definitions: infinity / infinity, and -infinity times 0.
  add("Softsign.1(0)", {kNan, kNan, kNan, -0.0, 0, 0.75, -0.75}, kSigned);
  add("Gelu.1(0)", {kNan, kInf, kNan, -0.0, 0, 2.99595030590511, -0.00404969409489031}, kSigned);
  add("Mish.1(0)", {kNan, kInf, kNan, -0.0, 0, 2.9865350049679195, -0.1456474612774993}, kSigned);
  add("Shrink.1(0) {bias=0.0, lambd=0.5}", {kNan, kInf, -kInf, 0, 0, 3, -3});
  add("IsNaN.1(0)", {1, 0, 0, 0, 0, 0, 0});
  add("IsInf.1(0)", {0, 1, 1, 0, 0, 0, 0});
  add("Cast.1(0) {to=\"bool\"}", {1, 1, 1, 0, 0, 1, 1});
  for (const char* to : {"f16", "bf16", "f32", "f64"}) {
    if (type != to) add(fmt::format("Cast.1(0) {{to=\"{}\"}}", to), x, kSigned);
  }
  return rows;
}

std::vector<Row> Binaries(const std::string& type) {
  const Values a = {kNan, 1, kNan, kInf, kInf, -kInf, -0.0, 0, 3},
               b = {1, kNan, kNan, -kInf, kInf, 2, 0, 0, -0.0};
  const std::string t = type + "[?,9]";
  std::vector<Row> rows;
  auto add = [&](const std::string& op, const Values& want, bool signed_zeros = false) {
    rows.push_back({op + ".1(0, 1)", {t, t}, {a, b}, want, signed_zeros});
  };
  add("Max", {kNan, kNan, kNan, kInf, kInf, 2, 0, 0, 3});
  add("Min", {kNan, kNan, kNan, -kInf, kInf, -kInf, 0, 0, 0});
  add("Add", {kNan, kNan, kNan, kNan, kInf, -kInf, 0, 0, 3}, kSigned);
  add("Sub", {kNan, kNan, kNan, kInf, kNan, -kInf, -0.0, 0, 3}, kSigned);
  add("Mul", {kNan, kNan, kNan, -kInf, kInf, -kInf, -0.0, 0, -0.0}, kSigned);
  add("Div", {kNan, kNan, kNan, kNan, kNan, -kInf, kNan, kNan, -kInf});
  add("PRelu", {kNan, 1, kNan, kInf, kInf, -kInf, -0.0, 0, 3}, kSigned);
  add("Pow", {kNan, 1, kNan, 0, kInf, kInf, 1, 1, 1}, kSigned);
  add("Equal", {0, 0, 0, 0, 1, 0, 1, 1, 0});
  add("Less", {0, 0, 0, 0, 0, 1, 0, 0, 0});
  add("LessOrEqual", {0, 0, 0, 0, 1, 1, 1, 1, 0});
  add("Greater", {0, 0, 0, 1, 0, 0, 0, 0, 1});
  add("GreaterOrEqual", {0, 0, 0, 1, 1, 0, 1, 1, 1});
  rows.push_back({"Where.1(0, 1, 2)",
                  {"bool[?,9]", t, t},
                  {{1, 0, 1, 0, 1, 0, 1, 0, 0}, a, b},
                  {kNan, kNan, kNan, -kInf, kInf, 2, -0.0, 0, -0.0},
                  kSigned});
  const std::string five = type + "[?,5]";
  rows.push_back({"Mod.1(0, 1) {fmod=1}",
                  {five, five},
                  {{-0.0, -6, 6, -0.5, 2}, {3, 3, -3, 3, kInf}},
                  {-0.0, -0.0, 0, -0.5, 2},
                  kSigned});
  return rows;
}

std::vector<Row> Reductions(const std::string& type) {
  std::vector<Row> rows;
  auto add = [&](const std::string& op, const Values& x, const Values& want) {
    rows.push_back({op, {fmt::format("{}[?,{}]", type, x.size())}, {x}, want});
  };
  auto all = [](double v) { return Values(4, v); };
  add("Softmax.1(0) {axis=1}", {kNan, 0, 1, 2}, all(kNan));
  add("Softmax.1(0) {axis=1}", {0, kInf, 1, 2}, all(kNan));
  add("Softmax.1(0) {axis=1}", {-kInf, 0, -0.0, -kInf}, {0, 0.5, 0.5, 0});
  add("Softmax.1(0) {axis=1}", all(-kInf), all(kNan));
  add("LogSoftmax.1(0) {axis=1}", {0, 1, 2, kNan}, all(kNan));
  add("LogSoftmax.1(0) {axis=1}", {-kInf, 0, 0, -kInf}, {-kInf, -std::log(2), -std::log(2), -kInf});
  for (double special : {kNan, kInf, -kInf})
    add("LayerNormalization.1(0) {axes=[1]}", {1, special, 2, 3}, all(kNan));
  add("RMSNormalization.1(0) {axes=[1]}", {1, kNan, 2, 3}, all(kNan));
  add("RMSNormalization.1(0) {axes=[1]}", {1, kInf, 2, -3}, {0, kNan, 0, 0});
  struct Extreme {
    Values x;
    double max, min, arg_max, arg_min;
  };
  const std::vector<Extreme> extremes = {{{1, kNan, kInf, kNan}, kNan, kNan, 1, 1},
                                         {{kNan, 1, 2, 3}, kNan, kNan, 0, 0},
                                         {{1, -kInf, kInf, kInf}, kInf, -kInf, 2, 1},
                                         {all(-kInf), -kInf, -kInf, 0, 0},
                                         {all(kInf), kInf, kInf, 0, 0},
                                         {{-0.0, 0, -0.0, 0}, 0, 0, 0, 0}};
  for (const Extreme& e : extremes) {
    add("ReduceMax.1(0) {axes=[1]}", e.x, {e.max});
    add("ReduceMin.1(0) {axes=[1]}", e.x, {e.min});
    add("ArgMax.1(0) {axis=1}", e.x, {e.arg_max});
    add("ArgMin.1(0) {axis=1}", e.x, {e.arg_min});
  }
  // A NaN is larger than any number; equal ones keep their order.
  add("TopK.1(0) {axis=1, k=1}", {2, kInf, -kInf, 3}, {kInf});
  add("TopK.1(0) {axis=1, k=3}", {2, kNan, -kInf, kInf}, {kNan, kInf, 2});
  add("TopK.1(0) {axis=1, k=3, largest=0}", {2, kNan, -kInf, kInf}, {-kInf, 2, kInf});
  if (type == "f16" || type == "bf16") return rows;  // these are computed in f32
  add("ReduceSum.1(0) {axes=[1]}", {1, kInf, 2, 3}, {kInf});
  add("ReduceSum.1(0) {axes=[1]}", {1, kInf, -kInf, 3}, {kNan});
  add("ReduceMean.1(0) {axes=[1]}", {1, -kInf, 2, 3}, {-kInf});
  add("ReduceProd.1(0) {axes=[1]}", {0, kInf, 2, 3}, {kNan});
  return rows;
}

std::vector<Row> Windows() {
  std::vector<Row> rows;
  const std::vector<std::string> image = {"f32[?,1,3,3]"};
  const Values x = {kNan, 1, 2, -kInf, -kInf, 3, -kInf, -kInf, kInf};
  rows.push_back({"MaxPool.1(0) {kernel=[2,2]}", image, {x}, {kNan, 3, -kInf, kInf}});
  rows.push_back({"MaxPool.1(0) {kernel=[2,2], pads=[1,1,0,0]}",
                  image,
                  {x},
                  {kNan, kNan, 2, kNan, kNan, 3, -kInf, -kInf, kInf}});
  const Values y = {1, 2, kNan, 0, 3, kNan, 5, -kInf, -kInf};
  for (int order : {0, 1}) {
    // The first NaN is the largest; the place counts the copies before it.
    Row r{fmt::format("MaxPoolIndices.1(0) {{kernel=[2,2], storage_order={}}}", order),
          {"f32[1,1,3,3]"},
          {y},
          order == 0 ? Values{4, 2, 6, 5} : Values{4, 6, 2, 7}};
    rows.push_back(r);
  }
  rows.push_back({"AveragePool.1(0) {kernel=[2,2]}",
                  image,
                  {{1, 2, kNan, 3, 4, 5, kInf, 6, -kInf}},
                  {2.5, kNan, kInf, -kInf}});
  // Bins: two by two of the upper left corner; the left column; none of it.
  const std::vector<std::string> regions = {"f32[1,1,3,3]", "f32[1,5]"};
  auto pool = [&](const Values& pixels, const Values& roi, double want) {
    rows.push_back({"MaxRoiPool.1(0, 1) {pooled=[1,1]}", regions, {pixels, roi}, {want}});
  };
  pool(x, {0, 0, 0, 1, 1}, kNan);
  pool(x, {0, 0, 1, 1, 2}, -kInf);
  pool(x, {0, 5, 5, 6, 6}, 0);
  pool(x, {0, 1, 1, 2, 2}, kInf);
  const std::vector<std::string> aligned = {"f32[1,1,3,3]", "f32[1,4]", "i64[1]"};
  rows.push_back({"RoiAlign.1(0, 1, 2) {grid=[1,1], half_pixel=0, mode=\"max\", pooled=[1,1]}",
                  aligned,
                  {{1, 2, 3, 4, kNan, 6, 7, 8, 9}, {0, 0, 1, 1}, {0}},
                  {kNan}});
  return rows;
}

// ---- the check

std::string WithCopies(std::string type) {
  const size_t at = type.find('?');
  return at == std::string::npos ? type : type.replace(at, 1, std::to_string(kCopies));
}

void ExpectSame(const Row& row, const Values& got, const Values& want, const std::string& by) {
  ASSERT_EQ(got.size(), want.size()) << row.op << " by " << by;
  for (size_t i = 0; i < want.size(); ++i) {
    const double g = got[i], w = want[i];
    const bool zero = row.signed_zeros && w == 0;
    const bool same = std::isnan(w)   ? std::isnan(g)
                      : std::isinf(w) ? g == w
                      : zero          ? g == w && std::signbit(g) == std::signbit(w)
                                      : std::fabs(g - w) <= 0x1.0p-7 * std::fabs(w) + 1e-15;
    EXPECT_TRUE(same) << row.op << " of " << row.inputs[0] << " by " << by << ", element " << i
                      << " is " << g << ", not " << w;
    if (!same) return;
  }
}

Values Scheduled(const OpProgram& program, const schedule::Space& space, const schedule::Point& at,
                 const std::vector<Values>& inputs) {
  auto s = space.Apply(at);
  EXPECT_TRUE(s.ok()) << s.status();
  if (!s.ok()) return {};
  const loop::Memory results =
      testing_support::CompiledOutputs(s->program(), space.target(), program.Inputs(inputs));
  return results.empty() ? Values() : program.Output(results);
}

// The operator scheduled as by default, and compiled for a target.
Values Kernel(const OpProgram& program, const std::vector<Values>& inputs, const Target& target) {
  const schedule::Space space(program.program(), target);
  return Scheduled(program, space, space.Default(), inputs);
}

// Some of the other ways to schedule it.
std::vector<schedule::Point> OtherPoints(const schedule::Space& space) {
  Rng rng(17);
  std::vector<schedule::Point> points;
  for (size_t v = 0; v < space.variants().size(); ++v) {
    for (schedule::Point& p : testing_support::DrawnPoints(space, v, 4, rng))
      points.push_back(std::move(p));
  }
  return points;
}

const std::pair<const char*, Target> kTargets[] = {{"the host's kernel", Target::Host()},
                                                   {"the base's kernel", Target()}};

void Check(const Row& row, bool other_schedules = false) {
  SCOPED_TRACE(row.op);
  std::vector<std::string> types;
  std::vector<Values> inputs;
  bool copies = false;
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    const bool repeats = row.inputs[i].find('?') != std::string::npos;
    copies = copies || repeats;
    types.push_back(WithCopies(row.inputs[i]));
    inputs.push_back(repeats ? Repeated(row.values[i]) : row.values[i]);
  }
  const Values want = copies ? Repeated(row.want) : row.want;
  auto w = OpWorkload(types, {row.op});
  ASSERT_TRUE(w.ok()) << w.status();
  auto reference = fusion::EvaluateReference(*w, inputs);
  ASSERT_TRUE(reference.ok()) << reference.status();
  ExpectSame(row, (*reference)[0].expected, want, "the reference");
  const OpProgram program(*w);
  ASSERT_TRUE(program.ok());
  for (const auto& [name, target] : kTargets) {
    ExpectSame(row, Kernel(program, inputs, target), want, name);
    if (!other_schedules) continue;
    const schedule::Space space(program.program(), target);
    for (const schedule::Point& p : OtherPoints(space))
      ExpectSame(row, Scheduled(program, space, p, inputs), want, name);
  }
}

TEST(SpecialValuesTest, UnaryOperatorsGiveWhatTheTableSays) {
  for (const char* type : {"f32", "f64", "f16"}) {
    for (const Row& row : Unaries(type)) Check(row);
  }
}

TEST(SpecialValuesTest, BinaryOperatorsGiveWhatTheTableSays) {
  for (const char* type : {"f32", "f64", "bf16"}) {
    for (const Row& row : Binaries(type)) Check(row);
  }
}

TEST(SpecialValuesTest, ReductionsGiveWhatTheTableSays) {
  for (const char* type : {"f32", "f64", "f16"}) {
    for (const Row& row : Reductions(type)) Check(row);
  }
}

TEST(SpecialValuesTest, WindowsGiveWhatTheTableSays) {
  for (const Row& row : Windows()) Check(row);
}

TEST(SpecialValuesTest, WindowsLongerThanWhatIsUnrolledHaveSchedules) {
  constexpr int64_t n = 300;
  Values x(n, -kInf), ones(n, 1), last = {kInf};
  x[n - 1] = 7;
  Check({"MaxPool.1(0) {kernel=[1,300]}", {"f32[1,1,1,300]"}, {x}, {7}}, true);
  Check({"AveragePool.1(0) {kernel=[1,300]}", {"f32[1,1,1,300]"}, {ones}, {1}}, true);
  ones[n - 1] = kInf;
  Check({"AveragePool.1(0) {kernel=[1,300]}", {"f32[1,1,1,300]"}, {ones}, last}, true);
}

TEST(SpecialValuesTest, ANaNAnywhereInALongRowIsTheExtreme) {
  constexpr bool kAlsoOthers = true;
  constexpr int64_t n = 45;  // vectors, and a rest; NaN at each place
  Values x, arg;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < n; ++k) x.push_back(k == i ? kNan : static_cast<double>(k % 7) - 3);
    arg.push_back(static_cast<double>(i));
  }
  const std::vector<std::string> rows = {"f32[45,45]"};
  for (const char* op : {"ReduceMax.1(0) {axes=[1]}", "ReduceMin.1(0) {axes=[1]}"})
    Check({op, rows, {x}, Values(n, kNan)}, kAlsoOthers);
  for (const char* op : {"ArgMax.1(0) {axis=1}", "ArgMin.1(0) {axis=1}"})
    Check({op, rows, {x}, arg}, kAlsoOthers);
  Check({"MaxPool.1(0) {kernel=[1,45]}", {"f32[1,1,45,45]"}, {x}, Values(n, kNan)}, kAlsoOthers);
  Check({"Softmax.1(0) {axis=1}", rows, {x}, Values(n * n, kNan)}, kAlsoOthers);
}

// ---- quantized arithmetic, by the formulas of the operators, in f32 and half to even

double ToF32(double v) { return static_cast<double>(static_cast<float>(v)); }

void ExpectExactly(const std::vector<std::string>& types, const std::string& op,
                   const std::vector<Values>& inputs, const Values& want,
                   bool other_schedules = false) {
  auto w = OpWorkload(types, {op});
  ASSERT_TRUE(w.ok()) << w.status();
  const OpProgram program(*w);
  ASSERT_TRUE(program.ok());
  for (const auto& [name, target] : kTargets) {
    const schedule::Space space(program.program(), target);
    std::vector<schedule::Point> points = {space.Default()};
    if (other_schedules) points = OtherPoints(space);
    for (const schedule::Point& p : points) {
      const Values got = Scheduled(program, space, p, inputs);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_EQ(got[i], want[i]) << op << " by " << name << ", element " << i;
    }
  }
}

Values Random(Rng& rng, size_t n, double lo, double hi) {
  Values v(n);
  for (double& x : v) x = std::floor(lo + rng.Uniform() * (hi - lo));
  return v;
}

TEST(QuantizedTest, QuantizeAndDequantizeAreExact) {
  Rng rng(11);
  constexpr size_t n = 203;
  for (bool is_signed : {false, true}) {
    const std::string q = is_signed ? "i8" : "u8";
    const double lo = is_signed ? -128 : 0, hi = is_signed ? 127 : 255, zero = is_signed ? -3 : 101;
    for (double scale : {0.25, ToF32(0.1), ToF32(1.0 / 3), 3.0}) {
      Values x, quantized, dequantized;
      for (size_t i = 0; i < n; ++i)  // ties among them
        x.push_back(ToF32(i % 2 == 0 ? scale * (std::floor(rng.Uniform() * 300) - 150 + 0.5)
                                     : scale * (300 * rng.Uniform() - 150)));
      x[0] = kInf, x[1] = -kInf, x[2] = 1e30, x[3] = -0.0;
      const Values back = Random(rng, n, lo, hi + 1);
      for (size_t i = 0; i < n; ++i) {
        const double rounded = ToF32(std::nearbyint(ToF32(x[i] / scale)) + zero);
        quantized.push_back(std::min(std::max(rounded, lo), hi));
        dequantized.push_back(ToF32((back[i] - zero) * scale));
      }
      ExpectExactly({"f32[203]", "f32[]", q + "[]"}, "QuantizeLinear.1(0, 1, 2)",
                    {x, {scale}, {zero}}, quantized);
      ExpectExactly({q + "[203]", "f32[]", q + "[]"}, "DequantizeLinear.1(0, 1, 2)",
                    {back, {scale}, {zero}}, dequantized);
    }
  }
}

TEST(QuantizedTest, IntegerProductsAreExact) {
  Rng rng(12);
  constexpr int64_t m = 5, k = 67, n = 35;
  const Values a = Random(rng, m * k, 0, 256), b = Random(rng, k * n, -128, 128);
  const double a_zero = 129, b_zero = -7;
  Values want(m * n, 0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t p = 0; p < k; ++p)
        want[i * n + j] += (a[i * k + p] - a_zero) * (b[p * n + j] - b_zero);
    }
  }
  for (bool others : {false, true})
    ExpectExactly({"u8[5,67]", "i8[67,35]", "u8[]", "i8[]"}, "MatMulInteger.1(0, 1, 2, 3)",
                  {a, b, {a_zero}, {b_zero}}, want, others);
  // Without zero points the operands stay bytes; pairs of the largest leave 16 bits.
  const Values large(m * k, 255), most(k * n, 127);
  for (bool others : {false, true})
    ExpectExactly({"u8[5,67]", "const i8[67,35]"}, "MatMulInteger.1(0, 1)", {large, most},
                  Values(m * n, 255.0 * 127 * k), others);
}

// A schedule lets the sum start from what is added, which is much larger here than the sum is.
TEST(AddendTest, KernelsOfSumsStayWithinTheirBounds) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"f32[64,8]", "f32[8,64]", "f32[64,64]"}, "MatMul.1(0, 1)"},
      {{"f32[1,3,16,16]", "f32[16,3,1,1]", "f32[1,16,16,16]"}, "Conv.1(0, 1)"},
  };
  for (const auto& [types, sum] : cases) {
    auto w = OpWorkload(types, {sum, "Add.1(3, 2)"});
    ASSERT_TRUE(w.ok()) << w.status();
    std::vector<Values> inputs = fusion::MakeInputs(*w, 3);
    for (double& x : inputs[2]) x = ToF32(x * 100);
    auto reference = fusion::EvaluateReference(*w, inputs);
    ASSERT_TRUE(reference.ok()) << reference.status();
    const OpProgram program(*w);
    ASSERT_TRUE(program.ok());
    for (const auto& [name, target] : kTargets) {
      const Values got = Kernel(program, inputs, target);
      ASSERT_EQ(got.size(), (*reference)[0].expected.size());
      int outside = 0;
      for (size_t i = 0; i < got.size(); ++i)
        outside +=
            !(std::fabs(got[i] - (*reference)[0].expected[i]) <= (*reference)[0].tolerance[i]);
      EXPECT_EQ(outside, 0) << sum << " by " << name;
    }
  }
}

TEST(QuantizedTest, RequantizationIsWithinOneQuantumOfExactArithmetic) {
  Rng rng(13);
  constexpr size_t n = 4096;
  const double zero = 7;
  double most = 0;
  for (int pass = 0; pass < 3; ++pass) {
    const double x_scale = ToF32(0.02 * rng.Uniform() + 1e-3),
                 w_scale = ToF32(0.01 * rng.Uniform()),
                 y_scale = ToF32(0.05 * rng.Uniform() + 1e-3);
    const double multiplier = ToF32(ToF32(x_scale * w_scale) / y_scale);
    const double reach = 300 / multiplier;
    const Values sums = Random(rng, n, -reach, reach);
    Values want;
    for (double sum : sums) {
      const double scaled = ToF32(ToF32(sum) * multiplier);
      const double f32 = std::min(std::max(ToF32(std::nearbyint(scaled) + zero), 0.0), 255.0);
      const double exact = std::nearbyint(sum * x_scale * w_scale / y_scale) + zero;
      most = std::max(most, std::fabs(f32 - std::min(std::max(exact, 0.0), 255.0)));
      want.push_back(f32);
    }
    ExpectExactly({"i32[4096]", "f32[]", "u8[]"}, "Requantize.1(0, 1, 2) {hi=255, lo=0}",
                  {sums, {multiplier}, {zero}}, want);
  }
  EXPECT_LE(most, 1);
}

}  // namespace
}  // namespace whet
