#include "tuner/model/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace whet::model {
namespace {

// One logit of the ranking loss is this much log time: a pair 30 % apart is worth ordering, one 3 %
// apart hardly moves the trees.
constexpr double kTemperature = 0.3;
// A candidate 50 times too slow must not dominate the squared error.
constexpr double kResidualClamp = 2;
constexpr double kSigmaFloor = 0.02;
constexpr int kMinVerdictPairs = 20;  // fewer pairs than this say nothing about a model

struct Offsets {
  double mean = 0;
  double sigma = 0.5;
  std::vector<double> by_group;
};

// The mean residual of each group, pulled towards the mean of all by one row's worth.
Offsets MeanResiduals(const Dataset& d) {
  Offsets o;
  o.by_group.assign(d.group_names().size(), 0);
  if (d.rows() == 0) return o;
  std::vector<double> sum(o.by_group.size(), 0), count(o.by_group.size(), 0);
  for (int i = 0; i < d.rows(); ++i) {
    o.mean += d.residual(i) / d.rows();
    sum[d.group(i)] += d.residual(i);
    count[d.group(i)] += 1;
  }
  for (size_t g = 0; g < sum.size(); ++g) o.by_group[g] = (sum[g] + o.mean) / (count[g] + 1);
  double square = 0;
  for (int i = 0; i < d.rows(); ++i) square += std::pow(d.residual(i) - o.by_group[d.group(i)], 2);
  if (d.rows() >= 4) o.sigma = std::clamp(std::sqrt(square / d.rows()), kSigmaFloor, 1.0);
  return o;
}

double Target(const Dataset& d, const Offsets& o, int row) {
  return std::clamp(d.residual(row) - o.by_group[d.group(row)], -kResidualClamp, kResidualClamp);
}

// Least squares through the groups' means: how much log time one unit of the booster's output is.
double FitSlope(const Dataset& d, const Offsets& o, std::span<const float> f) {
  std::vector<double> f_mean(o.by_group.size(), 0), y_mean(o.by_group.size(), 0),
      n(o.by_group.size(), 0);
  for (int i = 0; i < d.rows(); ++i) {
    const int g = d.group(i);
    n[g] += 1;
    f_mean[g] += (f[i] - f_mean[g]) / n[g];
    y_mean[g] += (Target(d, o, i) - y_mean[g]) / n[g];
  }
  double fy = 0, ff = 1e-9;
  for (int i = 0; i < d.rows(); ++i) {
    const double df = f[i] - f_mean[d.group(i)];
    fy += df * (Target(d, o, i) - y_mean[d.group(i)]);
    ff += df * df;
  }
  return std::clamp(fy / ff, 0.0, 2.0);
}

StatusOr<Booster> TrainRanker(const Dataset& d, const Matrix& x, const FitOptions& options,
                              uint64_t seed) {
  BoosterParams params;
  params.eta = 0.2;
  params.min_child_weight = 0.1;
  params.seed = seed;
  WHET_ASSIGN_OR_RETURN(Booster booster, Booster::Make(params, x));
  Rng rng(seed);
  const std::vector<Pair> pairs = SamplePairs(d, options.pairs_per_row, rng);
  std::vector<double> score(d.rows());
  std::vector<float> grad(d.rows()), hess(d.rows());
  for (int round = 0; round < options.rank_rounds; ++round) {
    WHET_ASSIGN_OR_RETURN(std::vector<float> f, booster.Predict(x));
    for (int i = 0; i < d.rows(); ++i) score[i] = -d.log_prior(i) / kTemperature + f[i];
    std::ranges::fill(grad, 0.0f);
    std::ranges::fill(hess, 1e-6f);
    PairwiseGradient(pairs, score, grad, hess);
    WHET_RETURN_IF_ERROR(booster.BoostOneRound(x, grad, hess));
  }
  return booster;
}

StatusOr<Booster> TrainRegressor(const Dataset& d, const Offsets& o, const Matrix& x,
                                 const FitOptions& options, uint64_t seed) {
  BoosterParams params;
  params.max_depth = 5;
  params.eta = 0.25;
  params.min_child_weight = 2;
  params.seed = seed;
  WHET_ASSIGN_OR_RETURN(Booster booster, Booster::Make(params, x));
  std::vector<float> weight(d.rows());
  double sum = 0;
  for (int i = 0; i < d.rows(); ++i)
    sum += weight[i] = static_cast<float>(1 / (std::pow(d.noise(i), 2) + 1e-4));
  for (float& w : weight) w *= static_cast<float>(d.rows() / sum);
  std::vector<float> grad(d.rows());
  for (int round = 0; round < options.regress_rounds; ++round) {
    WHET_ASSIGN_OR_RETURN(std::vector<float> f, booster.Predict(x));
    for (int i = 0; i < d.rows(); ++i)
      grad[i] = weight[i] * (f[i] - static_cast<float>(Target(d, o, i)));
    WHET_RETURN_IF_ERROR(booster.BoostOneRound(x, grad, weight));
  }
  return booster;
}

// The rows a fit uses: the newest half of the cap, and a random sample of the older ones, in order.
std::vector<int> ChooseRows(int rows, const FitOptions& options) {
  std::vector<int> chosen(rows);
  std::iota(chosen.begin(), chosen.end(), 0);
  if (rows <= options.max_rows) return chosen;
  const int newest = options.max_rows / 2, older = rows - newest;
  Rng rng(options.seed);
  for (int i = 0; i < options.max_rows - newest; ++i)
    std::swap(chosen[i], chosen[i + rng.Below(older - i)]);
  chosen.erase(chosen.begin() + (options.max_rows - newest), chosen.begin() + older);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace

// Builds a Trained member by member; the only writer of its fields.
class Trainer {
 public:
  static StatusOr<Trained> Run(const Dataset& all, const FitOptions& options) {
    const Dataset data = all.Subset(ChooseRows(all.rows(), options));
    Trained result(data);
    if (data.rows() < 4) return result;
    WHET_RETURN_IF_ERROR(Validate(data, options, result));
    if (!result.usable_) return result;
    return WithMembers(std::move(result), data, options, 2);
  }

 private:
  static StatusOr<Trained> WithMembers(Trained t, const Dataset& d, const FitOptions& options,
                                       int regressors) {
    WHET_ASSIGN_OR_RETURN(Matrix x, Matrix::Make(d.matrix(), d.rows(), d.feature_count()));
    const Offsets offsets = MeanResiduals(d);
    WHET_ASSIGN_OR_RETURN(Booster ranker, TrainRanker(d, x, options, SplitMix(options.seed)));
    WHET_ASSIGN_OR_RETURN(std::vector<float> f, ranker.Predict(x));
    t.members_.push_back({std::move(ranker), FitSlope(d, offsets, f), 0.5});
    for (int i = 0; i < regressors; ++i) {
      WHET_ASSIGN_OR_RETURN(Booster b,
                            TrainRegressor(d, offsets, x, options, SplitMix(options.seed + 1 + i)));
      t.members_.push_back({std::move(b), 1, 0.5 / regressors});
    }
    return t;
  }

  // Trains on the older rows and asks the newest ones. Temporal, because the search changes what it
  // proposes over time and a random split would flatter the model.
  static Status Validate(const Dataset& d, const FitOptions& options, Trained& result) {
    result.usable_ = true;
    if (d.rows() < options.min_holdout_rows) return OkStatus();
    const int held = std::clamp(d.rows() / 5, 8, 64), kept = d.rows() - held;
    std::vector<int> order(d.rows());
    std::iota(order.begin(), order.end(), 0);
    const Dataset old = d.Subset(std::span(order).first(kept)),
                  fresh = d.Subset(std::span(order).subspan(kept));
    WHET_ASSIGN_OR_RETURN(Trained t, WithMembers(Trained(old), old, options, 1));
    WHET_ASSIGN_OR_RETURN(std::vector<Prediction> p, t.Ensemble(fresh.matrix(), fresh.rows()));
    std::vector<double> score, prior;
    double error = 0, spread = 1e-6;
    for (int i = 0; i < fresh.rows(); ++i) {
      prior.push_back(-fresh.log_prior(i));
      score.push_back(p[i].score + prior[i] + t.Offset(fresh.group_names()[fresh.group(i)]));
      error +=
          std::pow(std::clamp(score[i] + fresh.log_latency(i), -kResidualClamp, kResidualClamp), 2);
      spread += std::pow(p[i].sigma, 2);
    }
    Holdout& h = result.holdout_;
    h.model = MeasurePairs(fresh, score);
    h.prior = MeasurePairs(fresh, prior);
    h.rmse = std::sqrt(error / fresh.rows());
    h.sigma_scale = std::clamp(std::sqrt(error / spread), 1.0, 5.0);
    // Late in a search all new candidates are close and even a good model guesses; the prior must
    // then do better to take its place.
    result.usable_ = h.model.pairs < kMinVerdictPairs || h.model.accuracy >= options.min_accuracy ||
                     h.model.accuracy > h.prior.accuracy;
    return OkStatus();
  }
};

Trained::Trained(const Dataset& data) : feature_count_(data.feature_count()), rows_(data.rows()) {
  const Offsets o = MeanResiduals(data);
  mean_residual_ = o.mean;
  residual_sigma_ = o.sigma;
  std::vector<bool> seen(o.by_group.size(), false);
  for (int i = 0; i < data.rows(); ++i) seen[data.group(i)] = true;
  for (size_t g = 0; g < seen.size(); ++g) {
    if (seen[g]) group_offset_[data.group_names()[g]] = o.by_group[g];
  }
}

double Trained::Offset(std::string_view group) const {
  const auto it = group_offset_.find(group);
  return it == group_offset_.end() ? mean_residual_ : it->second;
}

StatusOr<std::vector<Prediction>> Trained::Ensemble(std::span<const float> features,
                                                    int64_t rows) const {
  std::vector<Prediction> out(rows, Prediction{0, residual_sigma_});
  if (members_.empty()) return out;
  WHET_ASSIGN_OR_RETURN(Matrix x, Matrix::Make(features, rows, feature_count_));
  std::vector<double> square(rows, 0);
  for (const Member& m : members_) {
    WHET_ASSIGN_OR_RETURN(std::vector<float> f, m.booster.Predict(x));
    for (int64_t i = 0; i < rows; ++i) {
      out[i].score += m.weight * m.slope * f[i];
      square[i] += m.weight * std::pow(m.slope * f[i], 2);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    const double deviation = std::sqrt(std::max(0.0, square[i] - out[i].score * out[i].score));
    out[i].sigma = std::max(deviation, kSigmaFloor) * holdout_.sigma_scale;
  }
  return out;
}

StatusOr<std::vector<Prediction>> Trained::Predict(std::string_view group,
                                                   std::span<const float> features,
                                                   std::span<const double> prior_ns) const {
  const auto rows = static_cast<int64_t>(prior_ns.size());
  if (static_cast<int64_t>(features.size()) != rows * feature_count_) {
    return InvalidArgument("predict: {} features for {} rows of {}", features.size(), rows,
                           feature_count_);
  }
  if (rows == 0) return std::vector<Prediction>{};
  WHET_ASSIGN_OR_RETURN(std::vector<Prediction> out, Ensemble(features, rows));
  const double offset = Offset(group);
  for (int64_t i = 0; i < rows; ++i) out[i].score += offset - std::log(prior_ns[i]);
  return out;
}

StatusOr<Trained> Train(const Dataset& data, const FitOptions& options) {
  return Trainer::Run(data, options);
}

}  // namespace whet::model
