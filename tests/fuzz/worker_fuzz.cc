// Whatever a tracker, a server, the disk and the runner say to a worker: no crash, one run at a
// time, nothing run that was not assigned and fetched, nothing stored out of order or whole whose
// hash is another, and memory in proportion to what was sent.
#include <bit>
#include <cstdlib>
#include <map>
#include <set>

#include "compiler/support/sha256.h"
#include "tests/fuzz/fill_message.h"
#include "worker/core/worker_core.h"

namespace {

using namespace whet;

const std::string kObject = "an object";
const std::string kExpected = "expected outputs";

class Host {
 public:
  explicit Host(std::vector<v1::SpooledResult> spool)
      : core_(Config(), std::move(spool), {{Sha256Hex("left over"), 9}}, 1) {}

  void Step(const worker::Event& event) {
    if (const auto* e = std::get_if<worker::RunEnded>(&event)) {
      (void)e;
      running_ = false;
    }
    for (worker::Action& action : core_.Step(now_, event)) {
      if (const auto* a = std::get_if<worker::StartRun>(&action)) {
        if (running_) std::abort();
        running_ = true;
        if (!stored_.contains(a->assign.object_sha256())) std::abort();
      } else if (const auto* a = std::get_if<worker::StoreBlob>(&action)) {
        std::string& part = parts_[a->sha256];
        if (a->offset == 0) part.clear();
        if (a->offset != part.size()) std::abort();
        part += a->bytes;
        if (!a->last) continue;
        if (Sha256Hex(part) != a->sha256) std::abort();
        parts_.erase(a->sha256);
        stored_.insert(a->sha256);
        storing_.push_back(a->sha256);
      } else if (const auto* a = std::get_if<worker::DropBlob>(&action)) {
        stored_.erase(a->sha256);
        parts_.erase(a->sha256);
      }
    }
    draining_ |= std::holds_alternative<worker::DrainRequested>(event);
    const bool given_up = draining_ && running_ && !core_.running();
    if (core_.running() != running_ && !given_up) std::abort();
    if (core_.kept_results() > Config().max_spool) std::abort();
  }
  bool running() const { return running_; }
  std::vector<std::string> storing() { return std::exchange(storing_, {}); }
  void Wait(int64_t ns) { now_ += ns; }
  int64_t deadline() const { return core_.NextDeadline(); }

 private:
  static worker::WorkerConfig Config() {
    worker::WorkerConfig c;
    c.device.set_worker_id("w0");
    c.device.set_device_id("w0/cpu0");
    c.device.set_boot_id("boot0");
    c.device.set_key("k");
    c.max_spool = 4;
    c.max_queue = 4;
    c.max_cache_bytes = 40;
    c.max_blob_bytes = 1 << 16;
    c.baseline_version = 1;
    c.baseline_every = 2;
    return c;
  }
  worker::WorkerCore core_;
  int64_t now_ = kSecond;
  bool running_ = false, draining_ = false;
  std::map<std::string, std::string> parts_;
  std::set<std::string> stored_ = {Sha256Hex("left over")};
  std::vector<std::string> storing_;
};

// A server that does its part: leased, greeted, one assignment.
v1::ServerMessage Assign() {
  v1::ServerMessage m;
  v1::Assign& a = *m.mutable_assign();
  a.mutable_ids()->set_incarnation("inc");
  a.mutable_ids()->set_lease_epoch(5);
  a.mutable_ids()->set_job_id("job");
  a.set_object_sha256(Sha256Hex(kObject));
  a.set_object_bytes(kObject.size());
  a.set_expected_sha256(Sha256Hex(kExpected));
  a.set_expected_bytes(kExpected.size());
  return m;
}
void Greet(Host* host) {
  v1::AttachReply registered, lease;
  registered.mutable_registered()->set_protocol(1);
  registered.mutable_registered()->set_heartbeat_ns(kSecond);
  lease.mutable_lease()->set_incarnation("inc");
  lease.mutable_lease()->set_epoch(5);
  lease.mutable_lease()->set_server_address("127.0.0.1:1");
  v1::ServerMessage hello;
  hello.mutable_hello()->set_protocol(1);
  hello.mutable_hello()->set_heartbeat_ns(kSecond);
  hello.mutable_hello()->set_log_id("log");
  hello.mutable_hello()->set_fetch_bytes(5);
  host->Step(worker::Tick{});
  host->Step(worker::FromTracker{registered});
  host->Step(worker::FromTracker{lease});
  host->Step(worker::FromServer{hello});
}
// The bytes of a blob in pieces that the input chooses; some do not fit.
v1::ServerMessage Chunk(fuzz::Input* in) {
  const std::string& bytes = in->Byte() % 2 ? kObject : kExpected;
  v1::ServerMessage m;
  v1::Chunk& c = *m.mutable_chunk();
  c.set_sha256(Sha256Hex(bytes));
  c.set_total(in->Byte() % 16 == 0 ? in->Word() : bytes.size());
  const size_t at = in->Byte() % (bytes.size() + 1);
  c.set_offset(in->Byte() % 16 == 0 ? in->Word() : at);
  c.set_data(in->Byte() % 16 == 0 ? in->Take(in->Byte())
                                  : bytes.substr(at, in->Byte() % (bytes.size() + 1)));
  return m;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  fuzz::MessageMaker make(&in, {"k", "w0", "w0/cpu0", "inc", "log", "job", "127.0.0.1:1", "server",
                                Sha256Hex(kObject), Sha256Hex(kExpected), Sha256Hex("left over")});
  std::vector<v1::SpooledResult> spool;
  for (int n = in.Byte() % 4; n > 0; --n) spool.push_back(make.Make<v1::SpooledResult>());
  if (spool.size() > 3) spool.clear();
  Host host(std::move(spool));
  if (in.Byte() % 4 != 0) Greet(&host);
  for (int i = 0; i < 200 && !in.empty(); ++i) {
    switch (in.Byte() % 12) {
      case 0: host.Step(worker::FromTracker{make.Make<v1::AttachReply>()}); break;
      case 1:
      case 2: host.Step(worker::FromServer{make.Make<v1::ServerMessage>()}); break;
      case 3: host.Step(worker::FromServer{Assign()}); break;
      case 4:
      case 5: host.Step(worker::FromServer{Chunk(&in)}); break;
      case 6:
        for (const std::string& sha : host.storing())
          host.Step(
              worker::BlobStored{sha, in.Byte() % 4 ? OkStatus() : ResourceExhausted("full")});
        break;
      case 7:
        if (host.running()) {
          worker::RunEnded ended{make.Make<v1::Measurement>()};
          if (in.Byte() % 2 != 0) ended.baseline_ns = std::bit_cast<double>(in.Word());
          if (in.Byte() % 8 == 0) ended.damaged = {Sha256Hex(kObject)};
          host.Step(ended);
        }
        break;
      case 8: host.Step(worker::TrackerLost{Unavailable("gone")}); break;
      case 9: host.Step(worker::ServerLost{Unavailable("gone")}); break;
      case 10: Greet(&host); break;
      default:
        host.Wait(int64_t{in.Byte()} * 100 * kMillisecond);
        host.Step(worker::Tick{});
        if (in.Byte() == 255) host.Step(worker::DrainRequested{});
        break;
    }
  }
  return 0;
}
