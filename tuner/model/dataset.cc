#include "tuner/model/dataset.h"

#include <algorithm>
#include <cmath>

namespace whet::model {
namespace {

constexpr double kMinNoise = 0.005;  // differences below 1 % teach nothing

// Is row i measurably faster than row j?
bool Faster(const Dataset& d, int i, int j) {
  const double noise = std::max({d.noise(i), d.noise(j), kMinNoise});
  return d.log_latency(i) + std::log1p(2 * noise) < d.log_latency(j);
}

std::vector<std::vector<int>> RowsByGroup(const Dataset& d) {
  std::vector<std::vector<int>> rows(d.group_names().size());
  for (int i = 0; i < d.rows(); ++i) rows[d.group(i)].push_back(i);
  return rows;
}

// Throughput relative to the group's best, and the value that its top tenth reaches.
struct Throughput {
  std::vector<double> relative;
  double top_tenth = 1;
};

Throughput RelativeThroughput(const Dataset& d, const std::vector<int>& rows) {
  double best = d.log_latency(rows[0]);
  for (int i : rows) best = std::min(best, d.log_latency(i));
  Throughput t;
  for (int i : rows) t.relative.push_back(std::exp(best - d.log_latency(i)));
  std::vector<double> sorted = t.relative;
  std::sort(sorted.rbegin(), sorted.rend());
  t.top_tenth = sorted[(sorted.size() - 1) / 10];
  return t;
}

}  // namespace

Status Dataset::Add(std::string_view group, std::span<const float> features, double prior_ns,
                    double latency_ns, double noise) {
  if (static_cast<int>(features.size()) != feature_count_) {
    return InvalidArgument("task '{}': {} features, the model takes {}", group, features.size(),
                           feature_count_);
  }
  if (!(prior_ns > 0) || !(latency_ns > 0) || !std::isfinite(prior_ns) ||
      !std::isfinite(latency_ns)) {
    return InvalidArgument("task '{}': prior {} ns and latency {} ns must be positive", group,
                           prior_ns, latency_ns);
  }
  if (!std::ranges::all_of(features, [](float f) { return std::isfinite(f); })) {
    return InvalidArgument("task '{}': a feature is not finite", group);
  }
  auto it = group_ids_.find(group);
  if (it == group_ids_.end()) {
    it = group_ids_.emplace(std::string(group), static_cast<int>(group_names_.size())).first;
    group_names_.emplace_back(group);
  }
  group_.push_back(it->second);
  features_.insert(features_.end(), features.begin(), features.end());
  log_prior_.push_back(std::log(prior_ns));
  log_latency_.push_back(std::log(latency_ns));
  noise_.push_back(std::isfinite(noise) ? std::clamp(noise, 0.0, 1.0) : 0.0);
  return OkStatus();
}

int Dataset::FindGroup(std::string_view name) const {
  const auto it = group_ids_.find(name);
  return it == group_ids_.end() ? -1 : it->second;
}

Dataset Dataset::Subset(std::span<const int> rows) const {
  Dataset out(feature_count_);
  out.group_names_ = group_names_;
  out.group_ids_ = group_ids_;
  for (int r : rows) {
    const std::span<const float> x = features(r);
    out.features_.insert(out.features_.end(), x.begin(), x.end());
    out.group_.push_back(group_[r]);
    out.log_prior_.push_back(log_prior_[r]);
    out.log_latency_.push_back(log_latency_[r]);
    out.noise_.push_back(noise_[r]);
  }
  return out;
}

std::vector<Pair> SamplePairs(const Dataset& data, int per_row, Rng& rng) {
  std::vector<Pair> pairs;
  for (const std::vector<int>& rows : RowsByGroup(data)) {
    const auto n = static_cast<int>(rows.size());
    if (n < 2) continue;
    const Throughput t = RelativeThroughput(data, rows);
    const bool all = n - 1 <= per_row;  // a small group: every partner once from each side
    for (int i = 0; i < n; ++i) {
      for (int k = 0; k < (all ? n : per_row); ++k) {
        const int j = all ? k : static_cast<int>(rng.Below(n));
        if (i == j) continue;
        const bool first = Faster(data, rows[i], rows[j]);
        if (!first && !Faster(data, rows[j], rows[i])) continue;
        const int fast = first ? i : j, slow = first ? j : i;
        const double top = t.relative[fast] >= t.top_tenth ? 3 : 1;
        pairs.push_back({rows[fast], rows[slow],
                         static_cast<float>((t.relative[fast] - t.relative[slow]) * top)});
      }
    }
  }
  return pairs;
}

void PairwiseGradient(std::span<const Pair> pairs, std::span<const double> score,
                      std::span<float> grad, std::span<float> hess) {
  for (const Pair& p : pairs) {
    const double rho = 1 / (1 + std::exp(score[p.fast] - score[p.slow]));  // P(the order is wrong)
    const auto g = static_cast<float>(p.weight * rho);
    const auto h = static_cast<float>(std::max(p.weight * rho * (1 - rho), 1e-6));
    grad[p.fast] -= g;
    grad[p.slow] += g;
    hess[p.fast] += h;
    hess[p.slow] += h;
  }
}

PairAccuracy MeasurePairs(const Dataset& data, std::span<const double> score) {
  PairAccuracy result;
  double right = 0;
  for (int i = 0; i < data.rows(); ++i) {
    for (int j = 0; j < data.rows(); ++j) {
      if (data.group(i) != data.group(j) || !Faster(data, i, j)) continue;
      ++result.pairs;
      right += score[i] > score[j] ? 1 : score[i] == score[j] ? 0.5 : 0;
    }
  }
  if (result.pairs > 0) result.accuracy = right / result.pairs;
  return result;
}

}  // namespace whet::model
