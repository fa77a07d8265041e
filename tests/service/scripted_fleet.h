// A tracker and a tuner server in one, which a test tells what to say: every device that registers
// is leased at once, assignments are sent by hand, blobs are served as the test likes, results are
// acknowledged as they come. For real worker processes. Thread-safe.
#pragma once
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/support/sha256.h"
#include "proto/rpc/endpoint.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/worker.grpc.pb.h"
#include "tests/service/zoo_task.h"

namespace whet::testing {

class ScriptedFleet {
 public:
  ScriptedFleet() : tracker_(this), dispatch_(this) {
    StatusOr<rpc::Listener> listener = rpc::Listen("127.0.0.1:0", {&tracker_, &dispatch_});
    EXPECT_TRUE(listener.ok()) << listener.status();
    listener_ = std::move(*listener);
  }
  ~ScriptedFleet() { listener_.server->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return listener_.address; }

  // What a Fetch is answered with; nothing: the stream breaks. Before the worker starts.
  using Answer = std::function<std::optional<std::vector<v1::ServerMessage>>(const v1::Fetch&)>;
  Answer answer = [this](const v1::Fetch& f) { return Honest(f); };
  uint64_t fetch_bytes = 0;

  std::string AddBlob(const std::string& bytes) {
    const std::lock_guard lock(mu_);
    const std::string sha = Sha256Hex(bytes);
    blobs_[sha] = bytes;
    return sha;
  }
  std::vector<v1::ServerMessage> Honest(const v1::Fetch& f) {
    const std::lock_guard lock(mu_);
    const std::string& blob = blobs_[f.sha256()];
    v1::ServerMessage m;
    m.mutable_chunk()->set_sha256(f.sha256());
    m.mutable_chunk()->set_total(blob.size());
    m.mutable_chunk()->set_offset(f.offset());
    m.mutable_chunk()->set_data(
        blob.substr(f.offset(), f.max_bytes() == 0 ? std::string::npos : f.max_bytes()));
    return {m};
  }

  // Waits until the condition, on what came so far, is true.
  bool Await(const std::function<bool()>& condition, int64_t limit_ns = 30 * kSecond) {
    std::unique_lock lock(mu_);
    return news_.wait_for(lock, std::chrono::nanoseconds(limit_ns), condition);
  }
  std::string AwaitDevice(const std::string& suffix = "") {
    std::string id;
    EXPECT_TRUE(Await([&] {
      for (const auto& [device, stream] : live_) {
        if (device.size() >= suffix.size() &&
            device.compare(device.size() - suffix.size(), suffix.size(), suffix) == 0)
          id = device;
      }
      return !id.empty();
    })) << "no device '"
        << suffix << "'";
    return id;
  }

  // That so many streams were opened, by all workers together; the last one can be spoken to.
  void AwaitStreams(int n) {
    EXPECT_TRUE(Await([&] { return streams_ >= n; })) << streams_ << " streams";
  }

  // Of a candidate of the zoo's task; its number.
  int64_t Assign(
      const std::string& device, const std::string& object,
      const std::function<void(v1::Assign*)>& change = [](v1::Assign*) {}) {
    v1::ServerMessage m;
    v1::Assign& a = *m.mutable_assign();
    const std::string expected = ZooExpected();
    a.set_object_sha256(AddBlob(object));
    a.set_object_bytes(object.size());
    a.set_expected_sha256(AddBlob(expected));
    a.set_expected_bytes(expected.size());
    *a.mutable_spec() = ZooSpec();
    v1::TrialIds& ids = *a.mutable_ids();
    ids.set_log_id("log");
    ids.set_job_id("job");
    ids.set_incarnation("incarnation");
    ids.set_device_id(device);
    ids.set_attempt(1);
    {
      const std::lock_guard lock(mu_);
      ids.set_trial(++trials_);
      ids.set_lease_epoch(epochs_[device]);
    }
    change(&a);
    Say(device, m);
    return ids.trial();
  }
  void Say(const std::string& device, const v1::ServerMessage& m) {
    const std::lock_guard lock(write_mu_);
    const auto it = live_.find(device);
    EXPECT_TRUE(it != live_.end() && it->second->Write(m)) << device << " has no stream";
  }
  v1::Measurement AwaitResult(int64_t trial, int64_t limit_ns = 60 * kSecond) {
    v1::Measurement m;
    EXPECT_TRUE(Await(
        [&] {
          for (const v1::Result& r : results_) {
            if (r.ids().trial() == trial) m = r.measurement();
            if (r.ids().trial() == trial) return true;
          }
          return false;
        },
        limit_ns))
        << "no result of trial " << trial;
    return m;
  }
  bool AwaitStarted(int64_t trial) {
    return Await([&] { return started_.contains(trial); });
  }
  std::vector<v1::Fetch> fetches() {
    const std::lock_guard lock(mu_);
    return fetches_;
  }
  std::map<std::string, v1::Register> registered() {
    const std::lock_guard lock(mu_);
    return registered_;
  }
  int results(int64_t trial) {
    const std::lock_guard lock(mu_);
    int n = 0;
    for (const v1::Result& r : results_) n += r.ids().trial() == trial;
    return n;
  }
  int leaves() {
    const std::lock_guard lock(mu_);
    return leaves_;
  }

 private:
  using Stream = grpc::ServerReaderWriter<v1::ServerMessage, v1::WorkerMessage>;

  class TrackerSide : public v1::Tracker::Service {
   public:
    explicit TrackerSide(ScriptedFleet* fleet) : fleet_(fleet) {}
    grpc::Status Attach(
        grpc::ServerContext*,
        grpc::ServerReaderWriter<v1::AttachReply, v1::AttachRequest>* stream) override {
      return fleet_->Attach(stream);
    }

   private:
    ScriptedFleet* const fleet_;
  };
  class DispatchSide : public v1::Dispatch::Service {
   public:
    explicit DispatchSide(ScriptedFleet* fleet) : fleet_(fleet) {}
    grpc::Status Work(grpc::ServerContext*, Stream* stream) override {
      return fleet_->Work(stream);
    }

   private:
    ScriptedFleet* const fleet_;
  };

  grpc::Status Attach(grpc::ServerReaderWriter<v1::AttachReply, v1::AttachRequest>* stream) {
    v1::AttachRequest m;
    if (!stream->Read(&m) || !m.has_register_()) return grpc::Status::CANCELLED;
    const std::string device = m.register_().device().device_id();
    v1::AttachReply registered, lease;
    registered.mutable_registered()->set_protocol(1);
    registered.mutable_registered()->set_incarnation("incarnation");
    registered.mutable_registered()->set_heartbeat_ns(kSecond);
    lease.mutable_lease()->set_incarnation("incarnation");
    lease.mutable_lease()->set_server_address(address());
    {
      const std::lock_guard lock(mu_);
      registered_[device] = m.register_();
      // A worker that is back keeps the lease that it presents.
      if (!m.register_().has_held()) epochs_[device] = ++last_epoch_;
      lease.mutable_lease()->set_epoch(epochs_[device]);
    }
    stream->Write(registered);
    stream->Write(lease);
    while (stream->Read(&m)) {
      if (!m.has_leave()) continue;
      const std::lock_guard lock(mu_);
      ++leaves_;
    }
    news_.notify_all();
    return grpc::Status::OK;
  }

  grpc::Status Work(Stream* stream) {
    v1::WorkerMessage m;
    if (!stream->Read(&m) || !m.has_hello()) return grpc::Status::CANCELLED;
    const std::string device = m.hello().device().device_id();
    v1::ServerMessage hello;
    hello.mutable_hello()->set_protocol(1);
    hello.mutable_hello()->set_log_id("log");
    hello.mutable_hello()->set_heartbeat_ns(kSecond);
    hello.mutable_hello()->set_fetch_bytes(fetch_bytes);
    {
      const std::scoped_lock lock(write_mu_, mu_);
      stream->Write(hello);
      live_[device] = stream;
      ++streams_;
    }
    news_.notify_all();
    while (stream->Read(&m) && Take(device, stream, m)) {
    }
    const std::scoped_lock lock(write_mu_, mu_);
    if (live_[device] == stream) live_.erase(device);
    return grpc::Status::OK;
  }

  // False: break the stream.
  bool Take(const std::string&, Stream* stream, const v1::WorkerMessage& m) {
    std::vector<v1::ServerMessage> say;
    if (m.has_fetch()) {
      {
        const std::lock_guard lock(mu_);
        fetches_.push_back(m.fetch());
      }
      auto answers = answer(m.fetch());
      if (!answers) return false;
      say = std::move(*answers);
    } else if (m.has_started()) {
      const std::lock_guard lock(mu_);
      started_.insert(m.started().ids().trial());
    } else if (m.has_result()) {
      say.emplace_back().mutable_ack()->set_watermark(m.result().sequence());
      const std::lock_guard lock(mu_);
      results_.push_back(m.result());
    } else {
      say.emplace_back().mutable_heartbeat();  // a server that is silent is given up
    }
    news_.notify_all();
    const std::lock_guard lock(write_mu_);
    for (const v1::ServerMessage& s : say) stream->Write(s);
    return true;
  }

  TrackerSide tracker_;
  DispatchSide dispatch_;
  rpc::Listener listener_;

  std::mutex write_mu_;  // before mu_
  std::mutex mu_;
  std::condition_variable news_;
  std::map<std::string, Stream*> live_;  // changed under both
  std::map<std::string, std::string> blobs_;
  std::map<std::string, v1::Register> registered_;
  std::map<std::string, int64_t> epochs_;
  int64_t last_epoch_ = 0, trials_ = 0;
  std::set<int64_t> started_;
  std::vector<v1::Fetch> fetches_;
  std::vector<v1::Result> results_;
  int leaves_ = 0, streams_ = 0;
};

}  // namespace whet::testing
