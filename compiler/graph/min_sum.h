// The cheapest assignment of small integers to variables under a sum of costs, each of which sees
// one or two of them: dynamic programming by variable elimination (bucket elimination, Dechter
// 1999), exact while intermediate tables stay small, which they do on the graphs of neural
// networks. Plain data, one thread. Ties go to the smaller value, so that results are reproducible.
#pragma once
#include <cstdint>
#include <vector>

namespace whet::graph {

class MinSum {
 public:
  // A variable with values 0..n-1, n >= 1.
  int AddVariable(int n);
  // costs[value] of `a`; costs may be infinite.
  void AddCost(int a, std::vector<double> costs);
  // costs[value of a * size of b + value of b].
  void AddCost(int a, int b, std::vector<double> costs);

  // One value per variable. Where a table would exceed its limit, a variable is fixed to the value
  // that is the cheapest if each cost could choose the other variable for itself, and the result is
  // a bound only, which may be infinite; `exact` says so.
  std::vector<int> Solve(bool* exact = nullptr) const;
  // An assignment that costs at most what `values` does, and less if changing one variable after
  // the other helps.
  std::vector<int> Improve(std::vector<int> values) const;
  double CostOf(const std::vector<int>& values) const;

 private:
  struct Factor {
    std::vector<int> variables;  // sorted; the last one varies fastest
    std::vector<double> costs;
  };
  friend class Elimination;
  size_t At(const Factor& f, const std::vector<int>& values) const;
  std::vector<int> sizes_;
  std::vector<Factor> factors_;
};

}  // namespace whet::graph
