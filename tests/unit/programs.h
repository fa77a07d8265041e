// Small workloads of each operator class, as programs, for tests of rules and code generation.
#pragma once
#include "tests/unit/conv_program.h"

namespace whet::testing_support {

// A depthwise convolution of `c.ic` channels, as DepthwiseProgram has it, and a pointwise one of
// its result; with a bias and an activation on the way, or without.
inline loop::Program DepthwisePointwiseProgram(const ConvShape& c, bool between) {
  using expr::Expr;
  te::Builder b;
  auto x = b.Input("x", DType::kF32, {1, c.ic, c.h, c.w}, false);
  auto w = b.Input("w", DType::kF32, {c.ic, 1, c.k, c.k}, true);
  auto bias = b.Input("b", DType::kF32, {c.ic}, true);
  auto mix = b.Input("mix", DType::kF32, {c.oc, c.ic, 1, 1}, true);
  const int64_t oh = (c.h + 2 * c.pad - c.k) / c.stride + 1,
                ow = (c.w + 2 * c.pad - c.k) / c.stride + 1;
  auto inside = [&](const Expr& i, int64_t n) {
    return expr::And(expr::Le(expr::Int(c.pad), i), expr::Lt(i, expr::Int(n + c.pad)));
  };
  auto padded = b.Compute(
      "pad", DType::kF32, {{"n", 1}, {"c", c.ic}, {"h", c.h + 2 * c.pad}, {"w", c.w + 2 * c.pad}},
      [&](const std::vector<Expr>& i) {
        return expr::Select(expr::And(inside(i[2], c.h), inside(i[3], c.w)),
                            expr::Load(x, {i[0], i[1], i[2] - c.pad, i[3] - c.pad}),
                            expr::Float(0));
      });
  auto made = b.Reduce(
      "dwconv", DType::kF32, {{"n", 1}, {"c", c.ic}, {"oh", oh}, {"ow", ow}},
      {{"kh", c.k}, {"kw", c.k}}, te::Reducer::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        return expr::Load(padded, {i[0], i[1], i[2] * c.stride + r[0], i[3] * c.stride + r[1]}) *
               expr::Load(w, {i[1], expr::Int(0), r[0], r[1]});
      });
  if (between) {
    made = b.Compute("act", DType::kF32, {{"n", 1}, {"c", c.ic}, {"oh", oh}, {"ow", ow}},
                     [&](const std::vector<Expr>& i) {
                       return expr::Max(expr::Load(made, i) + expr::Load(bias, {i[1]}),
                                        expr::Float(0));
                     });
  }
  auto sum = b.Reduce("conv", DType::kF32, {{"n", 1}, {"oc", c.oc}, {"oh", oh}, {"ow", ow}},
                      {{"ic", c.ic}, {"kh", 1}, {"kw", 1}}, te::Reducer::kSum,
                      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                        return expr::Load(made, {i[0], r[0], i[2] + r[1], i[3] + r[2]}) *
                               expr::Load(mix, {i[1], r[0], r[1], r[2]});
                      });
  auto out =
      b.Compute("out", DType::kF32, {{"n", 1}, {"oc", c.oc}, {"oh", oh}, {"ow", ow}},
                [&](const std::vector<Expr>& i) { return expr::Load(sum, i) + expr::Float(1); });
  const auto nhwc = expr::IndexMap::Permutation({0, 2, 3, 1});
  const auto plain = expr::IndexMap::Identity(4);
  auto p = loop::FromTe("dwpw", b.Finish({out}), {nhwc, plain, expr::IndexMap::Identity(1), plain},
                        {nhwc});
  WHET_CHECK(p.ok());
  return *p;
}

inline loop::Program DepthwiseProgram(const ConvShape& c, bool relu) {
  using expr::Expr;
  te::Builder b;
  auto x = b.Input("x", DType::kF32, {1, c.oc, c.h, c.w}, false);
  auto w = b.Input("w", DType::kF32, {c.oc, 1, c.k, c.k}, true);
  auto bias = b.Input("b", DType::kF32, {c.oc}, true);
  const int64_t oh = (c.h + 2 * c.pad - c.k) / c.stride + 1,
                ow = (c.w + 2 * c.pad - c.k) / c.stride + 1;
  auto inside = [&](const Expr& i, int64_t n) {
    return expr::And(expr::Le(expr::Int(c.pad), i), expr::Lt(i, expr::Int(n + c.pad)));
  };
  auto padded = b.Compute(
      "pad", DType::kF32, {{"n", 1}, {"c", c.oc}, {"h", c.h + 2 * c.pad}, {"w", c.w + 2 * c.pad}},
      [&](const std::vector<Expr>& i) {
        return expr::Select(expr::And(inside(i[2], c.h), inside(i[3], c.w)),
                            expr::Load(x, {i[0], i[1], i[2] - c.pad, i[3] - c.pad}),
                            expr::Float(0));
      });
  auto conv = b.Reduce(
      "dwconv", DType::kF32, {{"n", 1}, {"c", c.oc}, {"oh", oh}, {"ow", ow}},
      {{"kh", c.k}, {"kw", c.k}}, te::Reducer::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        return expr::Load(padded, {i[0], i[1], i[2] * c.stride + r[0], i[3] * c.stride + r[1]}) *
               expr::Load(w, {i[1], expr::Int(0), r[0], r[1]});
      });
  auto out = b.Compute("out", DType::kF32, {{"n", 1}, {"c", c.oc}, {"oh", oh}, {"ow", ow}},
                       [&](const std::vector<Expr>& i) {
                         Expr v = expr::Load(conv, i) + expr::Load(bias, {i[1]});
                         return relu ? expr::Max(v, expr::Float(0)) : v;
                       });
  const auto nhwc = expr::IndexMap::Permutation({0, 2, 3, 1});
  auto p = loop::FromTe("dw", b.Finish({out}),
                        {nhwc, expr::IndexMap::Identity(4), expr::IndexMap::Identity(1)}, {nhwc});
  WHET_CHECK(p.ok());
  return *p;
}

inline loop::Program MaxPoolProgram(const ConvShape& c) {
  using expr::Expr;
  te::Builder b;
  auto x = b.Input("x", DType::kF32, {1, c.oc, c.h, c.w}, false);
  const int64_t oh = (c.h - c.k) / c.stride + 1, ow = (c.w - c.k) / c.stride + 1;
  auto out =
      b.Reduce("out", DType::kF32, {{"n", 1}, {"c", c.oc}, {"oh", oh}, {"ow", ow}},
               {{"kh", c.k}, {"kw", c.k}}, te::Reducer::kMax,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 return expr::Load(x, {i[0], i[1], i[2] * c.stride + r[0], i[3] * c.stride + r[1]});
               });
  const auto nhwc = expr::IndexMap::Permutation({0, 2, 3, 1});
  auto p = loop::FromTe("pool", b.Finish({out}), {nhwc}, {nhwc});
  WHET_CHECK(p.ok());
  return *p;
}

inline loop::Program MatmulProgram(int64_t m, int64_t n, int64_t k, bool constant_b) {
  using expr::Expr;
  te::Builder b;
  auto x = b.Input("x", DType::kF32, {m, k}, false);
  auto y = b.Input("y", DType::kF32, {k, n}, constant_b);
  auto out = b.Reduce("out", DType::kF32, {{"m", m}, {"n", n}}, {{"k", k}}, te::Reducer::kSum,
                      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                        return expr::Load(x, {i[0], r[0]}) * expr::Load(y, {r[0], i[1]});
                      });
  const auto id = expr::IndexMap::Identity(2);
  auto p = loop::FromTe("matmul", b.Finish({out}), {id, id}, {id});
  WHET_CHECK(p.ok());
  return *p;
}

// A batch of products (b, m, k) x (b, k, n) whose operands and result lie as given.
inline loop::Program BatchMatmulProgram(int64_t batch, int64_t m, int64_t n, int64_t k,
                                        const std::vector<int>& x_order,
                                        const std::vector<int>& y_order,
                                        const std::vector<int>& out_order) {
  using expr::Expr;
  te::Builder b;
  auto x = b.Input("x", DType::kF32, {batch, m, k}, false);
  auto y = b.Input("y", DType::kF32, {batch, k, n}, false);
  auto out =
      b.Reduce("out", DType::kF32, {{"b", batch}, {"m", m}, {"n", n}}, {{"k", k}},
               te::Reducer::kSum, [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 return expr::Load(x, {i[0], i[1], r[0]}) * expr::Load(y, {i[0], r[0], i[2]});
               });
  auto p =
      loop::FromTe("matmul", b.Finish({out}),
                   {expr::IndexMap::Permutation(x_order), expr::IndexMap::Permutation(y_order)},
                   {expr::IndexMap::Permutation(out_order)});
  WHET_CHECK(p.ok());
  return *p;
}

// out = relu(x + pad_channels(y)): two element-wise stages, NHWC.
inline loop::Program AddPaddedProgram(int64_t c, int64_t c_small, int64_t h, int64_t w) {
  using expr::Expr;
  te::Builder b;
  auto x = b.Input("x", DType::kF32, {1, c, h, w}, false);
  auto y = b.Input("y", DType::kF32, {1, c_small, h, w}, false);
  const te::AxisSpec axes = {{"n", 1}, {"c", c}, {"h", h}, {"w", w}};
  auto padded = b.Compute("pad", DType::kF32, axes, [&](const std::vector<Expr>& i) {
    return expr::Select(expr::Lt(i[1], expr::Int(c_small)), expr::Load(y, i), expr::Float(0));
  });
  auto out = b.Compute("out", DType::kF32, axes, [&](const std::vector<Expr>& i) {
    return expr::Max(expr::Load(x, i) + expr::Load(padded, i), expr::Float(0));
  });
  const auto nhwc = expr::IndexMap::Permutation({0, 2, 3, 1});
  auto p = loop::FromTe("add", b.Finish({out}), {nhwc, nhwc}, {nhwc});
  WHET_CHECK(p.ok());
  return *p;
}

// Softmax over the last axis: max, exp-free stand-in, sum, quotient: several reductions in one
// program.
inline loop::Program RowNormProgram(int64_t m, int64_t n) {
  using expr::Expr;
  te::Builder b;
  auto x = b.Input("x", DType::kF32, {m, n}, false);
  auto top = b.Reduce("top", DType::kF32, {{"m", m}}, {{"k", n}}, te::Reducer::kMax,
                      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                        return expr::Load(x, {i[0], r[0]});
                      });
  auto d = b.Compute("d", DType::kF32, {{"m", m}, {"n", n}}, [&](const std::vector<Expr>& i) {
    return expr::Load(x, i) - expr::Load(top, {i[0]});
  });
  auto sum = b.Reduce("sum", DType::kF32, {{"m", m}}, {{"k", n}}, te::Reducer::kSum,
                      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                        return expr::Load(d, {i[0], r[0]});
                      });
  auto out = b.Compute("out", DType::kF32, {{"m", m}, {"n", n}}, [&](const std::vector<Expr>& i) {
    return expr::Load(d, i) - expr::Load(sum, {i[0]});
  });
  const auto id = expr::IndexMap::Identity(2);
  auto p = loop::FromTe("rows", b.Finish({out}), {id}, {id});
  WHET_CHECK(p.ok());
  return *p;
}

// Stages along rows as softmax and normalisations have them, of numbers that stay exact: the
// largest of the last `reduced` axes, distances from it (a stage worth keeping), their sum, and
// both with a factor per element of a row.
inline loop::Program RowStagesProgram(const std::vector<int64_t>& shape, size_t reduced) {
  using expr::Expr;
  te::Builder b;
  const size_t outer = shape.size() - reduced;
  const auto x = b.Input("x", DType::kF32, shape, false);
  const auto w = b.Input("w", DType::kF32, {shape.back()}, true);
  te::AxisSpec rows, along, all;
  for (size_t d = 0; d < shape.size(); ++d) {
    all.emplace_back("d" + std::to_string(d), shape[d]);
    (d < outer ? rows : along).emplace_back((d < outer ? "d" : "k") + std::to_string(d), shape[d]);
  }
  auto both = [](std::vector<Expr> i, const std::vector<Expr>& r) {
    i.insert(i.end(), r.begin(), r.end());
    return i;
  };
  auto row = [&](const std::vector<Expr>& i) {
    return std::vector<Expr>(i.begin(), i.begin() + outer);
  };
  const auto top = b.Reduce("top", DType::kF32, rows, along, te::Reducer::kMax,
                            [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                              return expr::Load(x, both(i, r));
                            });
  const auto d = b.Compute("d", DType::kF32, all, [&](const std::vector<Expr>& i) {
    return expr::Call(expr::Intrinsic::kAbs, expr::Load(x, i) - expr::Load(top, row(i)));
  });
  const auto sum = b.Reduce("sum", DType::kF32, rows, along, te::Reducer::kSum,
                            [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                              return expr::Load(d, both(i, r));
                            });
  const auto half = b.Compute("half", DType::kF32, rows, [&](const std::vector<Expr>& i) {
    return expr::Load(sum, i) * expr::Float(0.5);
  });
  const auto out = b.Compute("out", DType::kF32, all, [&](const std::vector<Expr>& i) {
    return expr::Load(d, i) * expr::Load(w, {i.back()}) - expr::Load(half, row(i));
  });
  const int rank = static_cast<int>(shape.size());
  const auto id = expr::IndexMap::Identity(rank);
  auto p = loop::FromTe("rows", b.Finish({out}), {id, expr::IndexMap::Identity(1)}, {id});
  WHET_CHECK(p.ok());
  return *p;
}

// out[i, j, k] = x[k, i, j] + y[i, j, k]: the first operand lies across the output's vectors.
inline loop::Program TurnedProgram(int64_t i, int64_t j, int64_t k) {
  using expr::Expr;
  te::Builder b;
  const auto x = b.Input("x", DType::kF32, {k, i, j}, false);
  const auto y = b.Input("y", DType::kF32, {i, j, k}, false);
  const auto out = b.Compute("out", DType::kF32, {{"i", i}, {"j", j}, {"k", k}},
                             [&](const std::vector<Expr>& at) {
                               return expr::Load(x, {at[2], at[0], at[1]}) + expr::Load(y, at);
                             });
  const auto id = expr::IndexMap::Identity(3);
  auto p = loop::FromTe("turned", b.Finish({out}), {id, id}, {id});
  WHET_CHECK(p.ok());
  return *p;
}

// One number per row: the least product of two tensors' elements, plus 1 when `last`.
inline loop::Program RowReductionProgram(int64_t m, int64_t n, bool last) {
  using expr::Expr;
  te::Builder b;
  const auto x = b.Input("x", DType::kF32, {m, n}, false);
  const auto least =
      b.Reduce(last ? "least" : "out", DType::kF32, {{"m", m}}, {{"k", n}}, te::Reducer::kMin,
               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                 const Expr e = expr::Load(x, {i[0], r[0]});
                 return e * e;
               });
  auto out = least;
  if (last) {
    out = b.Compute("out", DType::kF32, {{"m", m}}, [&](const std::vector<Expr>& i) {
      return expr::Load(least, i) + expr::Float(1);
    });
  }
  auto p = loop::FromTe("rows", b.Finish({out}), {expr::IndexMap::Identity(2)},
                        {expr::IndexMap::Identity(1)});
  WHET_CHECK(p.ok());
  return *p;
}

}  // namespace whet::testing_support
