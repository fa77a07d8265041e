#include "fleet/pki/certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <ctime>

#include "fleet/pki/openssl.h"

namespace whet::pki {
namespace {

constexpr uint32_t kXkuDials = XKU_SSL_CLIENT, kXkuListens = XKU_SSL_SERVER;

StatusOr<int64_t> SecondsOf(const ASN1_TIME* time) {
  tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return InvalidArgument("a time of it cannot be read");
  return static_cast<int64_t>(timegm(&parts));
}

StatusOr<Name> NameOf(X509* certificate) {
  const NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  if (!names || sk_GENERAL_NAME_num(names.get()) != 1)
    return InvalidArgument("it has not exactly one subject alternative name");
  const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), 0);
  if (name->type != GEN_URI)
    return InvalidArgument("its subject alternative name is not a URI of whet's");
  const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
  return NameOfUri({reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                    static_cast<size_t>(ASN1_STRING_length(uri))});
}

std::string SerialOf(X509* certificate) {
  std::string hex;
  const ASN1_INTEGER* serial = X509_get0_serialNumber(certificate);
  for (int i = 0; i < ASN1_STRING_length(serial); ++i)
    hex += fmt::format("{:02x}", ASN1_STRING_get0_data(serial)[i]);
  return hex;
}

bool IsP256(X509* certificate) {
  const EVP_PKEY* key = X509_get0_pubkey(certificate);
  char group[40] = "";
  size_t size = 0;
  return key && EVP_PKEY_is_a(key, "EC") &&
         EVP_PKEY_get_group_name(const_cast<EVP_PKEY*>(key), group, sizeof group, &size) == 1 &&
         std::string_view(group) == "prime256v1";
}

StatusOr<CertificateInfo> InfoOf(X509* certificate) {
  // Asks OpenSSL to read all extensions; a damaged one shows as invalid.
  X509_check_ca(certificate);
  const uint32_t flags = X509_get_extension_flags(certificate);
  if ((flags & EXFLAG_CA) != 0) return InvalidArgument("it is one of a CA, not of a peer");
  if ((flags & EXFLAG_INVALID) != 0) return InvalidArgument("an extension of it cannot be read");
  CertificateInfo info;
  WHET_ASSIGN_OR_RETURN(info.name, NameOf(certificate));
  if (!IsP256(certificate)) return InvalidArgument("its key is not one of ECDSA P-256");
  if (X509_get_key_usage(certificate) != KU_DIGITAL_SIGNATURE)
    return InvalidArgument("its key may not be used for digital signatures alone");
  const uint32_t uses =
      (Dials(info.name.role) ? kXkuDials : 0) | (Listens(info.name.role) ? kXkuListens : 0);
  if ((flags & EXFLAG_XKUSAGE) == 0 || X509_get_extended_key_usage(certificate) != uses)
    return InvalidArgument("its extended key usage is not that of a {}", RoleName(info.name.role));
  info.serial = SerialOf(certificate);
  WHET_ASSIGN_OR_RETURN(info.not_before_s, SecondsOf(X509_get0_notBefore(certificate)));
  WHET_ASSIGN_OR_RETURN(info.not_after_s, SecondsOf(X509_get0_notAfter(certificate)));
  if (info.not_after_s <= info.not_before_s) return InvalidArgument("it ends before it begins");
  return info;
}

StatusOr<StorePtr> StoreOf(std::string_view roots_pem) {
  if (roots_pem.size() > kMaxPemBytes)
    return InvalidArgument("CA certificates of {} bytes; at most {} are read", roots_pem.size(),
                           kMaxPemBytes);
  StorePtr store(X509_STORE_new());
  const BioPtr bio(BIO_new_mem_buf(roots_pem.data(), static_cast<int>(roots_pem.size())));
  if (!store || !bio) return OpenSslError("cannot hold CA certificates");
  int n = 0;
  while (X509Ptr root{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    if (X509_STORE_add_cert(store.get(), root.get()) != 1)
      return OpenSslError("cannot hold a CA certificate");
    ++n;
  }
  ERR_clear_error();
  if (n == 0) return InvalidArgument("there is no CA certificate in the PEM text");
  return store;
}

}  // namespace

StatusOr<CertificateInfo> ReadCertificate(std::string_view pem) {
  WHET_ASSIGN_OR_RETURN(const X509Ptr certificate, CertificateOf(pem));
  const StatusOr<CertificateInfo> info = InfoOf(certificate.get());
  ERR_clear_error();
  if (!info.ok()) return Annotate(info.status(), "the certificate is refused");
  return info;
}

StatusOr<CertificateInfo> VerifyCertificate(std::string_view pem, std::string_view roots_pem,
                                            Side side, int64_t now_s) {
  WHET_ASSIGN_OR_RETURN(const X509Ptr certificate, CertificateOf(pem));
  WHET_ASSIGN_OR_RETURN(const StorePtr store, StoreOf(roots_pem));
  const StoreContextPtr context(X509_STORE_CTX_new());
  if (!context || X509_STORE_CTX_init(context.get(), store.get(), certificate.get(), nullptr) != 1)
    return OpenSslError("cannot check a certificate");
  X509_VERIFY_PARAM* param = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_purpose(
      param, side == Side::kDials ? X509_PURPOSE_SSL_CLIENT : X509_PURPOSE_SSL_SERVER);
  X509_VERIFY_PARAM_set_time(param, static_cast<time_t>(now_s));
  X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT);
  const bool good = X509_verify_cert(context.get()) == 1;
  const int error = X509_STORE_CTX_get_error(context.get());
  ERR_clear_error();
  if (!good) {
    return PermissionDenied("the certificate is refused: {}", X509_verify_cert_error_string(error));
  }
  const StatusOr<CertificateInfo> info = InfoOf(certificate.get());
  ERR_clear_error();
  if (!info.ok()) return Annotate(info.status(), "the certificate is refused");
  if (side == Side::kListens ? !Listens(info->name.role) : !Dials(info->name.role)) {
    return PermissionDenied("the certificate is refused: {} may not {}", info->name.Text(),
                            side == Side::kListens ? "serve" : "dial");
  }
  return info;
}

bool RenewalDue(const CertificateInfo& certificate, int64_t now_s) {
  const int64_t life = certificate.not_after_s - certificate.not_before_s;
  return now_s >= certificate.not_before_s + life / 3 * 2;
}

std::string DateOf(int64_t s) {
  const auto time = static_cast<time_t>(s);
  tm parts = {};
  gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min);
}

}  // namespace whet::pki
