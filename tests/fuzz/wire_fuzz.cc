// Bytes as they come off a wire, a pipe or a disk, into whatever reads them: tracker, server,
// worker, runner's replies, kept results. Any bytes give a message that is served or refused, or
// none; no message is too large for what was sent. The first byte says who reads.
#include <google/protobuf/stubs/logging.h>

#include <cstdlib>

#include "compiler/support/frame.h"
#include "proto/build.pb.h"
#include "proto/run.pb.h"
#include "tracker/core/lease_table.h"
#include "tuner/service/core.h"
#include "worker/core/worker_core.h"

namespace {

using namespace whet;

worker::WorkerCore Worker(std::vector<v1::SpooledResult> spool) {
  worker::WorkerConfig c;
  c.device.set_worker_id("w0");
  c.device.set_device_id("w0/cpu0");
  c.device.set_boot_id("boot0");
  c.device.set_key("k");
  return {c, std::move(spool), {}, 1};
}

// What came of it goes the way that it would: to a server.
void Deliver(const worker::Actions& actions) {
  tuner::ServiceCore server(tuner::CoreConfig{});
  for (const worker::Action& action : actions) {
    if (const auto* a = std::get_if<worker::ToServer>(&action))
      (void)server.FromWorker(1, 1, a->message);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // What it says of bad bytes goes nowhere.
  static const auto quiet = google::protobuf::SetLogHandler(nullptr);
  (void)quiet;
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  tracker::LeaseTable table({}, "inc", 1, 1000, false, 0);
  tuner::ServiceCore server(tuner::CoreConfig{});
  switch (data[0] % 10) {
    case 0: {
      v1::AttachRequest m;
      if (m.ParseFromString(bytes)) (void)table.FromWorker(1, 1, m);
      break;
    }
    case 1: {
      v1::LeaseRequest m;
      if (m.ParseFromString(bytes)) (void)table.FromServer(1, 1, m);
      break;
    }
    case 2: {
      v1::AttachReply m;
      worker::WorkerCore worker = Worker({});
      (void)worker.Step(1, worker::Tick{});
      if (m.ParseFromString(bytes)) (void)worker.Step(2, worker::FromTracker{m});
      (void)worker.Step(kSecond, worker::Tick{});
      break;
    }
    case 3: {
      v1::ServerMessage m;
      worker::WorkerCore worker = Worker({});
      (void)worker.Step(1, worker::Tick{});
      if (m.ParseFromString(bytes)) (void)worker.Step(2, worker::FromServer{m});
      break;
    }
    case 4: {
      v1::WorkerMessage m;
      if (m.ParseFromString(bytes)) (void)server.FromWorker(1, 1, m);
      break;
    }
    case 5: {
      v1::LeaseReply m;
      if (m.ParseFromString(bytes)) (void)server.FromTracker(1, m);
      break;
    }
    case 6: {
      v1::JobSpec m;
      tuner::Actions out;
      if (!m.ParseFromString(bytes)) break;
      const Status s = server.Submit(1, "job", m, "cpu", "f", 0, &out);
      if (!s.ok() && (s.message().empty() || !out.empty()))
        std::abort();  // refused in words, and no more
      break;
    }
    case 7: {  // a kept result, as a worker finds it on its disk
      v1::SpooledResult m;
      if (!m.ParseFromString(bytes)) break;
      worker::WorkerCore worker = Worker({m});
      Deliver(worker.Step(1, worker::Tick{}));
      v1::ServerMessage hello;
      hello.mutable_hello()->set_protocol(1);
      hello.mutable_hello()->set_log_id(m.log_id());
      Deliver(worker.Step(2, worker::FromServer{hello}));
      break;
    }
    case 8: {  // the runner's end of its pipe
      size_t used = 0;
      const auto frame = DecodeFrame(bytes, 1u << 20, &used);
      v1::RunReply m;
      v1::RunnerHello hello;
      if (!frame.ok()) break;
      (void)hello.ParseFromString(frame->payload);
      if (!m.ParseFromString(frame->payload)) break;
      worker::WorkerCore worker = Worker({});
      Deliver(worker.Step(1, worker::RunEnded{m.measurement()}));
      break;
    }
    default: {  // the builder's end of its pipe
      size_t used = 0;
      const auto frame = DecodeFrame(bytes, 64u << 20, &used);
      v1::BuildReply m;
      if (!frame.ok() || !m.ParseFromString(frame->payload)) break;
      tuner::BuiltObject o;
      o.failure = m.failure();
      o.message = m.message();
      o.initial_program = m.initial_program();
      (void)server.Built(1, m.id(), o);
      break;
    }
  }
  return 0;
}
