#include "tuner/model/cost_model.h"

namespace whet::model {
namespace {

constexpr int kFirstFitRows = 8;
constexpr int kRefitRows = 16;
constexpr int kRefitMinimum = 4;  // +20 % of a dozen rows is not worth a fit
constexpr double kRefitShare = 0.2;

}  // namespace

CostModel::CostModel(int feature_count, FitOptions options)
    : options_(options), data_(feature_count), trained_(data_) {}

Status CostModel::Add(std::string_view task, std::span<const float> features, double prior_ns,
                      double latency_ns, double noise) {
  return data_.Add(task, features, prior_ns, latency_ns, noise);
}

bool CostModel::FitDue() const {
  if (data_.rows() < kFirstFitRows) return false;
  if (fits_ == 0) return true;
  const int since = data_.rows() - rows_at_fit_;
  return since >= kRefitRows || (since >= kRefitMinimum && since >= kRefitShare * rows_at_fit_);
}

Status CostModel::FitIfDue() {
  if (!FitDue()) return OkStatus();
  rows_at_fit_ = data_.rows();  // also after a failure: the next try waits for new rows
  WHET_ASSIGN_OR_RETURN(Trained trained, Train(data_, options_));
  return Install(std::move(trained), data_.rows());
}

Status CostModel::Install(Trained trained, int rows) {
  if (trained.feature_count() != data_.feature_count()) {
    return InvalidArgument("cost model of {} features for rows of {}", trained.feature_count(),
                           data_.feature_count());
  }
  trained_ = std::move(trained);
  rows_at_fit_ = rows;
  ++fits_;
  return OkStatus();
}

StatusOr<std::vector<Prediction>> CostModel::Predict(std::string_view task,
                                                     std::span<const float> features,
                                                     std::span<const double> prior_ns) const {
  return trained_.Predict(task, features, prior_ns);
}

}  // namespace whet::model
