// A TCP proxy that does to connections what networks do, from a seed: it delays, freezes for a
// while, resets, closes one direction, swallows what one side answers (so that the other cannot
// know what arrived, and sends it again when it is back), and refuses. It changes no byte: what
// rides on TCP cannot arrive damaged, twice or out of order within a connection. One thread of its
// own; the methods are safe from any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "compiler/support/status.h"

namespace whet::testing {

class FaultProxy {
 public:
  // Per second and connection.
  struct Chances {
    double delay = 0;       // for half a second, all that arrives waits 5 to 200 ms
    double freeze = 0;      // nothing passes for up to 20 s; then all of it
    double reset = 0;       // both sides
    double half_close = 0;  // one direction ends, the other goes on
    double swallow = 0;     // for up to a second the server's bytes are lost; then a reset
    double refuse = 0;      // of a new connection: closed as soon as it is open
  };

  // Listens on a free port of 127.0.0.1.
  static StatusOr<std::unique_ptr<FaultProxy>> Start(uint64_t seed);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  const std::string& address() const { return address_; }  // to dial
  void set_target(const std::string& address);             // "127.0.0.1:PORT"
  void set_chances(const Chances& chances);
  std::map<std::string, int64_t> happened() const;  // faults, by name
  int64_t bytes() const { return bytes_; }          // that passed

 private:
  struct Connection;
  explicit FaultProxy(uint64_t seed) : seed_(seed) {}
  void Run();

  const uint64_t seed_;
  std::string address_;
  int listener_ = -1, wake_[2] = {-1, -1};
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> bytes_{0};
  mutable std::mutex mu_;
  int target_port_ = 0;
  Chances chances_;
  std::map<std::string, int64_t> happened_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace whet::testing
