// Real programs against each other: a server (its compiler is the zoo), tracker, worker and runner,
// over loopback sockets. Misbehaving candidates cost one trial each; killed processes lose nothing
// that was acknowledged.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "db/store/tuning_log.h"
#include "proto/rpc/endpoint.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/tuner.grpc.pb.h"
#include "tests/service/zoo_tasks.h"

namespace whet::testing {
namespace {

using ::testing::HasSubstr;

// A program of ours with its standard output read line by line; standard error goes to a file.
class Running {
 public:
  Running(const std::string& program, std::vector<std::string> args, const std::string& log)
      : log_(log) {
    int out[2];
    EXPECT_EQ(pipe(out), 0);
    std::string command = "exec '" + Program(program) + "'";
    for (const std::string& a : args) command += " '" + a + "'";
    command += " 2>>'" + log + "' >&5";
    SpawnOptions options;
    options.program = "/bin/sh";
    options.args = {"-c", command};
    options.fds = {{out[1], 5}};
    StatusOr<Subprocess> child = Subprocess::Spawn(options);
    EXPECT_TRUE(child.ok()) << child.status();
    if (child.ok()) process_ = std::move(*child);
    close(out[1]);
    out_ = out[0];
  }
  ~Running() {
    process_.Kill();
    close(out_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // The address of a line "listening on ADDRESS ROLE"; empty when it does not come.
  std::string Listening(const std::string& role) {
    const int64_t deadline = MonotonicNs() + 30 * kSecond;
    while (MonotonicNs() < deadline) {
      const size_t at = text_.find(" " + role + "\n");
      if (at != std::string::npos) {
        const size_t begin = text_.rfind("listening on ", at) + 13;
        return text_.substr(begin, at - begin);
      }
      pollfd p{out_, POLLIN, 0};
      char buffer[512];
      if (poll(&p, 1, 100) > 0) {
        const ssize_t n = read(out_, buffer, sizeof buffer);
        if (n <= 0) break;
        text_.append(buffer, static_cast<size_t>(n));
      }
    }
    ADD_FAILURE() << "no line of role " << role << ": " << Log();
    return "";
  }
  int StopWith(int signal, int64_t limit_ns = 10 * kSecond) {
    process_.Signal(signal);
    return Exit(limit_ns);
  }
  // The exit code; -1 when it still runs, 1000 + n after signal n.
  int Exit(int64_t limit_ns = 20 * kSecond) {
    const std::optional<int> status = process_.Wait(MonotonicNs() + limit_ns);
    if (!status) return -1;
    return WIFEXITED(*status) ? WEXITSTATUS(*status) : 1000 + WTERMSIG(*status);
  }
  std::string Log() const {
    const StatusOr<std::string> text = ReadFile(log_, 1 << 20);
    return text.ok() ? *text : "";
  }
  Subprocess& process() { return process_; }

 private:
  const std::string log_;
  Subprocess process_;
  int out_ = -1;
  std::string text_;
};

class Fleet : public ::testing::Test {
 protected:
  void StartServer(std::string tracker = ":0", const std::string& listen = "127.0.0.1:0",
                   const std::vector<std::string>& more = {}) {
    server_.reset();
    tracker = tracker.substr(tracker.rfind(':'));
    std::vector<std::string> args = {"--tracker", tracker, "--listen",   listen,
                                     "--db",      db_,     "--builders", "1"};
    args.insert(args.end(), more.begin(), more.end());
    server_ = std::make_unique<Running>("../tests/zoo-server", args, dir_ / "server.log");
    tracker_address_ = server_->Listening("tracker");
    server_address_ = server_->Listening("server");
    stub_ = v1::Tuner::NewStub(rpc::Dial(server_address_));
  }
  // Until the tracker knows of so many devices.
  void StartWorker(const std::string& key = "local", const std::vector<std::string>& more = {},
                   int devices = 1) {
    // Also where this host's sandbox is weak.
    std::vector<std::string> args = {
        "--tracker",    tracker_address_,      "--key", key, "--state-dir",
        dir_ / "state", "--allow-weak-sandbox"};
    args.insert(args.end(), more.begin(), more.end());
    worker_ = std::make_unique<Running>("rpc-worker", args, dir_ / "worker.log");
    const auto tracker = v1::Tracker::NewStub(rpc::Dial(tracker_address_));
    const int64_t deadline = MonotonicNs() + 30 * kSecond;
    while (MonotonicNs() < deadline) {
      grpc::ClientContext context;
      v1::ListDevicesRequest request;
      request.set_key(key);
      v1::ListDevicesReply reply;
      if (tracker->ListDevices(&context, request, &reply).ok() && reply.devices_size() >= devices)
        return;
      std::this_thread::yield();
    }
    ADD_FAILURE() << "the worker does not register: " << worker_->Log();
  }

  v1::JobSpec Spec(int64_t trials, int tasks = 1) {
    v1::JobSpec spec;
    spec.set_key("local");
    spec.set_threads(1);
    spec.set_trials(trials);
    spec.set_strategy("random");
    for (int t = 0; t < tasks; ++t) {
      spec.add_tasks()->set_workload((tasks > 1 ? "zoo quick " : "zoo ") + std::to_string(t));
      spec.mutable_tasks(t)->set_name("task " + std::to_string(t));
    }
    return spec;
  }
  StatusOr<v1::SubmitJobReply> Submit(const v1::JobSpec& spec) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::SubmitJobRequest request;
    *request.mutable_spec() = spec;
    v1::SubmitJobReply reply;
    const Status s = rpc::FromGrpc(stub_->SubmitJob(&context, request, &reply), "the server");
    if (!s.ok()) return s;
    return reply;
  }
  // While the worker is on its way back to a tracker that was restarted.
  StatusOr<v1::SubmitJobReply> SubmitOnceThereIsADevice(const v1::JobSpec& spec) {
    const int64_t deadline = MonotonicNs() + 30 * kSecond;
    while (true) {
      auto reply = Submit(spec);
      if (reply.status().code() != absl::StatusCode::kNotFound || MonotonicNs() > deadline)
        return reply;
      std::this_thread::yield();
    }
  }
  // Until the job ends or `stop` is content; the trials that were told.
  v1::JobSnapshot Watch(
      const std::string& job, std::vector<v1::TrialEvent>* trials,
      const std::function<bool()>& stop = [] { return false; }) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(200));
    v1::WatchJobRequest request;
    request.set_job_id(job);
    const auto reader = stub_->WatchJob(&context, request);
    v1::JobEvent event;
    v1::JobSnapshot last;
    while (reader->Read(&event)) {
      if (event.has_snapshot()) last = event.snapshot();
      if (event.has_trial()) trials->push_back(event.trial());
      if (stop()) context.TryCancel();
    }
    reader->Finish();
    return last;
  }
  std::map<std::string, db::TrialRow> Rows() {  // by task and number
    std::map<std::string, db::TrialRow> rows;
    const auto log = db::LogReader::Open(db_);
    EXPECT_TRUE(log.ok()) << log.status();
    if (!log.ok()) return rows;
    EXPECT_TRUE((*log)
                    ->ForEachTrial(
                        nullptr,
                        [&](const db::TrialRow& row) {
                          rows[row.key.workload.Hex() + " " + std::to_string(row.ids.trial)] = row;
                          return true;
                        })
                    .ok());
    return rows;
  }

  TempDir dir_;
  std::string db_ = dir_ / "t.db";
  std::unique_ptr<Running> server_, worker_;
  std::string tracker_address_, server_address_;
  std::unique_ptr<v1::Tuner::Stub> stub_;
};

TEST_F(Fleet, MisbehavingCandidatesCostOneTrialEach) {
  StartServer();
  StartWorker();
  const pid_t worker_pid = worker_->process().pid();
  const auto job = Submit(Spec(static_cast<int64_t>(Animals().size())));
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<v1::TrialEvent> trials;
  const v1::JobSnapshot end = Watch(job->job_id(), &trials);
  EXPECT_EQ(end.state(), v1::JOB_DONE) << end.error() << server_->Log();
  EXPECT_EQ(end.trials_done(), static_cast<int64_t>(Animals().size()));
  EXPECT_EQ(worker_->process().pid(), worker_pid);
  EXPECT_EQ(worker_->Exit(0), -1) << "the worker is gone: " << worker_->Log();

  std::map<std::string, db::FailureKind> got;
  int finals = 0;
  for (const auto& [name, row] : Rows()) {
    const std::string animal = AnimalOf(row.trace);
    if (row.rung == 4) {
      ++finals;
      EXPECT_LT(row.baseline_ratio.value_or(9), 1) << animal;
      continue;
    }
    EXPECT_FALSE(got.contains(animal)) << animal << " was tried twice";
    got[animal] = row.failure;
    EXPECT_EQ(row.message.empty(), row.failure == db::FailureKind::kOk) << animal;
    EXPECT_EQ(row.is_default, animal == "slow");
  }
  using K = db::FailureKind;
  const std::map<std::string, K> want = {{"slow", K::kOk},
                                         {"good", K::kOk},
                                         {"segfault", K::kRunCrash},
                                         {"abort", K::kRunCrash},
                                         {"exit0", K::kRunCrash},
                                         {"hang", K::kRunTimeout},
                                         {"wrong", K::kWrongOutput},
                                         {"zeros", K::kWrongOutput},
                                         {"nan", K::kWrongOutput},
                                         {"one_seed", K::kWrongOutput},
                                         {"lazy", K::kWrongOutput},
                                         {"dependent", K::kWrongOutput},
                                         {"write_one_past", K::kWrongOutput},
                                         {"write_page_past", K::kRunCrash},
                                         {"forks", K::kOk},
                                         {"output", K::kOk},
                                         {"kill_parent", K::kOk},
                                         {"wrong_abi", K::kBuildError},
                                         {"wrong_shape", K::kBuildError},
                                         {"no_such_animal", K::kBuildError},
                                         {"hang_in_builder", K::kBuildTimeout},
                                         {"crash_in_builder", K::kBuildError}};
  for (const auto& [animal, kind] : want) {
    ASSERT_TRUE(got.contains(animal)) << animal;
    EXPECT_EQ(got[animal], kind) << animal << " is " << db::FailureName(got[animal]);
  }
  EXPECT_GE(finals, 1);

  // The same again: the log is full, nothing is measured.
  const auto again = Submit(Spec(static_cast<int64_t>(Animals().size())));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->already_measured(), static_cast<int64_t>(Animals().size()));
  EXPECT_EQ(again->to_measure(), 0);
  trials.clear();
  EXPECT_EQ(Watch(again->job_id(), &trials).state(), v1::JOB_DONE);
  EXPECT_TRUE(trials.empty());

  EXPECT_EQ(worker_->StopWith(SIGTERM), 0) << worker_->Log();
  EXPECT_EQ(server_->StopWith(SIGTERM), 0) << server_->Log();
}

TEST_F(Fleet, ADeviceOnWhichAKnownGoodCandidateFailsIsBelievedNothing) {
  StartServer();
  // Its answers are zeros, and it stands for one that is right: nothing on this device is.
  StartWorker("local", {"--known-good", ZooPath("zeros"), "--known-good-after", "1"});
  const auto job = Submit(Spec(static_cast<int64_t>(Animals().size())));
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<v1::TrialEvent> trials;
  const int64_t give_up = MonotonicNs() + 60 * kSecond;
  Watch(job->job_id(), &trials, [&] {
    return worker_->Log().find("event=unfit") != std::string::npos || MonotonicNs() > give_up;
  });
  EXPECT_THAT(worker_->Log(), HasSubstr("event=unfit"));
  EXPECT_EQ(worker_->Exit(0), -1) << "the worker is gone: " << worker_->Log();
}

TEST_F(Fleet, KilledServerKeepsWhatItAcknowledgedAndTakesItsJobUpAgain) {
  StartServer();
  StartWorker();
  const v1::JobSpec spec = Spec(24, 4);
  const auto job = Submit(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<v1::TrialEvent> told;
  Watch(job->job_id(), &told, [&] {
    if (told.size() >= 8) server_->process().Signal(SIGKILL);
    return told.size() >= 8;
  });
  ASSERT_GE(told.size(), 8u);
  server_->process().Kill();
  const size_t kept = Rows().size();
  EXPECT_GE(kept, told.size()) << "a trial was told and is not there";
  // Started again at its old address it goes on; the worker finds it, a client who asks for the
  // same watches the same job.
  StartServer(tracker_address_, server_address_);
  told.clear();
  const auto again = SubmitOnceThereIsADevice(spec);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job_id(), job->job_id());
  const v1::JobSnapshot end = Watch(job->job_id(), &told);
  EXPECT_EQ(end.state(), v1::JOB_DONE) << end.error() << server_->Log();
  EXPECT_EQ(end.trials_done(), 24);
  EXPECT_EQ(end.trials_before(), 0);
  std::map<std::string, int> counts;
  for (const auto& [name, row] : Rows()) {
    if (row.rung != 4) ++counts[row.key.workload.Hex() + row.trace];
  }
  for (const auto& [trace, n] : counts) EXPECT_EQ(n, 1) << trace;
  EXPECT_EQ(counts.size(), 24u);
  const auto log = db::LogReader::Open(dir_ / "t.db");
  ASSERT_TRUE(log.ok());
  const auto jobs = (*log)->Jobs();
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 1u);
  EXPECT_EQ((*jobs)[0].state, db::JobState::kDone);
  EXPECT_EQ(worker_->Exit(0), -1) << "the worker is gone: " << worker_->Log();
}

TEST_F(Fleet, ServerThatIsToldToClosesWhatAFormerOneLeft) {
  StartServer();
  StartWorker();
  const auto job = Submit(Spec(1000, 8));
  ASSERT_TRUE(job.ok()) << job.status();
  server_->process().Kill();
  StartServer(":0", "127.0.0.1:0", {"--leftovers", "end"});
  const auto log = db::LogReader::Open(dir_ / "t.db");
  ASSERT_TRUE(log.ok()) << log.status();
  const auto row = (*log)->Job(job->job_id());
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->state, db::JobState::kFailed);
  EXPECT_THAT(row->error, HasSubstr("submit it again"));
}

TEST_F(Fleet, KilledWorkerIsReplacedAndTheJobGoesOn) {
  StartServer();
  StartWorker();
  const auto job = Submit(Spec(15, 3));
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<v1::TrialEvent> told;
  bool killed = false;
  const v1::JobSnapshot end = Watch(job->job_id(), &told, [&] {
    if (told.size() >= 5 && !killed) {
      killed = true;
      worker_->StopWith(SIGKILL);
      StartWorker();
    }
    return false;
  });
  EXPECT_TRUE(killed);
  EXPECT_EQ(end.state(), v1::JOB_DONE) << end.error();
  EXPECT_EQ(end.trials_done(), 15);
}

TEST_F(Fleet, StoppedWorkerDeliversWhatItRunsAndTheNextGoesOn) {
  StartServer();
  StartWorker();
  const auto job = Submit(Spec(12, 3));
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<v1::TrialEvent> told;
  bool stopped = false;
  const v1::JobSnapshot end = Watch(job->job_id(), &told, [&] {
    if (told.size() >= 4 && !stopped) {
      stopped = true;
      EXPECT_EQ(worker_->StopWith(SIGTERM), 0) << worker_->Log();
      StartWorker();
    }
    return false;
  });
  EXPECT_TRUE(stopped);
  EXPECT_EQ(end.state(), v1::JOB_DONE) << end.error();
  EXPECT_EQ(end.trials_done(), 12);
  for (const auto& [name, row] : Rows()) {
    EXPECT_FALSE(db::IsRetried(row.failure)) << AnimalOf(row.trace) << ": " << row.message;
    EXPECT_EQ(row.status, db::TrialStatus::kCounted) << AnimalOf(row.trace);
  }
}

// A file system of a few megabytes, gone with this object.
class SmallDisk {
 public:
  explicit SmallDisk(std::string folder) : folder_(std::move(folder)) {
    mkdir(folder_.c_str(), 0700);
    mounted_ = mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=8m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(folder_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  std::string operator/(const std::string& name) const { return folder_ + "/" + name; }

 private:
  const std::string folder_;
  bool mounted_ = false;
};

TEST_F(Fleet, FullDiskStopsAcknowledgementsAndWhatWaitedComesInOnceThereIsRoom) {
  const SmallDisk disk(dir_ / "small");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root: " << strerror(errno);
  db_ = disk / "t.db";
  StartServer();
  StartWorker();
  const pid_t server_pid = server_->process().pid();
  const auto job = Submit(Spec(24, 4));
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string ballast = disk / "ballast";
  std::thread helper;
  std::vector<v1::TrialEvent> told;
  const v1::JobSnapshot end = Watch(job->job_id(), &told, [&] {
    if (told.size() < 3 || helper.joinable()) return false;
    // All the room there is; then, once the server has said so, none of it.
    const std::string block(4096, 'x');
    std::ofstream out(ballast, std::ios::binary);
    while (out.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
    helper = std::thread([&] {
      const int64_t deadline = MonotonicNs() + 60 * kSecond;
      while (server_->Log().find("event=log_not_writable") == std::string::npos &&
             MonotonicNs() < deadline) {
        std::this_thread::yield();
      }
      unlink(ballast.c_str());
    });
    return false;
  });
  ASSERT_TRUE(helper.joinable());
  helper.join();
  EXPECT_EQ(end.state(), v1::JOB_DONE) << end.error() << server_->Log();
  EXPECT_EQ(end.trials_done(), 24);
  EXPECT_THAT(server_->Log(), HasSubstr("event=log_not_writable"));
  EXPECT_THAT(server_->Log(), HasSubstr("the log is read-only until this is over"));
  EXPECT_THAT(server_->Log(), HasSubstr("event=log_writable_again"));
  EXPECT_THAT(server_->Log(), ::testing::Not(HasSubstr("event=row_")));
  EXPECT_EQ(server_->process().pid(), server_pid);
  EXPECT_EQ(server_->Exit(0), -1) << "the server is gone";
  std::map<std::string, int> counts;
  for (const auto& [name, row] : Rows()) {
    if (row.rung != 4) ++counts[row.key.workload.Hex() + row.trace];
  }
  EXPECT_EQ(counts.size(), 24u);
  for (const auto& [trace, n] : counts) EXPECT_EQ(n, 1) << trace;
  EXPECT_EQ(server_->StopWith(SIGTERM), 0);
  const auto log = db::LogReader::Open(db_, {db::ReaderOptions::Check::kFull});
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_THAT((*log)->warnings(), ::testing::IsEmpty());
}

TEST_F(Fleet, ServerOnADamagedLogSaysSoAndGoesOnWithTheRest) {
  StartServer();
  StartWorker();
  auto job = Submit(Spec(6));
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<v1::TrialEvent> told;
  EXPECT_EQ(Watch(job->job_id(), &told).state(), v1::JOB_DONE);
  EXPECT_EQ(server_->StopWith(SIGTERM), 0);
  EXPECT_THAT(server_->Log(), ::testing::Not(HasSubstr("event=log_damaged")));
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(db_.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, "UPDATE trials SET median_ns=1 WHERE seq=2; UPDATE jobs SET error='?'",
                         nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(db);
  StartServer();
  EXPECT_THAT(server_->Log(), HasSubstr("event=log_damaged"));
  EXPECT_THAT(server_->Log(), HasSubstr("trials row 2: its CRC does not match"));
  EXPECT_THAT(server_->Log(), HasSubstr("whet log salvage --db"));
}

TEST_F(Fleet, OldTrialsAreForgottenByTheServerItself) {
  StartServer();
  StartWorker();
  const auto job = Submit(Spec(12));
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<v1::TrialEvent> told;
  EXPECT_EQ(Watch(job->job_id(), &told).state(), v1::JOB_DONE);
  const size_t before = Rows().size();
  EXPECT_EQ(server_->StopWith(SIGTERM), 0);
  StartServer(":0", "127.0.0.1:0", {"--keep-trials", "2"});
  const int64_t deadline = MonotonicNs() + 30 * kSecond;
  while (server_->Log().find("event=log_pruned") == std::string::npos && MonotonicNs() < deadline)
    std::this_thread::yield();
  const size_t after = Rows().size();
  EXPECT_LT(after, before);
  EXPECT_GE(after, 2u);
  const auto log = db::LogReader::Open(db_, {db::ReaderOptions::Check::kFull});
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_THAT((*log)->warnings(), ::testing::IsEmpty());
}

TEST_F(Fleet, CancelledJobKeepsItsRows) {
  StartServer();
  StartWorker();
  const auto job = Submit(Spec(1000, 20));
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<v1::TrialEvent> told;
  bool cancelled = false;
  const v1::JobSnapshot end = Watch(job->job_id(), &told, [&] {
    if (told.size() < 5 || cancelled) return false;
    cancelled = true;
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_job_id(job->job_id());
    v1::CancelJobReply reply;
    EXPECT_TRUE(stub_->CancelJob(&context, request, &reply).ok());
    EXPECT_EQ(reply.state(), v1::JOB_CANCELLED);
    return false;
  });
  EXPECT_EQ(end.state(), v1::JOB_CANCELLED);
  EXPECT_GE(Rows().size(), 5u);
}

TEST_F(Fleet, UnknownKeyAnswersAtOnceWithTheKeysThatExist) {
  StartServer();
  StartWorker("rpi4");
  const int64_t start = MonotonicNs();
  const auto job = Submit(Spec(10));  // wants "local"
  EXPECT_LT(MonotonicNs() - start, 5 * kSecond);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(job.status()),
              HasSubstr("no device has the key 'local'; the keys are: rpi4"));
}

TEST_F(Fleet, TaskThatTheCompilerRefusesFailsWithItsWords) {
  StartServer();
  StartWorker();
  v1::JobSpec spec = Spec(10);
  spec.mutable_tasks(0)->set_workload("garbage");
  const auto job = Submit(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<v1::TrialEvent> told;
  const v1::JobSnapshot end = Watch(job->job_id(), &told);
  EXPECT_EQ(end.state(), v1::JOB_FAILED);
  EXPECT_THAT(end.error(), HasSubstr("not of the zoo"));
}

TEST_F(Fleet, UnreachableTrackerIsSaidWithinFiveSeconds) {
  Running server("../tests/zoo-server",
                 {"--tracker", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--db", dir_ / "t.db"},
                 dir_ / "server.log");
  stub_ = v1::Tuner::NewStub(rpc::Dial(server.Listening("server")));
  const int64_t start = MonotonicNs();
  const auto job = Submit(Spec(10));
  EXPECT_LT(MonotonicNs() - start, 5 * kSecond);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(job.status()), HasSubstr("127.0.0.1:1"));
  EXPECT_EQ(server.StopWith(SIGTERM), 0);
}

TEST_F(Fleet, PortsInUseAndOpenAddressesAreRefusedInWords) {
  Running tracker("rpc-tracker", {"--listen", "127.0.0.1:0", "--state-dir", dir_ / "a"},
                  dir_ / "a.log");
  const std::string address = tracker.Listening("tracker");
  Running second("rpc-tracker", {"--listen", address, "--state-dir", dir_ / "b"}, dir_ / "b.log");
  EXPECT_EQ(second.Exit(), 2);
  EXPECT_THAT(second.Log(), HasSubstr("port " + address.substr(address.rfind(':') + 1)));
  for (const std::string program : {"rpc-tracker", "../tests/zoo-server"}) {
    Running open(program, {"--listen", "0.0.0.0:0"}, dir_ / "open.log");
    EXPECT_EQ(open.Exit(), 2) << program;
    EXPECT_THAT(open.Log(), HasSubstr("needs TLS")) << program;
  }
  Running served("../tests/zoo-server",
                 {"--listen", address, "--tracker", ":0", "--db", dir_ / "x.db"}, dir_ / "c.log");
  EXPECT_EQ(served.Exit(), 2);
  EXPECT_THAT(served.Log(), HasSubstr("in use"));
  EXPECT_EQ(tracker.StopWith(SIGTERM), 0);
}

TEST_F(Fleet, TwoWorkersShareAMachineAsTwoDevices) {
  StartServer();
  StartWorker();
  std::unique_ptr<Running> first = std::move(worker_);
  StartWorker("local", {}, 2);
  const auto job = Submit(Spec(16, 2));
  ASSERT_TRUE(job.ok());
  std::vector<v1::TrialEvent> told;
  const v1::JobSnapshot end = Watch(job->job_id(), &told);
  EXPECT_EQ(end.state(), v1::JOB_DONE);
  std::set<std::string> devices;
  for (const auto& [name, row] : Rows()) {
    if (!row.ids.device_id.empty()) devices.insert(row.ids.device_id);
  }
  EXPECT_EQ(devices.size(), 2u);
  EXPECT_EQ(first->StopWith(SIGTERM), 0);
}

}  // namespace
}  // namespace whet::testing
