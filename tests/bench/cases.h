// Workloads of benchmarks by a short name, "KIND N...", f32:
//   gemm M N K              x[M,K] * constant[K,N]; `gemm_bias`, `gemm_relu`: with bias, and ReLU
//   bmm B M N K             x[B,M,K] * y[B,K,N]
//   tbg B S H D             the same of B images with H heads, S x D each, as an attention has
//   them:
//                           heads side by side in memory, the second operand transposed
//   conv IC OC H W K S P    batch 1, bias and ReLU, channels-last; an eighth number: groups, a
//   ninth:
//                           dilation; `conv_add_relu`: with a second image added before the ReLU
//   convs N IC OC H W K S P a batch of N
//   conv1d IC OC L K S P    along one axis
//   depthwise C H W K S P   the same, one group per channel, clipped to 0..6
//   maxpool, avgpool C H W K S P          channels-last
//   softmax M N             over the last axis; likewise layernorm, rmsnorm, norm (the root of the
//                           sum of squares)
//   gelu, relu, exp, tanh, sigmoid, erf, hardswish M N
//   add M N                 x + y; `add_relu`
//   transpose M N
//   sum, max M N            over the last axis;  `sum0`: over the first
#pragma once
#include <fmt/ranges.h>

#include <optional>
#include <sstream>

#include "compiler/fusion/workload.h"
#include "compiler/ops/catalog.h"

namespace whet::bench {

struct Case {
  std::string text, kind;
  std::vector<int64_t> n;
};

inline StatusOr<Case> ParseCase(const std::string& text) {
  Case c;
  c.text = text;
  std::istringstream in(text);
  in >> c.kind;
  for (int64_t v = 0; in >> v;) c.n.push_back(v);
  if (!in.eof() || c.kind.empty()) return InvalidArgument("'{}' is not a kind and numbers", text);
  return c;
}

// What the convolutions have in common.
struct ConvCase {
  int64_t batch = 1, ic = 0, oc = 0, h = 0, w = 0, kh = 0, kw = 0, s = 1, ph = 0, pw = 0, group = 1,
          dilation = 1;
  bool residual = false;
  double most = 0;  // of the result; 0: ReLU alone
  int64_t oh() const { return (h + 2 * ph - dilation * (kh - 1) - 1) / sh() + 1; }
  int64_t ow() const { return (w + 2 * pw - dilation * (kw - 1) - 1) / s + 1; }
  int64_t sh() const { return h == 1 ? 1 : s; }
};

inline std::optional<ConvCase> ConvOf(const Case& c) {
  const std::vector<int64_t>& n = c.n;
  ConvCase v;
  if ((c.kind == "conv" || c.kind == "conv_add_relu") && n.size() >= 7 && n.size() <= 9) {
    v = {1, n[0], n[1], n[2], n[3], n[4], n[4], n[5], n[6], n[6]};
    if (n.size() > 7) v.group = n[7];
    if (n.size() > 8) v.dilation = n[8];
    v.residual = c.kind == "conv_add_relu";
  } else if (c.kind == "convs" && n.size() == 8) {
    v = {n[0], n[1], n[2], n[3], n[4], n[5], n[5], n[6], n[7], n[7]};
  } else if (c.kind == "conv1d" && n.size() == 6) {
    v = {1, n[0], n[1], 1, n[2], 1, n[3], n[4], 0, n[5]};
  } else if (c.kind == "depthwise" && n.size() == 6) {
    v = {1, n[0], n[0], n[1], n[2], n[3], n[3], n[4], n[5], n[5], n[0]};
    v.most = 6;
  } else {
    return std::nullopt;
  }
  return v;
}

inline StatusOr<fusion::Workload> CaseWorkload(const std::string& text) {
  WHET_ASSIGN_OR_RETURN(const Case parsed, ParseCase(text));
  const std::string& kind = parsed.kind;
  const std::vector<int64_t>& n = parsed.n;
  auto need = [&](size_t least, size_t most) -> Status {
    if (n.size() < least || n.size() > most)
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
  } else if (kind == "tbg") {
    WHET_RETURN_IF_ERROR(need(4, 4));
    inputs = {f32({n[0], n[2], n[1], n[3]}) + "<(a, b, c, d) -> (a, c, b, d)>",
              f32({n[0], n[2], n[3], n[1]}) + "<(a, b, c, d) -> (a, d, b, c)>"};
    ops = {"MatMul.1(0, 1)"};
  } else if (const auto c = ConvOf(parsed)) {
    inputs = {f32({c->batch, c->ic, c->h, c->w}) + nhwc,
              "const " + f32({c->oc, c->ic / c->group, c->kh, c->kw}), "const " + f32({c->oc})};
    if (c->residual) inputs.push_back(f32({c->batch, c->oc, c->oh(), c->ow()}) + nhwc);
    ops = {
        fmt::format("Conv.1(0, 1, 2) {{dilations=[{0},{0}], group={1}, pads=[{2},{3},{2},{3}], "
                    "strides=[{4},{5}]}}",
                    c->dilation, c->group, c->ph, c->pw, c->sh(), c->s)};
    int last = static_cast<int>(inputs.size());
    if (c->residual) ops.push_back(fmt::format("Add.1({}, 3)", last++));
    ops.push_back(c->most > 0 ? fmt::format("Clip.1({}) {{max={:.1f}, min=0.0}}", last, c->most)
                              : fmt::format("Relu.1({})", last));
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
    } else if (kind == "norm") {
      ops = {"Mul.1(0, 0)", "ReduceSum.1(1) {axes=[1], keepdims=0}", "Sqrt.1(2)"};
    } else if (kind == "gelu") {
      ops = {"Gelu.1(0) {approximate=\"none\"}"};
    } else if (kind == "hardswish") {
      ops = {"HardSwish.1(0)"};
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
