#include "proto/rpc/endpoint.h"

#include <arpa/inet.h>
#include <grpcpp/resource_quota.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fleet/pki/tls_buffers.h"
#include "proto/rpc/sparing_log.h"

namespace whet::rpc {
namespace {

constexpr int kBacklog = 1024;
constexpr std::string_view kUnix = "unix:";
constexpr size_t kMaxSocketPath = 100;  // the kernel takes 107
// Messages and frames that gRPC holds for all connections of a port.
constexpr size_t kMaxBufferedBytes = size_t{1} << 30;

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

// A path for a socket: what the kernel takes, and what fits into one word of a line.
StatusOr<std::string> ParseUnix(std::string_view flag, std::string_view text,
                                const Security* security) {
  const std::string_view path = text.substr(kUnix.size());
  const bool plain =
      std::all_of(path.begin(), path.end(), [](char c) { return c > 32 && c < 127; });
  if (path.empty() || path[0] != '/' || path.size() > kMaxSocketPath || !plain) {
    return InvalidArgument("{} '{}': expected unix: and a path of at most {} characters from '/'",
                           flag, pki::Printable(text), kMaxSocketPath);
  }
  if (security)
    return InvalidArgument("{} '{}': certificates are for ports, a socket has its folder", flag,
                           text);
  return std::string(text);
}

// Whoever may enter the folder is an administrator.
Status CheckFolderOf(const std::string& address) {
  const std::string path = address.substr(kUnix.size());
  const std::string folder = path.substr(0, std::max<size_t>(path.rfind('/'), 1));
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0)
    return InvalidArgument("cannot listen on {}: {}", address, strerror(errno));
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) == 0) return OkStatus();
  return PermissionDenied("'{}' has mode {:04o}: others could use the socket; chmod 700 '{}'",
                          folder, info.st_mode & 07777, folder);
}

// A listening socket, and the port that it got.
StatusOr<std::pair<int, int>> Bind(const HostPort& a) {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  if (a.host.find(':') != std::string::npos) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(a.port));
    if (inet_pton(AF_INET6, a.host.c_str(), &v6->sin6_addr) == 1) size = sizeof *v6;
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(a.port));
    if (inet_pton(AF_INET, a.host.c_str(), &v4->sin_addr) == 1) size = sizeof *v4;
  }
  if (size == 0) return InvalidArgument("'{}' is not an address of this machine", a.host);
  const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Unavailable("cannot open a socket: {}", strerror(errno));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (bind(fd, address, size) == 0 && listen(fd, kBacklog) == 0 &&
      getsockname(fd, address, &size) == 0) {
    const uint16_t port = storage.ss_family == AF_INET6
                              ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                              : reinterpret_cast<sockaddr_in*>(&storage)->sin_port;
    return std::pair<int, int>(fd, ntohs(port));
  }
  const int error = errno;
  close(fd);
  if (error == EADDRINUSE)
    return InvalidArgument(
        "port {} of {} is in use by another process; choose another one (0 picks a free one)",
        a.port, a.host);
  return InvalidArgument("cannot listen on {}: {}", Join(a), strerror(error));
}

// Tries the port as gRPC will, for the sake of the reason: gRPC itself only says that it failed.
Status TryBind(const HostPort& a) {
  WHET_ASSIGN_OR_RETURN(const auto bound, Bind(a));
  close(bound.first);
  return OkStatus();
}

// Each connection takes two descriptors, and what is over serves files and gRPC itself.
int64_t AffordableConnections(int64_t wanted) {
  constexpr int64_t kOthers = 256;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::min<int64_t>(wanted, 128);
  const auto needed = static_cast<rlim_t>(2 * wanted + kOthers);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < needed) {
    rlimit more = limit;
    more.rlim_cur = limit.rlim_max == RLIM_INFINITY ? needed : std::min(needed, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
  }
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= needed) return wanted;
  const int64_t fewer = std::max<int64_t>((static_cast<int64_t>(limit.rlim_cur) - kOthers) / 2, 16);
  spdlog::warn(
      "event=fewer_connections wanted={} possible={} reason=\"open files are limited to {}\"",
      wanted, fewer, limit.rlim_cur);
  return fewer;
}

void CommonArguments(grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
}

// What strangers reach: handshakes and streams are limited, memory of all connections together too.
void GuardedArguments(grpc::ServerBuilder* builder, const Limits& limits) {
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(limits.authorize_ns / kMillisecond));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              static_cast<int>(limits.max_streams));
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 8 << 10);
  // What a connection keeps while it is idle: heartbeats are short, and there are thousands of
  // them.
  builder->AddChannelArgument(GRPC_ARG_TSI_MAX_FRAME_SIZE, 4 << 10);
  builder->AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, 2 << 10);
  pki::FreeTlsBuffersWhenIdle();
  grpc::ResourceQuota quota("whet");
  quota.Resize(kMaxBufferedBytes);
  builder->SetResourceQuota(quota);
}

}  // namespace

bool IsUnix(std::string_view address) { return address.substr(0, kUnix.size()) == kUnix; }

bool IsLoopback(std::string_view host) {
  if (host == "localhost") return true;
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  const std::string text(host);
  in_addr v4 = {};
  in6_addr v6 = {};
  return (inet_pton(AF_INET, text.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127) ||
         (inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6));
}

bool IsAnyAddress(const std::string& address) {
  const StatusOr<HostPort> a = Split("address", address);
  return a.ok() && (a->host == "0.0.0.0" || a->host == "::");
}

std::string DialableHere(const std::string& address) {
  const StatusOr<HostPort> a = Split("address", address);
  if (!a.ok() || !IsAnyAddress(address)) return address;
  return Join({a->host == "::" ? "::1" : "127.0.0.1", a->port});
}

StatusOr<std::string> ParseListenAddress(std::string_view flag, std::string_view text,
                                         const Security* security) {
  if (IsUnix(text)) return ParseUnix(flag, text, security);
  WHET_ASSIGN_OR_RETURN(HostPort a, Split(flag, text));
  if (a.host.empty() || a.host == "localhost") a.host = "127.0.0.1";
  if (!security && !IsLoopback(a.host)) {
    return InvalidArgument(
        "{} '{}': '{}' is not a loopback address; listening beyond this machine needs TLS with "
        "certificates: --tls DIR with a bundle of `whet pki issue`, or use 127.0.0.1:{} (and an "
        "SSH "
        "tunnel to reach it from elsewhere)",
        flag, text, a.host, a.port);
  }
  return Join(a);
}

StatusOr<std::string> ParseDialAddress(std::string_view flag, std::string_view text,
                                       const Security* security) {
  if (IsUnix(text)) return ParseUnix(flag, text, security);
  WHET_ASSIGN_OR_RETURN(HostPort a, Split(flag, text));
  if (a.port == 0) return InvalidArgument("{} '{}': port 0 cannot be dialled", flag, text);
  if (a.host.empty()) a.host = "127.0.0.1";
  if (!security && !IsLoopback(a.host)) {
    return InvalidArgument(
        "{} '{}': '{}' is another machine, which is reached with TLS only: --tls DIR with a bundle "
        "of `whet pki issue`, or an SSH tunnel and its end on 127.0.0.1",
        flag, text, a.host);
  }
  return Join(a);
}

void Listener::Stop(std::chrono::milliseconds grace) {
  gate.reset();
  if (!server) return;
  server->Shutdown(std::chrono::system_clock::now() + grace);
  server->Wait();
}

StatusOr<Listener> Listen(const std::string& address, const std::vector<grpc::Service*>& services,
                          const ListenOptions& options) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  CommonArguments(&builder);
  for (grpc::Service* service : services) builder.RegisterService(service);
  Listener listener;
  if (IsUnix(address)) {
    WHET_RETURN_IF_ERROR(ParseUnix("address", address, options.security.get()).status());
    WHET_RETURN_IF_ERROR(CheckFolderOf(address));
    int done = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &done);
    listener.server = builder.BuildAndStart();
    if (!listener.server || done == 0) return InvalidArgument("cannot listen on {}", address);
    listener.address = address;
    return listener;
  }
  WHET_ASSIGN_OR_RETURN(const HostPort a, Split("address", address));
  if (!options.security) {
    if (!IsLoopback(a.host)) return InvalidArgument("{} needs certificates", address);
    WHET_RETURN_IF_ERROR(TryBind(a));
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    listener.server = builder.BuildAndStart();
    if (!listener.server || port == 0) return InvalidArgument("cannot listen on {}", address);
    listener.address = Join({a.host, port});
    return listener;
  }
  LogGrpcSparingly();
  Limits limits = options.limits;
  limits.max_connections = AffordableConnections(limits.max_connections);
  GuardedArguments(&builder, limits);
  WHET_ASSIGN_OR_RETURN(const auto bound, Bind(a));
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor =
      builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD,
                                                           options.security->ForListening());
  listener.server = builder.BuildAndStart();
  if (!listener.server) {
    close(bound.first);
    return InvalidArgument("cannot listen on {}", address);
  }
  listener.security = options.security;
  listener.address = Join({a.host, bound.second});
  WHET_ASSIGN_OR_RETURN(
      listener.gate,
      Gate::Start(
          bound.first, limits,
          [acceptor, from = bound.first](int fd) {
            grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
            connection.listener_fd = from;
            connection.fd = fd;
            acceptor->HandleNewConnection(&connection);
          },
          [security = options.security](const pki::CertificateInfo& c) {
            return security->Admits(c);
          }));
  return listener;
}

std::shared_ptr<grpc::Channel> Dial(const std::string& address, const Security* security,
                                    Peer peer) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  // Not a pause, whatever its name: how long an attempt may take at least. Handshakes take a while
  // on a board, or when all of a fleet come back at once.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, security ? 10'000 : 200);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Each caller its own connection: one that is stuck must not hold the others.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  if (security) return grpc::CreateCustomChannel(address, security->ForDialling(peer), args);
  const StatusOr<HostPort> a = Split("address", address);
  // Without credentials gRPC makes a channel on which every call fails.
  const bool here = IsUnix(address) || (a.ok() && IsLoopback(a->host));
  return grpc::CreateCustomChannel(address, here ? grpc::InsecureChannelCredentials() : nullptr,
                                   args);
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
