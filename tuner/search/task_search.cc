#include "tuner/search/task_search.h"

#include <algorithm>
#include <cmath>

#include "tuner/search/space_walk.h"

namespace whet::search {
namespace {

// Keeps the model's data from holding only its own favourites.
constexpr double kRandomShareEarly = 0.10;
constexpr double kRandomShare = 0.03;
constexpr int kEarlyTrials = 64;
constexpr double kKappaEarly = 0.5, kKappaLate = 0.1;  // weight of the uncertainty
constexpr int kCellWindow = 16, kCellLimit = 4;  // at most a quarter of 16 proposals from one cell
constexpr int kPoolPicks = 16;
constexpr double kDescentGain = 0.01;
constexpr size_t kDescentCentres = 3;
// Without a model, the chance of a gain halves after so many trials without.
constexpr double kGuessTrials = 24;
constexpr int kStopPatience = 32;
constexpr double kStopGain = 0.005;
// Of a still promising point: 1 % faster at mean plus one sigma.
constexpr double kStopPromise = 0.01;
constexpr double kNearFloor = 0.95;
// Log time, for a neighbour of a point that is being measured.
constexpr double kPendingPenalty = 0.02;

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

}  // namespace

std::string_view StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kNone: return "none";
    case StopReason::kExhausted: return "exhausted";
    case StopReason::kTrialLimit: return "trial-limit";
    case StopReason::kNearFloor: return "near-floor";
    case StopReason::kNoGain: return "no-gain";
  }
  return "unknown";
}

TaskSearch::TaskSearch(const SpaceView* view, model::CostModel* model, std::string task,
                       const SearchOptions& options)
    : view_(*view),
      model_(model),
      task_(std::move(task)),
      options_(options),
      scorer_(view_, model, task_),
      candidates_(view_, options.candidates, SplitMix(options.seed)) {}

StatusOr<std::unique_ptr<TaskSearch>> TaskSearch::Create(const SpaceView* view,
                                                         model::CostModel* model, std::string task,
                                                         const SearchOptions& options,
                                                         std::span<const LoggedTrial> log) {
  for (const Variant& v : view->Variants()) {
    for (const KnobDomain& k : v.knobs) {
      if (k.values.empty()) {
        return InvalidArgument("task '{}': knob '{}' of rule '{}' has no values", task, k.name,
                               v.name);
      }
    }
  }
  if (model != nullptr && model->feature_count() != view->FeatureCount()) {
    return InvalidArgument("task '{}': {} features, the model takes {}", task, view->FeatureCount(),
                           model->feature_count());
  }
  std::unique_ptr<TaskSearch> search(new TaskSearch(view, model, std::move(task), options));
  for (const LoggedTrial& trial : log) WHET_RETURN_IF_ERROR(search->TellTrace(trial));
  if (const auto p = view->DefaultPoint(); p && InSpace(*view, *p)) search->seeds_.push_back(*p);
  if (options.strategy == Strategy::kEvolution) {
    for (const Point& p : options.transfer) {
      if (InSpace(*view, p) && view->Valid(p)) search->seeds_.push_back(p);
    }
    const int prior_best = std::max(
        0, options.initial_trials - static_cast<int>(search->seeds_.size()) - options.random_seeds);
    const auto batch =
        search->candidates_.Seeds(prior_best, options.random_seeds, SplitMix(options.seed + 1));
    search->seeds_.insert(search->seeds_.end(), batch.begin(), batch.end());
  }
  return search;
}

std::vector<Point> TaskSearch::Ask(int n) {
  std::vector<Point> out;
  if (model_ != nullptr)
    model_->FitIfDue().IgnoreError();  // the former model stays; the next rows try again
  if (static_cast<int>(out.size()) < n && stop_reason() != StopReason::kNone) return out;
  Rng rng(SplitMix(options_.seed ^ (static_cast<uint64_t>(trials() + pending()) << 20)));
  while (static_cast<int>(out.size()) < n) {
    if (options_.max_trials > 0 && trials() + pending() >= options_.max_trials) break;
    std::optional<Candidate> c = NextCandidate(rng);
    if (!c) c = candidates_.Sweep(history_);
    if (!c) break;
    if (Claim(*c)) out.push_back(c->point);
  }
  return out;
}

std::optional<Candidate> TaskSearch::NextCandidate(Rng& rng) {
  if (auto c = NextSeed()) return c;
  if (options_.strategy == Strategy::kRandom) return NextRandom(rng);
  const double random_share = trials() < kEarlyTrials ? kRandomShareEarly : kRandomShare;
  if (rng.Uniform() < random_share) {
    if (auto c = NextRandom(rng)) return c;
  }
  UpdateDescent();
  if (descending_) {
    if (auto c = NextDescent()) return c;
  }
  return NextEvolved(rng);
}

std::optional<Candidate> TaskSearch::NextSeed() {
  for (; next_seed_ < seeds_.size(); ++next_seed_) {
    // With a long log the first batch is history; the default schedule is always measured.
    const bool is_default = next_seed_ == 0 && view_.DefaultPoint() == seeds_[0];
    if (!is_default && trials() + pending() >= options_.initial_trials) return std::nullopt;
    const Point& p = seeds_[next_seed_];
    std::string key = view_.Key(p);
    if (!history_.Seen(key)) return Candidate{p, std::move(key)};
  }
  return std::nullopt;
}

std::optional<Candidate> TaskSearch::NextRandom(Rng& rng) {
  auto c = candidates_.Random(history_, rng);
  if (c) ++counts_.random_picks;
  return c;
}

// Coordinate descent: the most promising untried neighbour of the three best. It moves on by itself
// when one of them wins, and ends when all neighbours are tried.
std::optional<Candidate> TaskSearch::NextDescent() {
  std::vector<Candidate> around;
  for (size_t i = 0; i < std::min(kDescentCentres, history_.ranking().size()); ++i) {
    for (Point& p : Neighbours(view_, history_.ranking()[i].point)) {
      std::string key = view_.Key(p);
      const bool again =
          std::ranges::any_of(around, [&](const Candidate& c) { return c.key == key; });
      if (!again && !history_.Seen(key)) around.push_back({std::move(p), std::move(key)});
    }
  }
  scorer_.Score(around, history_);
  if (around.empty()) return std::nullopt;
  const auto best = std::ranges::max_element(around, [&](const Candidate& a, const Candidate& b) {
    const double sa = Acquisition(a), sb = Acquisition(b);
    return sa != sb ? sa < sb : a.key > b.key;
  });
  ++counts_.descent_picks;
  return *best;
}

void TaskSearch::UpdateDescent() {
  const int stale = std::min(history_.TrialsWithoutGain(kDescentGain), trials() - descent_from_);
  if (!descending_) {
    descending_ = stale >= options_.descent_patience && !history_.ranking().empty();
    return;
  }
  for (size_t i = 0; i < std::min(kDescentCentres, history_.ranking().size()); ++i) {
    for (const Point& p : Neighbours(view_, history_.ranking()[i].point)) {
      const std::string key = view_.Key(p);
      if (!history_.Seen(key)) return;
      if (history_.pending_points().contains(key))
        return;  // it may still win and open new neighbours
    }
  }
  descending_ = false;
  descent_from_ = trials();
  descent_best_ = history_.best_ns();
}

std::optional<Candidate> TaskSearch::NextEvolved(Rng& rng) {
  RefreshPool(rng);
  std::erase_if(pool_, [&](const Candidate& c) { return history_.Seen(c.key); });
  const Candidate* best = nullptr;
  for (int pass = 0; pass < 2 && best == nullptr; ++pass) {
    double best_value = 0;
    for (const Candidate& c : pool_) {
      if (pass == 0 && CellIsFull(c.point)) continue;  // unless nothing else is left
      const double value = Acquisition(c);
      if (best == nullptr || value > best_value) {
        best = &c;
        best_value = value;
      }
    }
  }
  if (best == nullptr) return NextRandom(rng);
  ++pool_picks_;
  ++counts_.evolved_picks;
  return *best;
}

void TaskSearch::RefreshPool(Rng& rng) {
  const int fits = model_ == nullptr ? 0 : model_->fits();
  const bool stale = pool_fits_ != fits || pool_picks_ >= kPoolPicks || pool_.empty() ||
                     history_.best_ns() < pool_best_ * (1 - kDescentGain);
  if (!stale) return;
  pool_ = candidates_.Pool(history_, scorer_, rng);
  pool_fits_ = fits;
  pool_picks_ = 0;
  pool_best_ = history_.best_ns();
}

// Upper confidence bound. A pending point counts as if it had come out as predicted: its neighbours
// teach less and are worth less until it is told.
double TaskSearch::Acquisition(const Candidate& c) const {
  const double progress = std::min(1.0, static_cast<double>(trials()) / kEarlyTrials);
  double kappa = kKappaEarly + (kKappaLate - kKappaEarly) * progress;
  double value = c.score;
  for (const auto& [key, p] : history_.pending_points()) {
    const int steps = StepsApart(c.point, p);
    if (steps > 2) continue;
    kappa *= steps <= 1 ? 0.3 : 0.6;
    value -= kPendingPenalty / steps;
  }
  const double risk = history_.FailureRisk(c.point);
  return value + kappa * c.sigma + std::log1p(-std::min(risk, 0.99));
}

bool TaskSearch::CellIsFull(const Point& p) const {
  return std::ranges::count(recent_cells_, CellOf(p)) >= kCellLimit;
}

// Takes the candidate out of the untried ones. True when it is to be measured.
bool TaskSearch::Claim(const Candidate& c) {
  const auto trace = view_.TraceFingerprint(c.point);
  if (!trace.ok()) {
    ++counts_.trace_errors;
    history_.MarkRuledOut(c.key);
    return false;
  }
  const auto [it, fresh] = traces_.emplace(*trace, std::nullopt);
  if (!fresh) {
    if (!it->second) {
      ++counts_.duplicate_traces;
      history_.MarkRuledOut(c.key);
      return false;
    }
    const Outcome outcome = *std::exchange(it->second, std::nullopt);
    ++counts_.connected;
    history_.Connect(c.point, c.key, outcome);
    Learn(c.point, c.key, outcome)
        .IgnoreError();  // a log row may lack what a new row needs; it is tried anyway
    return false;
  }
  history_.MarkPending(c.point, c.key);
  pending_traces_[c.key] = *trace;
  recent_cells_.push_back(CellOf(c.point));
  if (recent_cells_.size() > kCellWindow) recent_cells_.pop_front();
  return true;
}

Status TaskSearch::Tell(const Point& point, const Outcome& outcome) {
  if (!InSpace(view_, point))
    return InvalidArgument("task '{}': a result for a point outside its space", task_);
  if (outcome.kind == OutcomeKind::kMeasured &&
      !(outcome.latency_ns > 0 && std::isfinite(outcome.latency_ns))) {
    return InvalidArgument("task '{}': a latency of {} ns", task_, outcome.latency_ns);
  }
  const std::string key = view_.Key(point);
  // Replaying the trace is the dear part of a point; what was asked for has it already.
  StatusOr<Fingerprint> trace = Internal("unknown");
  if (const auto asked = pending_traces_.find(key); asked != pending_traces_.end()) {
    trace = asked->second;
    pending_traces_.erase(asked);
  } else {
    trace = view_.TraceFingerprint(point);
  }
  const int before = trials();
  history_.Record(point, key, outcome);
  if (outcome.kind == OutcomeKind::kLost && !history_.Seen(key)) {
    if (trace.ok()) traces_.erase(*trace);
    candidates_.RestartSweep();
    return OkStatus();
  }
  if (trace.ok()) traces_.insert_or_assign(*trace, std::nullopt);
  if (trials() == before) return OkStatus();  // a repeated measurement
  return Learn(point, key, outcome);
}

Status TaskSearch::TellTrace(const LoggedTrial& trial) {
  if (trial.outcome.kind == OutcomeKind::kLost) return OkStatus();
  if (trial.outcome.kind == OutcomeKind::kMeasured && !(trial.outcome.latency_ns > 0)) {
    return InvalidArgument("task '{}': a latency of {} ns in the log", task_,
                           trial.outcome.latency_ns);
  }
  // The fingerprint is the truth: a space may have changed since the point was written down.
  if (trial.point && InSpace(view_, *trial.point)) {
    const auto trace = view_.TraceFingerprint(*trial.point);
    if (trace.ok() && *trace == trial.trace) return Tell(*trial.point, trial.outcome);
  }
  const auto [it, fresh] = traces_.emplace(trial.trace, trial.outcome);
  if (fresh) history_.RecordForeign(trial.outcome);
  return OkStatus();
}

// Failures teach the history only.
Status TaskSearch::Learn(const Point& point, const std::string& key, const Outcome& outcome) {
  if (outcome.kind != OutcomeKind::kMeasured || model_ == nullptr) return OkStatus();
  WHET_ASSIGN_OR_RETURN(std::vector<float> features, scorer_.Features(point, key));
  return model_->Add(task_, features, view_.PriorNs(point), outcome.latency_ns, outcome.noise);
}

std::optional<Point> TaskSearch::best() const {
  if (history_.ranking().empty()) return std::nullopt;
  return history_.ranking().front().point;
}

std::optional<int64_t> TaskSearch::space_size() const {
  if (!candidates_.enumerated()) return std::nullopt;
  return candidates_.size();
}

StopReason TaskSearch::stop_reason() {
  if (options_.max_trials > 0 && trials() + pending() >= options_.max_trials)
    return StopReason::kTrialLimit;
  if (!AnythingLeft()) return StopReason::kExhausted;
  if (!options_.early_stop || trials() < options_.initial_trials) return StopReason::kNone;
  if (options_.floor_ns > 0 && options_.floor_ns >= kNearFloor * best_ns())
    return StopReason::kNearFloor;
  if (options_.strategy == Strategy::kEvolution && NoGain()) return StopReason::kNoGain;
  return StopReason::kNone;
}

bool TaskSearch::AnythingLeft() {
  if (NextSeed() || candidates_.Sweep(history_)) return true;
  // The sweep of a large space gives up early; what others would still find counts.
  if (candidates_.enumerated()) return false;
  Rng rng(SplitMix(options_.seed + 2));
  return candidates_.Random(history_, rng).has_value();
}

bool TaskSearch::NoGain() {
  const int patience = std::max(kStopPatience, trials() / 3);
  const int stale = history_.TrialsWithoutGain(kStopGain);
  if (stale < patience) return false;
  if (history_.ranking().empty()) return stale >= 2 * patience;
  // A pass of coordinate descent must have ended without a gain.
  if (descent_best_ > history_.best_ns() * (1 + kStopGain)) return false;
  if (stale >= 3 * kStopPatience) return true;
  if (model_ == nullptr || !model_->usable()) return stale >= 2 * patience;
  const double best = -std::log(history_.best_ns());
  return std::ranges::none_of(pool_, [&](const Candidate& c) {
    return !history_.Seen(c.key) && c.score + c.sigma > best + kStopPromise;
  });
}

double TaskSearch::ImproveProbability() {
  if (trials() < options_.initial_trials || history_.ranking().empty()) return 1;
  if (model_ == nullptr || !model_->usable() || pool_.empty()) {
    return 1 / (1 + history_.TrialsWithoutGain(kDescentGain) / kGuessTrials);
  }
  const double target = -std::log(history_.best_ns()) + kStopGain;
  double p = 0;
  for (const Candidate& c : pool_) {
    if (c.sigma > 0 && !history_.Seen(c.key))
      p = std::max(p, NormalCdf((c.score - target) / c.sigma));
  }
  return p;
}

}  // namespace whet::search
