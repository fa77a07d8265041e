#include "compiler/graph/min_sum.h"

#include <algorithm>
#include <limits>
#include <set>

namespace whet::graph {
namespace {

constexpr int64_t kMaxTable = int64_t{1} << 18;

}  // namespace

int MinSum::AddVariable(int n) {
  sizes_.push_back(n);
  return static_cast<int>(sizes_.size()) - 1;
}

void MinSum::AddCost(int a, std::vector<double> costs) {
  factors_.push_back({{a}, std::move(costs)});
}

void MinSum::AddCost(int a, int b, std::vector<double> costs) {
  // A variable without a choice makes no neighbours: a value that thousands read stays cheap.
  if (a != b && sizes_[static_cast<size_t>(a)] == 1) return AddCost(b, std::move(costs));
  if (a != b && sizes_[static_cast<size_t>(b)] == 1) return AddCost(a, std::move(costs));
  if (a < b) {
    factors_.push_back({{a, b}, std::move(costs)});
    return;
  }
  const auto na = static_cast<size_t>(sizes_[static_cast<size_t>(a)]),
             nb = static_cast<size_t>(sizes_[static_cast<size_t>(b)]);
  if (a == b) {
    std::vector<double> diagonal;
    for (size_t i = 0; i < na; ++i) diagonal.push_back(costs[i * nb + i]);
    return AddCost(a, std::move(diagonal));
  }
  std::vector<double> turned(costs.size());
  for (size_t i = 0; i < na; ++i) {
    for (size_t j = 0; j < nb; ++j) turned[j * na + i] = costs[i * nb + j];
  }
  factors_.push_back({{b, a}, std::move(turned)});
}

size_t MinSum::At(const Factor& f, const std::vector<int>& values) const {
  size_t at = 0;
  for (int v : f.variables)
    at = at * static_cast<size_t>(sizes_[static_cast<size_t>(v)]) +
         static_cast<size_t>(values[static_cast<size_t>(v)]);
  return at;
}

double MinSum::CostOf(const std::vector<int>& values) const {
  double sum = 0;
  for (const Factor& f : factors_) sum += f.costs[At(f, values)];
  return sum;
}

// One run of the elimination. Factors are appended; dead ones stay in place.
class Elimination {
 public:
  explicit Elimination(const MinSum& p)
      : sizes_(p.sizes_),
        factors_(p.factors_),
        alive_(p.factors_.size(), true),
        of_(p.sizes_.size()),
        values_(p.sizes_.size(), 0),
        fixed_(p.sizes_.size(), -1) {
    for (size_t f = 0; f < factors_.size(); ++f) Register(f);
  }

  std::vector<int> Run(bool* exact) {
    std::set<std::pair<int64_t, int>> queue;
    std::vector<int64_t> weight(sizes_.size());
    auto push = [&](int v) {
      weight[Index(v)] = TableSize(v);
      queue.emplace(weight[Index(v)], v);
    };
    for (size_t v = 0; v < sizes_.size(); ++v) push(static_cast<int>(v));
    while (!queue.empty()) {
      const auto [size, v] = *queue.begin();
      queue.erase(queue.begin());
      const std::vector<int> neighbours = Neighbours(v);
      if (size > kMaxTable) {
        *exact = false;
        Fix(v);
      } else {
        Eliminate(v, neighbours);
      }
      for (int n : neighbours) {
        queue.erase({weight[Index(n)], n});
        push(n);
      }
    }
    for (size_t i = steps_.size(); i-- > 0;) Resolve(steps_[i]);
    return fixed_;
  }

 private:
  using Factor = MinSum::Factor;
  struct Step {  // how an eliminated variable follows from others
    int variable = 0;
    std::vector<int> others;
    std::vector<int> best;
  };

  static size_t Index(int v) { return static_cast<size_t>(v); }
  int64_t SizeOf(int v) const { return sizes_[Index(v)]; }
  void Register(size_t f) {
    for (int v : factors_[f].variables) of_[Index(v)].push_back(f);
  }

  std::vector<int> Neighbours(int v) {
    std::set<int> found;
    std::erase_if(of_[Index(v)], [&](size_t f) { return !alive_[f]; });
    for (size_t f : of_[Index(v)])
      found.insert(factors_[f].variables.begin(), factors_[f].variables.end());
    found.erase(v);
    return {found.begin(), found.end()};
  }

  int64_t TableSize(int v) {
    int64_t size = SizeOf(v);
    for (int n : Neighbours(v)) size = std::min(size * SizeOf(n), kMaxTable + 1);
    return size;
  }

  // Position in `f` of `values_`.
  size_t At(const Factor& f) const {
    size_t at = 0;
    for (int u : f.variables) at = at * Index(sizes_[Index(u)]) + Index(values_[Index(u)]);
    return at;
  }

  // The assignment at position `at` of a table over `variables`.
  void SetValues(const std::vector<int>& variables, size_t at) {
    for (size_t i = variables.size(); i-- > 0;) {
      const auto n = Index(sizes_[Index(variables[i])]);
      values_[Index(variables[i])] = static_cast<int>(at % n);
      at /= n;
    }
  }

  std::vector<size_t> TakeFactors(int v) {
    std::vector<size_t> taken;
    for (size_t f : of_[Index(v)]) {
      if (!alive_[f]) continue;
      alive_[f] = false;
      taken.push_back(f);
    }
    of_[Index(v)].clear();
    return taken;
  }

  void Eliminate(int v, const std::vector<int>& others) {
    const std::vector<size_t> taken = TakeFactors(v);
    int64_t entries = 1;
    for (int n : others) entries *= SizeOf(n);
    Step step{v, others, std::vector<int>(Index(static_cast<int>(entries)))};
    Factor rest{others, std::vector<double>(step.best.size())};
    for (size_t e = 0; e < step.best.size(); ++e) {
      SetValues(others, e);
      double least = std::numeric_limits<double>::infinity();
      for (int x = 0; x < sizes_[Index(v)]; ++x) {
        values_[Index(v)] = x;
        double sum = 0;
        for (size_t f : taken) sum += factors_[f].costs[At(factors_[f])];
        if (sum < least) {
          least = sum;
          step.best[e] = x;
        }
      }
      rest.costs[e] = least;
    }
    steps_.push_back(std::move(step));
    if (others.empty()) return;
    factors_.push_back(std::move(rest));
    alive_.push_back(true);
    Register(factors_.size() - 1);
  }

  // The cheapest value of `v` if each factor could choose its other variables for itself (one step
  // of mini-buckets): a bound per value, infinite where no choice of a neighbour allows it.
  int BestAlone(int v) {
    std::vector<double> own(Index(sizes_[Index(v)]), 0);
    for (size_t f : of_[Index(v)]) {
      if (!alive_[f]) continue;
      const Factor& factor = factors_[f];
      std::vector<double> least(own.size(), std::numeric_limits<double>::infinity());
      for (size_t e = 0; e < factor.costs.size(); ++e) {
        SetValues(factor.variables, e);
        double& x = least[Index(values_[Index(v)])];
        x = std::min(x, factor.costs[e]);
      }
      for (size_t x = 0; x < own.size(); ++x) own[x] += least[x];
    }
    return static_cast<int>(std::min_element(own.begin(), own.end()) - own.begin());
  }

  void Fix(int v) {
    const int x = BestAlone(v);
    for (size_t f : TakeFactors(v)) {
      Factor rest;
      for (int u : factors_[f].variables) {
        if (u != v) rest.variables.push_back(u);
      }
      if (rest.variables.empty()) continue;
      values_[Index(v)] = x;
      size_t entries = 1;
      for (int u : rest.variables) entries *= Index(sizes_[Index(u)]);
      for (size_t e = 0; e < entries; ++e) {
        SetValues(rest.variables, e);
        rest.costs.push_back(factors_[f].costs[At(factors_[f])]);
      }
      factors_.push_back(std::move(rest));
      alive_.push_back(true);
      Register(factors_.size() - 1);
    }
    steps_.push_back({v, {}, {x}});
  }

  void Resolve(const Step& s) {
    size_t at = 0;
    for (int n : s.others) at = at * Index(sizes_[Index(n)]) + Index(fixed_[Index(n)]);
    fixed_[Index(s.variable)] = s.best[at];
  }

  const std::vector<int> sizes_;
  std::vector<Factor> factors_;
  std::vector<bool> alive_;
  std::vector<std::vector<size_t>> of_;  // per variable: its factors
  std::vector<int> values_;  // scratch: of the variables that the loop at hand runs over
  std::vector<int> fixed_;
  std::vector<Step> steps_;
};

std::vector<int> MinSum::Solve(bool* exact) const {
  bool ignored = true;
  if (exact != nullptr) *exact = true;
  return Elimination(*this).Run(exact != nullptr ? exact : &ignored);
}

std::vector<int> MinSum::Improve(std::vector<int> values) const {
  constexpr int kMaxSweeps = 16;
  std::vector<std::vector<const Factor*>> of(sizes_.size());
  for (const Factor& f : factors_) {
    for (int v : f.variables) of[static_cast<size_t>(v)].push_back(&f);
  }
  auto cost_around = [&](size_t v) {
    double sum = 0;
    for (const Factor* f : of[v]) sum += f->costs[At(*f, values)];
    return sum;
  };
  bool changed = true;
  for (int sweep = 0; changed && sweep < kMaxSweeps; ++sweep) {
    changed = false;
    for (size_t v = 0; v < values.size(); ++v) {
      double least = cost_around(v);
      int best = values[v];
      for (int x = 0; x < sizes_[v]; ++x) {
        values[v] = x;
        const double sum = cost_around(v);
        if (!(sum < least)) continue;
        least = sum;
        best = x;
        changed = true;
      }
      values[v] = best;
    }
  }
  return values;
}

}  // namespace whet::graph
