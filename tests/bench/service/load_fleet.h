// Simulated workers with real connections: each has its own to the tracker and to the server, says
// what a worker says, fetches its candidates, "measures" by waiting, keeps results until they are
// acknowledged, and comes back after a break with its lease and its results. Times of what they
// wait for are kept.
#pragma once
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "compiler/support/clock.h"
#include "proto/rpc/client_stream.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/worker.grpc.pb.h"

namespace whet::bench {

// Milliseconds of what happened often. Thread-safe.
class Latencies {
 public:
  void Add(int64_t ns) {
    const std::lock_guard lock(mu_);
    ms_.push_back(static_cast<float>(static_cast<double>(ns) / 1e6));
  }
  std::vector<float> Take() {
    const std::lock_guard lock(mu_);
    return std::exchange(ms_, {});
  }

 private:
  std::mutex mu_;
  std::vector<float> ms_;
};

// Runs functions at times of the monotonic clock, on one thread.
class Timers {
 public:
  Timers() : thread_([this] { Run(); }) {}
  ~Timers() { Stop(); }
  void At(int64_t ns, std::function<void()> what);
  void After(int64_t ns, std::function<void()> what) { At(MonotonicNs() + ns, std::move(what)); }
  void Stop();  // what is due later never runs

 private:
  struct Due {
    int64_t at;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Due& o) const { return std::pair(at, order) > std::pair(o.at, o.order); }
  };
  void Run();
  std::mutex mu_;
  std::condition_variable cv_;
  std::priority_queue<Due> due_;
  uint64_t next_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

using Connect =
    std::function<std::shared_ptr<grpc::Channel>(int worker, const std::string& address)>;

class LoadFleet {
 public:
  struct Options {
    std::string tracker;  // address
    int workers = 0;
    int64_t measure_ns = 0;  // how long a measurement takes
    uint64_t seed = 1;
    Connect connect;
    // The id of worker i begins with this and a '.'.
    std::function<std::string(int worker)> certificate_id;
  };
  explicit LoadFleet(Options options);
  ~LoadFleet();  // all leave

  void Start(int worker);
  void SetMeasureNs(int64_t ns) { measure_ns_ = ns; }
  // Of the workers: registered at the tracker; leased, with a stream to the server that was
  // greeted.
  int registered() const { return registered_; }
  int serving() const { return serving_; }
  // Those serving leave the tracker and come back at once, so many a second in turn, until told 0.
  void Churn(int a_second);

  Latencies& acks() { return acks_; }          // result sent -> acknowledged
  Latencies& leases() { return leases_; }      // registered -> leased
  Latencies& turnarounds() { return turns_; }  // nothing to do -> the next candidate assigned
  int64_t acknowledged() const { return acknowledged_; }
  int64_t unacknowledged();
  int64_t leases_lost() const { return lost_; }  // ended by the tracker, or under another epoch
  int64_t refusals() const { return refusals_; }
  std::string last_trouble();

 private:
  struct Kept {
    v1::Result result;
    int64_t sent_ns;
  };
  struct Worker {
    int number = 0;
    std::mutex mu;
    v1::DeviceIdentity device;
    std::shared_ptr<grpc::Channel> tracker_channel, server_channel;
    std::shared_ptr<rpc::ClientStream<v1::AttachRequest, v1::AttachReply>> attach;
    std::shared_ptr<rpc::ClientStream<v1::WorkerMessage, v1::ServerMessage>> work;
    uint64_t attach_link = 0, work_link = 0;  // callbacks of former streams are ignored
    bool registered = false, greeted = false, leaving = false;
    int attach_failures = 0, work_failures = 0;
    int64_t heartbeat_ns = 5 * kSecond;
    std::string incarnation, server_address;
    int64_t epoch = 0;
    int64_t asked_ns = 0;  // registered, and waits for a lease
    int64_t idle_ns = 0;   // waits for a candidate; 0: it has one
    std::deque<v1::Assign> assigned;
    bool measuring = false;
    uint64_t fetched = 0;  // bytes of the first one's object
    int64_t sequence = 0;
    std::map<int64_t, Kept> kept;
    std::set<std::string> cached;  // expected outputs and baselines
  };

  void ConnectTracker(Worker* w);
  void ConnectServer(Worker* w);  // w->mu is held
  void DropServer(Worker* w);     // likewise
  void OnAttach(Worker* w, uint64_t link, const v1::AttachReply& m);
  void OnWork(Worker* w, uint64_t link, const v1::ServerMessage& m);
  void OnAttachEnd(Worker* w, uint64_t link, const grpc::Status& s);
  void OnWorkEnd(Worker* w, uint64_t link, const grpc::Status& s);
  void Next(Worker* w);  // likewise
  void Measured(Worker* w, uint64_t link);
  void Beat(Worker* w);
  void ChurnOne();
  int64_t Backoff(int* failures);
  void Trouble(const std::string& text);

  const Options options_;
  std::atomic<int64_t> measure_ns_;
  std::atomic<int> registered_{0}, serving_{0}, churn_{0};
  std::atomic<int64_t> acknowledged_{0}, lost_{0}, refusals_{0};
  std::atomic<bool> stopping_{false};
  size_t churned_ = 0;  // of the timers' thread
  Latencies acks_, leases_, turns_;
  std::mutex mu_;
  std::mt19937_64 rng_;
  std::string trouble_;
  std::atomic<int> open_streams_{0};
  std::vector<std::unique_ptr<Worker>> workers_;
  Timers timers_;
};

}  // namespace whet::bench
