// A simulated network of streams that behave as gRPC's over TCP do: within a stream nothing is
// reordered, lost or doubled while it lives, and that is all one may count on. Messages take a
// while, some a long one. A stream that breaks delivers some prefix of what was on its way, in each
// direction, so the sender cannot know what arrived; its ends learn of it one after the other, or
// one of them never. A link that is cut holds messages back, in one direction or both, and lets
// them go when it heals, unless an end has given the stream up meanwhile.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "compiler/support/clock.h"
#include "compiler/support/rng.h"
#include "tests/sim/event_loop.h"

namespace whet::testing {

enum class StreamEnd { kClient = 0, kServer = 1 };
inline StreamEnd OtherEnd(StreamEnd e) {
  return e == StreamEnd::kClient ? StreamEnd::kServer : StreamEnd::kClient;
}

class SimNet {
 public:
  using StreamId = uint64_t;  // from 1; 0 is none
  using LinkId = size_t;
  using Lost = std::function<void(StreamId)>;

  SimNet(EventLoop* loop, Rng* rng) : loop_(*loop), rng_(*rng) {}

  LinkId AddLink();
  // The callbacks say that this end has lost the stream; each comes at most once, and not after the
  // end has closed it or died.
  // kMayHang: a peer that hangs answers pings all the same, so an end may never learn that the
  // other one is gone; only heartbeats of the application's own say. kWorks: found out within 20 s.
  enum class KeepAlive { kWorks, kMayHang };
  StreamId Open(LinkId link, KeepAlive keep_alive, Lost client_lost, Lost server_lost);
  void Send(StreamId id, StreamEnd from, std::function<void()> deliver);
  // In order: the other end sees what was sent before.
  void Close(StreamId id, StreamEnd by);
  enum class Learn { kBoth, kClientOnly, kServerOnly };
  void Break(StreamId id, Learn who);
  // The process at this end is gone. kKilled: its kernel says so; kSilent: nobody does (power
  // loss), and the other end finds out by its keep-alive, or not.
  enum class Death { kKilled, kSilent };
  void Die(StreamId id, StreamEnd end, Death death);

  // Cuts a link in the directions that leave the given ends, for a while.
  void Cut(LinkId link, bool from_client, bool from_server, int64_t duration);

  bool open(StreamId id, StreamEnd end) const;
  void set_slow(double chance) { slow_ = chance; }  // of a message to take seconds
  int64_t Delay();

 private:
  struct Stream {
    LinkId link = 0;
    KeepAlive keep_alive = KeepAlive::kWorks;
    // By end:
    bool open[2] = {true, true};
    Lost lost[2];
    // By direction, named after the sender:
    uint64_t sent[2] = {0, 0}, delivered[2] = {0, 0}, limit[2] = {UINT64_MAX, UINT64_MAX};
    int64_t last[2] = {0, 0};
    std::deque<std::pair<uint64_t, std::function<void()>>> held[2];
  };
  struct Link {
    int64_t cut_until[2] = {0, 0};
  };
  static size_t Index(StreamEnd e) { return static_cast<size_t>(e); }

  Stream* Find(StreamId id);
  void Post(StreamId id, Stream* s, size_t from, std::function<void()> what);
  void Arrive(StreamId id, size_t from, uint64_t index, std::function<void()> what);
  void Hand(StreamId id, Stream* s, size_t from, uint64_t index, const std::function<void()>& what);
  void Lose(StreamId id, StreamEnd end);
  void LoseLater(StreamId id, StreamEnd end, int64_t delay);
  void Heal(LinkId link, size_t from);
  void MissAnswer(StreamId id, StreamEnd end);
  bool IsCut(const Stream& s, size_t from) const {
    return links_[s.link].cut_until[from] > loop_.now();
  }

  EventLoop& loop_;
  Rng& rng_;
  double slow_ = 0;
  std::vector<Link> links_;
  std::map<StreamId, Stream> streams_;  // those that an end still has
  StreamId next_ = 1;
};

}  // namespace whet::testing
