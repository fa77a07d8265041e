// The streams of one bidirectional method on the server's side: sessions by number, messages out
// through a bounded queue, messages in through a callback. A session that does not read what it is
// sent is closed, not buffered for without end. Thread-safe. Callbacks come from gRPC's threads:
// they post to a loop and return. A session's OnGone is its last callback.
#pragma once
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace whet::rpc {

template <typename In, typename Out>
class ServerStreams {
 public:
  using OnMessage = std::function<void(uint64_t session, In message)>;
  using OnGone = std::function<void(uint64_t session)>;

  ServerStreams(OnMessage on_message, OnGone on_gone, size_t max_queue = 10'000)
      : on_message_(std::move(on_message)), on_gone_(std::move(on_gone)), max_queue_(max_queue) {}

  // The reactor for a new call; a refusal ends the call at once.
  grpc::ServerBidiReactor<In, Out>* Accept(const grpc::Status& refusal) {
    const std::lock_guard lock(mu_);
    const uint64_t session = ++last_session_;
    auto* stream = new Stream(this, session);
    streams_[session] = stream;
    if (!refusal.ok()) {
      stream->Close(refusal);
    } else if (closing_) {
      stream->Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down"));
    } else {
      stream->Begin();
    }
    return stream;
  }

  void Send(uint64_t session, Out message) {
    const std::lock_guard lock(mu_);
    if (const auto it = streams_.find(session); it != streams_.end())
      it->second->Send(std::move(message), max_queue_);
  }
  // What is queued is sent first when the status is OK.
  void Close(uint64_t session, const grpc::Status& status) {
    const std::lock_guard lock(mu_);
    if (const auto it = streams_.find(session); it != streams_.end()) it->second->Close(status);
  }
  // Also refuses what comes later.
  void CloseAll(const grpc::Status& status) {
    const std::lock_guard lock(mu_);
    closing_ = true;
    for (auto& [session, stream] : streams_) stream->Close(status);
  }
  size_t size() {
    const std::lock_guard lock(mu_);
    return streams_.size();
  }

 private:
  class Stream : public grpc::ServerBidiReactor<In, Out> {
   public:
    Stream(ServerStreams* owner, uint64_t session) : owner_(owner), session_(session) {}

    void Begin() {
      began_ = true;
      this->StartRead(&in_);
    }

    void Send(Out message, size_t max_queue) {
      const std::lock_guard lock(mu_);
      if (finishing_ || closing_) return;
      if (queue_.size() >= max_queue) {
        closing_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                "the peer does not read what it is sent");
        if (queue_.size() > 1) queue_.erase(queue_.begin() + 1, queue_.end());
        return;
      }
      queue_.push_back(std::move(message));
      if (queue_.size() == 1) this->StartWrite(&queue_.front());
    }

    void Close(const grpc::Status& status) {
      const std::lock_guard lock(mu_);
      if (finishing_ || closing_) return;
      closing_ = status;
      if (!status.ok() && queue_.size() > 1) queue_.erase(queue_.begin() + 1, queue_.end());
      if (queue_.empty()) FinishLocked();
    }

    void OnReadDone(bool ok) override {
      if (ok) {
        owner_->on_message_(session_, std::move(in_));
        in_ = In();
        this->StartRead(&in_);
        return;
      }
      const std::lock_guard lock(mu_);
      if (!closing_) closing_ = grpc::Status::OK;
      if (queue_.empty()) FinishLocked();
    }

    void OnWriteDone(bool ok) override {
      const std::lock_guard lock(mu_);
      queue_.pop_front();
      if (!ok) {
        queue_.clear();
        if (!closing_) closing_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the peer is gone");
      }
      if (!queue_.empty()) {
        this->StartWrite(&queue_.front());
      } else if (closing_) {
        FinishLocked();
      }
    }

    void OnDone() override {
      {
        const std::lock_guard lock(owner_->mu_);
        owner_->streams_.erase(session_);
      }
      if (began_) owner_->on_gone_(session_);
      delete this;
    }

   private:
    void FinishLocked() {
      if (finishing_) return;
      finishing_ = true;
      this->Finish(*closing_);
    }

    ServerStreams* const owner_;
    const uint64_t session_;
    bool began_ = false;
    In in_;

    std::mutex mu_;          // taken after the owner's
    std::deque<Out> queue_;  // the first is being written
    std::optional<grpc::Status> closing_;
    bool finishing_ = false;
  };

  const OnMessage on_message_;
  const OnGone on_gone_;
  const size_t max_queue_;

  std::mutex mu_;
  uint64_t last_session_ = 0;
  std::map<uint64_t, Stream*> streams_;  // owned by themselves, until OnDone
  bool closing_ = false;
};

}  // namespace whet::rpc
