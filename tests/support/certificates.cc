#include "tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include <cstdlib>
#include <filesystem>

#include "compiler/support/env.h"

namespace whet::testing {
namespace {

template <typename T, typename Read>
T* FromFile(const std::string& path, Read read) {
  BIO* bio = BIO_new_file(path.c_str(), "r");
  WHET_CHECK(bio, "cannot read {}", path);
  T* object = read(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  return object;
}

}  // namespace

Folder::Folder() {
  std::string name = "/tmp/whet-test-XXXXXX";
  WHET_CHECK(mkdtemp(name.data()), "cannot make a folder");
  path_ = name;
}
Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string MakeIdentity(const CertificateSpec& spec) {
  EVP_PKEY* key = spec.key == "RSA" ? EVP_RSA_gen(2048) : EVP_EC_gen(spec.key.c_str());
  X509* x = X509_new();
  X509* issuer = x;
  EVP_PKEY* signer = key;
  if (!spec.ca_dir.empty()) {
    issuer = FromFile<X509>(spec.ca_dir + "/ca.pem", PEM_read_bio_X509);
    signer = FromFile<EVP_PKEY>(spec.ca_dir + "/ca.key", PEM_read_bio_PrivateKey);
  }
  X509_set_version(x, 2);
  BIGNUM* serial = nullptr;
  BN_hex2bn(&serial, ("1" + RandomHex(8)).c_str());
  BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(x));
  BN_free(serial);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
  ASN1_TIME_set(X509_getm_notBefore(x), spec.not_before_s);
  ASN1_TIME_set(X509_getm_notAfter(x), spec.not_after_s);
  X509_set_pubkey(x, key);
  X509_set_issuer_name(x, X509_get_subject_name(issuer));
  std::string names;
  for (const std::string& n : spec.names) names += (names.empty() ? "" : ",") + n;
  const auto extend = [&](int nid, const std::string& value) {
    if (value.empty()) return;
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, x, nullptr, nullptr, 0);
    X509_EXTENSION* e = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
    WHET_CHECK(e, "cannot make the extension {}", value);
    X509_add_ext(x, e, -1);
    X509_EXTENSION_free(e);
  };
  extend(NID_basic_constraints, spec.constraints);
  extend(NID_key_usage, spec.key_usage);
  extend(NID_ext_key_usage, spec.uses);
  extend(NID_subject_alt_name, names);
  extend(NID_subject_key_identifier, "hash");
  if (!spec.ca_dir.empty()) extend(NID_authority_key_identifier, "keyid:always");
  WHET_CHECK(X509_sign(x, signer, EVP_sha256()) > 0, "cannot sign");
  BIO* out = BIO_new(BIO_s_mem());
  PEM_write_bio_PKCS8PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  PEM_write_bio_X509(out, x);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out, &data);
  std::string pem(data, static_cast<size_t>(size));
  BIO_free(out);
  if (issuer != x) {
    X509_free(issuer);
    EVP_PKEY_free(signer);
  }
  X509_free(x);
  EVP_PKEY_free(key);
  return pem;
}

}  // namespace whet::testing
