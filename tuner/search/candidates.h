// Where untried points come from: the first batch, the pool that evolution breeds, a random one,
// and the plain sweep that finds the last ones of a space. Small spaces are enumerated once and
// ordered by the prior; of large ones the prior's favourites (the draft) are found by an evolution
// with the prior as fitness.
//
// Owned by one TaskSearch; not thread-safe. Nothing here returns a point whose key the history has
// seen.
#pragma once
#include <optional>
#include <unordered_set>
#include <vector>

#include "compiler/support/rng.h"
#include "tuner/search/history.h"
#include "tuner/search/scorer.h"
#include "tuner/search/space_view.h"
#include "tuner/search/space_walk.h"

namespace whet::search {

struct CandidateOptions {
  // Raw points; 2e5 calls of Valid and PriorNs are the most worth waiting for.
  double enumerate_limit = 50000;
  int full_scoring_limit =
      2048;              // valid points; a space up to this is scored as a whole, no evolution
  int draft = 512;       // the prior's favourites that are kept
  int population = 256;  // per generation
  int generations = 3;
  double sweep_limit = 2e6;  // raw points that the sweep of a large space visits before it gives up
};

class Candidates {
 public:
  Candidates(const SpaceView& view, const CandidateOptions& options, uint64_t seed);

  // Prior-best points at least two knobs apart, at least three cells among them where there are,
  // then random ones.
  std::vector<Point> Seeds(int prior_best, int random, uint64_t seed) const;
  // Untried candidates with scores, best first.
  std::vector<Candidate> Pool(History& history, Scorer& scorer, Rng& rng) const;
  std::optional<Candidate> Random(const History& history, Rng& rng) const;
  // The next untried point in the order of the enumeration; nullopt when the whole space is tried.
  std::optional<Candidate> Sweep(const History& history);
  // Needed when a point that was pending is untried again.
  void RestartSweep();

  bool enumerated() const { return enumerated_; }
  // Valid points, when enumerated.
  int64_t size() const { return static_cast<int64_t>(draft_.size()); }

 private:
  void Enumerate();
  void BreedDraft(uint64_t seed);
  std::optional<Point> AnyValid(Rng& rng) const;

  const SpaceView& view_;
  const CandidateOptions options_;
  bool enumerated_ = false;
  std::vector<Point> draft_;  // by the prior, best first; the whole space when enumerated
  size_t sweep_at_ = 0;       // into draft_, when enumerated
  PointCounter counter_;      // else
  std::optional<Point> swept_;
  double counted_ = 0;
};

}  // namespace whet::search
