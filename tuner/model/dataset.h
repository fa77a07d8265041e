// Training rows of the cost model and the arithmetic of learning to rank. A row is one successful
// measurement; failures never become rows, because "slow" and "invalid" are different things. Rows
// keep their order of arrival: the newest ones are the hold-out. A group is one task: only rows of
// the same group are compared with each other.
//
// Labels are y = ln(T_prior / T_measured), the residual to the analytical prior, so that a model
// without trees is the prior. Log time does not shift when a new best appears, as normalised
// throughput would.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/rng.h"
#include "compiler/support/status.h"

namespace whet::model {

class Dataset {
 public:
  explicit Dataset(int feature_count) : feature_count_(feature_count) {}

  // noise is the relative standard deviation of the measurement; 0 when unknown.
  Status Add(std::string_view group, std::span<const float> features, double prior_ns,
             double latency_ns, double noise);

  int feature_count() const { return feature_count_; }
  int rows() const { return static_cast<int>(group_.size()); }
  std::span<const float> features(int row) const {
    return std::span(features_).subspan(static_cast<size_t>(row) * feature_count_, feature_count_);
  }
  int group(int row) const { return group_[row]; }
  double log_prior(int row) const { return log_prior_[row]; }
  double log_latency(int row) const { return log_latency_[row]; }
  double residual(int row) const { return log_prior_[row] - log_latency_[row]; }
  double noise(int row) const { return noise_[row]; }
  const std::vector<std::string>& group_names() const { return group_names_; }
  int FindGroup(std::string_view name) const;  // -1 when it has no rows

  // The given rows, in that order, with the same group numbers.
  Dataset Subset(std::span<const int> rows) const;
  // All features, row after row.
  std::span<const float> matrix() const { return features_; }

 private:
  int feature_count_;
  std::vector<float> features_;
  std::vector<int> group_;
  std::vector<double> log_prior_, log_latency_, noise_;
  std::vector<std::string> group_names_;
  std::map<std::string, int, std::less<>> group_ids_;
};

// `fast` is measurably faster than `slow`: their difference exceeds twice the noise.
struct Pair {
  int fast = 0;
  int slow = 0;
  float weight = 1;
};

// Up to `per_row` random partners of each row from its own group. The weight is the difference of
// throughput relative to the group's best, three times as much when the fast one is in its top
// tenth: the order among the slow is of no interest.
std::vector<Pair> SamplePairs(const Dataset& data, int per_row, Rng& rng);

// Adds gradient and hessian of the pairwise logistic loss (RankNet; Burges et al. 2005) for the
// scores.
void PairwiseGradient(std::span<const Pair> pairs, std::span<const double> score,
                      std::span<float> grad, std::span<float> hess);

struct PairAccuracy {
  double accuracy = 0;  // share of pairs in the right order
  int pairs = 0;
};
// Over all pairs of `data` whose difference exceeds the noise; a higher score means faster.
PairAccuracy MeasurePairs(const Dataset& data, std::span<const double> score);

}  // namespace whet::model
