// The first bytes of a connection, looked at before gRPC's TLS sees them: is this the beginning of
// a TLS 1.3 handshake? gRPC's own floor is TLS 1.2 and cannot be raised; a peer that does not offer
// 1.3 is therefore turned away here, as are HTTP without TLS and noise. With both sides offering
// 1.3, OpenSSL takes it. Layout of a ClientHello: RFC 8446, sections 4.1.2 and 5.1. A pure
// function.
#pragma once
#include <cstddef>
#include <string_view>

namespace whet::rpc {

// A record has at most 16 KiB; a hello that does not fit into one is refused.
inline constexpr size_t kMaxHelloBytes = 5 + (1 << 14);

enum class Hello {
  kMore,    // a beginning of one
  kTls13,   // whole, and offers TLS 1.3
  kOldTls,  // whole, and does not
  kNotTls,  // cannot become one
};

Hello InspectHello(std::string_view bytes);

}  // namespace whet::rpc
