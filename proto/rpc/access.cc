#include "proto/rpc/access.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "compiler/support/clock.h"
#include "proto/rpc/gate.h"
#include "proto/rpc/security.h"
#include "proto/rpc/token_bucket.h"

namespace whet::rpc {
namespace {

constexpr const char kInsecure[] = "insecure";  // gRPC's word for plaintext

// Calls of each certificate's name. Names are few: those that the CA has signed.
bool MayCallNow(const std::string& id, int64_t now) {
  static std::mutex mu;
  static std::map<std::string, TokenBucket> buckets;
  const std::lock_guard lock(mu);
  return buckets.try_emplace(id, TokenBucket{kCallsPerSecond, kCallsAtOnce})
      .first->second.Take(now);
}

}  // namespace

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
    if (peer.substr(0, local.size()) == local)
      return {Role::kAdmin, std::string(peer), "local", std::nullopt};
  }
  return {Role::kNone, std::string(peer), "", std::nullopt};
}

Principal PrincipalOf(const grpc::CallbackServerContext& context) {
  const std::string peer = context.peer();
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  std::vector<grpc::string_ref> types, certificates;
  if (auth) {
    types = auth->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
    certificates = auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  }
  const bool plain = types.empty() || (types.size() == 1 && types[0] == kInsecure);
  if (certificates.empty() && plain) return PrincipalOfPeer(peer);
  const Principal nobody{Role::kNone, peer, "", std::nullopt};
  if (certificates.size() != 1 || plain) return nobody;
  const StatusOr<pki::CertificateInfo> c =
      pki::ReadCertificate({certificates[0].data(), certificates[0].size()});
  if (!c.ok()) return nobody;
  return {c->name.role, c->name.Text(), c->name.Text(), *c};
}

bool MayCall(const Principal& principal, std::string_view method) {
  const auto& table = AccessTable();
  const auto row = std::find_if(table.begin(), table.end(),
                                [&](const AccessRow& r) { return method == r.method; });
  return row != table.end() &&
         std::find(row->roles.begin(), row->roles.end(), principal.role) != row->roles.end();
}

Status StillAdmitted(const Principal& principal) {
  return principal.certificate ? AdmittedHere(*principal.certificate) : OkStatus();
}

std::string WorkerIdPrefix(const pki::CertificateInfo& certificate) {
  return certificate.name.id + ".";
}

Status CheckOwnDevice(const Principal& principal, std::string_view worker_id,
                      std::string_view device_id) {
  if (!principal.certificate || principal.role != Role::kWorker) return OkStatus();
  const std::string prefix = WorkerIdPrefix(*principal.certificate);
  const std::string devices = std::string(worker_id) + "/";
  if (worker_id.substr(0, prefix.size()) == prefix && worker_id.size() > prefix.size() &&
      device_id.substr(0, devices.size()) == devices)
    return OkStatus();
  return PermissionDenied(
      "{} may speak for workers '{}...' and their devices, not for another's; start it with its "
      "own "
      "bundle and state folder",
      principal.name, prefix);
}

grpc::Status Authorize(const grpc::CallbackServerContext& context, std::string_view method,
                       Principal* principal) {
  *principal = PrincipalOf(context);
  const auto refused = [](grpc::StatusCode code, const std::string& why) {
    return grpc::Status(code, why);
  };
  if (const Status s = StillAdmitted(*principal); !s.ok())
    return refused(grpc::StatusCode::PERMISSION_DENIED, Message(s));
  if (!MayCall(*principal, method)) {
    return refused(grpc::StatusCode::PERMISSION_DENIED,
                   fmt::format("{} may not call {}", principal->name, method));
  }
  if (principal->certificate) {
    if (!MayCallNow(principal->id, MonotonicNs())) {
      return refused(grpc::StatusCode::RESOURCE_EXHAUSTED,
                     fmt::format("{} makes more than {:.0f} calls a second; try again in a second",
                                 principal->name, kCallsPerSecond));
    }
    Gate::Authorized(context.peer(), *principal->certificate);
  }
  return grpc::Status::OK;
}

}  // namespace whet::rpc
