#include "tuner/search/candidates.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace whet::search {
namespace {

constexpr int kElites = 24;
constexpr int kTournament = 4;
constexpr double kCrossover = 0.15;
constexpr int kSeedKnobsApart = 2;
constexpr int kSeedCells = 3;
constexpr int kRandomTries = 64;

// Points with the prior's estimate, cheapest first; ties in the order of the points, so that the
// result does not depend on how they were found.
using Rated = std::pair<double, Point>;

const Candidate& Tournament(const std::vector<Candidate>& sorted, Rng& rng) {
  auto best = static_cast<int64_t>(sorted.size()) - 1;
  for (int i = 0; i < kTournament; ++i)
    best = std::min(best, rng.Below(static_cast<int64_t>(sorted.size())));
  return sorted[best];
}

void SortByScore(std::vector<Candidate>& c) {
  std::sort(c.begin(), c.end(), [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.key < b.key;
  });
}

// The candidates of one pool, each key once.
class PoolBuilder {
 public:
  PoolBuilder(const SpaceView& view, const History& history) : view_(view), history_(history) {}
  void Add(const Point& p) {
    std::string key = view_.Key(p);
    if (history_.Seen(key) || !keys_.insert(key).second) return;
    fresh_.push_back({p, std::move(key)});
  }
  size_t fresh() const { return fresh_.size(); }
  std::vector<Candidate> Take() { return std::exchange(fresh_, {}); }

 private:
  const SpaceView& view_;
  const History& history_;
  std::unordered_set<std::string> keys_;
  std::vector<Candidate> fresh_;
};

}  // namespace

Candidates::Candidates(const SpaceView& view, const CandidateOptions& options, uint64_t seed)
    : view_(view), options_(options), counter_(view) {
  enumerated_ = RawSize(view) <= options.enumerate_limit;
  if (enumerated_) {
    Enumerate();
  } else {
    BreedDraft(seed);
  }
}

void Candidates::Enumerate() {
  std::vector<Rated> rated;
  PointCounter counter(view_);
  while (std::optional<Point> p = counter.Next()) {
    if (!view_.Valid(*p)) continue;
    const double prior = view_.PriorNs(*p);
    if (std::isfinite(prior) && prior > 0) rated.emplace_back(prior, std::move(*p));
  }
  std::sort(rated.begin(), rated.end());
  for (Rated& r : rated) draft_.push_back(std::move(r.second));
}

void Candidates::BreedDraft(uint64_t seed) {
  Rng rng(seed);
  std::set<Rated> kept;
  const auto add = [&](const std::optional<Point>& p) {
    if (!p) return;
    const double prior = view_.PriorNs(*p);
    if (std::isfinite(prior) && prior > 0) kept.emplace(prior, *p);
  };
  for (int i = 0; i < 4 * options_.draft; ++i) add(RandomValid(view_, rng));
  for (int generation = 0; generation < 4 && !kept.empty(); ++generation) {
    std::vector<Point> parents;
    for (const Rated& r : kept) {
      if (static_cast<int>(parents.size()) == options_.draft) break;
      parents.push_back(r.second);
    }
    for (int i = 0; i < 2 * options_.draft; ++i) {
      const auto pick = [&] { return rng.Below(static_cast<int64_t>(parents.size())); };
      const Point& parent = parents[std::min(pick(), pick())];
      add(rng.Uniform() < kCrossover ? Crossover(view_, parent, parents[pick()], rng)
                                     : Mutate(view_, parent, rng));
    }
  }
  for (const Rated& r : kept) {
    if (static_cast<int>(draft_.size()) == options_.draft) break;
    draft_.push_back(r.second);
  }
}

std::vector<Point> Candidates::Seeds(int prior_best, int random, uint64_t seed) const {
  std::vector<Point> seeds;
  std::set<Cell> cells;
  std::set<Cell> all_cells;
  for (const Point& p : draft_) all_cells.insert(CellOf(p));
  const auto far_enough = [&](const Point& p) {
    return std::ranges::all_of(seeds,
                               [&](const Point& s) { return KnobsApart(s, p) >= kSeedKnobsApart; });
  };
  const auto wanted = static_cast<size_t>(prior_best);
  for (const Point& p : draft_) {
    if (seeds.size() >= wanted) break;
    // The last places are kept for new cells until there are three.
    const size_t missing =
        std::min<size_t>(kSeedCells, all_cells.size()) - std::min<size_t>(kSeedCells, cells.size());
    if (!cells.contains(CellOf(p)) || wanted - seeds.size() > missing) {
      if (!far_enough(p)) continue;
      cells.insert(CellOf(p));
      seeds.push_back(p);
    }
  }
  Rng rng(seed);
  for (int i = 0; i < random; ++i) {
    if (const auto p = AnyValid(rng)) seeds.push_back(*p);
  }
  return seeds;
}

std::vector<Candidate> Candidates::Pool(History& history, Scorer& scorer, Rng& rng) const {
  PoolBuilder builder(view_, history);
  if (enumerated_ && size() <= options_.full_scoring_limit) {
    for (const Point& p : draft_) builder.Add(p);
    std::vector<Candidate> pool = builder.Take();
    scorer.Score(pool, history);
    SortByScore(pool);
    return pool;
  }
  std::vector<Candidate> parents;
  for (const Measured& m : history.ranking()) {
    if (static_cast<int>(parents.size()) == kElites) break;
    parents.push_back({m.point, m.key, -std::log(m.latency_ns)});
  }
  // First generation: a quarter from the prior, half around the elites, the rest random.
  const auto population = static_cast<size_t>(options_.population);
  for (const Point& p : draft_) {
    if (builder.fresh() >= population / 4) break;
    builder.Add(p);
  }
  std::vector<Candidate> pool;
  for (int generation = 0; generation < options_.generations; ++generation) {
    const size_t bred = parents.empty() ? 0 : population;
    for (size_t tries = 0; tries < 2 * bred && builder.fresh() < bred * 3 / 4; ++tries) {
      const Candidate& parent = Tournament(parents, rng);
      const auto child = rng.Uniform() < kCrossover
                             ? Crossover(view_, parent.point, Tournament(parents, rng).point, rng)
                             : Mutate(view_, parent.point, rng);
      if (child) builder.Add(*child);
    }
    for (size_t tries = 0; tries < population && builder.fresh() < population; ++tries) {
      if (const auto p = AnyValid(rng)) builder.Add(*p);
    }
    std::vector<Candidate> children = builder.Take();
    scorer.Score(children, history);
    pool.insert(pool.end(), children.begin(), children.end());
    parents.insert(parents.end(), children.begin(), children.end());
    SortByScore(parents);
    if (parents.size() > population / 2) parents.resize(population / 2);
  }
  SortByScore(pool);
  if (pool.size() > static_cast<size_t>(options_.draft)) pool.resize(options_.draft);
  return pool;
}

std::optional<Point> Candidates::AnyValid(Rng& rng) const {
  if (!enumerated_) return RandomValid(view_, rng);
  if (draft_.empty()) return std::nullopt;
  return draft_[rng.Below(size())];
}

std::optional<Candidate> Candidates::Random(const History& history, Rng& rng) const {
  for (int i = 0; i < kRandomTries; ++i) {
    const auto p = AnyValid(rng);
    if (!p) return std::nullopt;
    std::string key = view_.Key(*p);
    if (!history.Seen(key)) return Candidate{*p, std::move(key)};
  }
  return std::nullopt;
}

void Candidates::RestartSweep() {
  sweep_at_ = 0;
  counter_.Restart();
  swept_.reset();
  counted_ = 0;
}

std::optional<Candidate> Candidates::Sweep(const History& history) {
  const auto untried = [&](const Point& p) -> std::optional<Candidate> {
    std::string key = view_.Key(p);
    if (history.Seen(key)) return std::nullopt;
    return Candidate{p, std::move(key)};
  };
  if (enumerated_) {
    for (; sweep_at_ < draft_.size(); ++sweep_at_) {
      if (auto c = untried(draft_[sweep_at_])) return c;
    }
    return std::nullopt;
  }
  for (; counted_ < options_.sweep_limit; ++counted_) {
    if (!swept_) swept_ = counter_.Next();
    if (!swept_) return std::nullopt;
    if (view_.Valid(*swept_)) {
      if (auto c = untried(*swept_))
        return c;  // and look at it again next time: it may not be taken
    }
    swept_.reset();
  }
  return std::nullopt;
}

}  // namespace whet::search
