// Scores points: by the cost model's trees where it has usable ones, else by the prior corrected
// with the residuals of measured neighbours (a kernel average over knob steps, which needs no
// features). Higher is faster; a score is -ln(expected latency in ns). Features are cached by key.
//
// Owned by one TaskSearch; not thread-safe.
#pragma once
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tuner/model/cost_model.h"
#include "tuner/search/history.h"
#include "tuner/search/space_view.h"

namespace whet::search {

struct Candidate {
  Point point;
  std::string key;
  double score = 0;
  double sigma = 0;
};

class Scorer {
 public:
  // `model` may be null.
  Scorer(const SpaceView& view, const model::CostModel* model, std::string task);

  // Fills score and sigma. A point whose features cannot be made is removed and ruled out in the
  // history.
  void Score(std::vector<Candidate>& candidates, History& history);
  // Cached; the error is the view's.
  StatusOr<std::vector<float>> Features(const Point& point, const std::string& key);

 private:
  void ScoreByModel(std::vector<Candidate>& candidates, History& history);
  void ScoreByNeighbours(std::vector<Candidate>& candidates, const History& history) const;

  const SpaceView& view_;
  const model::CostModel* model_;
  const std::string task_;
  std::unordered_map<std::string, std::vector<float>> features_;
};

}  // namespace whet::search
