// Workloads of benchmarks by a short name, "KIND N...", f32:
//   gemm M N K            x[M,K] * constant[K,N]; `gemm_bias`, `gemm_relu`: with bias, and ReLU
//   bmm B M N K           x[B,M,K] * y[B,K,N]
//   conv IC OC H W K S P  batch 1, bias and ReLU, channels-last; an eighth number: groups, a ninth:
//   dilation depthwise C H W K S P the same, one group per channel, clipped to 0..6 maxpool,
//   avgpool C H W K S P     channels-last softmax M N           over the last axis; likewise
//   layernorm, rmsnorm gelu, relu, exp, tanh, sigmoid, erf M N add M N               x + y;
//   `add_relu` transpose M N sum, max M N          over the last axis;  `sum0`: over the first
#pragma once
#include <fmt/ranges.h>

#include <sstream>

#include "compiler/fusion/workload.h"
#include "compiler/ops/catalog.h"

namespace whet::bench {

inline StatusOr<fusion::Workload> CaseWorkload(const std::string& text) {
  std::istringstream in(text);
  std::string kind;
  in >> kind;
  std::vector<int64_t> n;
  for (int64_t v = 0; in >> v;) n.push_back(v);
  auto need = [&](size_t least, size_t most) -> Status {
    if (!in.eof() || n.size() < least || n.size() > most)
      return InvalidArgument("'{}': {} takes {} to {} numbers", text, kind, least, most);
    return OkStatus();
  };
  const std::string nhwc = "<(a, b, c, d) -> (a, c, d, b)>";
  std::vector<std::string> inputs, ops;
  std::string layout;
  auto f32 = [](const std::vector<int64_t>& shape) {
    return fmt::format("f32[{}]", fmt::join(shape, ","));
  };
  if (kind == "gemm" || kind == "gemm_bias" || kind == "gemm_relu") {
    WHET_RETURN_IF_ERROR(need(3, 3));
    inputs = {f32({n[0], n[2]}), "const " + f32({n[2], n[1]})};
    if (kind != "gemm") inputs.push_back("const " + f32({n[1]}));
    const int m = static_cast<int>(inputs.size());
    ops = {"MatMul.1(0, 1)"};
    if (kind != "gemm") ops.push_back("Add.1(2, 3)");
    if (kind == "gemm_relu") ops.push_back(fmt::format("Relu.1({})", m + 1));
  } else if (kind == "bmm") {
    WHET_RETURN_IF_ERROR(need(4, 4));
    inputs = {f32({n[0], n[1], n[3]}), f32({n[0], n[3], n[2]})};
    ops = {"MatMul.1(0, 1)"};
  } else if (kind == "conv" || kind == "depthwise") {
    const bool depthwise = kind == "depthwise";
    WHET_RETURN_IF_ERROR(depthwise ? need(6, 6) : need(7, 9));
    if (depthwise) n.insert(n.begin(), n[0]);
    const int64_t group = depthwise ? n[0] : n.size() > 7 ? n[7] : 1, d = n.size() > 8 ? n[8] : 1;
    inputs = {f32({1, n[0], n[2], n[3]}) + nhwc, "const " + f32({n[1], n[0] / group, n[4], n[4]}),
              "const " + f32({n[1]})};
    ops = {fmt::format("Conv.1(0, 1, 2) {{dilations=[{3},{3}], group={0}, pads=[{1},{1},{1},{1}], "
                       "strides=[{2},{2}]}}",
                       group, n[6], n[5], d),
           depthwise ? "Clip.1(3) {max=6.0, min=0.0}" : "Relu.1(3)"};
    layout = nhwc;
  } else if (kind == "maxpool" || kind == "avgpool") {
    WHET_RETURN_IF_ERROR(need(6, 6));
    inputs = {f32({1, n[0], n[1], n[2]}) + nhwc};
    ops = {fmt::format("{0}.1(0) {{kernel=[{1},{1}], pads=[{2},{2},{2},{2}], strides=[{3},{3}]}}",
                       kind == "maxpool" ? "MaxPool" : "AveragePool", n[3], n[5], n[4])};
    layout = nhwc;
  } else {
    WHET_RETURN_IF_ERROR(need(2, 2));
    inputs = {f32({n[0], n[1]})};
    if (kind == "softmax") {
      ops = {"Softmax.1(0) {axis=1}"};
    } else if (kind == "layernorm" || kind == "rmsnorm") {
      inputs.push_back("const " + f32({n[1]}));
      if (kind == "layernorm") inputs.push_back("const " + f32({n[1]}));
      ops.emplace_back(kind == "layernorm" ? "LayerNormalization.1(0, 1, 2) {axes=[1]}"
                                           : "RMSNormalization.1(0, 1) {axes=[1]}");
    } else if (kind == "add" || kind == "add_relu") {
      inputs.push_back(inputs[0]);
      ops = {"Add.1(0, 1)"};
      if (kind == "add_relu") ops.push_back("Relu.1(2)");
    } else if (kind == "transpose") {
      ops = {"Transpose.1(0) {perm=[1,0]}"};
    } else if (kind == "sum" || kind == "max" || kind == "sum0") {
      ops = {fmt::format("{}.1(0) {{axes=[{}], keepdims=0}}",
                         kind == "max" ? "ReduceMax" : "ReduceSum", kind == "sum0" ? 0 : 1)};
    } else if (kind == "gelu") {
      ops = {"Gelu.1(0) {approximate=\"none\"}"};
    } else {
      ops = {kind};
      ops[0][0] = static_cast<char>(std::toupper(ops[0][0]));
      ops[0] += ".1(0)";
    }
  }
  std::string workload = "whet-workload 1\n";
  for (const std::string& i : inputs) workload += "input " + i + "\n";
  for (const std::string& op : ops) workload += "op " + op + "\n";
  const size_t result = inputs.size() + ops.size() - 1;
  // Inference says what the output's type is: the parser wants it spelled out.
  auto probe =
      fusion::Workload::Parse(workload + fmt::format("output {} f32[]\n", result), ops::Catalog());
  const std::string message = Message(probe.status()),
                    marker = fmt::format("output {} is ", result);
  const size_t at = message.find(marker);
  if (at == std::string::npos) return probe.status();
  const size_t begin = at + marker.size();
  const std::string type = message.substr(begin, message.find(", not ", begin) - begin);
  return fusion::Workload::Parse(workload + fmt::format("output {} {}{}\n", result, type, layout),
                                 ops::Catalog());
}

}  // namespace whet::bench
