// Addresses, listening and dialling, the same way in every program: with a Security everything is
// TLS with certificates on both sides, without one everything is plaintext on loopback, or on a
// socket in a folder that is its owner's alone, and nothing else; no port shared with another
// process, keep-alive on both sides, plain limits. Functions are safe from any thread.
#pragma once
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"
#include "proto/rpc/gate.h"
#include "proto/rpc/security.h"

namespace whet::rpc {

inline constexpr int kMaxMessageBytes = 16 << 20;
inline constexpr uint32_t kProtocolMin = 1, kProtocolMax = 1;

// "127.0.0.1:9190", "localhost:0", "[::1]:9190", ":9190" for loopback, or "unix:/a/path".
// InvalidArgument names `flag`; without `security` a non-loopback address is refused, and the
// message says what it needs.
StatusOr<std::string> ParseListenAddress(std::string_view flag, std::string_view text,
                                         const Security* security = nullptr);
// To dial. A port is required; the host is not looked up here. Without `security` other hosts than
// this one are refused.
StatusOr<std::string> ParseDialAddress(std::string_view flag, std::string_view text,
                                       const Security* security = nullptr);
// An address that is listened on, as the same machine dials it: 127.0.0.1 for 0.0.0.0.
std::string DialableHere(const std::string& address);
bool IsUnix(std::string_view address);          // "unix:/a/path"
bool IsLoopback(std::string_view host);         // "localhost", "127.1.2.3", "::1", "[::1]"
bool IsAnyAddress(const std::string& address);  // "0.0.0.0:1", "[::]:1": cannot be dialled

struct ListenOptions {
  std::shared_ptr<Security> security;  // null: plaintext, loopback only
  Limits limits;                       // with security
};

struct Listener {
  std::unique_ptr<grpc::Server> server;
  std::string address;         // with the port that was chosen
  std::unique_ptr<Gate> gate;  // with security
  std::shared_ptr<Security> security;

  // Takes no more connections, ends calls after the grace, returns when all have ended.
  void Stop(std::chrono::milliseconds grace);
};
// Starts a server of these services, plus the health service. InvalidArgument names a port that is
// in use, or an address that needs certificates.
StatusOr<Listener> Listen(const std::string& address, const std::vector<grpc::Service*>& services,
                          const ListenOptions& options = {});

// A connection of its own for each channel. Calls on a channel to another host without `security`
// fail with INVALID_ARGUMENT: nothing is sent in plaintext beyond this machine.
std::shared_ptr<grpc::Channel> Dial(const std::string& address, const Security* security = nullptr,
                                    Peer peer = Peer::kServer);

// gRPC's status as ours; the message names the peer.
Status FromGrpc(const grpc::Status& status, std::string_view peer);
grpc::Status ToGrpc(const Status& status);

// Prints the line that scripts wait for, "listening on HOST:PORT ROLE", and flushes.
void AnnounceListening(const std::string& address, std::string_view role);

}  // namespace whet::rpc
