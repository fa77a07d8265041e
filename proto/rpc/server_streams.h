// The streams of one bidirectional method on the server's side: sessions by number, messages out
// through a bounded queue, messages in through a callback. A session that does not read what it is
// sent is closed, not buffered for without end. So is one whose peer is denied, or whose
// certificate has ended, at its next message; one that sends more than a worker can measure; and
// one whose message fails `check`, which sees who sent it. Thread-safe. Callbacks come from gRPC's
// threads: they post to a loop and return. A session's OnGone is its last callback.
#pragma once
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/support/clock.h"
#include "proto/rpc/access.h"
#include "proto/rpc/token_bucket.h"

namespace whet::rpc {

// Of one stream of a peer with a certificate. A worker that was away resends what it kept at once.
inline constexpr double kMessagesPerSecond = 2'000, kMessagesAtOnce = 20'000;
// Streams of one certificate at a time, and of everybody with one.
inline constexpr int64_t kStreamsOfOne = 256, kStreamsOfAll = 8'192;

template <typename In, typename Out>
class ServerStreams {
 public:
  using OnMessage = std::function<void(uint64_t session, In message)>;
  using OnGone = std::function<void(uint64_t session)>;
  using Check = std::function<Status(const Principal& by, const In& message)>;

  ServerStreams(
      OnMessage on_message, OnGone on_gone, size_t max_queue = 10'000,
      Check check = [](const Principal&, const In&) { return OkStatus(); })
      : on_message_(std::move(on_message)),
        on_gone_(std::move(on_gone)),
        max_queue_(max_queue),
        check_(std::move(check)) {}

  // The reactor for a new call; a refusal ends the call at once.
  grpc::ServerBidiReactor<In, Out>* Accept(const grpc::Status& refusal, Principal by = {}) {
    const std::lock_guard lock(mu_);
    const uint64_t session = ++last_session_;
    const bool counts = refusal.ok() && by.certificate.has_value();
    const auto own = counts ? counted_.find(by.id) : counted_.end();
    const int64_t of_one = own == counted_.end() ? 0 : own->second;
    const bool full = counts && (of_one >= kStreamsOfOne || counted_all_ >= kStreamsOfAll);
    auto* stream = new Stream(this, session, std::move(by), counts && !full);
    streams_[session] = stream;
    if (counts && !full) ++counted_[stream->by().id], ++counted_all_;
    if (!refusal.ok()) {
      stream->Close(refusal);
    } else if (full) {
      stream->Close(grpc::Status(
          grpc::StatusCode::RESOURCE_EXHAUSTED,
          fmt::format("{} streams are open, {} of them by {}; try again when some have ended",
                      counted_all_, of_one, stream->by().name)));
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
    Stream(ServerStreams* owner, uint64_t session, Principal by, bool counted)
        : owner_(owner), session_(session), by_(std::move(by)), counted_(counted) {}
    const Principal& by() const { return by_; }

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
        if (const Status s = Admit(); !s.ok()) {
          // Nothing more is read: the call ends when what is being written is.
          Close(grpc::Status(static_cast<grpc::StatusCode>(s.code()), Message(s)));
          return;
        }
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
        if (counted_) {
          --owner_->counted_all_;
          if (const auto it = owner_->counted_.find(by_.id); --it->second == 0)
            owner_->counted_.erase(it);
        }
      }
      if (began_) owner_->on_gone_(session_);
      delete this;
    }

   private:
    Status Admit() {
      if (by_.certificate) {
        WHET_RETURN_IF_ERROR(StillAdmitted(by_));
        if (!arrivals_.Take(MonotonicNs()))
          return ResourceExhausted("more than {:.0f} messages a second", kMessagesPerSecond);
      }
      return owner_->check_(by_, in_);
    }
    void FinishLocked() {
      if (finishing_) return;
      finishing_ = true;
      this->Finish(*closing_);
    }

    ServerStreams* const owner_;
    const uint64_t session_;
    const Principal by_;
    const bool counted_;
    bool began_ = false;
    In in_;
    TokenBucket arrivals_{kMessagesPerSecond, kMessagesAtOnce};  // of gRPC's reading thread

    std::mutex mu_;          // taken after the owner's
    std::deque<Out> queue_;  // the first is being written
    std::optional<grpc::Status> closing_;
    bool finishing_ = false;
  };

  const OnMessage on_message_;
  const OnGone on_gone_;
  const size_t max_queue_;
  const Check check_;

  std::mutex mu_;
  uint64_t last_session_ = 0;
  std::map<uint64_t, Stream*> streams_;     // owned by themselves, until OnDone
  std::map<std::string, int64_t> counted_;  // of certificates, by principal
  int64_t counted_all_ = 0;
  bool closing_ = false;
};

}  // namespace whet::rpc
