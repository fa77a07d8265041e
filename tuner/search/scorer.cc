#include "tuner/search/scorer.h"

#include <algorithm>
#include <cmath>

#include "tuner/search/space_walk.h"

namespace whet::search {
namespace {

constexpr size_t kMaxCachedFeatures = 16384;  // 7 MB of 110 floats; dropped whole when full
constexpr size_t kNeighbourRows = 128;  // the fastest measured ones are enough to correct the prior
constexpr double kNeighbourSteps = 1.5;  // e-folding distance of the kernel
constexpr double kPriorWeight = 0.5;     // of a zero residual, in rows
constexpr double kNeighbourSigma = 0.4;  // of the score far from everything measured

}  // namespace

Scorer::Scorer(const SpaceView& view, const model::CostModel* model, std::string task)
    : view_(view), model_(model), task_(std::move(task)) {}

StatusOr<std::vector<float>> Scorer::Features(const Point& point, const std::string& key) {
  const auto it = features_.find(key);
  if (it != features_.end()) return it->second;
  WHET_ASSIGN_OR_RETURN(std::vector<float> f, view_.Features(point));
  if (static_cast<int>(f.size()) != view_.FeatureCount()) {
    return Internal("{} features where the space announces {}", f.size(), view_.FeatureCount());
  }
  if (features_.size() >= kMaxCachedFeatures) features_.clear();
  features_[key] = f;
  return f;
}

void Scorer::Score(std::vector<Candidate>& candidates, History& history) {
  std::erase_if(candidates, [&](const Candidate& c) {
    const double prior = view_.PriorNs(c.point);
    if (std::isfinite(prior) && prior > 0) return false;
    history.MarkRuledOut(c.key);
    return true;
  });
  if (model_ != nullptr && model_->usable()) {
    ScoreByModel(candidates, history);
  } else {
    ScoreByNeighbours(candidates, history);
  }
}

void Scorer::ScoreByModel(std::vector<Candidate>& candidates, History& history) {
  std::vector<float> matrix;
  std::vector<double> priors;
  std::erase_if(candidates, [&](const Candidate& c) {
    const auto f = Features(c.point, c.key);
    if (!f.ok()) {
      history.MarkRuledOut(c.key);
      return true;
    }
    matrix.insert(matrix.end(), f->begin(), f->end());
    priors.push_back(view_.PriorNs(c.point));
    return false;
  });
  const auto predictions = model_->Predict(task_, matrix, priors);
  if (!predictions.ok()) {  // the library refused: the search goes on without its trees
    ScoreByNeighbours(candidates, history);
    return;
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].score = (*predictions)[i].score;
    candidates[i].sigma = (*predictions)[i].sigma;
  }
}

void Scorer::ScoreByNeighbours(std::vector<Candidate>& candidates, const History& history) const {
  const auto& ranking = history.ranking();
  const size_t rows = std::min(ranking.size(), kNeighbourRows);
  std::vector<double> residual(rows);
  double mean = 0;
  for (size_t i = 0; i < rows; ++i) {
    residual[i] = std::log(view_.PriorNs(ranking[i].point)) - std::log(ranking[i].latency_ns);
    mean += residual[i] / static_cast<double>(rows);
  }
  for (Candidate& c : candidates) {
    double weights = kPriorWeight, sum = 0;
    for (size_t i = 0; i < rows; ++i) {
      const int steps = StepsApart(c.point, ranking[i].point);
      if (steps > 12) continue;
      const double w = std::exp(-steps / kNeighbourSteps);
      weights += w;
      sum += w * (residual[i] - mean);
    }
    c.score = mean + sum / weights - std::log(view_.PriorNs(c.point));
    c.sigma = kNeighbourSigma * kPriorWeight / weights;
  }
}

}  // namespace whet::search
