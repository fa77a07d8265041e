// What is known of one task: which schedules were tried, what they took, which failed. The
// arithmetic of progress (best so far, trials without gain) and of failures lives here; decisions
// do not.
//
// A schedule is identified by its key. A failure is remembered as a failure, never as a slow time:
// the trees would learn that the invalid is slow, and the fast is often next to the invalid.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tuner/search/space_view.h"

namespace whet::search {

enum class OutcomeKind : uint8_t {
  kMeasured,  // verified and timed
  kFailed,    // the candidate's own fault: build error, crash, wrong output, time-out
  kLost,      // not the candidate's fault (device or server gone): may be tried again
};

struct Outcome {
  OutcomeKind kind = OutcomeKind::kFailed;
  double latency_ns = 0;  // for kMeasured
  double noise = 0;       // relative standard deviation of the latency; 0 when unknown
};

struct Measured {
  Point point;
  std::string key;
  double latency_ns = 0;
};

inline constexpr double kNoLatency = std::numeric_limits<double>::infinity();

class History {
 public:
  // Is the schedule tried, pending, or ruled out?
  bool Seen(const std::string& key) const { return state_.contains(key); }
  void MarkPending(const Point& point, const std::string& key);
  // Ruled out without a trial: its trace cannot be made, or equals one that was tried.
  void MarkRuledOut(const std::string& key);

  // A trial of the space. A repeated measurement of the same key replaces its latency and counts no
  // trial.
  void Record(const Point& point, const std::string& key, const Outcome& outcome);
  // A trial of a trace that the space cannot express, or not yet connected to a point.
  void RecordForeign(const Outcome& outcome);
  // The outcome of a foreign trial turns out to be this point's: no further trial.
  void Connect(const Point& point, const std::string& key, const Outcome& outcome);

  int trials() const { return static_cast<int>(best_after_.size()); }
  int failures() const { return failures_; }
  int pending() const { return static_cast<int>(pending_.size()); }
  const std::map<std::string, Point>& pending_points() const { return pending_; }
  // Fastest first; ties by key.
  const std::vector<Measured>& ranking() const { return ranking_; }
  double best_ns() const;  // kNoLatency before the first success
  // The best after that many trials; kNoLatency for 0.
  double BestAfter(int trials) const;
  // Trials since the best improved by at least this share.
  int TrialsWithoutGain(double share) const;
  // 0 to 1: how likely a point fails, judged by the knob values that it shares with failures. One
  // failure of a value is no evidence.
  double FailureRisk(const Point& point) const;

 private:
  enum class State : uint8_t { kPending, kMeasured, kFailed, kRuledOut };
  struct Counts {
    int failed = 0;
    int total = 0;
  };
  void Rank(const Point& point, const std::string& key, double latency_ns);
  void CountTrial(double latency_ns);
  void CountFailure(const Point& point, bool failed);

  std::unordered_map<std::string, State> state_;
  std::map<std::string, Point> pending_;
  std::unordered_map<std::string, int> losses_;
  std::map<std::vector<int>, Counts> failure_counts_;  // {variant}, {variant, knob, index}
  std::vector<Measured> ranking_;
  std::vector<double> best_after_;
  double foreign_best_ns_ = kNoLatency;
  int failures_ = 0;
};

}  // namespace whet::search
