// The checker against forged histories: each breaks one promise, and only that one is found broken.
#include "tests/sim/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace whet::testing {
namespace {

RunIds RunOf(int64_t trial, int64_t attempt = 1, int64_t epoch = 5,
             const std::string& device = "w0/cpu0") {
  return {"job-1", 0, trial, attempt, "inc", epoch, device};
}

// Two trials of one job; the second was given out twice and came late from the first device.
History Honest() {
  History h;
  const RunIds one = RunOf(1), lost = RunOf(2, 1, 5), again = RunOf(2, 2, 6, "w1/cpu0");
  h.Add(What::kJobAccepted, 0, {.job = "job-1"}, "", 1000);
  h.Add(What::kGranted, 1, {.epoch = 5, .device = "w0/cpu0"});
  h.Add(What::kAssigned, 10, one);
  h.Add(What::kRunBegins, 11, one, "box");
  h.Add(What::kRunEnds, 20, one, "box");
  h.Add(What::kTaken, 21, one, "counted");
  h.Add(What::kDurable, 22, one, "counted");
  h.Add(What::kForgotten, 23, one);
  h.Add(What::kAssigned, 30, lost);
  h.Add(What::kRunBegins, 31, lost, "box");
  h.Add(What::kGranted, 40, {.epoch = 6, .device = "w1/cpu0"});
  h.Add(What::kAssigned, 41, again);
  h.Add(What::kRunBegins, 42, again, "other box");
  h.Add(What::kRunEnds, 50, again, "other box");
  h.Add(What::kRunEnds, 60, lost, "box");
  h.Add(What::kTaken, 61, again, "counted");
  h.Add(What::kTaken, 62, lost, "late");
  h.Add(What::kDurable, 63, again, "counted");
  h.Add(What::kDurable, 64, lost, "late");
  h.Add(What::kDurable, 65, lost, "late");  // delivered again
  h.Add(What::kForgotten, 66, again);
  h.Add(What::kForgotten, 67, lost);
  h.Add(What::kRefused, 68, RunOf(9));
  h.Add(What::kForgotten, 69, RunOf(9));
  h.Add(What::kJobEnded, 70, {.job = "job-1"}, "done");
  h.rows = {{one, true, true}, {again, true, true}, {lost, false, true}};
  h.jobs = {{"job-1", "done"}};
  h.best = {again};
  h.ended_ns = 2000;
  return h;
}

std::vector<int> Broken(const History& h) {
  std::vector<int> promises;
  for (const Violation& v : CheckHistory(h)) promises.push_back(v.promise);
  return promises;
}

void Drop(History* h, const RunIds& ids) {
  std::erase_if(h->rows, [&](const FinalRow& r) { return r.ids == ids; });
}

using ::testing::Contains;
using ::testing::Each;
using ::testing::IsEmpty;

TEST(HistoryChecker, HonestHistoryHolds) {
  EXPECT_THAT(Broken(Honest()), IsEmpty());
  EXPECT_THAT(Broken(History{}), IsEmpty());
}

struct Forgery {
  const char* name;
  int promise;
  std::function<void(History*)> forge;
};

class Forged : public ::testing::TestWithParam<Forgery> {};

TEST_P(Forged, IsFound) {
  History h = Honest();
  GetParam().forge(&h);
  const std::vector<int> broken = Broken(h);
  EXPECT_THAT(broken, Contains(GetParam().promise));
  EXPECT_THAT(broken, Each(GetParam().promise));
}

const Forgery kForgeries[] = {
    {"ForgottenResultIsNotInTheLog", 1, [](History* h) { h->Add(What::kForgotten, 80, RunOf(7)); }},
    {"RefusalOfAnotherAttemptExcusesNothing", 1,
     [](History* h) {
       h->Add(What::kRefused, 80, RunOf(7, 1));
       h->Add(What::kForgotten, 81, RunOf(7, 2));
     }},
    {"RefusalThatCameLaterExcusesNothing", 1,
     [](History* h) {
       h->Add(What::kForgotten, 80, RunOf(7));
       h->Add(What::kRefused, 81, RunOf(7));
     }},
    {"DurableRowIsLost", 1, [](History* h) { Drop(h, RunOf(2, 1, 5)); }},
    {"AcceptedJobIsNotInTheLog", 1,
     [](History* h) { h->Add(What::kJobAccepted, 80, {.job = "job-2"}); }},
    {"TwoRowsOfOneMeasurement", 2,
     [](History* h) { h->rows.push_back({RunOf(2, 1, 5), false, true}); }},
    {"TrialCountsTwice", 2,
     [](History* h) { h->rows.push_back({RunOf(1, 2, 6, "w1/cpu0"), true, true}); }},
    {"AnotherDeliveryGetsAnotherVerdict", 2,
     [](History* h) {
       h->rows[2].counted = false;
       h->Add(What::kDurable, 80, RunOf(2, 1, 5), "counted");
     }},
    {"EpochIsGivenOutAgain", 3,
     [](History* h) { h->Add(What::kGranted, 80, {.epoch = 6, .device = "w0/cpu0"}); }},
    {"EpochGoesBack", 3,
     [](History* h) { h->Add(What::kGranted, 80, {.epoch = 2, .device = "w0/cpu0"}); }},
    {"StaleResultIsTaken", 3,
     [](History* h) {
       h->Add(What::kAssigned, 80, RunOf(3, 1, 5));
       h->Add(What::kAssigned, 81, RunOf(3, 2, 6, "w1/cpu0"));
       h->Add(What::kTaken, 82, RunOf(3, 1, 5), "counted");
     }},
    {"ResultOfAnotherEpochIsTaken", 3,
     [](History* h) {
       h->Add(What::kAssigned, 80, RunOf(3, 1, 6));
       h->Add(What::kTaken, 81, RunOf(3, 1, 5), "counted");
     }},
    {"ResultThatNobodyAskedForIsTaken", 3,
     [](History* h) { h->Add(What::kTaken, 80, RunOf(3), "counted"); }},
    {"SameFenceTwice", 3, [](History* h) { h->Add(What::kAssigned, 80, RunOf(1)); }},
    {"LateRowIsBest", 3, [](History* h) { h->best = {RunOf(2, 1, 5)}; }},
    {"BestIsInNoRow", 3, [](History* h) { h->best = {RunOf(8)}; }},
    {"RunsOverlap", 4,
     [](History* h) {
       h->Add(What::kRunBegins, 80, RunOf(3), "box");
       h->Add(What::kRunBegins, 85, RunOf(4), "box");
       h->Add(What::kRunEnds, 90, RunOf(3), "box");
       h->Add(What::kRunEnds, 95, RunOf(4), "box");
     }},
    {"RunWithinARun", 4,
     [](History* h) {
       h->Add(What::kRunBegins, 80, RunOf(3), "box");
       h->Add(What::kRunBegins, 81, RunOf(4), "box");
       h->Add(What::kRunEnds, 82, RunOf(4), "box");
       h->Add(What::kRunEnds, 95, RunOf(3), "box");
     }},
    {"RunBeginsWhileOneNeverEnded", 4,
     [](History* h) {
       h->Add(What::kRunBegins, 80, RunOf(3), "box");
       h->Add(What::kRunBegins, 1000, RunOf(4), "box");
     }},
    {"SameRunTwiceAtOnce", 4,
     [](History* h) {
       h->Add(What::kRunBegins, 80, RunOf(3), "box");
       h->Add(What::kRunBegins, 80, RunOf(3), "box");
     }},
    {"RunEndsThatNeverBegan", 4, [](History* h) { h->Add(What::kRunEnds, 80, RunOf(3), "box"); }},
    {"JobIsOpenAfterItsDeadline", 5,
     [](History* h) {
       h->Add(What::kJobAccepted, 80, {.job = "job-2"}, "", 1999);
       h->jobs.push_back({"job-2", "running"});
     }},
    {"JobEndsAfterItsDeadline", 5,
     [](History* h) {
       h->Add(What::kJobAccepted, 80, {.job = "job-2"}, "", 500);
       h->Add(What::kJobEnded, 501, {.job = "job-2"}, "failed");
       h->jobs.push_back({"job-2", "failed"});
     }},
    {"JobEndsTwice", 5,
     [](History* h) { h->Add(What::kJobEnded, 80, {.job = "job-1"}, "failed"); }},
    {"EndIsNotDurable", 5,
     [](History* h) {
       h->jobs[0].state = "running";
       h->ended_ns = 999;
     }},
    {"EndIsNoEnd", 5, [](History* h) { h->Add(What::kJobEnded, 80, {.job = "job-1"}, "running"); }},
};

INSTANTIATE_TEST_SUITE_P(Histories, Forged, ::testing::ValuesIn(kForgeries),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(HistoryChecker, EpochsMayStartAgainWhereTheTrackerKeepsNothing) {
  History h = Honest();
  h.Add(What::kGranted, 80, {.incarnation = "next", .epoch = 1, .device = "w0/cpu0"});
  EXPECT_THAT(Broken(h), Contains(3));
  h.epochs_outlive_restarts = false;
  EXPECT_THAT(Broken(h), IsEmpty());
  h.Add(What::kGranted, 81,
        {.incarnation = "next", .epoch = 1, .device = "w0/cpu0"});  // said again
  EXPECT_THAT(Broken(h), IsEmpty());
  h.Add(What::kGranted, 82, {.incarnation = "next", .epoch = 1, .device = "w1/cpu0"});
  EXPECT_THAT(Broken(h), Contains(3));
}

TEST(HistoryChecker, RunsThatTouchDoNotOverlap) {
  History h = Honest();
  h.Add(What::kRunBegins, 60, RunOf(3), "box");  // where another ended
  h.Add(What::kRunEnds, 70, RunOf(3), "box");
  h.Add(What::kRunBegins, 75, RunOf(4), "box");  // and one that runs still
  EXPECT_THAT(Broken(h), IsEmpty());
}

TEST(HistoryChecker, JobWithoutADeadlineMayBeOpen) {
  History h = Honest();
  h.Add(What::kJobAccepted, 80, {.job = "job-2"});
  h.jobs.push_back({"job-2", "running"});
  EXPECT_THAT(Broken(h), IsEmpty());
}

TEST(HistoryChecker, PrintsTheLatestOfAJob) {
  const History h = Honest();
  EXPECT_EQ(
      PrintHistory(h, "job-7", 2),
      "               1 granted job= task=0 trial=0 attempt=0 incarnation= epoch=5 device=w0/cpu0\n"
      "              40 granted job= task=0 trial=0 attempt=0 incarnation= epoch=6 "
      "device=w1/cpu0\n");
  EXPECT_THAT(PrintHistory(h, "job-1", 1), ::testing::HasSubstr("job_ended job=job-1"));
}

}  // namespace
}  // namespace whet::testing
