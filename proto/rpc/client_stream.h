// The client's side of one bidirectional call. Callbacks come from gRPC's threads; `on_done` is the
// last one and comes exactly once. Send and Cancel are safe from any thread, also after the end.
// Keeps itself alive until the call is over.
//
//   auto stream = ClientStream<Out, In>::Start(
//       [&](ctx, reactor) { stub->async()->Work(ctx, reactor); }, on_message, on_done);
#pragma once
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace whet::rpc {

template <typename Out, typename In>
class ClientStream : public grpc::ClientBidiReactor<Out, In> {
 public:
  using Starter = std::function<void(grpc::ClientContext*, grpc::ClientBidiReactor<Out, In>*)>;
  using OnMessage = std::function<void(In)>;
  using OnEnd = std::function<void(const grpc::Status&)>;

  static std::shared_ptr<ClientStream> Start(const Starter& start, OnMessage on_message,
                                             OnEnd on_done) {
    std::shared_ptr<ClientStream> stream(
        new ClientStream(std::move(on_message), std::move(on_done)));
    stream->self_ = stream;
    start(&stream->context_, stream.get());
    stream->AddHold();  // for writes from outside a callback; dropped when reading ends
    stream->StartRead(&stream->in_);
    stream->StartCall();
    return stream;
  }

  void Send(Out message) {
    const std::lock_guard lock(mu_);
    if (ended_ || half_closed_) return;
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) this->StartWrite(&queue_.front());
  }

  // No more messages from us; what is queued is sent. The peer then ends the call.
  void Finish() {
    const std::lock_guard lock(mu_);
    if (ended_ || half_closed_) return;
    half_closed_ = true;
    if (queue_.empty()) this->StartWritesDone();
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (ok) {
      on_message_(std::move(in_));
      in_ = In();
      this->StartRead(&in_);
      return;
    }
    {
      const std::lock_guard lock(mu_);
      ended_ = true;
    }
    this->RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mu_);
    queue_.pop_front();
    if (!ok || ended_) {
      queue_.clear();
      return;
    }
    if (!queue_.empty()) {
      this->StartWrite(&queue_.front());
    } else if (half_closed_) {
      this->StartWritesDone();
    }
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<ClientStream> keep = std::move(self_);
    on_done_(status);
  }

 private:
  ClientStream(OnMessage on_message, OnEnd on_done)
      : on_message_(std::move(on_message)), on_done_(std::move(on_done)) {}

  grpc::ClientContext context_;
  const OnMessage on_message_;
  const OnEnd on_done_;
  std::shared_ptr<ClientStream> self_;  // until OnDone
  In in_;

  std::mutex mu_;
  std::deque<Out> queue_;  // the first is being written
  bool ended_ = false;
  bool half_closed_ = false;
};

}  // namespace whet::rpc
