#include "fleet/pki/openssl.h"

#include <openssl/err.h>
#include <openssl/pem.h>

namespace whet::pki {
namespace {

StatusOr<BioPtr> Reading(std::string_view pem) {
  if (pem.size() > kMaxPemBytes)
    return InvalidArgument("a PEM text of {} bytes; at most {} are read", pem.size(), kMaxPemBytes);
  BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  if (!bio) return OpenSslError("cannot read a PEM text");
  return bio;
}

StatusOr<std::string> Written(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  if (size <= 0) return OpenSslError("cannot write a PEM text");
  return std::string(data, static_cast<size_t>(size));
}

// A key that is protected by a passphrase must not make a server ask for one on its terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

}  // namespace

Status OpenSslError(std::string_view doing) {
  char text[200] = "no reason given";
  if (const unsigned long error = ERR_get_error(); error != 0)
    ERR_error_string_n(error, text, sizeof text);
  ERR_clear_error();
  return Internal("{}: {}", doing, text);
}

StatusOr<X509Ptr> CertificateOf(std::string_view pem) {
  WHET_ASSIGN_OR_RETURN(const BioPtr bio, Reading(pem));
  X509Ptr certificate(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (!certificate) return InvalidArgument("there is no certificate in the PEM text");
  return certificate;
}

StatusOr<KeyPtr> KeyOf(std::string_view pem) {
  WHET_ASSIGN_OR_RETURN(const BioPtr bio, Reading(pem));
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (!key) return InvalidArgument("there is no private key without passphrase in the PEM text");
  return key;
}

StatusOr<std::string> PemOf(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (!bio || PEM_write_bio_X509(bio.get(), certificate) != 1)
    return OpenSslError("cannot write a certificate");
  return Written(bio.get());
}

StatusOr<std::string> PemOf(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (!bio ||
      PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return OpenSslError("cannot write a private key");
  return Written(bio.get());
}

}  // namespace whet::pki
