// Fits and evaluates the ensemble of the cost model: one booster that learns the order of
// candidates (pairwise logistic loss), and two small ones that learn their log time (squared
// error). Their weighted mean is the prediction, their disagreement, scaled by the error on a
// temporal hold-out, its uncertainty. Three boosters and not more: a fit of 500 rows x 110 features
// has to stay below 100 ms on one core.
//
// Pure: Train() depends on its arguments only, so a service may run it on another thread with a
// copy of the rows and install the result. Predict() of one Trained must not run on two threads at
// once.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"
#include "tuner/model/booster.h"
#include "tuner/model/dataset.h"

namespace whet::model {

struct FitOptions {
  uint64_t seed = 1;
  int rank_rounds = 28;
  int regress_rounds = 16;
  int pairs_per_row = 32;
  int max_rows = 1000;  // bounds the time of a fit: the newest half stays, the rest is sampled
  int min_holdout_rows = 24;   // below this many rows nothing is held out
  double min_accuracy = 0.55;  // pairwise, on the hold-out; below it the prior alone is used
};

struct Prediction {
  double score = 0;  // -ln(expected latency in ns): higher is faster
  double sigma = 0;  // standard deviation of the score
};

// What the newest rows said about a model that had not seen them.
struct Holdout {
  PairAccuracy model;
  PairAccuracy prior;
  double rmse = 0;         // of the log time, 0 when nothing was held out
  double sigma_scale = 1;  // how much the members' disagreement understates the error
};

class Trained {
 public:
  // Without trees: every prediction is the prior corrected by the group's mean residual.
  explicit Trained(const Dataset& data);

  // `features` are row after row; priors in ns, one per row. All rows are of one group.
  StatusOr<std::vector<Prediction>> Predict(std::string_view group, std::span<const float> features,
                                            std::span<const double> prior_ns) const;

  // False when the hold-out says that the trees are worse than guessing and than the prior.
  bool usable() const { return usable_; }
  bool has_trees() const { return !members_.empty(); }
  const Holdout& holdout() const { return holdout_; }
  int rows() const { return rows_; }  // that it was fitted to
  int feature_count() const { return feature_count_; }

  // Layout: "WHTM", u32 version, then the fields below with u32 lengths, then CRC-32C of all of it;
  // little-endian. Load refuses what is truncated, damaged or of another version.
  StatusOr<std::string> Save() const;
  static StatusOr<Trained> Load(std::string_view bytes);

 private:
  friend class Trainer;
  struct Member {
    Booster booster;
    double slope = 1;   // from the booster's unit to log time
    double weight = 1;  // in the mean; all weights add to 1
  };
  Trained() = default;
  double Offset(std::string_view group) const;
  // What the members add to the prior and the group's offset, as mean (score) and sigma.
  StatusOr<std::vector<Prediction>> Ensemble(std::span<const float> features, int64_t rows) const;

  int feature_count_ = 0;
  int rows_ = 0;
  bool usable_ = false;
  double mean_residual_ = 0;
  double residual_sigma_ = 0.5;
  std::map<std::string, double, std::less<>> group_offset_;
  std::vector<Member> members_;
  Holdout holdout_;
};

StatusOr<Trained> Train(const Dataset& data, const FitOptions& options);

}  // namespace whet::model
