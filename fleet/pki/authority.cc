#include "fleet/pki/authority.h"

#include <openssl/ec.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "fleet/pki/openssl.h"

namespace whet::pki {
namespace {

constexpr size_t kMaxIndexBytes = 16 << 20;
// Clocks of boards without a battery lag; a certificate is valid from a little before it is made.
constexpr int64_t kClockSkewS = 3600;

std::string KeyPath(const std::string& dir) { return dir + "/ca.key"; }
std::string IndexPath(const std::string& dir) { return dir + "/issued"; }

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

StatusOr<KeyPtr> NewKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (!key) return OpenSslError("cannot make a key");
  return key;
}

Status Extend(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  if (!extension || X509_add_ext(certificate, extension.get(), -1) != 1)
    return OpenSslError(fmt::format("cannot add '{}' to a certificate", value));
  return OkStatus();
}

// Version, serial, subject, validity and key; `common_name` is for people who look at it.
StatusOr<X509Ptr> Draft(EVP_PKEY* key, const std::string& common_name, int64_t begin_s,
                        int64_t end_s) {
  X509Ptr x(X509_new());
  std::string serial = RandomHex(16);
  serial[0] = "1234567"[serial[0] % 7];  // positive, and always as long
  BIGNUM* number = nullptr;
  const bool numbered = x && BN_hex2bn(&number, serial.c_str()) > 0 &&
                        BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x.get())) != nullptr;
  BN_free(number);
  if (!numbered) return OpenSslError("cannot number a certificate");
  const auto text = [](const std::string& s) {
    return reinterpret_cast<const unsigned char*>(s.data());
  };
  const std::string organization = "whet";
  X509_NAME* subject = X509_get_subject_name(x.get());
  if (X509_set_version(x.get(), 2) != 1 ||
      X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_ASC, text(organization), -1, -1, 0) != 1 ||
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, text(common_name), -1, -1, 0) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(x.get()), static_cast<time_t>(begin_s)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(x.get()), static_cast<time_t>(end_s)) == nullptr ||
      X509_set_pubkey(x.get(), key) != 1)
    return OpenSslError("cannot fill a certificate in");
  return x;
}

Status Sign(X509* certificate, X509* issuer, EVP_PKEY* key) {
  if (X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) != 1 ||
      X509_sign(certificate, key, EVP_sha256()) == 0)
    return OpenSslError("cannot sign a certificate");
  return OkStatus();
}

std::string IndexLine(const CertificateInfo& c) {
  return fmt::format("{} {} {} {} {}\n", c.serial, RoleName(c.name.role), c.name.id, c.not_before_s,
                     c.not_after_s);
}

StatusOr<std::vector<CertificateInfo>> ReadIndex(const std::string& dir) {
  std::vector<CertificateInfo> all;
  const StatusOr<std::string> text = ReadFile(IndexPath(dir), kMaxIndexBytes);
  if (text.status().code() == absl::StatusCode::kNotFound) return all;
  WHET_RETURN_IF_ERROR(text.status());
  std::istringstream lines(*text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    CertificateInfo c;
    std::string role;
    if (!(words >> c.serial >> role >> c.name.id >> c.not_before_s >> c.not_after_s) ||
        (c.name.role = RoleOf(role)) == Role::kNone)
      return DataLoss("'{}' line {} is damaged", IndexPath(dir), number);
    all.push_back(std::move(c));
  }
  return all;
}

Status AppendIndex(const std::string& dir, const CertificateInfo& c) {
  const StatusOr<std::string> text = ReadFile(IndexPath(dir), kMaxIndexBytes);
  if (!text.ok() && text.status().code() != absl::StatusCode::kNotFound) return text.status();
  return WriteFile(IndexPath(dir), (text.ok() ? *text : "") + IndexLine(c), Sync::kDurable);
}

}  // namespace

Status Authority::Take() {
  WHET_ASSIGN_OR_RETURN(
      lock_, FileLock::TryAcquire(dir_ + "/lock", fmt::format("whet pki, pid {}", getpid())));
  return OkStatus();
}

StatusOr<Authority> Authority::Init(const std::string& dir, int days, int64_t now_s) {
  if (days < 1 || days > 2 * kCaDays)
    return InvalidArgument("a CA is valid for 1 to {} days, not {}", 2 * kCaDays, days);
  WHET_RETURN_IF_ERROR(MakeDirs(dir));
  Authority authority(dir);
  WHET_RETURN_IF_ERROR(authority.Take());
  for (const std::string& path : {KeyPath(dir), CaPath(dir)}) {
    if (Exists(path))
      return FailedPrecondition(
          "'{}' exists: the folder has a CA, and nothing of it is overwritten; name another folder",
          path);
  }
  WHET_ASSIGN_OR_RETURN(const KeyPtr key, NewKey());
  WHET_ASSIGN_OR_RETURN(const X509Ptr x, Draft(key.get(), "whet CA " + RandomHex(4),
                                               now_s - kClockSkewS, now_s + days * kDay));
  for (const auto& [nid, value] : {std::pair{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                   std::pair{NID_key_usage, "critical,keyCertSign,cRLSign"},
                                   std::pair{NID_subject_key_identifier, "hash"}})
    WHET_RETURN_IF_ERROR(Extend(x.get(), x.get(), nid, value));
  WHET_RETURN_IF_ERROR(Sign(x.get(), x.get(), key.get()));
  WHET_ASSIGN_OR_RETURN(const std::string key_pem, PemOf(key.get()));
  WHET_ASSIGN_OR_RETURN(const std::string pem, PemOf(x.get()));
  WHET_RETURN_IF_ERROR(WriteFile(CaPath(dir), pem, Sync::kDurable));
  WHET_RETURN_IF_ERROR(WriteFile(KeyPath(dir), key_pem, Sync::kDurable));
  return authority;
}

StatusOr<Authority> Authority::Open(const std::string& dir) {
  if (!Exists(KeyPath(dir)) || !Exists(CaPath(dir)))
    return NotFound("there is no CA in '{}': `whet pki init` makes one, --ca DIR names another",
                    dir);
  struct stat info = {};
  if (stat(KeyPath(dir).c_str(), &info) == 0 && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return PermissionDenied(
        "'{}' has mode {:04o}: others than its owner could make certificates; chmod 600 '{}'",
        KeyPath(dir), info.st_mode & 07777, KeyPath(dir));
  }
  Authority authority(dir);
  WHET_RETURN_IF_ERROR(authority.Take());
  return authority;
}

std::string Authority::BundleDir(const Name& name) const {
  return fmt::format("{}/bundles/{}-{}", dir_, RoleName(name.role), name.id);
}

StatusOr<DenyList> Authority::Denied() const { return DenyList::Read(DeniedPath(dir_)); }

StatusOr<std::vector<Issued>> Authority::List() const {
  WHET_ASSIGN_OR_RETURN(const std::vector<CertificateInfo> index, ReadIndex(dir_));
  WHET_ASSIGN_OR_RETURN(const DenyList denied, Denied());
  std::map<std::string, size_t> last;
  std::vector<Issued> all;
  for (const CertificateInfo& c : index) {
    if (const auto it = last.find(c.name.Text()); it != last.end()) all[it->second].latest = false;
    last[c.name.Text()] = all.size();
    all.push_back({c, true, denied.Denies(c)});
  }
  return all;
}

StatusOr<std::vector<CertificateInfo>> Authority::DueForRenewal(int64_t now_s) const {
  WHET_ASSIGN_OR_RETURN(const std::vector<Issued> all, List());
  std::vector<CertificateInfo> due;
  for (const Issued& i : all) {
    if (i.latest && !i.denied && RenewalDue(i.certificate, now_s)) due.push_back(i.certificate);
  }
  return due;
}

StatusOr<std::vector<std::string>> Authority::ServersSoFar() const {
  WHET_ASSIGN_OR_RETURN(const std::vector<Issued> all, List());
  std::set<std::string> ids;
  for (const Issued& i : all) {
    if (i.latest && !i.denied && Listens(i.certificate.name.role))
      ids.insert(i.certificate.name.id);
  }
  return std::vector<std::string>(ids.begin(), ids.end());
}

StatusOr<CertificateInfo> Authority::Write(const Name& name, int64_t life_s,
                                           const std::vector<std::string>& servers,
                                           const std::string& out, int64_t now_s) {
  WHET_ASSIGN_OR_RETURN(const std::string ca_pem, ReadFile(CaPath(dir_), kMaxPemBytes));
  WHET_ASSIGN_OR_RETURN(const std::string ca_key_pem, ReadFile(KeyPath(dir_), kMaxPemBytes));
  WHET_ASSIGN_OR_RETURN(const X509Ptr ca, CertificateOf(ca_pem));
  WHET_ASSIGN_OR_RETURN(const KeyPtr ca_key, KeyOf(ca_key_pem));
  if (EVP_PKEY_eq(X509_get0_pubkey(ca.get()), ca_key.get()) != 1)
    return DataLoss("'{}' is not the key of '{}'", KeyPath(dir_), CaPath(dir_));
  auto end = static_cast<time_t>(now_s + life_s);
  if (X509_cmp_time(X509_get0_notAfter(ca.get()), &end) < 0) {
    return FailedPrecondition(
        "the CA ends before a certificate of {} days would: make a new CA and issue anew, or ask "
        "for fewer days",
        life_s / kDay);
  }
  for (const std::string& s : servers) {
    if (!IsId(s)) return InvalidArgument("'{}' is not a server's name: {}", s, kIdRule);
  }
  WHET_ASSIGN_OR_RETURN(const KeyPtr key, NewKey());
  WHET_ASSIGN_OR_RETURN(const X509Ptr x, Draft(key.get(), name.Text(), now_s - kClockSkewS,
                                               static_cast<int64_t>(end)));
  const std::string uri = "URI:" + UriOf(name);
  const char* uses = !Listens(name.role) ? "clientAuth"
                     : Dials(name.role)  ? "serverAuth,clientAuth"
                                         : "serverAuth";
  for (const auto& [nid, value] :
       {std::pair{NID_basic_constraints, "critical,CA:FALSE"},
        std::pair{NID_key_usage, "critical,digitalSignature"}, std::pair{NID_ext_key_usage, uses},
        std::pair{NID_subject_alt_name, uri.c_str()}, std::pair{NID_subject_key_identifier, "hash"},
        std::pair{NID_authority_key_identifier, "keyid:always"}})
    WHET_RETURN_IF_ERROR(Extend(x.get(), ca.get(), nid, value));
  WHET_RETURN_IF_ERROR(Sign(x.get(), ca.get(), ca_key.get()));
  WHET_ASSIGN_OR_RETURN(const std::string pem, PemOf(x.get()));
  WHET_ASSIGN_OR_RETURN(const std::string key_pem, PemOf(key.get()));
  WHET_ASSIGN_OR_RETURN(const CertificateInfo info, ReadCertificate(pem));
  // In the index first: a certificate that nobody knows of cannot be denied by its serial.
  WHET_RETURN_IF_ERROR(AppendIndex(dir_, info));
  WHET_RETURN_IF_ERROR(MakeDirs(out));
  std::string pinned;
  for (const std::string& s : servers) pinned += s + "\n";
  WHET_RETURN_IF_ERROR(WriteFile(CaPath(out), ca_pem, Sync::kDurable));
  WHET_RETURN_IF_ERROR(WriteFile(ServersPath(out), pinned, Sync::kDurable));
  WHET_RETURN_IF_ERROR(WriteFile(IdentityPath(out), key_pem + pem, Sync::kDurable));
  return info;
}

StatusOr<CertificateInfo> Authority::Issue(const Request& request, int64_t now_s) {
  const Name& name = request.name;
  if (name.role == Role::kNone) return InvalidArgument("the roles are {}", kRoles);
  if (!IsId(name.id)) return InvalidArgument("'{}' is not a name: {}", name.id, kIdRule);
  if (request.days < 1 || request.days > kMaxDays)
    return InvalidArgument("a certificate is valid for 1 to {} days, not {}", kMaxDays,
                           request.days);
  WHET_ASSIGN_OR_RETURN(const DenyList denied, Denied());
  if (denied.DeniesName(name))
    return PermissionDenied("{} is denied for good; choose another name", name.Text());
  WHET_ASSIGN_OR_RETURN(const std::vector<Issued> all, List());
  for (const Issued& i : all) {
    if (i.certificate.name == name) {
      return FailedPrecondition(
          "{} has a certificate already, until {}; `whet pki renew {} {}` makes the next one",
          name.Text(), DateOf(i.certificate.not_after_s), RoleName(name.role), name.id);
    }
  }
  const std::string out = request.out.empty() ? BundleDir(name) : request.out;
  if (Exists(IdentityPath(out)))
    return FailedPrecondition("'{}' exists, and is not overwritten; name another folder with --out",
                              IdentityPath(out));
  std::vector<std::string> servers = request.servers;
  if (servers.empty()) {
    WHET_ASSIGN_OR_RETURN(servers, ServersSoFar());
  }
  if (servers.empty() && name.role == Role::kWorker) {
    return FailedPrecondition(
        "{} would run what anybody's server sends: issue the server's certificate first, or name "
        "the servers that it may work for with --for NAME",
        name.Text());
  }
  return Write(name, request.days * kDay, servers, out, now_s);
}

StatusOr<CertificateInfo> Authority::Renew(const Name& name,
                                           const std::vector<std::string>& servers,
                                           const std::string& out, int64_t now_s) {
  WHET_ASSIGN_OR_RETURN(const DenyList denied, Denied());
  if (denied.DeniesName(name)) return PermissionDenied("{} is denied for good", name.Text());
  WHET_ASSIGN_OR_RETURN(const std::vector<Issued> all, List());
  const auto it = std::find_if(all.begin(), all.end(), [&](const Issued& i) {
    return i.latest && i.certificate.name == name;
  });
  if (it == all.end()) {
    return NotFound("{} has no certificate of this CA; `whet pki issue {} {}` makes one",
                    name.Text(), RoleName(name.role), name.id);
  }
  const CertificateInfo& last = it->certificate;
  const int64_t life = last.not_after_s - last.not_before_s - kClockSkewS;
  const std::string dir = out.empty() ? BundleDir(name) : out;
  std::vector<std::string> pinned = servers;
  if (pinned.empty()) {
    const StatusOr<std::string> kept = ReadFile(ServersPath(dir), 64 << 10);
    if (kept.ok()) {
      std::istringstream lines(*kept);
      for (std::string line; std::getline(lines, line);) {
        if (!line.empty() && line[0] != '#') pinned.push_back(line);
      }
    } else if (kept.status().code() == absl::StatusCode::kNotFound) {
      WHET_ASSIGN_OR_RETURN(pinned, ServersSoFar());
    } else {
      return kept.status();
    }
  }
  return Write(name, life, pinned, dir, now_s);
}

Status Authority::Deny(std::string_view name_or_serial) {
  WHET_ASSIGN_OR_RETURN(const std::string line, DenyList::LineOf(name_or_serial));
  const StatusOr<std::string> text = ReadFile(DeniedPath(dir_), 1 << 20);
  if (!text.ok() && text.status().code() != absl::StatusCode::kNotFound) return text.status();
  const std::string before = text.ok() ? *text : "";
  WHET_RETURN_IF_ERROR(DenyList::Parse(before).status());
  std::istringstream lines(before);
  for (std::string l; std::getline(lines, l);) {
    if (l == line) return OkStatus();
  }
  return WriteFile(DeniedPath(dir_),
                   before + (before.empty() || before.back() == '\n' ? "" : "\n") + line + "\n",
                   Sync::kDurable);
}

}  // namespace whet::pki
