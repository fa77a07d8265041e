// Addresses, listening and dialling, the same way in every program: loopback only until there is
// TLS, no port shared with another process, keep-alive on both sides, plain limits. Functions are
// safe from any thread.
#pragma once
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"

namespace whet::rpc {

inline constexpr int kMaxMessageBytes = 16 << 20;
inline constexpr uint32_t kProtocolMin = 1, kProtocolMax = 1;

// "127.0.0.1:9190", "localhost:0", "[::1]:9190", or ":9190" for loopback. InvalidArgument names
// `flag` and says why a non-loopback address is refused.
StatusOr<std::string> ParseListenAddress(std::string_view flag, std::string_view text);
// To dial. A port is required; the host is not looked up here.
StatusOr<std::string> ParseDialAddress(std::string_view flag, std::string_view text);

struct Listener {
  std::unique_ptr<grpc::Server> server;
  std::string address;  // with the port that was chosen
};
// Starts a server of these services, plus the health service. InvalidArgument names a port that is
// in use.
StatusOr<Listener> Listen(const std::string& address, const std::vector<grpc::Service*>& services);

std::shared_ptr<grpc::Channel> Dial(const std::string& address);

// gRPC's status as ours; the message names the peer.
Status FromGrpc(const grpc::Status& status, std::string_view peer);
grpc::Status ToGrpc(const Status& status);

// Prints the line that scripts wait for, "listening on HOST:PORT ROLE", and flushes.
void AnnounceListening(const std::string& address, std::string_view role);

}  // namespace whet::rpc
