// The search of one task, as ask/tell: Ask() proposes points to build and measure, Tell() takes
// what came of them, in any order, any number pending. No clock, threads or files: the same seed,
// log and sequence of calls give the same proposals.
//
// Order of proposals: the default schedule; the first batch (the prior's best, transferred points,
// a few random ones); then evolution guided by the cost model, with a share of random points;
// coordinate descent around the three best when nothing has gained 1 % for some trials. No schedule
// is proposed twice, whether told apart by key or by trace fingerprint, and none that the log
// already has: a log row without a point is connected to its point when the search comes across it.
//
// Owned by the job. Not thread-safe. The view and the model must outlive it; the model may be
// shared by searches of one thread.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/fingerprint.h"
#include "compiler/support/status.h"
#include "tuner/model/cost_model.h"
#include "tuner/search/candidates.h"
#include "tuner/search/history.h"
#include "tuner/search/scorer.h"
#include "tuner/search/space_view.h"

namespace whet::search {

enum class Strategy : uint8_t { kRandom, kEvolution };

enum class StopReason : uint8_t {
  kNone,
  kExhausted,   // every valid schedule was tried
  kTrialLimit,  // max_trials reached
  kNearFloor,   // within 5 % of what the hardware can do
  kNoGain,      // nothing gained for long, and nothing promising is left
};
std::string_view StopReasonName(StopReason reason);

struct SearchOptions {
  uint64_t seed = 1;
  Strategy strategy = Strategy::kEvolution;
  int initial_trials = 16;      // the first batch, default included
  int random_seeds = 2;         // of the first batch
  std::vector<Point> transfer;  // points that did well on similar tasks; tried in the first batch
  int max_trials = 0;           // in all, the log's included; 0 is no limit
  // Trials without a gain of 1 % after which coordinate descent begins. On the synthetic space of
  // the tests 12 reach after 64 trials what 24 reach after 90, and 8 are no better.
  int descent_patience = 12;
  double floor_ns = 0;     // what the hardware's roofline allows; 0 when unknown
  bool early_stop = true;  // stop for kNearFloor and kNoGain
  CandidateOptions candidates;
};

// A row of the tuning log for this task. `point` where the caller can tell it from the trace.
struct LoggedTrial {
  Fingerprint trace;
  std::optional<Point> point;
  Outcome outcome;
};

// Why points were passed over; for --explain.
struct SearchCounts {
  int trace_errors = 0;      // TraceFingerprint refused
  int duplicate_traces = 0;  // another point has the same trace
  int connected = 0;         // found in the log
  int random_picks = 0;
  int descent_picks = 0;
  int evolved_picks = 0;
};

class TaskSearch {
 public:
  // `model` may be null: then the prior and measured neighbours rank. `task` is its group in the
  // model.
  static StatusOr<std::unique_ptr<TaskSearch>> Create(const SpaceView* view,
                                                      model::CostModel* model, std::string task,
                                                      const SearchOptions& options,
                                                      std::span<const LoggedTrial> log);

  // At most n points; fewer, or none, when the search stops or all that is left is pending.
  std::vector<Point> Ask(int n);
  // A point that was not asked for is welcome too. InvalidArgument when it is not of the space or a
  // latency is not positive.
  Status Tell(const Point& point, const Outcome& outcome);
  // Measured outside the space: for example a default schedule that no knob setting expresses.
  Status TellTrace(const LoggedTrial& trial);

  // Whether Ask() has ended for good, unless a pending point is lost.
  StopReason stop_reason();
  // P(some untried point beats the best by 0.5 %), 1 while the first batch lasts. Feeds the
  // scheduler.
  double ImproveProbability();

  int trials() const { return history_.trials(); }
  int pending() const { return history_.pending(); }
  double best_ns() const { return history_.best_ns(); }
  std::optional<Point> best() const;
  const History& history() const { return history_; }
  const SearchCounts& counts() const { return counts_; }
  const std::string& task() const { return task_; }
  // Valid points when the space was small enough to enumerate, else nullopt.
  std::optional<int64_t> space_size() const;

 private:
  TaskSearch(const SpaceView* view, model::CostModel* model, std::string task,
             const SearchOptions& options);

  std::optional<Candidate> NextCandidate(Rng& rng);
  std::optional<Candidate> NextSeed();
  std::optional<Candidate> NextDescent();
  std::optional<Candidate> NextEvolved(Rng& rng);
  std::optional<Candidate> NextRandom(Rng& rng);
  bool Claim(const Candidate& c);
  void RefreshPool(Rng& rng);
  bool NoGain();
  bool AnythingLeft();
  double Acquisition(const Candidate& c) const;
  bool CellIsFull(const Point& p) const;
  Status Learn(const Point& point, const std::string& key, const Outcome& outcome);
  void UpdateDescent();

  // Constant after construction.
  const SpaceView& view_;
  model::CostModel* const model_;
  const std::string task_;
  const SearchOptions options_;

  History history_;
  Scorer scorer_;
  Candidates candidates_;
  SearchCounts counts_;
  // An outcome is still to be connected to its point.
  std::map<Fingerprint, std::optional<Outcome>> traces_;
  std::map<std::string, Fingerprint> pending_traces_;  // by key
  std::vector<Point> seeds_;
  size_t next_seed_ = 0;
  std::vector<Candidate> pool_;
  int pool_fits_ = -1;    // the model's fits when the pool was bred
  int pool_picks_ = 0;    // since then
  double pool_best_ = 0;  // then
  std::deque<Cell> recent_cells_;
  bool descending_ = false;
  int descent_from_ = 0;              // trials before this do not count as without gain
  double descent_best_ = kNoLatency;  // when the last pass ended
};

}  // namespace whet::search
