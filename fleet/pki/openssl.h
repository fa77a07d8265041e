// Owners of OpenSSL's objects, and its errors as a Status. For this folder only.
#pragma once
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

#include "compiler/support/status.h"

namespace whet::pki {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using X509Ptr = std::unique_ptr<X509, Free<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using BioPtr = std::unique_ptr<BIO, Free<BIO_free_all>>;
using StorePtr = std::unique_ptr<X509_STORE, Free<X509_STORE_free>>;
using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>>;
using ExtensionPtr = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using NamesPtr = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;

// Internal, with the first error that OpenSSL kept; the others are dropped.
Status OpenSslError(std::string_view doing);

// The first certificate, or private key, in a PEM text. InvalidArgument when there is none.
inline constexpr size_t kMaxPemBytes = 64 << 10;
StatusOr<X509Ptr> CertificateOf(std::string_view pem);
StatusOr<KeyPtr> KeyOf(std::string_view pem);
StatusOr<std::string> PemOf(X509* certificate);
StatusOr<std::string> PemOf(EVP_PKEY* key);  // PKCS #8, not encrypted

}  // namespace whet::pki
