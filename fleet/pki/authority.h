// The certificate authority: a folder on a machine that serves nothing, best on a medium that is
// put away. It makes bundles (see bundle.h) offline; nothing of it ever lies on a server.
//   ca.key, ca.pem            its private key (mode 0600) and certificate
//   issued                    a line per certificate: SERIAL ROLE ID NOT_BEFORE NOT_AFTER
//   denied                    see deny_list.h; carried to the servers
//   bundles/ROLE-ID/          what is carried to that machine
// Every change holds a lock on the folder, and files are replaced whole. Not for several threads.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/env.h"
#include "fleet/pki/bundle.h"
#include "fleet/pki/deny_list.h"

namespace whet::pki {

inline constexpr int64_t kDay = 24 * 3600;
inline constexpr int kDefaultDays = 90, kMaxDays = 825, kCaDays = 3650;

struct Issued {
  CertificateInfo certificate;
  bool latest = false;  // no later one of this name
  bool denied = false;
};

class Authority {
 public:
  // FailedPrecondition when there is one in the folder: nothing is overwritten.
  static StatusOr<Authority> Init(const std::string& dir, int days, int64_t now_s);
  static StatusOr<Authority> Open(const std::string& dir);

  struct Request {
    Name name;
    int days = kDefaultDays;
    std::vector<std::string> servers;  // pinned; empty: those issued so far
    std::string out;                   // folder of the bundle; empty: bundles/ROLE-ID
  };
  // FailedPrecondition when the name was issued before (Renew is for that), the folder exists, or a
  // worker would be without a server that it may trust. PermissionDenied for a denied name.
  StatusOr<CertificateInfo> Issue(const Request& request, int64_t now_s);

  // A new key and certificate for a name that was issued, in its bundle's folder, with as long a
  // life as before. `servers`: replaces those pinned unless empty.
  StatusOr<CertificateInfo> Renew(const Name& name, const std::vector<std::string>& servers,
                                  const std::string& out, int64_t now_s);

  StatusOr<std::vector<Issued>> List() const;
  // Latest certificates two thirds of whose life are over, ended ones included, denied ones not.
  StatusOr<std::vector<CertificateInfo>> DueForRenewal(int64_t now_s) const;
  // OK also when it is denied already.
  Status Deny(std::string_view name_or_serial);

  std::string BundleDir(const Name& name) const;
  const std::string& dir() const { return dir_; }

 private:
  explicit Authority(std::string dir) : dir_(std::move(dir)) {}
  Status Take();
  StatusOr<DenyList> Denied() const;
  StatusOr<CertificateInfo> Write(const Name& name, int64_t life_s,
                                  const std::vector<std::string>& servers, const std::string& out,
                                  int64_t now_s);
  StatusOr<std::vector<std::string>> ServersSoFar() const;

  std::string dir_;
  FileLock lock_;
};

}  // namespace whet::pki
