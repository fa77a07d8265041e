#include "fleet/pki/bundle.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "compiler/support/env.h"
#include "fleet/pki/openssl.h"

namespace whet::pki {
namespace {

constexpr size_t kMaxServersBytes = 64 << 10;

// `forbidden`: bits of the mode that the file must not have.
Status CheckMode(const std::string& path, mode_t forbidden, const char* why, const char* way_out) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0)
    return ErrnoStatus(errno, fmt::format("cannot read '{}'", path));
  if ((info.st_mode & forbidden) == 0) return OkStatus();
  return PermissionDenied("'{}' has mode {:04o}: {}; {} '{}'", path, info.st_mode & 07777, why,
                          way_out, path);
}

Status CheckModes(const std::string& dir) {
  constexpr const char* kWritable = "others than its owner can change it";
  WHET_RETURN_IF_ERROR(CheckMode(dir, S_IWGRP | S_IWOTH, kWritable, "chmod 700"));
  WHET_RETURN_IF_ERROR(CheckMode(IdentityPath(dir), S_IRWXG | S_IRWXO,
                                 "others than its owner can use the private key", "chmod 600"));
  WHET_RETURN_IF_ERROR(CheckMode(CaPath(dir), S_IWGRP | S_IWOTH, kWritable, "chmod 600"));
  for (const std::string& path : {ServersPath(dir), DeniedPath(dir)}) {
    const Status s = CheckMode(path, S_IWGRP | S_IWOTH, kWritable, "chmod 600");
    if (s.code() != absl::StatusCode::kNotFound) WHET_RETURN_IF_ERROR(s);
  }
  return OkStatus();
}

StatusOr<std::vector<std::string>> ReadServers(const std::string& path) {
  std::vector<std::string> servers;
  const StatusOr<std::string> text = ReadFile(path, kMaxServersBytes);
  if (text.status().code() == absl::StatusCode::kNotFound) return servers;
  WHET_RETURN_IF_ERROR(text.status());
  size_t begin = 0;
  while (begin < text->size()) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const std::string line = text->substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line[0] == '#') continue;
    if (!IsId(line))
      return InvalidArgument("'{}': '{}' is not a server's name: {}", path, Printable(line),
                             kIdRule);
    servers.push_back(line);
  }
  return servers;
}

}  // namespace

std::string IdentityPath(const std::string& dir) { return dir + "/identity.pem"; }
std::string CaPath(const std::string& dir) { return dir + "/ca.pem"; }
std::string ServersPath(const std::string& dir) { return dir + "/servers"; }
std::string DeniedPath(const std::string& dir) { return dir + "/denied"; }

StatusOr<Bundle> LoadBundle(const std::string& dir, const std::vector<Role>& roles, int64_t now_s) {
  WHET_RETURN_IF_ERROR(CheckModes(dir));
  Bundle bundle;
  bundle.dir = dir;
  const std::string path = IdentityPath(dir);
  WHET_ASSIGN_OR_RETURN(const std::string identity, ReadFile(path, kMaxPemBytes));
  WHET_ASSIGN_OR_RETURN(bundle.ca_pem, ReadFile(CaPath(dir), kMaxPemBytes));
  WHET_ASSIGN_OR_RETURN(bundle.servers, ReadServers(ServersPath(dir)));
  const auto in_file = [&](const Status& s) { return Annotate(s, fmt::format("'{}'", path)); };
  const StatusOr<CertificateInfo> info = ReadCertificate(identity);
  if (!info.ok()) return in_file(info.status());
  bundle.self = *info;
  if (std::find(roles.begin(), roles.end(), info->name.role) == roles.end()) {
    std::string wanted;
    for (const Role role : roles)
      wanted += fmt::format("{}{}", wanted.empty() ? "" : " or ", RoleName(role));
    return PermissionDenied("'{}' is for {}; this program needs one of the role {}", path,
                            info->name.Text(), wanted);
  }
  if (now_s > info->not_after_s) {
    return FailedPrecondition(
        "'{}' ended on {}: renew it where the CA is, with `whet pki renew {} {}`, and carry it "
        "here",
        path, DateOf(info->not_after_s), RoleName(info->name.role), info->name.id);
  }
  if (now_s < info->not_before_s) {
    return FailedPrecondition("'{}' begins on {}, and this machine's clock says {}: set the clock",
                              path, DateOf(info->not_before_s), DateOf(now_s));
  }
  for (const Side side : {Side::kDials, Side::kListens}) {
    if (side == Side::kDials ? !Dials(info->name.role) : !Listens(info->name.role)) continue;
    const Status s = VerifyCertificate(identity, bundle.ca_pem, side, now_s).status();
    if (!s.ok()) return in_file(s);
  }
  const StatusOr<KeyPtr> key = KeyOf(identity);
  if (!key.ok()) return in_file(key.status());
  WHET_ASSIGN_OR_RETURN(const X509Ptr certificate, CertificateOf(identity));
  if (EVP_PKEY_eq(X509_get0_pubkey(certificate.get()), key->get()) != 1)
    return InvalidArgument("'{}': the private key is not that of the certificate", path);
  return bundle;
}

}  // namespace whet::pki
