// The command line's side of a tuner server, against a scripted server in this process.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>

#include "compiler/driver/progress.h"
#include "compiler/driver/tuner_client.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/tuner.grpc.pb.h"

namespace whet::driver {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

v1::JobSnapshot Snapshot(v1::JobState state, int64_t trials) {
  v1::JobSnapshot s;
  s.set_job_id("j1");
  s.set_state(state);
  s.set_trials_wanted(100);
  s.set_trials_done(trials);
  s.set_elapsed_ns(65'000'000'000);
  s.set_remaining_ns(5'000'000'000);
  s.set_default_total_ns(2e6);
  s.set_best_total_ns(1e6);
  v1::TaskProgress* t = s.add_tasks();
  t->set_name("conv1");
  t->set_default_ns(2e6);
  t->set_state(state == v1::JOB_DONE ? "done" : "search");
  return s;
}

// Knows the key "rpi4" only; breaks the first WatchJob stream in the middle.
class FakeTuner final : public v1::Tuner::Service {
 public:
  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest* request,
                         v1::SubmitJobReply* reply) override {
    if (request->spec().key() != "rpi4")
      return {grpc::StatusCode::NOT_FOUND,
              "no device has the key '" + request->spec().key() + "'; the keys are rpi4"};
    reply->set_job_id("j1");
    return grpc::Status::OK;
  }
  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest*,
                        grpc::ServerWriter<v1::JobEvent>* writer) override {
    const bool first = ++watches == 1;
    if (forgets && !first) return {grpc::StatusCode::NOT_FOUND, "there is no job 'j1'"};
    v1::JobEvent event;
    *event.mutable_snapshot() = Snapshot(v1::JOB_RUNNING, 10);
    writer->Write(event);
    if (first) return {grpc::StatusCode::UNAVAILABLE, "restarting"};
    *event.mutable_snapshot() = Snapshot(cancelled ? v1::JOB_CANCELLED : v1::JOB_DONE, 100);
    writer->Write(event);
    return grpc::Status::OK;
  }
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                         v1::CancelJobReply*) override {
    cancelled = request->job_id() == "j1";
    return grpc::Status::OK;
  }
  std::atomic<int> watches{0};
  std::atomic<bool> cancelled{false};
  std::atomic<bool> forgets{false};  // its jobs, with the first stream
};

class FakeTracker final : public v1::Tracker::Service {
  grpc::Status ListDevices(grpc::ServerContext*, const v1::ListDevicesRequest* request,
                           v1::ListDevicesReply* reply) override {
    reply->add_known_keys("rpi4");
    if (request->key().empty() || request->key() == "rpi4")
      reply->add_devices()->mutable_device()->set_key("rpi4");
    return grpc::Status::OK;
  }
};

class DriverClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&tuner_);
    builder.RegisterService(&tracker_);
    server_ = builder.BuildAndStart();
    ASSERT_GT(port, 0);
    address_ = "127.0.0.1:" + std::to_string(port);
  }

  FakeTuner tuner_;
  FakeTracker tracker_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(DriverClientTest, AnUnknownKeyIsAnsweredWithThoseThatExist) {
  auto client = TunerClient::Connect(address_);
  ASSERT_TRUE(client.ok()) << client.status();
  v1::JobSpec spec;
  spec.set_key("rpi5");
  const auto reply = (*client)->Submit(spec);
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(reply.status()), HasSubstr("the keys are rpi4"));
}

TEST_F(DriverClientTest, WatchingGoesOnAfterABrokenStreamUntilTheJobHasEnded) {
  auto client = TunerClient::Connect(address_);
  ASSERT_TRUE(client.ok());
  int events = 0;
  const auto last =
      (*client)->Watch("j1", [&](const v1::JobEvent&) { ++events; }, [] { return false; });
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->state(), v1::JOB_DONE);
  EXPECT_EQ(last->trials_done(), 100);
  EXPECT_EQ(tuner_.watches, 2);
  EXPECT_EQ(events, 3);
}

TEST_F(DriverClientTest, GivingUpWhileTheServerIsAwayIsUnavailable) {
  auto client = TunerClient::Connect(address_);
  ASSERT_TRUE(client.ok());
  const auto last = (*client)->Watch("j1", [](const v1::JobEvent&) {}, [] { return true; });
  EXPECT_EQ(last.status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(DriverClientTest, AServerThatStaysAwayIsGivenUpInWords) {
  auto client = TunerClient::Connect(address_, std::chrono::milliseconds(300));
  ASSERT_TRUE(client.ok());
  const auto begin = std::chrono::steady_clock::now();
  const auto last = (*client)->Watch(
      "j1", [&](const v1::JobEvent&) { server_->Shutdown(std::chrono::system_clock::now()); },
      [] { return false; });
  EXPECT_EQ(last.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(last.status()), HasSubstr("run the same command again"));
  EXPECT_THAT(Message(last.status()), HasSubstr(address_));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(300));
}

TEST_F(DriverClientTest, AServerThatIsBackWithoutTheJobIsSaidAtOnce) {
  tuner_.forgets = true;
  auto client = TunerClient::Connect(address_);
  ASSERT_TRUE(client.ok());
  const auto last = (*client)->Watch("j1", [](const v1::JobEvent&) {}, [] { return false; });
  EXPECT_EQ(last.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(last.status()), HasSubstr("no longer has this job"));
}

TEST_F(DriverClientTest, ACancelledJobIsAnEndLikeAnother) {
  auto client = TunerClient::Connect(address_);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE((*client)->Cancel("j1").ok());
  const auto last = (*client)->Watch("j1", [](const v1::JobEvent&) {}, [] { return false; });
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->state(), v1::JOB_CANCELLED);
}

TEST_F(DriverClientTest, DevicesComeFromATracker) {
  const auto all = TrackerDevices(address_, "");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->devices_size(), 1);
  const auto none = TrackerDevices(address_, "rpi5");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->devices_size(), 0);
  EXPECT_EQ(none->known_keys(0), "rpi4");
}

TEST(DriverClientErrorsTest, AddressesThatCannotBeReachedOrReadAreNamed) {
  EXPECT_EQ(TunerClient::Connect("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TunerClient::Connect("host:12x").status().code(), absl::StatusCode::kInvalidArgument);
  const auto begin = std::chrono::steady_clock::now();
  const Status away = TunerClient::Connect("127.0.0.1:1").status();
  EXPECT_EQ(away.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(away), HasSubstr("cannot reach a tuner server at 127.0.0.1:1"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(ProgressTest, TheBarFitsTheTerminalAndSaysWhatMatters) {
  const std::string text = Progress::BarText(Snapshot(v1::JOB_RUNNING, 25), 120);
  EXPECT_THAT(text, HasSubstr("25%"));
  EXPECT_THAT(text, HasSubstr("tasks 0/1"));
  EXPECT_THAT(text, HasSubstr("trials 25/100"));
  EXPECT_THAT(text, HasSubstr("best 1.000 ms (2.00x)"));
  EXPECT_THAT(text, HasSubstr("1:05 +0:05"));
  EXPECT_THAT(text, HasSubstr("[#######......................."));
  for (int columns : {0, 1, 20, 60, 80})
    EXPECT_LE(Progress::BarText(Snapshot(v1::JOB_RUNNING, 25), columns).size(),
              static_cast<size_t>(std::max(columns, 0)));
  EXPECT_EQ(Progress::BarText(Snapshot(v1::JOB_RUNNING, 25), 40),
            "  25%  trials 25/100  1:05 +0:05");
  EXPECT_EQ(Progress::Minutes(3725.4), "1:02:05");
}

TEST(ProgressTest, ABudgetOfTimeFillsTheBarAndStaysFullWhileWinnersAreCompared) {
  v1::JobSnapshot s = Snapshot(v1::JOB_RUNNING, 25);
  s.set_trials_wanted(0);
  EXPECT_THAT(Progress::BarText(s, 120), HasSubstr("  93%"));
  s.set_remaining_ns(0);
  s.mutable_tasks(0)->set_state("finals");
  EXPECT_THAT(Progress::BarText(s, 120), HasSubstr(" 100%"));
  EXPECT_THAT(Progress::BarText(s, 120), EndsWith("  1:05  comparing"));
}

TEST(ProgressTest, NoSpeedUpIsShownBeforeEveryTaskHasATime) {
  v1::JobSnapshot s = Snapshot(v1::JOB_RUNNING, 1);
  s.add_tasks()->set_state("baseline");
  EXPECT_THAT(Progress::BarText(s, 120), Not(HasSubstr("best")));
  s.mutable_tasks(1)->set_state("failed");
  EXPECT_THAT(Progress::BarText(s, 120), HasSubstr("best"));
}

}  // namespace
}  // namespace whet::driver
