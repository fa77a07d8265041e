#include "proto/rpc/access.h"

#include <algorithm>

#include "compiler/support/status.h"

namespace whet::rpc {

const std::vector<AccessRow>& AccessTable() {
  static const std::vector<AccessRow> table = {
      {"/whet.v1.Tracker/Attach", {Role::kAdmin, Role::kWorker}},
      {"/whet.v1.Tracker/Lease", {Role::kAdmin, Role::kServer}},
      {"/whet.v1.Tracker/ListDevices", {Role::kAdmin, Role::kServer, Role::kClient}},
      {"/whet.v1.Dispatch/Work", {Role::kAdmin, Role::kWorker}},
      {"/whet.v1.Tuner/GetInfo", {Role::kAdmin, Role::kClient}},
      {"/whet.v1.Tuner/SubmitJob", {Role::kAdmin, Role::kClient}},
      {"/whet.v1.Tuner/WatchJob", {Role::kAdmin, Role::kClient}},
      {"/whet.v1.Tuner/CancelJob", {Role::kAdmin, Role::kClient}},
      {"/whet.v1.Tuner/ListJobs", {Role::kAdmin, Role::kClient}},
      {"/whet.v1.Tuner/GetRecords", {Role::kAdmin, Role::kClient}},
      {"/whet.v1.Tuner/GetPlans", {Role::kAdmin, Role::kClient}},
      {"/whet.v1.Tuner/ListDevices", {Role::kAdmin, Role::kClient}},
  };
  return table;
}

Principal PrincipalOfPeer(std::string_view peer) {
  // gRPC percent-encodes the brackets of IPv6 peers.
  for (const std::string_view local : {"ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D", "unix:"}) {
    if (peer.substr(0, local.size()) == local) return {Role::kAdmin, std::string(peer)};
  }
  return {Role::kNone, std::string(peer)};
}

bool MayCall(const Principal& principal, std::string_view method) {
  const auto& table = AccessTable();
  const auto row = std::find_if(table.begin(), table.end(),
                                [&](const AccessRow& r) { return method == r.method; });
  return row != table.end() &&
         std::find(row->roles.begin(), row->roles.end(), principal.role) != row->roles.end();
}

grpc::Status Authorize(const grpc::CallbackServerContext& context, std::string_view method,
                       Principal* principal) {
  *principal = PrincipalOfPeer(context.peer());
  if (MayCall(*principal, method)) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                      fmt::format("{} may not call {}", principal->name, method));
}

}  // namespace whet::rpc
