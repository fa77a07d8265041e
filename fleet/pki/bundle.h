// What a program needs to prove who it is, in one folder that is carried to its machine:
//   identity.pem  its private key and its certificate, mode 0600: one file, so that a renewal
//                 replaces both at once
//   ca.pem        the CA certificates that it trusts
//   servers       ids of the servers and trackers that it dials, one a line; empty: any of the CA
//   denied        see deny_list.h; of programs that listen
// Functions are safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "fleet/pki/certificate.h"

namespace whet::pki {

struct Bundle {
  std::string dir;
  CertificateInfo self;
  std::string ca_pem;
  std::vector<std::string> servers;
};

std::string IdentityPath(const std::string& dir);
std::string CaPath(const std::string& dir);
std::string ServersPath(const std::string& dir);
std::string DeniedPath(const std::string& dir);

// Refused, with the way out: a private key that others can read, files that others can write, a key
// of another certificate, one that is not (or no longer) valid, not by this CA, or for another
// role.
StatusOr<Bundle> LoadBundle(const std::string& dir, const std::vector<Role>& roles, int64_t now_s);

}  // namespace whet::pki
