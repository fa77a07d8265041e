#include "tuner/search/task_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace whet::search {
namespace {

constexpr int kRecentSlices = 2;
// A task may reach twice the throughput of the best similar one.
constexpr double kSimilarSpeedup = 2;
constexpr double kReachableRoofline = 0.9;
constexpr double kCostSmoothing = 0.2;
constexpr int kSeedSlice = 4;

}  // namespace

int TaskScheduler::AddTask(TaskSearch* search, TaskWeight weight) {
  tasks_.push_back({search, std::move(weight)});
  return static_cast<int>(tasks_.size()) - 1;
}

int TaskScheduler::trials() const {
  int n = 0;
  for (const Task& t : tasks_) n += t.search->trials();
  return n;
}

int TaskScheduler::pending() const {
  int n = 0;
  for (const Task& t : tasks_) n += t.search->pending();
  return n;
}

int TaskScheduler::Budget() const {
  if (!options_.total_trials) return std::numeric_limits<int>::max();
  return std::max(0, *options_.total_trials - trials() - pending());
}

// Half of a small budget goes to seeds, so that the other half can go where it pays.
int TaskScheduler::SeedQuota() const {
  if (!options_.total_trials) return options_.seeds;
  const int share = *options_.total_trials / (2 * static_cast<int>(tasks_.size()));
  return std::clamp(share, 1, std::max(1, options_.seeds));
}

int TaskScheduler::SliceLength() const {
  if (!options_.total_trials) return options_.slice;
  const int share = *options_.total_trials / (4 * static_cast<int>(tasks_.size()));
  return std::clamp(share, 1, std::max(1, options_.slice));
}

std::vector<Assignment> TaskScheduler::Ask(int n) {
  std::vector<Assignment> out;
  if (tasks_.empty()) return out;
  std::vector<bool> blocked(tasks_.size(), false);
  n = std::min(n, Budget());
  while (static_cast<int>(out.size()) < n) {
    if (current_ < 0 || slice_left_ <= 0 || blocked[current_]) {
      current_ = Choose(blocked);
      if (current_ < 0) break;
      const TaskSearch& s = *tasks_[current_].search;
      const int to_quota = SeedQuota() - s.trials() - s.pending();
      slice_left_ = to_quota > 0 ? std::min(to_quota, kSeedSlice) : SliceLength();
    }
    const int want = std::min(slice_left_, n - static_cast<int>(out.size()));
    std::vector<Point> points = tasks_[current_].search->Ask(want);
    slice_left_ -= static_cast<int>(points.size());
    if (static_cast<int>(points.size()) < want) blocked[current_] = true;
    for (Point& p : points) out.push_back({current_, std::move(p)});
  }
  return out;
}

Status TaskScheduler::Tell(int task, const Point& point, const Outcome& outcome, double seconds) {
  if (task < 0 || task >= static_cast<int>(tasks_.size())) {
    return InvalidArgument("a result for task {} of {}", task, tasks_.size());
  }
  Task& t = tasks_[task];
  if (seconds > 0 && std::isfinite(seconds)) {
    t.seconds = t.seconds == 0 ? seconds : t.seconds + kCostSmoothing * (seconds - t.seconds);
  }
  return t.search->Tell(point, outcome);
}

bool TaskScheduler::Done() const {
  if (pending() > 0) return false;
  if (Budget() == 0) return true;
  return std::ranges::all_of(
      tasks_, [](const Task& t) { return t.search->stop_reason() != StopReason::kNone; });
}

double TaskScheduler::WeightedBestNs() const {
  double sum = 0;
  for (const Task& t : tasks_) {
    if (std::isfinite(t.search->best_ns())) sum += t.weight.weight * t.search->best_ns();
  }
  return sum;
}

int TaskScheduler::Choose(const std::vector<bool>& blocked) const {
  // Seeds: the task with the fewest trials; of equals the first.
  int best = -1, fewest = SeedQuota();
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const int trials = tasks_[i].search->trials() + tasks_[i].search->pending();
    if (!blocked[i] && trials < fewest && tasks_[i].search->stop_reason() == StopReason::kNone) {
      best = static_cast<int>(i);
      fewest = trials;
    }
  }
  if (best >= 0) return best;
  double most = 0;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (blocked[i] || tasks_[i].search->stop_reason() != StopReason::kNone) continue;
    const double gain = Gain(static_cast<int>(i));
    if (best < 0 || gain > most) {
      best = static_cast<int>(i);
      most = gain;
    }
  }
  return best;
}

double TaskScheduler::MeanSeconds() const {
  double sum = 0;
  int told = 0;
  for (const Task& t : tasks_) {
    sum += t.seconds;
    told += t.seconds > 0;
  }
  return told > 0 ? sum / told : 1;
}

double TaskScheduler::Floor(int task) const {
  const TaskWeight& w = tasks_[task].weight;
  double floor = w.floor_ns / kReachableRoofline;
  if (w.flops <= 0 || w.tag.empty()) return floor;
  double fastest = 0;  // flops per ns
  for (const Task& t : tasks_) {
    if (t.weight.tag == w.tag && std::isfinite(t.search->best_ns())) {
      fastest = std::max(fastest, t.weight.flops / t.search->best_ns());
    }
  }
  if (fastest > 0) floor = std::max(floor, w.flops / (kSimilarSpeedup * fastest));
  return floor;
}

double TaskScheduler::Gain(int task) const {
  const Task& t = tasks_[task];
  const double g = t.search->best_ns();
  const int trials = t.search->trials();
  // Nothing succeeded yet: better than nothing, worse than any task that can be compared.
  if (!std::isfinite(g) || trials == 0) return 0;
  const int window = std::min(trials - 1, kRecentSlices * SliceLength());
  double recent = 0;
  if (window > 0) {
    const double before = t.search->history().BestAfter(trials - window);
    if (std::isfinite(before))
      recent = std::max(0.0, before - t.search->history().BestAfter(trials)) / window;
  }
  const double possible = std::max(0.0, std::min(g / trials, g - Floor(task)));
  const double cost = t.seconds > 0 ? t.seconds : MeanSeconds();
  const double expected = options_.alpha * recent + (1 - options_.alpha) * possible;
  return t.weight.weight * expected * t.search->ImproveProbability() / cost;
}

}  // namespace whet::search
