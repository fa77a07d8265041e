// The door of a port that strangers can reach: accepts connections itself, before gRPC sees them,
// because gRPC of this age has no limit on connections, none per address, and no floor of TLS
// versions above 1.2. A connection is handed on only when its first bytes are the beginning of a
// TLS 1.3 handshake; it is closed when no call on it was authorized within `authorize_ns` of its
// arrival, however slowly it moves, and when its holder is denied or its certificate ends. It keeps
// a second descriptor of each connection for that, so a connection costs two. One thread of its
// own; the functions are safe from any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "compiler/support/clock.h"
#include "compiler/support/status.h"
#include "fleet/pki/certificate.h"

namespace whet::rpc {

struct Limits {
  int64_t max_connections = 4096;
  int64_t max_per_address = 512;  // a site behind one address has many boards
  int64_t hello_ns = 5 * kSecond;
  int64_t authorize_ns = 20 * kSecond;
  // Of one connection.
  int64_t max_streams = 256;
};

struct GateCounts {
  int64_t accepted = 0, handed_on = 0;
  int64_t open = 0;
  int64_t refused_full = 0, refused_address = 0, refused_rate = 0;
  int64_t refused_not_tls = 0, refused_old_tls = 0, refused_slow = 0;
  int64_t closed_unauthorized = 0, closed_denied = 0;
};

class Gate {
 public:
  using HandOn = std::function<void(int fd)>;  // takes the descriptor; on the gate's thread
  using Admits = std::function<Status(const pki::CertificateInfo&)>;

  // `listener`: a listening socket, taken.
  static StatusOr<std::unique_ptr<Gate>> Start(int listener, const Limits& limits, HandOn hand_on,
                                               Admits admits);
  ~Gate();  // closes what is open
  GateCounts counts() const;

  // A call from this peer (gRPC's text) was authorized for this certificate's holder.
  static void Authorized(std::string_view peer, const pki::CertificateInfo& certificate);

 private:
  class Impl;
  explicit Gate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// gRPC's text for an address: "ipv4:10.0.0.1:5000", "ipv6:[fe80::1]:5000"; brackets that it writes
// as %5B and %5D come as brackets.
std::string PlainPeer(std::string_view peer);

}  // namespace whet::rpc
