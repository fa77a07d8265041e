// What tests of graph passes are written with: text in, passes, text out, and the same result.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/evaluate.h"
#include "compiler/graph/passes.h"
#include "compiler/ops/catalog.h"

namespace whet::graph {

inline Graph Parse(std::string_view text, const std::vector<ConstantPtr>& constants = {}) {
  auto g = ParseGraph(text, ops::Catalog(), constants);
  EXPECT_TRUE(g.ok()) << g.status();
  return g.ok() ? *std::move(g) : Graph();
}

// The constants of a graph that are too large to be written out.
inline std::vector<ConstantPtr> LargeConstants(const Graph& g) {
  std::vector<ConstantPtr> constants;
  for (const Value& v : g.values) {
    if (v.constant) constants.push_back(v.constant);
  }
  return constants;
}

// What the named passes make of a graph, as text that has been parsed back and verified.
inline std::string After(std::string_view text, const std::vector<std::string>& passes,
                         const std::vector<ConstantPtr>& constants = {}) {
  Graph g = Parse(text, constants);
  auto r = RunPasses(g, passes, {});
  EXPECT_TRUE(r.ok()) << r.status();
  std::string printed = ToString(g);
  EXPECT_EQ(ToString(Parse(printed, LargeConstants(g))), printed);
  return printed;
}

// Every output of the graph.
inline std::vector<std::vector<double>> Outputs(const Graph& g,
                                                const std::vector<std::vector<double>>& inputs) {
  std::vector<RefTensor> in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& t = g.type(g.inputs[i]);
    in.push_back({t.dtype, t.shape, inputs[i], {}});
  }
  auto e = EvaluateModel(g, std::move(in));
  EXPECT_TRUE(e.ok()) << e.status();
  std::vector<std::vector<double>> out(g.outputs.size());
  for (size_t i = 0; e.ok() && i < out.size(); ++i) out[i] = e->values[g.outputs[i].value].value;
  return out;
}

inline std::vector<double> Output(const Graph& g, const std::vector<std::vector<double>>& inputs) {
  return Outputs(g, inputs)[0];
}

inline std::vector<double> Ramp(int64_t n) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<double>(i % 13) * 0.5 - 2);
  return v;
}

// Over the range of an element type: all of it for small integers, what sums of products reach for
// i32, indices into two elements for i64.
inline std::vector<double> Drawn(DType t, int64_t n, uint64_t seed) {
  double lo = -4, hi = 4;
  switch (t) {
    case DType::kBool: lo = 0, hi = 1; break;
    case DType::kU8: lo = 0, hi = 255; break;
    case DType::kI8: lo = -128, hi = 127; break;
    case DType::kI32: lo = -1e6, hi = 1e6; break;
    case DType::kI64: lo = -2, hi = 1; break;
    default: break;
  }
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const double part = static_cast<double>(seed >> 11) * 0x1.0p-53;
    const double d = lo + part * (hi - lo);
    v.push_back(IsFloat(t) ? RoundTo(t, d) : std::nearbyint(d));
  }
  return v;
}

// The passes keep what a graph computes: all of its outputs, for drawn inputs, and with the fourth
// seed for floats some of which are no numbers.
inline void ExpectSameResult(std::string_view text, const std::vector<std::string>& passes,
                             const std::vector<ConstantPtr>& constants = {}, uint64_t seeds = 4) {
  const Graph g = Parse(text, constants);
  Graph passed = g;
  auto r = RunPasses(passed, passes, {});
  ASSERT_TRUE(r.ok()) << r.status();
  ASSERT_EQ(g.outputs.size(), passed.outputs.size());
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    std::vector<std::vector<double>> inputs;
    for (ValueId v : g.inputs) {
      const TensorType& t = g.type(v);
      inputs.push_back(Drawn(t.dtype, t.num_elements(), seed + 10 * static_cast<uint64_t>(v)));
      if (seed == 4 && IsFloat(t.dtype) && !inputs.back().empty())
        inputs.back()[0] = std::numeric_limits<double>::quiet_NaN();
    }
    const auto before = Outputs(g, inputs), after = Outputs(passed, inputs);
    for (size_t o = 0; o < before.size(); ++o) {
      ASSERT_EQ(before[o].size(), after[o].size());
      double largest = 1;
      for (double d : before[o])
        largest = std::isfinite(d) ? std::max(largest, std::fabs(d)) : largest;
      for (size_t i = 0; i < before[o].size(); ++i) {
        const double b = before[o][i], a = after[o][i];
        const bool same = std::isfinite(b) ? std::fabs(a - b) <= 1e-5 * largest
                                           : a == b || (std::isnan(a) && std::isnan(b));
        EXPECT_TRUE(same) << text << "seed " << seed << ", output " << o << "[" << i << "]: " << b
                          << " before, " << a << " after";
      }
    }
  }
}

}  // namespace whet::graph
