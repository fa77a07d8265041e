// Certificates that no `whet pki` makes: for a given CA folder, with anything wrong about them. And
// folders for tests.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace whet::testing {

// A folder that is gone when the test ends.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct CertificateSpec {
  std::vector<std::string> names = {
      "URI:whet://client/alice"};  // as OpenSSL's configuration has it
  std::string uses = "clientAuth";
  std::string key_usage = "critical,digitalSignature";
  std::string constraints = "critical,CA:FALSE";
  std::string key = "P-256";  // a curve, or "RSA"
  int64_t not_before_s = 0, not_after_s = 0;
  std::string ca_dir;  // who signs; empty: itself
};

// Private key and certificate, as in a bundle's identity.pem.
std::string MakeIdentity(const CertificateSpec& spec);

}  // namespace whet::testing
