// Those who watch jobs: one outgoing stream each. A watcher that reads slowly misses single trials
// and intermediate snapshots, never the last one. Thread-safe.
#pragma once
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "proto/tuner.pb.h"

namespace whet::tuner {

class Watchers {
 public:
  // The reactor of a new call. Not attached to a job until Attach; a status that is not OK ends it
  // at once.
  class Stream : public grpc::ServerWriteReactor<v1::JobEvent> {
   public:
    explicit Stream(Watchers* owner) : owner_(owner) {}
    void Send(const v1::JobEvent& event);
    void End(const grpc::Status& status);  // after what is queued
    void OnWriteDone(bool ok) override;
    void OnCancel() override { End(grpc::Status::CANCELLED); }
    void OnDone() override;

   private:
    void FinishLocked();
    Watchers* const owner_;
    std::mutex mu_;
    std::deque<v1::JobEvent> queue_;  // the first is being written
    bool ending_ = false, finished_ = false;
    grpc::Status status_;
  };

  Stream* New();
  void Attach(Stream* stream, const std::string& job);  // nothing if it has ended meanwhile
  // To one, if it is still there.
  void SendTo(Stream* stream, const v1::JobEvent& event);
  void EndOne(Stream* stream, const grpc::Status& status);
  void Publish(const std::string& job, const v1::JobEvent& event, bool last);
  void EndAll(const grpc::Status& status);  // also those that come later

 private:
  std::mutex mu_;
  std::set<Stream*> streams_;  // own themselves until OnDone
  std::map<std::string, std::set<Stream*>> by_job_;
  bool closing_ = false;
};

}  // namespace whet::tuner
