// Who may call what: every handler gets a Principal, and a table of method and role denies whatever
// it does not name. A test compares the table with the services' descriptors, so that a new method
// is closed until somebody opens it. A peer is who its certificate says; without TLS, which is for
// loopback alone, whoever reaches the port is an administrator of this machine. Every call reads
// the connection's certificate anew and nothing is ever added to gRPC's AuthContext: that
// accumulates over the calls of a connection. Functions are safe from any thread.
#pragma once
#include <grpcpp/grpcpp.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"
#include "fleet/pki/certificate.h"

namespace whet::rpc {

using pki::Role;

struct Principal {
  Role role = Role::kNone;
  std::string name;  // for logs: "worker/rack1", or the address of a peer without certificate
  std::string id;    // the same over connections: "worker/rack1", or "local"
  std::optional<pki::CertificateInfo> certificate;  // none: a local peer, or nobody
};

Principal PrincipalOfPeer(std::string_view peer);  // gRPC's peer text, e.g. "ipv4:127.0.0.1:4321"
// By the certificate of the connection; nobody (kNone) when it cannot be read.
Principal PrincipalOf(const grpc::CallbackServerContext& context);
bool MayCall(const Principal& principal, std::string_view method);  // "/whet.v1.Tuner/SubmitJob"
// OK and the principal, or the status to end the call with: PERMISSION_DENIED, also for whom the
// deny list has, or RESOURCE_EXHAUSTED where one certificate makes more calls than a person or a
// board does (kCallsPerSecond, after kCallsAtOnce).
inline constexpr double kCallsPerSecond = 50, kCallsAtOnce = 500;
grpc::Status Authorize(const grpc::CallbackServerContext& context, std::string_view method,
                       Principal* principal);

// Whether the peer may go on: its certificate has not ended, and it has not been denied. For every
// message of a stream that lives long.
Status StillAdmitted(const Principal& principal);

// A worker with a certificate speaks for devices of its own only: their ids begin with its name.
// Others, local ones included, may name any.
Status CheckOwnDevice(const Principal& principal, std::string_view worker_id,
                      std::string_view device_id);
// The prefix that makes a worker's ids those of this certificate.
std::string WorkerIdPrefix(const pki::CertificateInfo& certificate);

struct AccessRow {
  const char* method;
  std::vector<Role> roles;
};
const std::vector<AccessRow>& AccessTable();

}  // namespace whet::rpc
