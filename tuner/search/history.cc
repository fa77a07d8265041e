#include "tuner/search/history.h"

#include <algorithm>
#include <cmath>

namespace whet::search {
namespace {

// A candidate that takes its device down reads as lost every time. After this many it counts as
// failed.
constexpr int kMaxLosses = 2;

}  // namespace

void History::MarkPending(const Point& point, const std::string& key) {
  state_[key] = State::kPending;
  pending_[key] = point;
}

void History::MarkRuledOut(const std::string& key) { state_.emplace(key, State::kRuledOut); }

void History::Record(const Point& point, const std::string& key, const Outcome& outcome) {
  pending_.erase(key);
  const auto it = state_.find(key);
  const bool known =
      it != state_.end() && (it->second == State::kMeasured || it->second == State::kFailed);
  if (known) {
    if (outcome.kind == OutcomeKind::kMeasured) Rank(point, key, outcome.latency_ns);
    return;
  }
  if (outcome.kind == OutcomeKind::kLost && ++losses_[key] < kMaxLosses) {
    state_.erase(key);
    return;
  }
  Connect(point, key, outcome);
  CountTrial(outcome.kind == OutcomeKind::kMeasured ? outcome.latency_ns : kNoLatency);
  if (outcome.kind != OutcomeKind::kMeasured) ++failures_;
}

void History::RecordForeign(const Outcome& outcome) {
  if (outcome.kind == OutcomeKind::kLost) return;
  if (outcome.kind == OutcomeKind::kMeasured)
    foreign_best_ns_ = std::min(foreign_best_ns_, outcome.latency_ns);
  CountTrial(outcome.kind == OutcomeKind::kMeasured ? outcome.latency_ns : kNoLatency);
  if (outcome.kind != OutcomeKind::kMeasured) ++failures_;
}

void History::Connect(const Point& point, const std::string& key, const Outcome& outcome) {
  const bool measured = outcome.kind == OutcomeKind::kMeasured;
  state_[key] = measured ? State::kMeasured : State::kFailed;
  CountFailure(point, !measured);
  if (measured) Rank(point, key, outcome.latency_ns);
}

void History::Rank(const Point& point, const std::string& key, double latency_ns) {
  std::erase_if(ranking_, [&](const Measured& m) { return m.key == key; });
  const auto at = std::ranges::find_if(ranking_, [&](const Measured& m) {
    return m.latency_ns > latency_ns || (m.latency_ns == latency_ns && m.key > key);
  });
  ranking_.insert(at, {point, key, latency_ns});
}

double History::best_ns() const {
  return ranking_.empty() ? foreign_best_ns_
                          : std::min(foreign_best_ns_, ranking_.front().latency_ns);
}

void History::CountTrial(double latency_ns) {
  best_after_.push_back(
      std::min(latency_ns, best_after_.empty() ? kNoLatency : best_after_.back()));
}

void History::CountFailure(const Point& point, bool failed) {
  for (size_t k = 0; k < point.index.size(); ++k) {
    Counts& c = failure_counts_[{point.variant, static_cast<int>(k), point.index[k]}];
    c.failed += failed;
    ++c.total;
  }
  Counts& c = failure_counts_[{point.variant}];
  c.failed += failed;
  ++c.total;
}

double History::BestAfter(int trials) const {
  if (trials <= 0 || best_after_.empty()) return kNoLatency;
  return best_after_[std::min(trials, this->trials()) - 1];
}

int History::TrialsWithoutGain(double share) const {
  const int n = trials();
  int since = 0;
  // Walk back to the trial from which on the best fell by less than the share in total.
  while (since < n) {
    const double before = BestAfter(n - since - 1);
    const bool gained = std::isinf(before) ? std::isfinite(best_after_.back())
                                           : best_after_.back() <= before * (1 - share);
    if (gained) break;
    ++since;
  }
  return since;
}

double History::FailureRisk(const Point& point) const {
  double risk = 0;
  const auto add = [&](const std::vector<int>& what) {
    const auto it = failure_counts_.find(what);
    if (it == failure_counts_.end()) return;
    risk = std::max(risk, static_cast<double>(it->second.failed - 1) / (it->second.total + 2));
  };
  add({point.variant});
  for (size_t k = 0; k < point.index.size(); ++k)
    add({point.variant, static_cast<int>(k), point.index[k]});
  return risk;
}

}  // namespace whet::search
