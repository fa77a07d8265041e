// Who may call what: every handler gets a Principal, and a table of method and role denies whatever
// it does not name. A test compares the table with the services' descriptors, so that a new method
// is closed until somebody opens it. Until TLS gives peers an identity, whoever reaches a loopback
// port or a local socket is an administrator. Functions are safe from any thread.
#pragma once
#include <grpcpp/grpcpp.h>

#include <string>
#include <string_view>
#include <vector>

namespace whet::rpc {

enum class Role { kNone, kAdmin, kClient, kWorker, kServer };

struct Principal {
  Role role = Role::kNone;
  std::string name;  // for logs
};

Principal PrincipalOfPeer(std::string_view peer);  // gRPC's peer text, e.g. "ipv4:127.0.0.1:4321"
bool MayCall(const Principal& principal, std::string_view method);  // "/whet.v1.Tuner/SubmitJob"
// OK and the principal, or the status to end the call with.
grpc::Status Authorize(const grpc::CallbackServerContext& context, std::string_view method,
                       Principal* principal);

struct AccessRow {
  const char* method;
  std::vector<Role> roles;
};
const std::vector<AccessRow>& AccessTable();

}  // namespace whet::rpc
