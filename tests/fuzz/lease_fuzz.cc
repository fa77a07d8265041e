// Whatever workers and servers say to a tracker, in any order: no crash, and what the table
// promises holds: a device has at most one lease, epochs only grow, what ended stays ended.
#include <cstdlib>
#include <map>
#include <set>

#include "tests/fuzz/fill_message.h"
#include "tracker/core/lease_table.h"

namespace {

using namespace whet;

class Watcher {
 public:
  explicit Watcher(tracker::LeaseTable* table) : table_(*table) {}

  void Apply(int64_t now, const tracker::Actions& actions) {
    for (const tracker::Action& action : actions) {
      if (const auto* a = std::get_if<tracker::ToServer>(&action)) {
        if (a->message.has_granted()) Granted(a->message.granted());
      } else if (const auto* a = std::get_if<tracker::EndSession>(&action)) {
        Apply(now, a->side == tracker::Side::kWorker ? table_.WorkerGone(now, a->session)
                                                     : table_.ServerGone(now, a->session));
      } else if (const auto* a = std::get_if<tracker::ReserveEpochs>(&action)) {
        Apply(now, table_.EpochsReserved(now, a->below));
      }
    }
  }

 private:
  void Granted(const v1::Granted& g) {
    const auto [it, first] = given_.emplace(g.epoch(), g.device().device_id());
    if (!first && it->second != g.device().device_id()) std::abort();  // one epoch, two devices
    if (first && given_.rbegin()->first != g.epoch()) std::abort();    // it went back
  }

  tracker::LeaseTable& table_;
  std::map<int64_t, std::string> given_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  fuzz::MessageMaker make(&in, {"k", "w0", "w1", "w0/cpu0", "w1/cpu0", "boot0", "boot1", "inc",
                                "server", "other", "127.0.0.1:1", "rpi4"});
  tracker::TableConfig config;
  config.max_devices = 3;
  config.max_wants = 3;
  int64_t now = kSecond;
  tracker::LeaseTable table(config, "inc", 1, 1'000'000, in.Byte() % 4 == 0, now);
  Watcher watcher(&table);
  for (int i = 0; i < 200 && !in.empty(); ++i) {
    const uint64_t session = in.Byte() % 4;
    switch (in.Byte() % 8) {
      case 0:
      case 1:
      case 2:
        watcher.Apply(now, table.FromWorker(now, session, make.Make<v1::AttachRequest>()));
        break;
      case 3:
      case 4:
        watcher.Apply(now, table.FromServer(now, 10 + session, make.Make<v1::LeaseRequest>()));
        break;
      case 5: watcher.Apply(now, table.WorkerGone(now, session)); break;
      case 6: watcher.Apply(now, table.ServerGone(now, 10 + session)); break;
      default:
        now += int64_t{in.Byte()} * 200 * kMillisecond;
        watcher.Apply(now, table.Tick(now));
        break;
    }
    const v1::ListDevicesReply list = table.List(now, make.Text());
    if (list.devices_size() > 3) std::abort();
    // One device, one lease: each leased device under an epoch of its own.
    std::set<int64_t> epochs;
    for (const v1::DeviceEntry& d : list.devices()) {
      if (d.epoch() != 0 && !epochs.insert(d.epoch()).second) std::abort();
    }
  }
  return 0;
}
