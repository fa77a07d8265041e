#include "tests/bench/suites.h"

#include <fmt/format.h>

#include <algorithm>

namespace whet::bench {
namespace {

using List = std::vector<std::string>;

std::string Conv(int ic, int oc, int h, int k, int s, int p) {
  return fmt::format("conv {} {} {} {} {} {} {}", ic, oc, h, h, k, s, p);
}

// ResNet-50 as it is trained today, strides on the 3x3, batch norms folded.
List ResNet50() {
  List all = {Conv(3, 64, 224, 7, 2, 3)};
  int in = 64, size = 56;
  const std::pair<int, int> stages[] = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (const auto& [width, blocks] : stages) {
    for (int b = 0; b < blocks; ++b) {
      const int stride = b == 0 && width > 64 ? 2 : 1, out = size / stride;
      all.push_back(Conv(in, width, size, 1, 1, 0));
      all.push_back(Conv(width, width, size, 3, stride, 1));
      all.push_back(Conv(width, 4 * width, out, 1, 1, 0));
      if (b == 0) all.push_back(Conv(in, 4 * width, size, 1, stride, 0));
      in = 4 * width;
      size = out;
    }
  }
  return all;
}

List MobileNetV2() {
  List all = {Conv(3, 32, 224, 3, 2, 1)};
  struct Stage {
    int expand, channels, blocks, stride;
  };
  int in = 32, size = 112;
  for (const Stage& s :
       {Stage{1, 16, 1, 1}, Stage{6, 24, 2, 2}, Stage{6, 32, 3, 2}, Stage{6, 64, 4, 2},
        Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2}, Stage{6, 320, 1, 1}}) {
    for (int b = 0; b < s.blocks; ++b) {
      const int stride = b == 0 ? s.stride : 1, inner = in * s.expand;
      if (s.expand > 1) all.push_back(Conv(in, inner, size, 1, 1, 0));
      all.push_back(fmt::format("depthwise {} {} {} 3 {} 1", inner, size, size, stride));
      size /= stride;
      all.push_back(Conv(inner, s.channels, size, 1, 1, 0));
      in = s.channels;
    }
  }
  all.push_back(Conv(320, 1280, 7, 1, 1, 0));
  return all;
}

// Each once, in the order of the first.
template <typename F>
List Distinct(const List& all, F&& wanted) {
  List some;
  for (const std::string& c : all) {
    if (wanted(c) && std::find(some.begin(), some.end(), c) == some.end()) some.push_back(c);
  }
  return some;
}

List Field() {
  List all = {"conv1d 64 128 256 3 2 1", "conv1d 128 256 128 1 2 0", "conv1d 256 256 64 5 1 2",
              "conv1d 512 512 32 3 1 1"};
  // C2D, and the same dilated. C3D as the importer makes it: depths are images of a batch, those
  // under the window side by side as channels.
  const List planes = {"3 64 224 224 7 2 3", "64 64 56 56 1 1 0", "256 256 14 14 3 1 1",
                       "512 512 7 7 3 1 1"};
  for (const auto& c : planes) all.push_back("conv " + c);
  for (const auto& c : planes) all.push_back("conv " + c + " 1 2");
  for (const char* c : {"convs 8 21 64 224 224 7 2 3", "convs 16 64 64 56 56 1 1 0",
                        "convs 14 768 256 14 14 3 1 1", "convs 7 1536 512 7 7 3 1 1"})
    all.emplace_back(c);
  for (const char* c :
       {"gemm 128 128 128", "gemm 512 32 512", "gemm 512 512 512", "gemm 1024 1024 1024"})
    all.emplace_back(c);
  for (const char* c : {"conv 64 128 56 56 3 2 1 4", "conv 64 64 56 56 1 1 0 4",
                        "conv 256 256 14 14 3 1 1 4", "conv 512 512 7 7 3 1 1 4"})
    all.emplace_back(c);
  for (const char* c : {"depthwise 32 112 112 3 1 1", "depthwise 64 112 112 3 2 1",
                        "depthwise 512 14 14 3 2 1", "depthwise 1024 7 7 3 1 1"})
    all.emplace_back(c);
  // CAP: products of 4 x 4 capsules, whose rows are a batch and whose inner index joins the
  // channels.
  for (const char* c : {"convs 4 128 128 16 16 3 2 1", "convs 4 128 128 8 8 3 1 1",
                        "convs 4 32 64 16 16 3 2 1", "convs 4 64 64 8 8 3 1 1"})
    all.emplace_back(c);
  for (const char* c :
       {"norm 256 256", "norm 512 512", "norm 1024 1024", "norm 4096 1024", "softmax 256 256",
        "softmax 512 512", "softmax 1024 1024", "softmax 2048 2048"})
    all.emplace_back(c);
  for (const char* c : {"conv 64 128 56 56 3 2 1", "conv 128 256 28 28 1 2 0", "tbg 1 128 12 64",
                        "tbg 1 128 16 64", "tbg 1 64 12 128", "tbg 1 128 12 128"})
    all.emplace_back(c);
  return all;
}

bool Depthwise(const std::string& c) { return c.starts_with("depthwise "); }

}  // namespace

const std::vector<std::string>& SuiteNames() {
  static const List all = {"gemm",  "conv",  "depthwise", "pointwise", "misc",
                           "field", "chain", "networks",  "scaling"};
  return all;
}

std::string AboutSuite(const std::string& suite) {
  if (suite == "gemm") return "matrix products, weights packed beforehand; batched; one row";
  if (suite == "conv") return "the distinct convolutions of ResNet-50 with bias and ReLU";
  if (suite == "depthwise") return "the distinct depthwise convolutions of MobileNetV2";
  if (suite == "pointwise") return "its 1x1 convolutions and its first one";
  if (suite == "misc") return "softmax, GELU, layer norm, pools, element-wise, transposes";
  if (suite == "field") return "the operators that tuners are usually compared on";
  if (suite == "chain") return "all convolutions of a network in sequence, own weights each";
  if (suite == "networks") return "whole networks beside onnxruntime";
  if (suite == "scaling") return "ResNet-50 and BERT on one and on two threads";
  return "";
}

std::vector<std::string> CasesOf(const std::string& suite) {
  if (suite == "gemm") {
    return {"gemm 512 512 512",  "gemm 1024 1024 1024", "gemm 2048 2048 2048", "gemm 128 3072 768",
            "gemm 128 768 3072", "gemm 128 768 768",    "gemm 1 1000 2048",    "gemm 1 4096 4096",
            "bmm 12 128 128 64", "bmm 12 128 64 128"};
  }
  if (suite == "conv") return Distinct(ResNet50(), [](const std::string&) { return true; });
  if (suite == "depthwise") return Distinct(MobileNetV2(), Depthwise);
  if (suite == "pointwise")
    return Distinct(MobileNetV2(), [](const std::string& c) { return !Depthwise(c); });
  if (suite == "misc") {
    return {"softmax 1536 128",       "gelu 128 3072",
            "layernorm 128 768",      "maxpool 64 112 112 3 2 1",
            "avgpool 2048 7 7 7 1 0", "relu 3136 256",
            "add 3136 256",           "add_relu 3136 256",
            "hardswish 784 240",      "sigmoid 128 3072",
            "sum 3136 256",           "sum0 3136 256",
            "transpose 128 768",      "transpose 512 512"};
  }
  if (suite == "field") return Field();
  return {};
}

std::vector<ChainOf> Chains() { return {{"resnet50", ResNet50()}, {"mobilenetv2", MobileNetV2()}}; }

}  // namespace whet::bench
