#include "tests/models/generated.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "compiler/support/fingerprint.h"
#include "compiler/support/rng.h"

namespace whet::testing_support {
namespace {

using Shape = std::vector<int64_t>;

enum class Form { kFloat, kQdq, kQop };

int64_t Count(const Shape& s) {
  int64_t n = 1;
  for (int64_t d : s) n *= d;
  return n;
}

// Layers on top of TestModel. Values are named after what computes them.
class Net {
 public:
  // A value in float, in u8, or both; in quantized networks `f` is what DequantizeLinear gives.
  struct Value {
    std::string f, q;
    double scale = 0;
    std::string scale_name, zero_name;
  };

  Net(const std::string& name, int opset, Form form) : m_(opset, name), form_(form) {}
  TestModel Take() { return std::move(m_); }
  TestModel& model() { return m_; }
  Form form() const { return form_; }

  std::string Op(const std::string& op, const std::vector<std::string>& in,
                 const std::function<void(TestModel::NodeWriter&)>& attrs = nullptr,
                 const std::string& name = "") {
    const std::string out = name.empty() ? Unique(op) : name;
    TestModel::NodeWriter n = m_.Node(op, in, {out});
    if (attrs) attrs(n);
    return out;
  }

  // Uniform with the given standard deviation around `mean`.
  std::vector<float> Draw(int64_t count, double deviation, double mean = 0) {
    const uint64_t seed = FingerprintOf(Unique("seed")).lo;
    std::vector<float> v(static_cast<size_t>(count));
    const double scale = deviation * std::sqrt(3.0);
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<float>(mean + CounterUniform(seed, 0, i) * scale);
    return v;
  }

  std::string Floats(const Shape& shape, const std::vector<float>& v) {
    return Raw(DType::kF32, shape, v.data(), v.size() * sizeof(float));
  }
  std::string Number(float v) { return Floats({}, {v}); }
  std::string Ints(const Shape& v) {
    const std::string name = Unique("ints");
    m_.Ints(name, v);
    return name;
  }
  template <typename T>
  std::string Integers(DType t, const Shape& shape, const std::vector<T>& v) {
    return Raw(t, shape, v.data(), v.size() * sizeof(T));
  }

  // ---- convolutional networks

  enum class Act { kNone, kRelu, kRelu6 };

  Value Input(const Shape& shape) {
    m_.Input("input", shape);
    return Quantized("input", -4, 4);
  }

  Value Conv(const Value& x, int64_t ci, int64_t co, int64_t k, int64_t stride, int64_t group,
             Act act, float gamma = 1) {
    const Shape shape = {co, ci / group, k, k};
    const int64_t terms = ci / group * k * k;
    std::vector<float> w = Draw(Count(shape), std::sqrt(2.0 / static_cast<double>(terms)));
    std::vector<float> scale = Draw(co, 0.1 * gamma, gamma), shift = Draw(co, 0.1);
    auto attrs = [=](TestModel::NodeWriter& n) {
      n.Ints("kernel_shape", {k, k}).Ints("strides", {stride, stride});
      n.Ints("pads", Shape(4, k / 2)).Int("group", group);
    };
    std::string y;
    if (form_ == Form::kFloat) {
      y = Op("Conv", {x.f, Floats(shape, w)}, attrs);
      y = Op("BatchNormalization", {y, Floats({co}, scale), Floats({co}, shift),
                                    Floats({co}, Draw(co, 0.1)), Floats({co}, Draw(co, 0.1, 1))});
      return {Activated(y, act), "", 0, "", ""};
    }
    for (int64_t c = 0; c < co; ++c) {
      for (int64_t i = 0; i < terms; ++i) w[static_cast<size_t>(c * terms + i)] *= scale[c];
    }
    const Weights q = QuantizeWeights(shape, w, shift, x.scale);
    if (form_ == Form::kQop) {
      const auto [lo, hi] = RangeOf(act);
      Value out = Parameters(lo, hi);
      out.q = Op("QLinearConv",
                 {x.q, x.scale_name, x.zero_name, q.values, q.scales, q.zeros, out.scale_name,
                  out.zero_name, q.bias},
                 attrs);
      out.f = Dequantize(out);
      return out;
    }
    y = Op("Conv",
           {x.f, DequantizeRows(q.values, q.scales, q.zeros),
            DequantizeRows(q.bias, q.bias_scales, q.bias_zeros)},
           attrs);
    const auto [lo, hi] = RangeOf(act);
    return Quantized(Activated(y, act), lo, hi);
  }

  Value Add(const Value& a, const Value& b, Act act) {
    const auto [lo, hi] = RangeOf(act);
    return Quantized(Activated(Op("Add", {a.f, b.f}), act), lo, hi);
  }

  Value MaxPool(const Value& x) {
    return Quantized(Op("MaxPool", {x.f},
                        [](TestModel::NodeWriter& n) {
                          n.Ints("kernel_shape", {3, 3}).Ints("strides", {2, 2});
                          n.Ints("pads", {1, 1, 1, 1});
                        }),
                     0, 8);
  }

  void Classifier(const Value& x, int64_t channels, int64_t classes) {
    const Value pooled = Quantized(Op("GlobalAveragePool", {x.f}), 0, 4);
    const Value flat = {Op("Flatten", {pooled.f}), "", pooled.scale, "", ""};
    std::vector<float> w = Draw(classes * channels, 1 / std::sqrt(static_cast<double>(channels)));
    const std::vector<float> bias = Draw(classes, 0.1);
    const Shape shape = {classes, channels};
    auto transposed = [](TestModel::NodeWriter& n) { n.Int("transB", 1); };
    if (form_ == Form::kQdq) {
      const Weights q = QuantizeWeights(shape, w, bias, flat.scale);
      Op("Gemm",
         {flat.f, DequantizeRows(q.values, q.scales, q.zeros),
          DequantizeRows(q.bias, q.bias_scales, q.bias_zeros)},
         transposed, "logits");
    } else {
      Op("Gemm", {flat.f, Floats(shape, w), Floats({classes}, bias)}, transposed, "logits");
    }
    m_.Output("logits");
  }

  // ---- transformers

  // x W + b; `dynamic` quantizes x when it runs.
  std::string Linear(const std::string& x, int64_t k, int64_t n, bool dynamic) {
    const std::vector<float> w = Draw(k * n, 1 / std::sqrt(static_cast<double>(k)));
    const std::string b = Floats({n}, Draw(n, 0.02));
    if (!dynamic) return Op("Add", {Op("MatMul", {x, Floats({k, n}, w)}), b});
    std::vector<float> scales(static_cast<size_t>(n), 0);
    for (size_t i = 0; i < w.size(); ++i) {
      float& s = scales[i % static_cast<size_t>(n)];
      s = std::max(s, std::fabs(w[i]) / 127);
    }
    std::vector<int8_t> q(w.size());
    for (size_t i = 0; i < w.size(); ++i)
      q[i] = static_cast<int8_t>(std::nearbyint(w[i] / scales[i % static_cast<size_t>(n)]));
    auto& dyn = dynamic_[x];
    if (dyn.empty()) {
      dyn = {Unique("quantized"), Unique("scale"), Unique("zero")};
      m_.Node("DynamicQuantizeLinear", {x}, dyn);
    }
    const std::vector<int8_t> zeros(static_cast<size_t>(n), 0);
    std::string y = Op("MatMulInteger", {dyn[0], Integers(DType::kI8, {k, n}, q), dyn[2],
                                         Integers(DType::kI8, {n}, zeros)});
    y = Op("Cast", {y}, [](TestModel::NodeWriter& w) { w.Int("to", OnnxType(DType::kF32)); });
    y = Op("Mul", {y, Op("Mul", {dyn[1], Floats({n}, scales)})});
    return Op("Add", {y, b});
  }

  std::string LayerNorm(const std::string& x, int64_t d, bool as_operator) {
    const std::string gamma = Floats({d}, Draw(d, 0.05, 1)), beta = Floats({d}, Draw(d, 0.02));
    if (as_operator) {
      return Op("LayerNormalization", {x, gamma, beta},
                [](TestModel::NodeWriter& n) { n.Int("axis", -1).Float("epsilon", 1e-5F); });
    }
    auto last = [](TestModel::NodeWriter& n) { n.Ints("axes", {-1}).Int("keepdims", 1); };
    const std::string centred = Op("Sub", {x, Op("ReduceMean", {x}, last)});
    const std::string variance = Op("ReduceMean", {Op("Pow", {centred, Number(2)})}, last);
    const std::string deviation = Op("Sqrt", {Op("Add", {variance, Number(1e-5F)})});
    return Op("Add", {Op("Mul", {Op("Div", {centred, deviation}), gamma}), beta});
  }

 private:
  struct Weights {
    std::string values, scales, zeros, bias, bias_scales, bias_zeros;
  };

  std::string Unique(const std::string& what) { return what + "_" + std::to_string(next_++); }

  std::string Raw(DType t, const Shape& shape, const void* data, size_t bytes) {
    auto* tensor = m_.proto().mutable_graph()->add_initializer();
    tensor->set_name(Unique("w"));
    tensor->set_data_type(OnnxType(t));
    for (int64_t d : shape) tensor->add_dims(d);
    tensor->set_raw_data(data, bytes);
    return tensor->name();
  }

  std::string Activated(const std::string& y, Act act) {
    if (act == Act::kRelu) return Op("Relu", {y});
    if (act == Act::kRelu6) return Op("Clip", {y, Number(0), Number(6)});
    return y;
  }
  static std::pair<double, double> RangeOf(Act act) {
    if (act == Act::kRelu) return {0, 8};
    return act == Act::kRelu6 ? std::pair<double, double>{0, 6} : std::pair<double, double>{-6, 6};
  }

  // u8 with a scale and zero point for [lo, hi].
  Value Parameters(double lo, double hi) {
    Value v;
    v.scale = static_cast<float>((hi - lo) / 255);
    const std::vector<uint8_t> zero = {static_cast<uint8_t>(std::nearbyint(-lo / v.scale))};
    v.scale_name = Number(static_cast<float>(v.scale));
    v.zero_name = Integers(DType::kU8, {}, zero);
    return v;
  }
  Value Quantized(const std::string& f, double lo, double hi) {
    if (form_ == Form::kFloat) return {f, "", 0, "", ""};
    Value v = Parameters(lo, hi);
    v.q = Op("QuantizeLinear", {f, v.scale_name, v.zero_name});
    v.f = Dequantize(v);
    return v;
  }
  std::string Dequantize(const Value& v) {
    return Op("DequantizeLinear", {v.q, v.scale_name, v.zero_name});
  }
  std::string DequantizeRows(const std::string& q, const std::string& scales,
                             const std::string& zeros) {
    return Op("DequantizeLinear", {q, scales, zeros},
              [](TestModel::NodeWriter& n) { n.Int("axis", 0); });
  }

  // i8 per output channel (dimension 0); the bias in i32 with the scale of the products.
  Weights QuantizeWeights(const Shape& shape, const std::vector<float>& w,
                          const std::vector<float>& bias, double x_scale) {
    const size_t rows = static_cast<size_t>(shape[0]), terms = w.size() / rows;
    std::vector<float> scales(rows), bias_scales(rows);
    std::vector<int8_t> q(w.size());
    std::vector<int32_t> b(rows);
    for (size_t r = 0; r < rows; ++r) {
      float largest = 1e-8F;
      for (size_t i = 0; i < terms; ++i) largest = std::max(largest, std::fabs(w[r * terms + i]));
      scales[r] = largest / 127;
      for (size_t i = 0; i < terms; ++i)
        q[r * terms + i] = static_cast<int8_t>(std::nearbyint(w[r * terms + i] / scales[r]));
      bias_scales[r] = static_cast<float>(x_scale) * scales[r];
      b[r] = static_cast<int32_t>(std::nearbyint(bias[r] / bias_scales[r]));
    }
    Weights out;
    out.values = Integers(DType::kI8, shape, q);
    out.scales = Floats({shape[0]}, scales);
    out.zeros = Integers(DType::kI8, {shape[0]}, std::vector<int8_t>(rows, 0));
    out.bias = Integers(DType::kI32, {shape[0]}, b);
    out.bias_scales = Floats({shape[0]}, bias_scales);
    out.bias_zeros = Integers(DType::kI32, {shape[0]}, std::vector<int32_t>(rows, 0));
    return out;
  }

  TestModel m_;
  const Form form_;
  int64_t next_ = 0;
  std::map<std::string, std::vector<std::string>> dynamic_;  // of a value: its quantized form
};

using Act = Net::Act;

struct ResnetSize {
  std::vector<int64_t> blocks;
  bool bottleneck;
  int64_t width, picture, classes;
};

TestModel Resnet(const std::string& name, Form form, const ResnetSize& size, int64_t batch) {
  Net n(name, 13, form);
  Net::Value x = n.Input({batch, 3, size.picture, size.picture});
  x = n.MaxPool(n.Conv(x, 3, size.width, 7, 2, 1, Act::kRelu));
  int64_t ci = size.width;
  const int64_t expansion = size.bottleneck ? 4 : 1;
  for (size_t stage = 0; stage < size.blocks.size(); ++stage) {
    const int64_t c = size.width << stage;
    for (int64_t r = 0; r < size.blocks[stage]; ++r) {
      const int64_t stride = r == 0 && stage > 0 ? 2 : 1, co = c * expansion;
      Net::Value shortcut = x, y;
      if (stride != 1 || ci != co) shortcut = n.Conv(x, ci, co, 1, stride, 1, Act::kNone, 0.7F);
      if (size.bottleneck) {
        y = n.Conv(x, ci, c, 1, 1, 1, Act::kRelu);
        y = n.Conv(y, c, c, 3, stride, 1, Act::kRelu);
        y = n.Conv(y, c, co, 1, 1, 1, Act::kNone, 0.3F);
      } else {
        y = n.Conv(x, ci, c, 3, stride, 1, Act::kRelu);
        y = n.Conv(y, c, c, 3, 1, 1, Act::kNone, 0.3F);
      }
      x = n.Add(y, shortcut, Act::kRelu);
      ci = co;
    }
  }
  n.Classifier(x, ci, size.classes);
  return n.Take();
}

struct MobilenetSize {
  int64_t picture, divide, classes;  // channels are divided
};

// `inner`: the widest values of the first block with 160 channels, which detectors look at.
struct MobilenetValues {
  Net::Value last, inner;
  int64_t last_channels, inner_channels;
};

MobilenetValues MobilenetLayers(Net& n, const MobilenetSize& size, int64_t batch) {
  struct Stage {
    int64_t expand, channels, blocks, stride;
  };
  const Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                          {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  int64_t ci = 32 / size.divide;
  Net::Value x = n.Input({batch, 3, size.picture, size.picture});
  x = n.Conv(x, 3, ci, 3, 2, 1, Act::kRelu6);
  MobilenetValues r = {};
  for (const Stage& s : stages) {
    for (int64_t i = 0; i < s.blocks; ++i) {
      const int64_t stride = i == 0 ? s.stride : 1, hidden = ci * s.expand,
                    co = s.channels / size.divide;
      Net::Value y = x;
      if (s.expand != 1) y = n.Conv(y, ci, hidden, 1, 1, 1, Act::kRelu6);
      if (s.channels == 160 && i == 0) {
        r.inner = y;
        r.inner_channels = hidden;
      }
      y = n.Conv(y, hidden, hidden, 3, stride, hidden, Act::kRelu6);
      y = n.Conv(y, hidden, co, 1, 1, 1, Act::kNone, 0.6F);
      x = stride == 1 && ci == co ? n.Add(x, y, Act::kNone) : y;
      ci = co;
    }
  }
  r.last_channels = 1280 / size.divide;
  r.last = n.Conv(x, ci, r.last_channels, 1, 1, 1, Act::kRelu6);
  return r;
}

TestModel Mobilenet(const std::string& name, Form form, const MobilenetSize& size, int64_t batch) {
  Net n(name, 13, form);
  const MobilenetValues v = MobilenetLayers(n, size, batch);
  n.Classifier(v.last, v.last_channels, size.classes);
  return n.Take();
}

// Boxes and classes (1x1 convolutions) of six pictures, each half as large as the one before; one
// sigmoid over all scores.
TestModel Ssd(const std::string& name, const MobilenetSize& size, int64_t batch) {
  Net n(name, 13, Form::kFloat);
  const MobilenetValues v = MobilenetLayers(n, size, batch);
  std::vector<std::string> boxes, scores;
  auto heads = [&](const Net::Value& x, int64_t ci, int64_t anchors) {
    for (const auto& [values, all] : {std::pair{int64_t{4}, &boxes}, {size.classes, &scores}}) {
      const Net::Value y = n.Conv(x, ci, anchors * values, 1, 1, 1, Act::kNone);
      const std::string last =
          n.Op("Transpose", {y.f}, [](TestModel::NodeWriter& w) { w.Ints("perm", {0, 2, 3, 1}); });
      all->push_back(n.Op("Reshape", {last, n.Ints({batch, -1, values})}));
    }
  };
  heads(v.inner, v.inner_channels, 3);
  heads(v.last, v.last_channels, 6);
  Net::Value x = v.last;
  int64_t ci = v.last_channels;
  for (const int64_t channels : {512, 256, 256, 128}) {
    const int64_t co = channels / size.divide;
    x = n.Conv(x, ci, co / 2, 1, 1, 1, Act::kRelu6);
    x = n.Conv(x, co / 2, co, 3, 2, 1, Act::kRelu6);
    heads(x, co, 6);
    ci = co;
  }
  auto joined = [](TestModel::NodeWriter& w) { w.Int("axis", 1); };
  n.Op("Concat", boxes, joined, "boxes");
  n.Op("Sigmoid", {n.Op("Concat", scores, joined)}, nullptr, "scores");
  n.model().Output("boxes").Output("scores");
  return n.Take();
}

struct BertSize {
  int64_t layers, sequence, hidden, heads, inner, vocabulary;
};

std::string EncoderLayer(Net& n, const std::string& x, const std::string& mask,
                         const BertSize& size, int64_t batch, bool dynamic, bool norm_operator) {
  const int64_t d = size.hidden, per_head = d / size.heads;
  const std::string split = n.Ints({batch, size.sequence, size.heads, per_head});
  auto permuted = [&](const std::string& v, const Shape& perm) {
    return n.Op("Transpose", {v}, [&](TestModel::NodeWriter& w) { w.Ints("perm", perm); });
  };
  auto projected = [&] { return n.Op("Reshape", {n.Linear(x, d, d, dynamic), split}); };
  const std::string q = permuted(projected(), {0, 2, 1, 3});
  const std::string k = permuted(projected(), {0, 2, 3, 1});
  const std::string v = permuted(projected(), {0, 2, 1, 3});
  std::string a = n.Op("MatMul", {q, k});
  a = n.Op("Div", {a, n.Number(std::sqrt(static_cast<float>(per_head)))});
  a = n.Op("Add", {a, mask});
  a = n.Op("Softmax", {a}, [](TestModel::NodeWriter& w) { w.Int("axis", -1); });
  std::string o = permuted(n.Op("MatMul", {a, v}), {0, 2, 1, 3});
  o = n.Op("Reshape", {o, n.Ints({batch, size.sequence, d})});
  const std::string y = n.LayerNorm(n.Op("Add", {n.Linear(o, d, d, dynamic), x}), d, norm_operator);
  const std::string h = n.Linear(y, d, size.inner, dynamic);
  const std::string erf = n.Op("Erf", {n.Op("Div", {h, n.Number(std::sqrt(2.0F))})});
  std::string gelu = n.Op("Mul", {h, n.Op("Add", {erf, n.Number(1)})});
  gelu = n.Op("Mul", {gelu, n.Number(0.5F)});
  return n.LayerNorm(n.Op("Add", {n.Linear(gelu, size.inner, d, dynamic), y}), d, norm_operator);
}

enum class BertForm { kDecomposed, kNormOperator, kDynamic };

TestModel BertLayer(const std::string& name, BertForm form, const BertSize& size, int64_t batch) {
  Net n(name, form == BertForm::kNormOperator ? 17 : 13, Form::kFloat);
  n.model().Input("hidden_states", {batch, size.sequence, size.hidden});
  n.model().Input("attention_bias", {batch, 1, 1, size.sequence});
  const std::string y = EncoderLayer(n, "hidden_states", "attention_bias", size, batch,
                                     form == BertForm::kDynamic, form == BertForm::kNormOperator);
  n.Op("Identity", {y}, nullptr, "last_hidden_state");
  n.model().Output("last_hidden_state");
  return n.Take();
}

TestModel Bert(const std::string& name, const BertSize& size, int64_t batch) {
  Net n(name, 13, Form::kFloat);
  const int64_t d = size.hidden;
  n.model().Input("input_ids", {batch, size.sequence}, DType::kI64);
  n.model().Input("attention_mask", {batch, size.sequence}, DType::kI64);
  const std::string words = n.Floats({size.vocabulary, d}, n.Draw(size.vocabulary * d, 0.5));
  std::string x =
      n.Op("Gather", {words, "input_ids"}, [](TestModel::NodeWriter& w) { w.Int("axis", 0); });
  const std::string places = n.Floats({1, size.sequence, d}, n.Draw(size.sequence * d, 0.5));
  x = n.LayerNorm(n.Op("Add", {x, places}), d, false);
  std::string mask = n.Op("Unsqueeze", {"attention_mask", n.Ints({1, 2})});
  mask = n.Op("Cast", {mask}, [](TestModel::NodeWriter& w) { w.Int("to", OnnxType(DType::kF32)); });
  mask = n.Op("Mul", {n.Op("Sub", {n.Number(1), mask}), n.Number(-10000)});
  for (int64_t i = 0; i < size.layers; ++i) x = EncoderLayer(n, x, mask, size, batch, false, false);
  std::string first = n.Op("Slice", {x, n.Ints({0}), n.Ints({1}), n.Ints({1})});
  first = n.Op("Squeeze", {first, n.Ints({1})});
  n.Op("Tanh", {n.Linear(first, d, d, false)}, nullptr, "pooled");
  n.model().Output("pooled");
  return n.Take();
}

const ResnetSize kResnet18 = {{2, 2, 2, 2}, false, 64, 224, 1000};
const ResnetSize kResnet50 = {{3, 4, 6, 3}, true, 64, 224, 1000};
const ResnetSize kTinyResnet18 = {{1, 1, 1}, false, 8, 48, 10};
const ResnetSize kTinyResnet50 = {{1, 2, 1}, true, 8, 48, 10};
const MobilenetSize kMobilenet = {224, 1, 1000};
const MobilenetSize kTinyMobilenet = {48, 4, 10};
const MobilenetSize kSsd = {300, 1, 24};
const MobilenetSize kTinySsd = {64, 4, 5};
const BertSize kBertLayer = {1, 128, 768, 12, 3072, 0};
const BertSize kTinyLayer = {1, 12, 32, 4, 64, 0};
const BertSize kBertBase = {12, 128, 768, 12, 3072, 30522};
const BertSize kBertTiny = {2, 64, 128, 2, 512, 1000};

using Maker = std::function<TestModel(const std::string& name, int64_t batch)>;

const std::map<std::string, Maker>& Makers() {
  auto resnet = [](const ResnetSize& size, Form form) -> Maker {
    return [=](const std::string& n, int64_t b) { return Resnet(n, form, size, b); };
  };
  auto mobilenet = [](const MobilenetSize& size, Form form) -> Maker {
    return [=](const std::string& n, int64_t b) { return Mobilenet(n, form, size, b); };
  };
  auto layer = [](const BertSize& size, BertForm form) -> Maker {
    return [=](const std::string& n, int64_t b) { return BertLayer(n, form, size, b); };
  };
  auto bert = [](const BertSize& size) -> Maker {
    return [=](const std::string& n, int64_t b) { return Bert(n, size, b); };
  };
  auto ssd = [](const MobilenetSize& size) -> Maker {
    return [=](const std::string& n, int64_t b) { return Ssd(n, size, b); };
  };
  static const std::map<std::string, Maker> makers = {
      {"resnet18", resnet(kResnet18, Form::kFloat)},
      {"resnet50", resnet(kResnet50, Form::kFloat)},
      {"resnet50_qdq", resnet(kResnet50, Form::kQdq)},
      {"resnet50_qop", resnet(kResnet50, Form::kQop)},
      {"mobilenetv2", mobilenet(kMobilenet, Form::kFloat)},
      {"mobilenetv2_qdq", mobilenet(kMobilenet, Form::kQdq)},
      {"ssd_300", ssd(kSsd)},
      {"bert_layer", layer(kBertLayer, BertForm::kDecomposed)},
      {"bert_layer_ln17", layer(kBertLayer, BertForm::kNormOperator)},
      {"bert_layer_dynq", layer(kBertLayer, BertForm::kDynamic)},
      {"bert_base", bert(kBertBase)},
      {"bert_tiny", bert(kBertTiny)},
      {"tiny_resnet18", resnet(kTinyResnet18, Form::kFloat)},
      {"tiny_resnet50", resnet(kTinyResnet50, Form::kFloat)},
      {"tiny_resnet50_qdq", resnet(kTinyResnet50, Form::kQdq)},
      {"tiny_resnet50_qop", resnet(kTinyResnet50, Form::kQop)},
      {"tiny_mobilenetv2", mobilenet(kTinyMobilenet, Form::kFloat)},
      {"tiny_mobilenetv2_qdq", mobilenet(kTinyMobilenet, Form::kQdq)},
      {"tiny_ssd", ssd(kTinySsd)},
      {"tiny_bert_layer", layer(kTinyLayer, BertForm::kDecomposed)},
      {"tiny_bert_layer_ln17", layer(kTinyLayer, BertForm::kNormOperator)},
      {"tiny_bert_layer_dynq", layer(kTinyLayer, BertForm::kDynamic)},
  };
  return makers;
}

}  // namespace

std::vector<std::string> GeneratedNames() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : Makers()) names.push_back(name);
  return names;
}

StatusOr<TestModel> Generate(const std::string& name, int64_t batch) {
  const auto it = Makers().find(name);
  if (it == Makers().end()) return NotFound("no generated network is called '{}'", name);
  if (batch < 1 || batch > 1024) return InvalidArgument("batch {} is not from 1 to 1024", batch);
  return it->second(name, batch);
}

}  // namespace whet::testing_support
