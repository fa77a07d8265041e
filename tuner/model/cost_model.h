// The cost model of a tuning job: the measured rows of all its tasks and the ensemble fitted to
// them. One model serves all tasks of a job, since 20 tasks with 10 trials each are worth nothing
// alone; its trees see hardware-related features, and the order is learnt inside each task only.
//
// Owned by the job; TaskSearch and TaskScheduler hold a pointer. Not thread-safe. To fit beside the
// search, copy rows(), run Train() elsewhere and Install() the result; FitIfDue() does it in place.
// A failed fit keeps the former model: the search goes on.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"
#include "tuner/model/dataset.h"
#include "tuner/model/trainer.h"

namespace whet::model {

class CostModel {
 public:
  explicit CostModel(int feature_count, FitOptions options = {});

  // One successful measurement. Never called for a failure.
  Status Add(std::string_view task, std::span<const float> features, double prior_ns,
             double latency_ns, double noise);

  // At least 16 rows more than at the last fit, or 20 % more (and at least 4).
  bool FitDue() const;
  Status FitIfDue();
  // A model trained from a copy of the first `rows` rows, or loaded.
  Status Install(Trained trained, int rows);

  // Row after row; with no usable trees, the prior corrected by the task's mean residual.
  StatusOr<std::vector<Prediction>> Predict(std::string_view task, std::span<const float> features,
                                            std::span<const double> prior_ns) const;

  bool usable() const { return trained_.usable() && trained_.has_trees(); }
  int fits() const { return fits_; }  // changes whenever predictions do
  int feature_count() const { return data_.feature_count(); }
  const Dataset& rows() const { return data_; }
  const FitOptions& options() const { return options_; }
  const Trained& trained() const { return trained_; }

 private:
  const FitOptions options_;
  Dataset data_;
  Trained trained_;
  int rows_at_fit_ = 0;
  int fits_ = 0;
};

}  // namespace whet::model
