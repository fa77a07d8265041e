// What is compared: lists of cases by suite, and the networks' convolutions in sequence.
#pragma once
#include <string>
#include <vector>

namespace whet::bench {

// Names of suites in the order in which they run.
const std::vector<std::string>& SuiteNames();
// One line about it; empty for a name that is none.
std::string AboutSuite(const std::string& suite);

// The cases of a suite of kernels (gemm, conv, depthwise, pointwise, misc, field), as cases.h has
// them. Empty for the others.
std::vector<std::string> CasesOf(const std::string& suite);

struct ChainOf {
  std::string name;
  std::vector<std::string> cases;  // one after the other; those alike are the same text
};
// The suite `chain`.
std::vector<ChainOf> Chains();

}  // namespace whet::bench
