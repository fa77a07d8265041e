#include "compiler/support/sha256.h"

#include <openssl/evp.h>

#include "compiler/support/status.h"

namespace whet {
namespace {

std::string HexDigits(const unsigned char* digest, unsigned int size) {
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += "0123456789abcdef"[digest[i] >> 4];
    hex += "0123456789abcdef"[digest[i] & 15];
  }
  return hex;
}

}  // namespace

std::string Sha256Hex(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  WHET_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) == 1 &&
                 size == 32,
             "SHA-256 failed");
  return HexDigits(digest, size);
}

bool IsSha256Hex(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

struct Sha256::Context {
  Context() : digest(EVP_MD_CTX_new()) {}
  ~Context() { EVP_MD_CTX_free(digest); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  EVP_MD_CTX* const digest;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  WHET_CHECK(context_->digest != nullptr &&
                 EVP_DigestInit_ex(context_->digest, EVP_sha256(), nullptr) == 1,
             "SHA-256 failed");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::string_view bytes) {
  WHET_CHECK(EVP_DigestUpdate(context_->digest, bytes.data(), bytes.size()) == 1, "SHA-256 failed");
}

std::string Sha256::Hex() const {
  const Context copy;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  WHET_CHECK(copy.digest != nullptr && EVP_MD_CTX_copy_ex(copy.digest, context_->digest) == 1 &&
                 EVP_DigestFinal_ex(copy.digest, digest, &size) == 1 && size == 32,
             "SHA-256 failed");
  return HexDigits(digest, size);
}

}  // namespace whet
