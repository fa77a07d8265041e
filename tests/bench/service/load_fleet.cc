#include "tests/bench/service/load_fleet.h"

#include <algorithm>
#include <utility>

#include "proto/rpc/endpoint.h"
#include "worker/measure/runner.h"

namespace whet::bench {

void Timers::At(int64_t ns, std::function<void()> what) {
  {
    const std::lock_guard lock(mu_);
    due_.push({ns, next_++, std::move(what)});
  }
  cv_.notify_one();
}

void Timers::Stop() {
  {
    const std::lock_guard lock(mu_);
    stopped_ = true;
  }
  cv_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Timers::Run() {
  std::unique_lock lock(mu_);
  while (!stopped_) {
    if (due_.empty()) {
      cv_.wait(lock);
      continue;
    }
    const int64_t wait = due_.top().at - MonotonicNs();
    if (wait > 0) {
      cv_.wait_for(lock, std::chrono::nanoseconds(wait));
      continue;
    }
    const std::function<void()> what = std::move(const_cast<Due&>(due_.top()).what);
    due_.pop();
    lock.unlock();
    what();
    lock.lock();
  }
}

LoadFleet::LoadFleet(Options options)
    : options_(std::move(options)), measure_ns_(options_.measure_ns), rng_(options_.seed) {
  for (int i = 0; i < options_.workers; ++i) {
    auto w = std::make_unique<Worker>();
    w->number = i;
    w->device.set_worker_id(fmt::format("{}.{:016x}", options_.certificate_id(i), i));
    w->device.set_device_id(w->device.worker_id() + "/cpu0");
    w->device.set_boot_id(fmt::format("{:016x}", options_.seed));
    w->device.set_host_boot_id(fmt::format("host{}", i));
    w->device.set_key("load");
    w->device.set_target("load");
    w->device.set_feature_set("load");
    w->device.set_cpu_model("simulated");
    w->device.set_processors(1);
    workers_.push_back(std::move(w));
  }
}

LoadFleet::~LoadFleet() {
  stopping_ = true;
  timers_.Stop();
  for (auto& w : workers_) {
    const std::lock_guard lock(w->mu);
    ++w->attach_link;
    ++w->work_link;
    if (w->attach) w->attach->Cancel();
    if (w->work) w->work->Cancel();
  }
  while (open_streams_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void LoadFleet::Trouble(const std::string& text) {
  const std::lock_guard lock(mu_);
  if (trouble_.empty() || !text.starts_with("server: ")) trouble_ = text;
}

std::string LoadFleet::last_trouble() {
  const std::lock_guard lock(mu_);
  return trouble_;
}

int64_t LoadFleet::unacknowledged() {
  int64_t n = 0;
  for (auto& w : workers_) {
    const std::lock_guard lock(w->mu);
    n += static_cast<int64_t>(w->kept.size());
  }
  return n;
}

// As a worker waits: twice as long each time, half of it drawn.
int64_t LoadFleet::Backoff(int* failures) {
  const int64_t most = std::min(10 * kSecond, (200 * kMillisecond) << std::min((*failures)++, 6));
  const std::lock_guard lock(mu_);
  return most / 2 + static_cast<int64_t>(rng_() % static_cast<uint64_t>(most / 2));
}

void LoadFleet::Start(int worker) {
  Worker* w = workers_[static_cast<size_t>(worker)].get();
  ConnectTracker(w);
  timers_.After(w->heartbeat_ns, [this, w] { Beat(w); });
}

void LoadFleet::ConnectTracker(Worker* w) {
  const std::lock_guard lock(w->mu);
  if (stopping_) return;
  const uint64_t link = ++w->attach_link;
  if (!w->tracker_channel) w->tracker_channel = options_.connect(w->number, options_.tracker);
  auto stub = v1::Tracker::NewStub(w->tracker_channel);
  ++open_streams_;
  w->attach = rpc::ClientStream<v1::AttachRequest, v1::AttachReply>::Start(
      [&](grpc::ClientContext* context, auto* reactor) { stub->async()->Attach(context, reactor); },
      [this, w, link](const v1::AttachReply& m) { OnAttach(w, link, m); },
      [this, w, link](const grpc::Status& s) { OnAttachEnd(w, link, s); });
  v1::AttachRequest hello;
  v1::Register& r = *hello.mutable_register_();
  r.mutable_protocol()->set_min(rpc::kProtocolMin);
  r.mutable_protocol()->set_max(rpc::kProtocolMax);
  r.set_build("load");
  *r.mutable_device() = w->device;
  if (w->epoch != 0) {
    r.mutable_held()->set_incarnation(w->incarnation);
    r.mutable_held()->set_epoch(w->epoch);
    r.mutable_held()->set_device_id(w->device.device_id());
    r.mutable_held()->set_key(w->device.key());
  } else {
    w->asked_ns = MonotonicNs();
  }
  w->attach->Send(std::move(hello));
}

void LoadFleet::OnAttach(Worker* w, uint64_t link, const v1::AttachReply& m) {
  const std::lock_guard lock(w->mu);
  if (link != w->attach_link) return;
  if (m.has_registered()) {
    if (!w->registered) ++registered_;
    w->registered = true;
    w->attach_failures = 0;
    w->incarnation = m.registered().incarnation();
    if (m.registered().heartbeat_ns() > 0) w->heartbeat_ns = m.registered().heartbeat_ns();
  } else if (m.has_lease()) {
    if (w->asked_ns != 0) leases_.Add(MonotonicNs() - w->asked_ns);
    w->asked_ns = 0;
    if (w->epoch != 0 && w->epoch != m.lease().epoch()) ++lost_;
    const bool again = w->epoch == m.lease().epoch() && w->work;
    w->incarnation = m.lease().incarnation();
    w->epoch = m.lease().epoch();
    w->server_address = m.lease().server_address();
    if (!again) {
      DropServer(w);
      ConnectServer(w);
    }
  } else if (m.has_ended() && m.ended().epoch() == w->epoch) {
    if (!w->leaving) {
      ++lost_;
      Trouble("a lease ended: " + m.ended().reason());
    }
    w->epoch = 0;
    w->asked_ns = MonotonicNs();
    DropServer(w);
  }
}

void LoadFleet::OnAttachEnd(Worker* w, uint64_t link, const grpc::Status& s) {
  {
    const std::lock_guard lock(w->mu);
    if (link == w->attach_link) {
      if (w->registered) --registered_;
      w->registered = false;
      w->attach.reset();
      if (!w->leaving)
        Trouble(fmt::format("tracker: {} {}", static_cast<int>(s.error_code()), s.error_message()));
      const int64_t wait = w->leaving ? 0 : Backoff(&w->attach_failures);
      w->leaving = false;
      if (!stopping_) timers_.After(wait, [this, w] { ConnectTracker(w); });
    }
  }
  --open_streams_;
}

void LoadFleet::DropServer(Worker* w) {
  ++w->work_link;
  if (w->greeted) --serving_;
  w->greeted = false;
  if (w->work) w->work->Cancel();
  w->work.reset();
  w->assigned.clear();
  w->measuring = false;
  w->idle_ns = 0;
}

void LoadFleet::ConnectServer(Worker* w) {
  if (stopping_ || w->epoch == 0) return;
  const uint64_t link = ++w->work_link;
  if (!w->server_channel) w->server_channel = options_.connect(w->number, w->server_address);
  auto stub = v1::Dispatch::NewStub(w->server_channel);
  ++open_streams_;
  w->work = rpc::ClientStream<v1::WorkerMessage, v1::ServerMessage>::Start(
      [&](grpc::ClientContext* context, auto* reactor) { stub->async()->Work(context, reactor); },
      [this, w, link](const v1::ServerMessage& m) { OnWork(w, link, m); },
      [this, w, link](const grpc::Status& s) { OnWorkEnd(w, link, s); });
  v1::WorkerMessage hello;
  v1::Hello& h = *hello.mutable_hello();
  h.mutable_protocol()->set_min(rpc::kProtocolMin);
  h.mutable_protocol()->set_max(rpc::kProtocolMax);
  h.set_build("load");
  h.set_kernel_abi(worker::kKernelAbi);
  *h.mutable_device() = w->device;
  h.set_incarnation(w->incarnation);
  h.set_lease_epoch(w->epoch);
  h.set_unacked(static_cast<int64_t>(w->kept.size()));
  w->work->Send(std::move(hello));
}

void LoadFleet::OnWorkEnd(Worker* w, uint64_t link, const grpc::Status& s) {
  {
    const std::lock_guard lock(w->mu);
    if (link == w->work_link) {
      DropServer(w);
      Trouble(fmt::format("server: {} {}", static_cast<int>(s.error_code()), s.error_message()));
      const uint64_t now = w->work_link;
      if (w->epoch != 0 && !stopping_) {
        timers_.After(Backoff(&w->work_failures), [this, w, now] {
          const std::lock_guard again(w->mu);
          if (w->work_link == now) ConnectServer(w);
        });
      }
    }
  }
  --open_streams_;
}

void LoadFleet::OnWork(Worker* w, uint64_t link, const v1::ServerMessage& m) {
  const std::lock_guard lock(w->mu);
  if (link != w->work_link || !w->work) return;
  if (m.has_hello()) {
    if (!m.hello().refusal().empty()) {
      ++refusals_;
      Trouble("refused: " + m.hello().refusal());
      return;
    }
    w->greeted = true;
    ++serving_;
    w->work_failures = 0;
    w->idle_ns = MonotonicNs();
    for (auto& [sequence, kept] : w->kept) {
      v1::WorkerMessage again;
      *again.mutable_result() = kept.result;
      w->work->Send(std::move(again));
    }
  } else if (m.has_assign()) {
    if (w->idle_ns != 0) turns_.Add(MonotonicNs() - w->idle_ns);
    w->idle_ns = 0;
    w->assigned.push_back(m.assign());
    Next(w);
  } else if (m.has_chunk()) {
    w->fetched += m.chunk().data().size();
    if (!m.chunk().error().empty()) {
      ++refusals_;
      Trouble("fetch: " + m.chunk().error());
    }
    const bool whole = m.chunk().error().empty() && w->fetched >= m.chunk().total();
    v1::WorkerMessage out;
    if (!whole) return;
    *out.mutable_started()->mutable_ids() = w->assigned.front().ids();
    w->work->Send(std::move(out));
    timers_.After(measure_ns_, [this, w, link] { Measured(w, link); });
  } else if (m.has_ack()) {
    const int64_t now = MonotonicNs();
    while (!w->kept.empty() && w->kept.begin()->first <= m.ack().watermark()) {
      acks_.Add(now - w->kept.begin()->second.sent_ns);
      ++acknowledged_;
      w->kept.erase(w->kept.begin());
    }
  } else if (m.has_revoke()) {
    const auto same = [&](const v1::Assign& a) {
      return a.ids().trial() == m.revoke().ids().trial() &&
             a.ids().job_id() == m.revoke().ids().job_id();
    };
    // What is being measured is finished, as a worker does.
    const auto from = w->assigned.begin() + (w->measuring ? 1 : 0);
    w->assigned.erase(std::remove_if(from, w->assigned.end(), same), w->assigned.end());
  }
}

// The first candidate is fetched, then measured.
void LoadFleet::Next(Worker* w) {
  if (w->measuring || w->assigned.empty()) return;
  w->measuring = true;
  w->fetched = 0;
  v1::WorkerMessage fetch;
  fetch.mutable_fetch()->set_sha256(w->assigned.front().object_sha256());
  w->work->Send(std::move(fetch));
}

void LoadFleet::Measured(Worker* w, uint64_t link) {
  const std::lock_guard lock(w->mu);
  if (link != w->work_link || !w->work || w->assigned.empty()) return;
  const v1::Assign a = std::move(w->assigned.front());
  w->assigned.pop_front();
  w->measuring = false;
  v1::WorkerMessage out;
  v1::Result& r = *out.mutable_result();
  r.set_sequence(++w->sequence);
  *r.mutable_ids() = a.ids();
  r.set_object_sha256(a.object_sha256());
  v1::Measurement& m = *r.mutable_measurement();
  m.set_failure(v1::FAILURE_OK);
  {
    const std::lock_guard random(mu_);
    const double ns = 1e6 * (1 + 1e-3 * static_cast<double>(rng_() % 1000));
    for (int i = 0; i < 9; ++i)
      m.add_samples_ns(ns * (1 + 1e-5 * static_cast<double>(rng_() % 1000)));
  }
  m.set_runs_per_sample(1);
  m.set_rung(2);
  m.mutable_phases()->set_spawn_ns(3 * kMillisecond);
  m.mutable_phases()->set_timing_ns(20 * kMillisecond);
  m.mutable_phases()->set_total_ns(30 * kMillisecond);
  m.set_sandbox_bits(1);
  m.mutable_state()->set_khz(2'000'000);
  m.mutable_state()->set_load1(0.5);
  w->kept[r.sequence()] = {r, MonotonicNs()};
  w->work->Send(std::move(out));
  if (w->assigned.empty()) w->idle_ns = MonotonicNs();
  Next(w);
}

void LoadFleet::Beat(Worker* w) {
  const std::lock_guard lock(w->mu);
  if (stopping_) return;
  if (w->attach && w->registered) {
    v1::AttachRequest m;
    m.mutable_heartbeat();
    w->attach->Send(std::move(m));
  }
  if (w->work && w->greeted) {
    v1::WorkerMessage m;
    m.mutable_heartbeat();
    w->work->Send(std::move(m));
  }
  timers_.After(w->heartbeat_ns, [this, w] { Beat(w); });
}

void LoadFleet::Churn(int a_second) {
  const bool begin = churn_ == 0 && a_second > 0;
  churn_ = a_second;
  if (begin) timers_.After(0, [this] { ChurnOne(); });
}

void LoadFleet::ChurnOne() {
  const int a_second = churn_;
  if (a_second <= 0) return;
  timers_.At(MonotonicNs() + kSecond / a_second, [this] { ChurnOne(); });
  for (size_t tried = 0; tried < workers_.size(); ++tried) {
    Worker* w = workers_[churned_++ % workers_.size()].get();
    const std::lock_guard lock(w->mu);
    if (!w->attach || !w->registered || !w->greeted || w->leaving || w->epoch == 0) continue;
    w->leaving = true;
    v1::AttachRequest m;
    m.mutable_leave();
    w->attach->Send(std::move(m));
    w->attach->Finish();
    w->epoch = 0;
    DropServer(w);
    return;
  }
}

}  // namespace whet::bench
