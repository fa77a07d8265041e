// Reading and checking certificates. A certificate of ours is X.509 with an ECDSA key on P-256,
// exactly one subject alternative name (see name.h), a key usage of digital signatures only, and
// extended uses that match its role: servers serve and dial, trackers serve, the others dial. What
// deviates is refused, also when our CA has signed it: a certificate has one meaning. Pure
// functions, safe from any thread; times are seconds of the wall clock since 1970, the one place
// where it decides something.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "fleet/pki/name.h"

namespace whet::pki {

struct CertificateInfo {
  Name name;
  std::string serial;  // lower-case hex digits
  int64_t not_before_s = 0;
  int64_t not_after_s = 0;
};

// What the certificate's holder does in a connection.
enum class Side { kDials, kListens };

// The first certificate of a PEM text; nothing is said about who signed it.
StatusOr<CertificateInfo> ReadCertificate(std::string_view pem);

// Signed by one of the CA certificates in `roots_pem`, valid at `now_s`, and meant for this side.
// The message says which of these it is not.
StatusOr<CertificateInfo> VerifyCertificate(std::string_view pem, std::string_view roots_pem,
                                            Side side, int64_t now_s);

// Two thirds of its life are over.
bool RenewalDue(const CertificateInfo& certificate, int64_t now_s);
std::string DateOf(int64_t s);  // "2027-03-01 12:00 UTC"

}  // namespace whet::pki
