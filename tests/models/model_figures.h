// What is expected of every compiled network, whatever it computes: how many kernels it launches,
// and that its artifact computes what the model says.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "compiler/driver/compile_model.h"
#include "compiler/driver/prepare.h"

namespace whet::testing_support {

// Nodes that a kernel of its own has to compute: convolutions, products, pools and resizes. All
// else is expected to be fused with them.
inline int64_t KernelBase(const graph::Graph& g) {
  int64_t count = 0;
  for (const graph::Node& n : g.nodes) {
    for (const char* part : {"Conv", "MatMul", "Gemm", "Pool", "Resize"}) {
      if (std::string_view(n.op->name).find(part) == std::string_view::npos) continue;
      ++count;
      break;
    }
  }
  return count;
}

inline bool IsLayoutCopy(const driver::TaskInfo& t) {
  const std::string op = t.op_summary.substr(0, t.op_summary.find(' '));
  return op == "Identity" || op == "Transpose";
}

// At most a tenth more kernels than KernelBase, none of which only copies to another layout.
// `base`: what KernelBase has to be, so that a figure of nothing does not pass.
inline void ExpectFewKernels(const driver::ModelOptions& model, const driver::CompileReport& report,
                             int64_t base) {
  const auto imported = driver::ImportModel(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(KernelBase(*imported), base);
  int64_t kernels = 0;
  for (const driver::TaskInfo& t : report.tasks) {
    kernels += t.count;
    EXPECT_FALSE(IsLayoutCopy(t)) << t.name << ": " << t.op_summary;
  }
  EXPECT_GT(kernels, 0);
  EXPECT_LE(kernels * 10, base * 11);
}

// The outputs of the artifact lie within the bound that the operators' own error analysis gives.
inline void ExpectReference(const driver::VerifyOptions& options) {
  const auto result = driver::VerifyArtifact(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->outputs.empty());
  for (const driver::Difference& d : result->outputs) {
    EXPECT_EQ(d.outside, 0) << d.name << ": element " << d.worst << " is " << d.got << ", not "
                            << d.expected;
    EXPECT_LT(d.max_rel, 0.02) << d.name;
  }
  EXPECT_TRUE(result->passed);
}

}  // namespace whet::testing_support
