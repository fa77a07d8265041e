// What happened to a fleet, as its observers saw it, and whether the promises of a lossless fleet
// held. The simulation and the tests with real processes fill a History; CheckHistory knows nothing
// of either. Plain values, no I/O.
//
//   P1  what was acknowledged is in the log afterwards, whoever crashed: results that a worker has
//       forgotten, rows that were said to be durable, jobs that were accepted
//   P2  a result counts once: one row for one measurement, one counted row for one trial, and
//       another delivery of it gets the first verdict
//   P3  a stale worker cannot win: epochs only grow, a row that counts is of the latest assignment
//       of its trial, and what the log calls best is a row that counts
//   P4  one measurement at a time on a device
//   P5  an accepted job reaches one terminal state, by its deadline, and keeps it
//
// Events are in the order in which they happened. Where one observer cannot know the order of two
// (programs that share no lock), at_ns of one machine's monotonic clock decides for P4; the other
// rules look only at what one program saw, or at what a message carried.
#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace whet::testing {

// One measurement under one authority. `device` may be empty where nothing was run.
struct RunIds {
  std::string job;
  uint32_t task = 0;
  int64_t trial = 0;
  int64_t attempt = 0;
  std::string incarnation;
  int64_t epoch = 0;
  std::string device;
  friend auto operator<=>(const RunIds&, const RunIds&) = default;
  std::string Text() const;
};

enum class What {
  kGranted,      // a lease: ids.incarnation, epoch and device; by whoever grants
  kAssigned,     // the server gave this measurement out: ids
  kRunBegins,    // on text: the physical device; ids
  kRunEnds,      // likewise; also when the process that ran it died
  kTaken,        // the server took a result and wants a row of it: ids; text: counted or late
  kDurable,      // the log said that the row is durable: ids; text: counted or late
  kRefused,      // the server said in words that it does not keep this result: ids
  kForgotten,    // a worker dropped a result that was acknowledged: ids
  kJobAccepted,  // the client was told so: ids.job; deadline_ns, kNoDeadline: none
  kJobEnded,     // durably: ids.job; text: the state
};
inline constexpr int64_t kNoDeadline = INT64_MAX;

struct Happening {
  What what;
  int64_t at_ns = 0;
  RunIds ids;
  std::string text;
  int64_t deadline_ns = kNoDeadline;
};

// What the log holds in the end, read after every crash.
struct FinalRow {
  RunIds ids;
  bool counted = false;   // else late
  bool evidence = false;  // says something about the candidate: no loss of a device
};
struct FinalJob {
  std::string job;
  std::string state;  // "done", "failed", "cancelled", "no_device"; else it is open
};

struct History {
  std::vector<Happening> happenings;
  std::vector<FinalRow> rows;
  std::vector<FinalJob> jobs;
  std::vector<RunIds> best;  // rows that the log answers with when it is asked for the best
  int64_t ended_ns = 0;
  // False where the tracker keeps no state: its epochs grow within an incarnation only.
  bool epochs_outlive_restarts = true;

  void Add(What what, int64_t at_ns, RunIds ids, std::string text = "",
           int64_t deadline_ns = kNoDeadline) {
    happenings.push_back({what, at_ns, std::move(ids), std::move(text), deadline_ns});
  }
};

struct Violation {
  int promise = 0;  // the number behind the P
  std::string what;
};

// In the order of the promises; empty: all held.
std::vector<Violation> CheckHistory(const History& history);

// One line each, for people: the happenings that name `job` (all, when empty), the latest `limit`.
std::string PrintHistory(const History& history, const std::string& job, size_t limit);

}  // namespace whet::testing
