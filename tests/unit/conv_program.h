// The small convolution that several tests schedule: out = relu(conv(pad(x), w) + b + r), NHWC
// physically.
#pragma once
#include "compiler/loop/loop.h"

namespace whet::testing_support {

struct ConvShape {
  int64_t ic, oc, h, w, k, stride, pad, groups = 1, n = 1;
};

inline loop::Program ConvProgram(const ConvShape& c) {
  using expr::Expr;
  te::Builder b;
  auto x = b.Input("x", DType::kF32, {c.n, c.ic, c.h, c.w}, false);
  auto w = b.Input("w", DType::kF32, {c.oc, c.ic / c.groups, c.k, c.k}, true);
  auto bias = b.Input("b", DType::kF32, {c.oc}, true);
  const int64_t oh = (c.h + 2 * c.pad - c.k) / c.stride + 1,
                ow = (c.w + 2 * c.pad - c.k) / c.stride + 1;
  auto res = b.Input("r", DType::kF32, {c.n, c.oc, oh, ow}, false);
  auto inside = [&](const Expr& i, int64_t n) {
    return expr::And(expr::Le(expr::Int(c.pad), i), expr::Lt(i, expr::Int(n + c.pad)));
  };
  auto padded = b.Compute(
      "pad", DType::kF32, {{"n", c.n}, {"c", c.ic}, {"h", c.h + 2 * c.pad}, {"w", c.w + 2 * c.pad}},
      [&](const std::vector<Expr>& i) {
        return expr::Select(expr::And(inside(i[2], c.h), inside(i[3], c.w)),
                            expr::Load(x, {i[0], i[1], i[2] - c.pad, i[3] - c.pad}),
                            expr::Float(0));
      });
  auto conv = b.Reduce(
      "conv", DType::kF32, {{"n", c.n}, {"oc", c.oc}, {"oh", oh}, {"ow", ow}},
      {{"ic", c.ic / c.groups}, {"kh", c.k}, {"kw", c.k}}, te::Reducer::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        const Expr channel =
            c.groups == 1 ? r[0] : expr::FloorDiv(i[1], c.oc / c.groups) * (c.ic / c.groups) + r[0];
        return expr::Load(padded, {i[0], channel, i[2] * c.stride + r[1], i[3] * c.stride + r[2]}) *
               expr::Load(w, {i[1], r[0], r[1], r[2]});
      });
  auto biased = b.Compute(
      "bias", DType::kF32, {{"n", c.n}, {"oc", c.oc}, {"oh", oh}, {"ow", ow}},
      [&](const std::vector<Expr>& i) { return expr::Load(conv, i) + expr::Load(bias, {i[1]}); });
  auto out =
      b.Compute("out", DType::kF32, {{"n", c.n}, {"oc", c.oc}, {"oh", oh}, {"ow", ow}},
                [&](const std::vector<Expr>& i) {
                  return expr::Max(expr::Load(biased, i) + expr::Load(res, i), expr::Float(0));
                });
  const auto nhwc = expr::IndexMap::Permutation({0, 2, 3, 1});
  auto p =
      loop::FromTe("conv", b.Finish({out}),
                   {nhwc, expr::IndexMap::Identity(4), expr::IndexMap::Identity(1), nhwc}, {nhwc});
  WHET_CHECK(p.ok());
  return *p;
}

// A direct convolution's schedule with an ow_tile x oc_tile register tile.
inline std::vector<std::vector<std::string>> DirectConvSteps(int64_t ow_tile, int64_t oc_tile,
                                                             int64_t lanes, bool unroll_kw) {
  const std::string ow = std::to_string(ow_tile), oc = std::to_string(oc_tile),
                    v = std::to_string(lanes);
  std::vector<std::vector<std::string>> steps = {
      {"inline", "bias"},
      {"inline", "pad"},
      {"cache_read", "conv", "w", "global", "wp"},
      {"pad", "wp", "d0", oc},
      {"transform_layout", "wp", "(o, i, y, x) -> (o // " + oc + ", y, x, i, o % " + oc + ")"},
      {"pad", "conv", "oc", oc},
      {"set_scope", "conv", "register"},
      {"transform_layout", "conv", "(n, c, h, w) -> (n, h, w, c)"},
      {"split", "conv.ow", ow, "ow.o", "ow.i"},
      {"split", "conv.oc", oc, "oc.o", "oc.i"},
      {"split", "oc.i", v, "oc.u", "oc.v"},
      {"reorder", "conv.n", "conv.oh", "oc.o", "ow.o", "conv.kh", "conv.kw", "conv.ic", "ow.i",
       "oc.u", "oc.v"},
      {"vectorize", "oc.v"},
      {"unroll", "oc.u"},
      {"unroll", "ow.i"}};
  if (unroll_kw) steps.push_back({"unroll", "conv.kw"});
  for (const std::vector<std::string>& s :
       std::vector<std::vector<std::string>>{{"decompose_reduction", "conv", "conv.kh"},
                                             {"reverse_compute_at", "out", "ow.o"},
                                             {"split", "out.oc", v, "out.oc.o", "out.oc.i"},
                                             {"reorder", "out.ow", "out.oc.o", "out.oc.i"},
                                             {"vectorize", "out.oc.i"},
                                             {"unroll", "out.oc.o"},
                                             {"unroll", "out.ow"},
                                             {"annotate", "ow.o", "partition", "1"},
                                             {"fuse", "conv.n", "conv.oh", "n_oh"},
                                             {"parallel", "n_oh"}}) {
    steps.push_back(s);
  }
  return steps;
}

}  // namespace whet::testing_support
