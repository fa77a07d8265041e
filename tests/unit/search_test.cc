#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <memory>

#include "tests/unit/synthetic_space.h"
#include "tuner/search/space_walk.h"
#include "tuner/search/task_scheduler.h"
#include "tuner/search/task_search.h"

namespace whet::search {
namespace {

using Measure = std::function<Outcome(const Point&)>;

Measure Ideal(const SyntheticSpace& space) {
  return [&space](const Point& p) {
    return Outcome{OutcomeKind::kMeasured, space.LatencyNs(p), 0.01};
  };
}

std::unique_ptr<TaskSearch> MakeSearch(const SpaceView& space, model::CostModel* model,
                                       SearchOptions options,
                                       std::span<const LoggedTrial> log = {}) {
  auto s = TaskSearch::Create(&space, model, "task", options, log);
  EXPECT_TRUE(s.ok()) << s.status();
  return std::move(*s);
}

// `lanes` points are being measured at any time, and are told in the order asked.
std::vector<Point> RunTrials(TaskSearch& search, const Measure& measure, int trials,
                             int lanes = 2) {
  std::vector<Point> asked;
  std::deque<Point> flying;
  while (search.trials() < trials) {
    const int want = std::min(lanes - static_cast<int>(flying.size()),
                              trials - search.trials() - search.pending());
    for (Point& p : search.Ask(std::max(0, want))) {
      asked.push_back(p);
      flying.push_back(std::move(p));
    }
    if (flying.empty()) break;
    const Status told = search.Tell(flying.front(), measure(flying.front()));
    EXPECT_TRUE(told.ok()) << told;
    flying.pop_front();
  }
  for (const Point& p : flying) EXPECT_TRUE(search.Tell(p, measure(p)).ok());
  return asked;
}

std::vector<Point> AllValid(const SpaceView& space) {
  std::vector<Point> all;
  PointCounter counter(space);
  while (auto p = counter.Next()) {
    if (space.Valid(*p)) all.push_back(*p);
  }
  return all;
}

double TrueBest(const SyntheticSpace& space) {
  double best = kNoLatency;
  for (const Point& p : AllValid(space)) best = std::min(best, space.TrueNs(p));
  return best;
}

struct Quality {
  double excess = 0;  // mean over seeds of ln(best found / best there is)
  double worst = 0;
};

Quality Compare(Strategy strategy, bool with_model, int trials,
                const CandidateOptions& candidates = {}) {
  Quality q;
  constexpr int kSeeds = 8;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const SyntheticSpace space(seed % 3);
    model::CostModel model(space.FeatureCount());
    SearchOptions options;
    options.seed = 100 + seed;
    options.strategy = strategy;
    options.early_stop = false;
    options.candidates = candidates;
    auto search = MakeSearch(space, with_model ? &model : nullptr, options);
    RunTrials(*search, Ideal(space), trials);
    EXPECT_EQ(search->trials(), trials);
    const double excess = std::log(space.TrueNs(*search->best()) / TrueBest(space));
    q.excess += excess / kSeeds;
    q.worst = std::max(q.worst, excess);
  }
  return q;
}

TEST(TaskSearch, EvolutionWithModelBeatsRandomByFar) {
  const Quality random = Compare(Strategy::kRandom, false, 64),
                evolution = Compare(Strategy::kEvolution, true, 64);
  RecordProperty("random_excess", std::to_string(random.excess));
  RecordProperty("evolution_excess", std::to_string(evolution.excess));
  EXPECT_LT(evolution.excess, random.excess / 5);  // mean distance to the optimum, in log time
  EXPECT_LT(evolution.excess, 0.03);
  EXPECT_LT(evolution.worst, random.excess);
}

TEST(TaskSearch, ModelHelpsEvolution) {
  const Quality plain = Compare(Strategy::kEvolution, false, 48),
                model = Compare(Strategy::kEvolution, true, 48);
  RecordProperty("plain_excess", std::to_string(plain.excess));
  RecordProperty("model_excess", std::to_string(model.excess));
  EXPECT_LT(model.excess, 0.75 * plain.excess);
}

// How far the best of the model's eight favourites among 400 unseen points is from the best of
// them.
double FavouritesExcess(const SyntheticSpace& space, const model::CostModel& model,
                        const std::string& task, uint64_t seed) {
  Rng rng(seed);
  std::vector<std::pair<double, double>> by_score;  // (-score, true ns)
  double best = kNoLatency;
  for (int i = 0; i < 400; ++i) {
    const Point p = *RandomValid(space, rng);
    const double prior[] = {space.PriorNs(p)};
    by_score.emplace_back(-(*model.Predict(task, *space.Features(p), prior))[0].score,
                          space.TrueNs(p));
    best = std::min(best, space.TrueNs(p));
  }
  std::sort(by_score.begin(), by_score.end());
  double favourite = kNoLatency;
  for (int i = 0; i < 8; ++i) favourite = std::min(favourite, by_score[i].second);
  return std::log(favourite / best);
}

// A third task with 16 trials, alone or after 48 trials of two others alike but for the optimum and
// the unit.
TEST(TaskSearch, TasksLearnFromEachOther) {
  const SyntheticSpace spaces[] = {SyntheticSpace(0, 1e5), SyntheticSpace(1, 1e4),
                                   SyntheticSpace(2, 1e6)};
  double alone = 0, together = 0;
  for (int seed = 0; seed < 8; ++seed) {
    for (int first : {0, 2}) {
      model::CostModel model(spaces[0].FeatureCount());
      for (int t = first; t < 3; ++t) {
        SearchOptions options;
        options.seed = 40 + seed;
        auto s = TaskSearch::Create(&spaces[t], &model, std::to_string(t), options, {});
        ASSERT_TRUE(s.ok()) << s.status();
        RunTrials(**s, Ideal(spaces[t]), t == 2 ? 16 : 48);
      }
      ASSERT_TRUE(
          model.Install(*model::Train(model.rows(), model.options()), model.rows().rows()).ok());
      (first == 0 ? together : alone) += FavouritesExcess(spaces[2], model, "2", seed) / 8;
    }
  }
  RecordProperty("alone_excess", std::to_string(alone));
  RecordProperty("together_excess", std::to_string(together));
  EXPECT_LT(together, 0.75 * alone);
}

TEST(TaskSearch, ABatchIsNotAllFromOneCell) {
  const SyntheticSpace space;
  model::CostModel model(space.FeatureCount());
  auto search = MakeSearch(space, &model, {});
  RunTrials(*search, Ideal(space), 20);
  std::map<Cell, int> cells;
  for (const Point& p : search->Ask(16)) ++cells[CellOf(p)];
  for (const auto& [cell, n] : cells) EXPECT_LE(n, 5);  // four, and one that came by chance
}

TEST(TaskSearch, LargeSpacesAreBredRatherThanEnumerated) {
  CandidateOptions large;
  large.enumerate_limit = 100;
  const Quality evolution = Compare(Strategy::kEvolution, true, 96, large);
  const Quality random = Compare(Strategy::kRandom, false, 96, large);
  EXPECT_LT(evolution.excess, random.excess / 2);
}

TEST(TaskSearch, SameSeedAndLogGiveTheSameProposals) {
  const SyntheticSpace space;
  std::vector<std::vector<Point>> runs;
  for (uint64_t seed : {5u, 5u, 6u}) {
    model::CostModel model(space.FeatureCount());
    SearchOptions options;
    options.seed = seed;
    auto search = MakeSearch(space, &model, options);
    runs.push_back(RunTrials(*search, Ideal(space), 60));
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

TEST(TaskSearch, ProposesOnlyValidPointsEachOnce) {
  const SyntheticSpace space;
  model::CostModel model(space.FeatureCount());
  SearchOptions options;
  options.early_stop = false;
  auto search = MakeSearch(space, &model, options);
  const std::vector<Point> asked = RunTrials(*search, Ideal(space), 120, 4);
  EXPECT_EQ(asked.size(), 120u);
  EXPECT_EQ(std::set<Point>(asked.begin(), asked.end()).size(), asked.size());
  for (const Point& p : asked) EXPECT_TRUE(InSpace(space, p) && space.Valid(p)) << space.Key(p);
}

TEST(TaskSearch, FirstBatchIsDefaultThenDiversePriorBest) {
  const SyntheticSpace space;
  auto search = MakeSearch(space, nullptr, {});
  const std::vector<Point> batch = search->Ask(16);
  ASSERT_EQ(batch.size(), 16u);
  EXPECT_EQ(batch[0], *space.DefaultPoint());
  double best_prior = kNoLatency;
  for (const Point& p : AllValid(space)) best_prior = std::min(best_prior, space.PriorNs(p));
  EXPECT_EQ(space.PriorNs(batch[1]), best_prior);
  std::set<Cell> cells;
  for (size_t i = 1; i < 14; ++i) {
    cells.insert(CellOf(batch[i]));
    for (size_t j = 1; j < i; ++j) EXPECT_GE(KnobsApart(batch[i], batch[j]), 2);
  }
  EXPECT_GE(cells.size(), 3u);
}

TEST(TaskSearch, TransferredPointsAreInTheFirstBatch) {
  const SyntheticSpace space;
  SearchOptions options;
  const Point hint{1, {3, 2, 1, 1}}, stale{7, {0}};
  options.transfer = {stale, hint};
  auto search = MakeSearch(space, nullptr, options);
  EXPECT_EQ(search->Ask(2)[1], hint);
}

// ---- resume
// ------------------------------------------------------------------------------------------

std::vector<LoggedTrial> LogOf(const SyntheticSpace& space, const std::vector<Point>& points,
                               bool with_points) {
  std::vector<LoggedTrial> log;
  for (const Point& p : points) {
    LoggedTrial row;
    row.trace = *space.TraceFingerprint(p);
    if (with_points) row.point = p;
    row.outcome = {OutcomeKind::kMeasured, space.LatencyNs(p), 0.01};
    log.push_back(row);
  }
  return log;
}

TEST(TaskSearch, ResumeRepeatsNoTrialAndEndsAsWell) {
  const SyntheticSpace space;
  SearchOptions options;
  model::CostModel whole_model(space.FeatureCount());
  auto whole = MakeSearch(space, &whole_model, options);
  const std::vector<Point> uninterrupted = RunTrials(*whole, Ideal(space), 80, 1);

  const std::vector<Point> first(uninterrupted.begin(), uninterrupted.begin() + 40);
  model::CostModel model(space.FeatureCount());
  auto resumed = MakeSearch(space, &model, options, LogOf(space, first, true));
  EXPECT_EQ(resumed->trials(), 40);
  EXPECT_EQ(model.rows().rows(), 40);
  const std::vector<Point> rest = RunTrials(*resumed, Ideal(space), 80, 1);
  EXPECT_EQ(rest.size(), 40u);
  const std::set<Point> before(first.begin(), first.end());
  for (const Point& p : rest) EXPECT_FALSE(before.contains(p)) << space.Key(p);
  EXPECT_NEAR(resumed->best_ns(), whole->best_ns(), 0.05 * whole->best_ns());
}

TEST(TaskSearch, LogRowsWithoutPointsAreConnectedWhenFound) {
  const SyntheticSpace space;
  SearchOptions options;
  model::CostModel first_model(space.FeatureCount());
  auto first_search = MakeSearch(space, &first_model, options);
  const std::vector<Point> first = RunTrials(*first_search, Ideal(space), 40, 1);

  model::CostModel model(space.FeatureCount());
  auto resumed = MakeSearch(space, &model, options, LogOf(space, first, false));
  EXPECT_EQ(resumed->trials(), 40);
  EXPECT_DOUBLE_EQ(resumed->best_ns(), first_search->best_ns());
  const std::vector<Point> rest = RunTrials(*resumed, Ideal(space), 80, 1);
  const std::set<Point> before(first.begin(), first.end());
  for (const Point& p : rest) EXPECT_FALSE(before.contains(p)) << space.Key(p);
  EXPECT_EQ(resumed->trials(), 80);
  EXPECT_GT(resumed->counts().connected, 0);
  EXPECT_EQ(model.rows().rows(), 40 + resumed->counts().connected);
}

TEST(TaskSearch, AFullLogAsksForNothing) {
  const TinySpace space;
  std::vector<LoggedTrial> log;
  for (const Point& p : AllValid(space)) {
    log.push_back({*space.TraceFingerprint(p), p, {OutcomeKind::kMeasured, space.Ns(p), 0.01}});
  }
  auto search = MakeSearch(space, nullptr, {}, log);
  EXPECT_TRUE(search->Ask(4).empty());
  EXPECT_EQ(search->stop_reason(), StopReason::kExhausted);
}

TEST(TaskSearch, APointThatNoLongerMatchesItsTraceIsNotBelieved) {
  const SyntheticSpace space;
  LoggedTrial row;
  row.trace = FingerprintOf("a trace of an older release");
  row.point = space.DefaultPoint();
  row.outcome = {OutcomeKind::kMeasured, 1.0, 0};
  auto search = MakeSearch(space, nullptr, {}, std::span(&row, 1));
  EXPECT_EQ(search->trials(), 1);
  EXPECT_FALSE(search->best());
  EXPECT_EQ(search->Ask(1).at(0), *space.DefaultPoint());
}

// ---- exhaustion and stopping
// -------------------------------------------------------------------------

TEST(TaskSearch, TriesEveryPointOfASmallSpaceThenStops) {
  const TinySpace space;
  for (const bool enumerated : {true, false}) {
    for (const Strategy strategy : {Strategy::kRandom, Strategy::kEvolution}) {
      model::CostModel model(space.FeatureCount());
      SearchOptions options;
      options.strategy = strategy;
      options.early_stop = false;
      if (!enumerated) options.candidates.enumerate_limit = 0;
      auto search = MakeSearch(space, &model, options);
      const auto measure = [&](const Point& p) {
        return Outcome{OutcomeKind::kMeasured, space.Ns(p), 0.01};
      };
      const std::vector<Point> asked = RunTrials(*search, measure, 1000, 3);
      EXPECT_EQ(std::set<Point>(asked.begin(), asked.end()).size(), AllValid(space).size());
      EXPECT_EQ(asked.size(), AllValid(space).size());
      EXPECT_TRUE(search->Ask(1).empty());
      EXPECT_EQ(search->stop_reason(), StopReason::kExhausted);
    }
  }
}

TEST(TaskSearch, PointsWithTheSameTraceAreMeasuredOnce) {
  TinySpace space;
  space.same_trace_for_unroll = true;
  SearchOptions options;
  options.early_stop = false;
  auto search = MakeSearch(space, nullptr, options);
  const auto measure = [&](const Point& p) {
    return Outcome{OutcomeKind::kMeasured, space.Ns(p), 0.01};
  };
  EXPECT_EQ(RunTrials(*search, measure, 1000).size(), AllValid(space).size() / 2);
  EXPECT_EQ(search->counts().duplicate_traces, static_cast<int>(AllValid(space).size() / 2));
}

TEST(TaskSearch, StopsNearTheFloorAndAtTheTrialLimit) {
  const SyntheticSpace space;
  SearchOptions options;
  options.floor_ns = 0.96 * TrueBest(space);
  model::CostModel model(space.FeatureCount());
  auto search = MakeSearch(space, &model, options);
  RunTrials(*search, Ideal(space), 2000);
  EXPECT_EQ(search->stop_reason(), StopReason::kNearFloor);
  EXPECT_LT(search->trials(), 300);

  SearchOptions limited;
  limited.max_trials = 10;
  auto short_search = MakeSearch(space, nullptr, limited);
  EXPECT_EQ(RunTrials(*short_search, Ideal(space), 2000, 4).size(), 10u);
  EXPECT_EQ(short_search->stop_reason(), StopReason::kTrialLimit);
}

TEST(TaskSearch, StopsWhenNothingGains) {
  const SyntheticSpace space;
  model::CostModel model(space.FeatureCount());
  auto search = MakeSearch(space, &model, {});
  RunTrials(*search, Ideal(space), 2000);
  EXPECT_EQ(search->stop_reason(), StopReason::kNoGain);
  EXPECT_LT(search->trials(), 400);
  EXPECT_GT(search->counts().descent_picks, 0);
  EXPECT_LT(std::log(space.TrueNs(*search->best()) / TrueBest(space)), 0.02);
}

TEST(TaskSearch, CoordinateDescentReachesALocalOptimum) {
  const SyntheticSpace space;
  SearchOptions options;
  options.early_stop = false;
  auto search = MakeSearch(space, nullptr, options);
  RunTrials(*search, Ideal(space), 300, 1);
  ASSERT_GT(search->counts().descent_picks, 0);
  for (const Point& p : Neighbours(space, *search->best())) {
    EXPECT_GE(space.LatencyNs(p), search->best_ns()) << space.Key(p);
  }
}

// ---- failures
// ----------------------------------------------------------------------------------------

TEST(TaskSearch, FailuresAreAvoidedAndNeverBecomeLabels) {
  const SyntheticSpace space;
  // Every candidate with a large k unroll crashes; the prior likes them.
  const auto crashes = [](const Point& p) { return p.index[2] >= 6; };
  model::CostModel model(space.FeatureCount());
  SearchOptions options;
  options.early_stop = false;
  auto search = MakeSearch(space, &model, options);
  const std::vector<Point> asked = RunTrials(
      *search,
      [&](const Point& p) {
        return crashes(p) ? Outcome{OutcomeKind::kFailed}
                          : Outcome{OutcomeKind::kMeasured, space.LatencyNs(p), 0.01};
      },
      120);
  const auto failed_early = std::count_if(asked.begin(), asked.begin() + 30, crashes);
  const auto failed_late = std::count_if(asked.end() - 60, asked.end(), crashes);
  EXPECT_GT(failed_early, 5);
  EXPECT_LT(failed_late, 6);
  EXPECT_EQ(model.rows().rows(), 120 - search->history().failures());
  for (const Measured& m : search->history().ranking()) EXPECT_FALSE(crashes(m.point));
}

TEST(TaskSearch, EndsWhenEverythingFails) {
  const SyntheticSpace space;
  model::CostModel model(space.FeatureCount());
  auto search = MakeSearch(space, &model, {});
  RunTrials(*search, [](const Point&) { return Outcome{OutcomeKind::kFailed}; }, 5000);
  EXPECT_EQ(search->stop_reason(), StopReason::kNoGain);
  EXPECT_LT(search->trials(), 200);
  EXPECT_FALSE(search->best());
  EXPECT_EQ(search->best_ns(), kNoLatency);
  EXPECT_EQ(model.rows().rows(), 0);
}

TEST(TaskSearch, ALostPointIsAskedAgainButNotForEver) {
  const TinySpace space;
  SearchOptions options;
  options.early_stop = false;
  auto search = MakeSearch(space, nullptr, options);
  const Point first = search->Ask(1).at(0);
  ASSERT_TRUE(search->Tell(first, {OutcomeKind::kLost}).ok());
  EXPECT_EQ(search->trials(), 0);
  EXPECT_EQ(search->pending(), 0);
  EXPECT_EQ(search->Ask(1).at(0), first);
  ASSERT_TRUE(search->Tell(first, {OutcomeKind::kLost}).ok());
  EXPECT_EQ(search->trials(), 1);  // now it counts as failed
  const std::vector<Point> asked =
      RunTrials(*search, [](const Point&) { return Outcome{OutcomeKind::kLost}; }, 1000, 3);
  EXPECT_EQ(asked.size(), 2 * (AllValid(space).size() - 1));
  EXPECT_EQ(search->stop_reason(), StopReason::kExhausted);
}

TEST(TaskSearch, PassesOverPointsWithoutTraceOrFeatures) {
  SyntheticSpace space;
  int i = 0;
  for (const Point& p : AllValid(space)) {
    if (++i % 3 == 0) space.bad_traces.insert(space.Key(p));
  }
  model::CostModel model(space.FeatureCount());
  auto search = MakeSearch(space, &model, {});
  for (const Point& p : RunTrials(*search, Ideal(space), 60))
    EXPECT_FALSE(space.bad_traces.contains(space.Key(p)));
  EXPECT_EQ(search->trials(), 60);
  EXPECT_GT(search->counts().trace_errors, 0);
}

TEST(TaskSearch, RefusesWhatIsNoResult) {
  const SyntheticSpace space;
  auto search = MakeSearch(space, nullptr, {});
  EXPECT_EQ(search->Tell({9, {}}, {OutcomeKind::kFailed}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(search->Tell({0, {0, 0, 0, 0, 0, 2}}, {OutcomeKind::kFailed}).code(),
            absl::StatusCode::kInvalidArgument);
  const Point p = search->Ask(1).at(0);
  EXPECT_FALSE(search->Tell(p, {OutcomeKind::kMeasured, 0, 0}).ok());
  EXPECT_FALSE(search->Tell(p, {OutcomeKind::kMeasured, std::nan(""), 0}).ok());
  EXPECT_TRUE(search->Tell(p, {OutcomeKind::kMeasured, 10, 0}).ok());
  ASSERT_TRUE(search->Tell(p, {OutcomeKind::kMeasured, 12, 0}).ok());  // measured again
  EXPECT_EQ(search->trials(), 1);
  EXPECT_EQ(search->best_ns(), 12);
  model::CostModel other(3);
  EXPECT_FALSE(TaskSearch::Create(&space, &other, "task", {}, {}).ok());
}

// ---- moves
// -------------------------------------------------------------------------------------------

TEST(SpaceWalk, MovesStayValidAndReachBothVariants) {
  const SyntheticSpace space;
  Rng rng(3);
  Point p = *space.DefaultPoint();
  std::set<int> variants;
  for (int i = 0; i < 2000; ++i) {
    const auto q = Mutate(space, p, rng);
    ASSERT_TRUE(q);
    ASSERT_TRUE(InSpace(space, *q) && space.Valid(*q) && *q != p);
    const auto c = Crossover(space, p, *q, rng);
    ASSERT_TRUE(!c || (InSpace(space, *c) && space.Valid(*c)));
    variants.insert(q->variant);
    p = *q;
  }
  EXPECT_EQ(variants.size(), 2u);
  EXPECT_FALSE(Crossover(space, {0, {0, 0, 0, 0, 0, 0}}, {1, {0, 0, 0, 0}}, rng));
}

TEST(SpaceWalk, CountsEveryPointOnce) {
  const SyntheticSpace space;
  PointCounter counter(space);
  std::set<Point> seen;
  while (auto p = counter.Next()) ASSERT_TRUE(seen.insert(*p).second);
  EXPECT_EQ(static_cast<double>(seen.size()), RawSize(space));
  EXPECT_EQ(seen.size(), 7u * 4 * 8 * 6 * 4 * 2 + 7 * 4 * 8 * 4);
  EXPECT_FALSE(counter.Next());
}

TEST(History, CountsTrialsWithoutGainAcrossSmallSteps) {
  History h;
  double ns = 100;
  for (int i = 0; i < 50; ++i) {
    h.Record({0, {i}}, std::to_string(i), {OutcomeKind::kMeasured, ns, 0});
    if (i >= 20) ns *= 0.9995;  // 1 % takes 20 trials
  }
  EXPECT_EQ(h.TrialsWithoutGain(0.01), 20);
  EXPECT_EQ(h.TrialsWithoutGain(0.10), 49);
  EXPECT_EQ(h.BestAfter(1), 100);
  EXPECT_EQ(h.BestAfter(0), kNoLatency);
}

// ---- scheduler
// ---------------------------------------------------------------------------------------

struct Job {
  std::vector<std::unique_ptr<SyntheticSpace>> spaces;
  std::unique_ptr<model::CostModel> model;
  std::vector<std::unique_ptr<TaskSearch>> searches;
  std::unique_ptr<TaskScheduler> scheduler;
  std::vector<int> trials;  // by task, in this run

  Job(std::vector<double> scales, std::vector<TaskWeight> weights, SchedulerOptions options,
      const std::vector<std::vector<LoggedTrial>>& logs = {}) {
    scheduler = std::make_unique<TaskScheduler>(options);
    for (size_t i = 0; i < scales.size(); ++i) {
      spaces.push_back(std::make_unique<SyntheticSpace>(static_cast<int>(i % 3), scales[i]));
      if (!model) model = std::make_unique<model::CostModel>(spaces[0]->FeatureCount());
      SearchOptions search;
      search.seed = i;
      search.early_stop = weights[i].floor_ns > 0;
      search.floor_ns = weights[i].floor_ns;
      const std::span<const LoggedTrial> log =
          i < logs.size() ? std::span(logs[i]) : std::span<const LoggedTrial>();
      auto s =
          TaskSearch::Create(spaces[i].get(), model.get(), "task" + std::to_string(i), search, log);
      EXPECT_TRUE(s.ok()) << s.status();
      searches.push_back(std::move(*s));
      scheduler->AddTask(searches[i].get(), weights[i]);
    }
    trials.assign(scales.size(), 0);
  }

  std::vector<int> Run(int stop_after = 100000) {
    std::vector<int> order;
    for (int rounds = 0;
         !scheduler->Done() && static_cast<int>(order.size()) < stop_after && rounds < 100000;
         ++rounds) {
      for (const Assignment& a : scheduler->Ask(2)) {
        order.push_back(a.task);
        ++trials[a.task];
        const Outcome o{OutcomeKind::kMeasured, spaces[a.task]->LatencyNs(a.point), 0.01};
        EXPECT_TRUE(scheduler->Tell(a.task, a.point, o, 0.1).ok());
      }
    }
    return order;
  }
};

TEST(TaskScheduler, SeedsEveryTaskInTurnThenFavoursWeightTimesGain) {
  SchedulerOptions options;
  options.total_trials = 320;
  Job job({1e5, 1e5, 1e5, 1e5}, {{.weight = 1}, {.weight = 20}, {.weight = 1}, {.weight = 1}},
          options);
  const std::vector<int> order = job.Run();
  EXPECT_EQ(order.size(), 320u);
  const std::set<int> first(order.begin(), order.begin() + 16);
  EXPECT_EQ(first.size(), 4u);  // in turn, from the first
  std::vector<int> early(4, 0);
  for (size_t i = 0; i < 64; ++i) ++early[order[i]];
  EXPECT_EQ(early, (std::vector<int>{16, 16, 16, 16}));
  for (int t : {0, 2, 3}) {
    EXPECT_GE(job.trials[t], 16);
    EXPECT_GT(job.trials[1], 3 * job.trials[t]);
  }
}

TEST(TaskScheduler, FavoursTheSlowTask) {
  SchedulerOptions options;
  options.total_trials = 160;
  Job job({1e4, 1e6}, {{}, {}}, options);
  job.Run();
  EXPECT_GT(job.trials[1], 3 * job.trials[0]);
}

TEST(TaskScheduler, StopsFeedingATaskAtItsFloor) {
  SchedulerOptions options;
  options.total_trials = 300;
  const double arrived = 0.99 * TrueBest(SyntheticSpace(0, 1e6));
  Job job({1e6, 1e5}, {{.floor_ns = arrived}, {}}, options);
  job.Run();
  EXPECT_GT(job.trials[1], job.trials[0]);  // although the first is ten times as slow
}

TEST(TaskScheduler, TotalCountsWhatTheLogHolds) {
  SchedulerOptions options;
  options.total_trials = 100;
  Job first({1e5, 1e5}, {{}, {}}, options);
  first.Run(60);
  std::vector<std::vector<LoggedTrial>> logs;
  for (int i = 0; i < 2; ++i) {
    std::vector<Point> points;
    for (const Measured& m : first.searches[i]->history().ranking()) points.push_back(m.point);
    logs.push_back(LogOf(*first.spaces[i], points, true));
  }
  Job rerun({1e5, 1e5}, {{}, {}}, options, logs);
  EXPECT_EQ(rerun.scheduler->trials(), 60);
  EXPECT_EQ(rerun.Run().size(), 40u);
  EXPECT_EQ(rerun.scheduler->trials(), 100);
  EXPECT_TRUE(rerun.scheduler->Done());
  EXPECT_TRUE(rerun.scheduler->Ask(4).empty());
}

TEST(TaskScheduler, ASmallBudgetStillSeedsEveryTaskAndLeavesHalfForTheRest) {
  SchedulerOptions options;
  options.total_trials = 60;
  Job job({1e5, 1e5, 1e5, 1e5, 1e7}, {{}, {}, {}, {}, {}}, options);
  EXPECT_EQ(job.Run().size(), 60u);
  for (int t : job.trials) EXPECT_GE(t, 6);
  EXPECT_GT(job.trials[4], 25);
}

TEST(TaskScheduler, EndsWhenAllSpacesAreExhausted) {
  const TinySpace a, b;
  SearchOptions search_options;
  search_options.early_stop = false;
  auto sa = MakeSearch(a, nullptr, search_options), sb = MakeSearch(b, nullptr, search_options);
  SchedulerOptions options;
  options.total_trials = 1000;
  TaskScheduler scheduler(options);
  scheduler.AddTask(sa.get(), {.weight = 1});
  scheduler.AddTask(sb.get(), {.weight = 100});
  size_t asked = 0;
  while (!scheduler.Done()) {
    const auto batch = scheduler.Ask(5);
    ASSERT_FALSE(batch.empty());
    for (const Assignment& x : batch) {
      ASSERT_TRUE(
          scheduler.Tell(x.task, x.point, {OutcomeKind::kMeasured, a.Ns(x.point), 0.01}, 0).ok());
    }
    asked += batch.size();
  }
  EXPECT_EQ(asked, 2 * AllValid(a).size());
  EXPECT_FALSE(scheduler.Tell(2, {}, {}, 0).ok());
}

TEST(TaskScheduler, PendingTrialsCountAgainstTheBudgetAndLostOnesComeBack) {
  const SyntheticSpace space;
  auto search = MakeSearch(space, nullptr, {});
  SchedulerOptions options;
  options.total_trials = 5;
  TaskScheduler scheduler(options);
  scheduler.AddTask(search.get(), {});
  std::vector<Assignment> flying = scheduler.Ask(10);
  EXPECT_EQ(flying.size(), 5u);
  EXPECT_TRUE(scheduler.Ask(1).empty());
  EXPECT_FALSE(scheduler.Done());
  ASSERT_TRUE(scheduler.Tell(0, flying[0].point, {OutcomeKind::kLost}, 0).ok());
  EXPECT_EQ(scheduler.Ask(10).size(), 1u);
}

TEST(TaskScheduler, DearTrialsLowerTheGain) {
  SchedulerOptions options;
  Job job({1e5, 1e5}, {{}, {}}, options);
  for (int t = 0; t < 2; ++t) {
    for (const Point& p : job.searches[t]->Ask(20)) {
      const Outcome o{OutcomeKind::kMeasured, job.spaces[0]->LatencyNs(p), 0.01};
      ASSERT_TRUE(job.scheduler->Tell(t, p, o, t == 0 ? 0.1 : 1.0).ok());
    }
  }
  EXPECT_GT(job.scheduler->Gain(0), job.scheduler->Gain(1));
}

}  // namespace
}  // namespace whet::search
