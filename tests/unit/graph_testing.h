// What tests of graph passes are written with: text in, passes, text out, and the same result.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/evaluate.h"
#include "compiler/graph/passes.h"
#include "compiler/ops/catalog.h"

namespace whet::graph {

inline Graph Parse(std::string_view text) {
  auto g = ParseGraph(text, ops::Catalog());
  EXPECT_TRUE(g.ok()) << g.status();
  return g.ok() ? *std::move(g) : Graph();
}

// What the named passes make of a graph, as text that has been parsed back and verified.
inline std::string After(std::string_view text, const std::vector<std::string>& passes) {
  Graph g = Parse(text);
  auto r = RunPasses(g, passes, {});
  EXPECT_TRUE(r.ok()) << r.status();
  const std::string printed = ToString(g);
  EXPECT_EQ(ToString(Parse(printed)), printed);
  return printed;
}

inline std::vector<double> Output(const Graph& g, const std::vector<std::vector<double>>& inputs) {
  std::vector<RefTensor> in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& t = g.type(g.inputs[i]);
    in.push_back({t.dtype, t.shape, inputs[i], {}});
  }
  auto e = EvaluateModel(g, std::move(in));
  EXPECT_TRUE(e.ok()) << e.status();
  return e.ok() ? e->values[g.outputs[0].value].value : std::vector<double>();
}

inline std::vector<double> Ramp(int64_t n) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<double>(i % 13) * 0.5 - 2);
  return v;
}

// The passes keep what a graph computes.
inline void ExpectSameResult(std::string_view text, const std::vector<std::string>& passes) {
  Graph g = Parse(text);
  std::vector<std::vector<double>> inputs;
  for (ValueId v : g.inputs) {
    inputs.push_back(Ramp(g.type(v).num_elements()));
    for (double& d : inputs.back()) d = RoundTo(g.type(v).dtype, d);
  }
  const std::vector<double> before = Output(g, inputs);
  auto r = RunPasses(g, passes, {});
  ASSERT_TRUE(r.ok()) << r.status();
  const std::vector<double> after = Output(g, inputs);
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], after[i], 1e-5) << i;
}

}  // namespace whet::graph
