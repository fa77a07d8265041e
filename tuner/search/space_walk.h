// Moves in a schedule space: enumeration, random points, mutation, crossover, neighbours,
// distances. Pure functions of the view and the generator. A move that must be valid tries a
// bounded number of times and returns nullopt rather than searching on: constraints may leave
// hardly anything around a point.
#pragma once
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "compiler/support/rng.h"
#include "tuner/search/space_view.h"

namespace whet::search {

// The point names an existing variant and an existing value of each of its knobs. Says nothing of
// validity.
bool InSpace(const SpaceView& view, const Point& point);
// Points before constraints; a double because products of domains overflow.
double RawSize(const SpaceView& view);

// Visits every point before constraints, variant after variant, the last knob fastest.
class PointCounter {
 public:
  explicit PointCounter(const SpaceView& view) : view_(view) {}
  std::optional<Point> Next();
  void Restart() { last_.reset(); }

 private:
  const SpaceView& view_;
  std::optional<Point> last_;
};

// A variant uniformly, then a point of it uniformly; a small variant is as likely to hold the best.
std::optional<Point> RandomValid(const SpaceView& view, Rng& rng);
// Mostly one step of one or two knobs; sometimes a jump of one, a change of variant that keeps the
// values of equally named knobs, or a trade between two knobs (one up, one down, as between two
// tile sizes).
std::optional<Point> Mutate(const SpaceView& view, const Point& parent, Rng& rng);
// Each knob from one of the parents. Different variants do not mix.
std::optional<Point> Crossover(const SpaceView& view, const Point& a, const Point& b, Rng& rng);
// The valid points one step away, knob after knob.
std::vector<Point> Neighbours(const SpaceView& view, const Point& point);

// Knobs that differ; a different variant counts as all of them and one more.
int KnobsApart(const Point& a, const Point& b);
// Sum of the steps between the values, at most three per knob; kFarApart for different variants.
int StepsApart(const Point& a, const Point& b);
inline constexpr int kFarApart = 1000;

// Variant and the first two knobs: see space_view.h.
using Cell = std::tuple<int, int, int>;
Cell CellOf(const Point& point);

}  // namespace whet::search
