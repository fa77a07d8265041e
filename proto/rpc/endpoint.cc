#include "proto/rpc/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace whet::rpc {
namespace {

struct HostPort {
  std::string host;
  int port = 0;
};

StatusOr<HostPort> Split(std::string_view flag, std::string_view text) {
  const size_t colon = text.rfind(':');
  const std::string digits(colon == std::string_view::npos ? "" : text.substr(colon + 1));
  if (digits.empty() || digits.size() > 5 ||
      digits.find_first_not_of("0123456789") != std::string::npos || std::stoi(digits) > 65535) {
    return InvalidArgument("{} '{}': expected HOST:PORT with a port from 0 to 65535", flag, text);
  }
  std::string host(text.substr(0, colon));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return HostPort{host, std::stoi(digits)};
}

std::string Join(const HostPort& a) {
  return a.host.find(':') == std::string::npos ? fmt::format("{}:{}", a.host, a.port)
                                               : fmt::format("[{}]:{}", a.host, a.port);
}

// Tries the port as gRPC will, for the sake of the reason: gRPC itself only says that it failed.
Status TryBind(const HostPort& a) {
  const bool v6 = a.host.find(':') != std::string::npos;
  const int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Unavailable("cannot open a socket: {}", strerror(errno));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  int r = -1;
  if (v6) {
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(a.port));
    inet_pton(AF_INET6, a.host.c_str(), &address.sin6_addr);
    r = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(a.port));
    inet_pton(AF_INET, a.host.c_str(), &address.sin_addr);
    r = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  const int error = r == 0 ? (listen(fd, 1) == 0 ? 0 : errno) : errno;
  close(fd);
  if (error == 0) return OkStatus();
  if (error == EADDRINUSE)
    return InvalidArgument(
        "port {} of {} is in use by another process; choose another one (0 picks a free one)",
        a.port, a.host);
  return InvalidArgument("cannot listen on {}: {}", Join(a), strerror(error));
}

}  // namespace

StatusOr<std::string> ParseListenAddress(std::string_view flag, std::string_view text) {
  WHET_ASSIGN_OR_RETURN(HostPort a, Split(flag, text));
  if (a.host.empty() || a.host == "localhost") a.host = "127.0.0.1";
  in_addr v4 = {};
  in6_addr v6 = {};
  const bool loopback =
      (inet_pton(AF_INET, a.host.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127) ||
      (inet_pton(AF_INET6, a.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6));
  if (!loopback) {
    return InvalidArgument(
        "{} '{}': '{}' is not a loopback address; listening beyond this machine needs TLS and "
        "authentication, which this version "
        "does not have: use 127.0.0.1:{} (and an SSH tunnel to reach it from elsewhere)",
        flag, text, a.host, a.port);
  }
  return Join(a);
}

StatusOr<std::string> ParseDialAddress(std::string_view flag, std::string_view text) {
  WHET_ASSIGN_OR_RETURN(HostPort a, Split(flag, text));
  if (a.host.empty()) a.host = "127.0.0.1";
  if (a.port == 0) return InvalidArgument("{} '{}': port 0 cannot be dialled", flag, text);
  return Join(a);
}

StatusOr<Listener> Listen(const std::string& address, const std::vector<grpc::Service*>& services) {
  WHET_ASSIGN_OR_RETURN(const HostPort a, Split("address", address));
  WHET_RETURN_IF_ERROR(TryBind(a));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  for (grpc::Service* service : services) builder.RegisterService(service);
  Listener listener;
  listener.server = builder.BuildAndStart();
  if (!listener.server || port == 0) return InvalidArgument("cannot listen on {}", address);
  listener.address = Join({a.host, port});
  return listener;
}

std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Each caller its own connection: one that is stuck must not hold the others.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args);
}

Status FromGrpc(const grpc::Status& status, std::string_view peer) {
  if (status.ok()) return OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded) {
    return Status(code, fmt::format("cannot reach {}: {}", peer, status.error_message()));
  }
  return Status(code, status.error_message());
}

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), Message(status));
}

void AnnounceListening(const std::string& address, std::string_view role) {
  std::printf("listening on %s %.*s\n", address.c_str(), static_cast<int>(role.size()),
              role.data());
  std::fflush(stdout);
}

}  // namespace whet::rpc
