// SHA-256: the address of everything a peer sends (candidates, expected outputs). Unlike
// Fingerprint it resists forgery. Stateless; safe from any thread.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace whet {

std::string Sha256Hex(std::string_view bytes);  // 64 lower-case hex digits
bool IsSha256Hex(std::string_view text);        // so that it may be part of a file name

// Of bytes that come piece by piece. Owned by one thread.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(std::string_view bytes);
  std::string Hex() const;  // of what came so far

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace whet
