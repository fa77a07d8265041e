#include "tuner/service/watchers.h"

#include <algorithm>

namespace whet::tuner {
namespace {

constexpr size_t kSlow = 64;  // events behind

}  // namespace

void Watchers::Stream::Send(const v1::JobEvent& event) {
  const std::lock_guard lock(mu_);
  if (ending_ || finished_) return;
  if (queue_.size() > kSlow) {
    if (event.has_trial()) return;
    // The newest snapshot says what those before it said.
    queue_.erase(queue_.begin() + 1, queue_.end());
  }
  queue_.push_back(event);
  if (queue_.size() == 1) StartWrite(&queue_.front());
}

void Watchers::Stream::End(const grpc::Status& status) {
  const std::lock_guard lock(mu_);
  if (ending_ || finished_) return;
  ending_ = true;
  status_ = status;
  if (queue_.empty()) FinishLocked();
}

void Watchers::Stream::FinishLocked() {
  if (finished_) return;
  finished_ = true;
  Finish(status_);
}

void Watchers::Stream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mu_);
  queue_.pop_front();
  if (!ok) {
    queue_.clear();
    ending_ = true;
  }
  if (!queue_.empty()) {
    StartWrite(&queue_.front());
  } else if (ending_) {
    FinishLocked();
  }
}

void Watchers::Stream::OnDone() {
  {
    const std::lock_guard lock(owner_->mu_);
    owner_->streams_.erase(this);
    for (auto& [job, streams] : owner_->by_job_) streams.erase(this);
    std::erase_if(owner_->by_job_, [](const auto& j) { return j.second.empty(); });
  }
  delete this;
}

Watchers::Stream* Watchers::New() {
  const std::lock_guard lock(mu_);
  auto* stream = new Stream(this);
  streams_.insert(stream);
  if (closing_) stream->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down"));
  return stream;
}

void Watchers::Attach(Stream* stream, const std::string& job) {
  const std::lock_guard lock(mu_);
  if (streams_.contains(stream)) by_job_[job].insert(stream);
}

void Watchers::SendTo(Stream* stream, const v1::JobEvent& event) {
  const std::lock_guard lock(mu_);
  if (streams_.contains(stream)) stream->Send(event);
}

void Watchers::EndOne(Stream* stream, const grpc::Status& status) {
  const std::lock_guard lock(mu_);
  if (streams_.contains(stream)) stream->End(status);
}

void Watchers::Publish(const std::string& job, const v1::JobEvent& event, bool last) {
  const std::lock_guard lock(mu_);
  const auto it = by_job_.find(job);
  if (it == by_job_.end()) return;
  for (Stream* stream : it->second) {
    stream->Send(event);
    if (last) stream->End(grpc::Status::OK);
  }
}

void Watchers::EndAll(const grpc::Status& status) {
  const std::lock_guard lock(mu_);
  closing_ = true;
  for (Stream* stream : streams_) stream->End(status);
}

}  // namespace whet::tuner
