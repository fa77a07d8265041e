#include <fmt/format.h>

#include "compiler/support/status.h"
#include "tests/support/test_model.h"

namespace whet::testing_support {
namespace {

class BlazeFaceWriter {
 public:
  explicit BlazeFaceWriter(int64_t size) : m_(12, "blazeface_like"), size_(size) {}

  TestModel Run() {
    m_.Input("input", {1, size_, size_, 3});
    m_.Node("Transpose", {"input"}, {"image"}).Ints("perm", {0, 3, 1, 2});
    std::string x = Conv("stem", "image", 3, 8, 5, 2, {1, 1, 2, 2}, 1);
    x = Relu("stem", x);
    size_ /= 2;
    x = Block("a", x, 8, 8, 1);
    x = Block("b", x, 8, 12, 1);
    x = Block("c", x, 12, 16, 2);
    const std::string large = Block("d", x, 16, 16, 1);
    const int64_t large_size = size_;
    const std::string small = Block("e", large, 16, 24, 2);
    Head("scores", {large, small}, {large_size, size_}, {16, 24}, {2, 6}, 1);
    Head("boxes", {large, small}, {large_size, size_}, {16, 24}, {2, 6}, 4);
    return std::move(m_);
  }

 private:
  std::string Conv(const std::string& name, const std::string& x, int64_t ic, int64_t oc, int64_t k,
                   int64_t stride, std::vector<int64_t> pads, int64_t group) {
    m_.Weights(name + "_w", {oc, ic / group, k, k}).Weights(name + "_b", {oc});
    m_.Node("Conv", {x, name + "_w", name + "_b"}, {name})
        .Ints("kernel_shape", {k, k})
        .Ints("strides", {stride, stride})
        .Ints("pads", std::move(pads))
        .Int("group", group);
    return name;
  }

  std::string Relu(const std::string& name, const std::string& x) {
    m_.Node("Relu", {x}, {name + "_relu"});
    return name + "_relu";
  }

  // relu(pointwise(depthwise(x)) + shortcut(x))
  std::string Block(const std::string& name, const std::string& x, int64_t ic, int64_t oc,
                    int64_t stride) {
    std::vector<int64_t> pads =
        stride == 1 ? std::vector<int64_t>{1, 1, 1, 1} : std::vector<int64_t>{0, 0, 1, 1};
    std::string y = Conv(name + "_dw", x, ic, ic, 3, stride, std::move(pads), ic);
    y = Conv(name + "_pw", y, ic, oc, 1, 1, {0, 0, 0, 0}, 1);
    std::string shortcut = x;
    if (stride == 2) {
      size_ /= 2;
      m_.Node("MaxPool", {shortcut}, {name + "_pool"})
          .Ints("kernel_shape", {2, 2})
          .Ints("strides", {2, 2});
      shortcut = name + "_pool";
    }
    if (oc > ic) {
      m_.Ints(name + "_zeros_shape", {1, oc - ic, size_, size_});
      m_.Node("ConstantOfShape", {name + "_zeros_shape"}, {name + "_zeros"});
      m_.Node("Concat", {shortcut, name + "_zeros"}, {name + "_channels"}).Int("axis", 1);
      shortcut = name + "_channels";
    }
    m_.Node("Add", {y, shortcut}, {name + "_sum"});
    return Relu(name, name + "_sum");
  }

  // One convolution per feature map, each turned to channels last and flattened to [1, anchors,
  // per_anchor].
  void Head(const std::string& name, const std::vector<std::string>& features,
            const std::vector<int64_t>& sizes, const std::vector<int64_t>& channels,
            const std::vector<int64_t>& per_cell, int64_t per_anchor) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < features.size(); ++i) {
      const std::string part = fmt::format("{}_{}", name, i);
      Conv(part + "_conv", features[i], channels[i], per_cell[i] * per_anchor, 1, 1, {0, 0, 0, 0},
           1);
      m_.Node("Transpose", {part + "_conv"}, {part + "_last"}).Ints("perm", {0, 2, 3, 1});
      m_.Ints(part + "_shape", {1, sizes[i] * sizes[i] * per_cell[i], per_anchor});
      m_.Node("Reshape", {part + "_last", part + "_shape"}, {part});
      parts.push_back(part);
    }
    m_.Node("Concat", parts, {name}).Int("axis", 1);
    m_.Output(name);
  }

  TestModel m_;
  int64_t size_;
};

}  // namespace

TestModel BlazeFaceLike(int64_t size) {
  WHET_CHECK(size > 0 && size % 8 == 0, "size {}", size);
  return BlazeFaceWriter(size).Run();
}

TestModel TinyClassifier(int64_t size, int64_t classes) {
  TestModel m(13, "tiny_classifier");
  m.Input("x", {1, 3, size, size});
  m.Weights("w1", {8, 3, 3, 3});
  m.Node("Conv", {"x", "w1"}, {"conv"}).Ints("kernel_shape", {3, 3}).Ints("pads", {1, 1, 1, 1});
  const std::vector<double> ones(8, 1.0), mean(8, 0.125), variance(8, 0.75), shift(8, 0.25);
  m.Constant("scale", DType::kF32, {8}, ones).Constant("shift", DType::kF32, {8}, shift);
  m.Constant("mean", DType::kF32, {8}, mean).Constant("variance", DType::kF32, {8}, variance);
  m.Node("BatchNormalization", {"conv", "scale", "shift", "mean", "variance"}, {"norm"});
  m.Node("Relu", {"norm"}, {"relu"});
  m.Node("MaxPool", {"relu"}, {"pool"}).Ints("kernel_shape", {2, 2}).Ints("strides", {2, 2});
  m.Weights("w2", {8, 1, 3, 3}).Weights("b2", {8});
  m.Node("Conv", {"pool", "w2", "b2"}, {"dw"})
      .Ints("kernel_shape", {3, 3})
      .Ints("pads", {1, 1, 1, 1})
      .Int("group", 8);
  m.Node("GlobalAveragePool", {"dw"}, {"mean_pool"});
  m.Node("Flatten", {"mean_pool"}, {"flat"});
  m.Weights("w3", {classes, 8}).Weights("b3", {classes});
  m.Node("Gemm", {"flat", "w3", "b3"}, {"logits"}).Int("transB", 1);
  m.Node("Softmax", {"logits"}, {"probabilities"}).Int("axis", 1);
  m.Output("probabilities");
  return m;
}

TestModel TwoConvolutions() {
  TestModel m(13);
  m.Input("x", {1, 24, 10, 10}).Weights("w", {40, 24, 3, 3}).Weights("v", {24, 40, 1, 1});
  m.Node("Conv", {"x", "w"}, {"c"}).Ints("pads", {1, 1, 1, 1});
  m.Node("Relu", {"c"}, {"r"});
  m.Node("Conv", {"r", "v"}, {"y"});
  m.Output("y");
  return m;
}

}  // namespace whet::testing_support
