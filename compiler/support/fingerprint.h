// 128-bit content fingerprint (two independently seeded 64-bit lanes of a multiply-rotate hash) for
// workloads, traces and programs. Stable across machines and releases: it is stored in tuning logs.
// Not cryptographic: content that a peer sends is addressed by SHA-256 instead.
#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/support/status.h"

namespace whet {

struct Fingerprint {
  uint64_t hi = 0;
  uint64_t lo = 0;
  friend auto operator<=>(const Fingerprint&, const Fingerprint&) = default;
  std::string Hex() const;  // 32 lower-case hex digits
};

Fingerprint FingerprintOf(std::string_view bytes);
StatusOr<Fingerprint> ParseFingerprint(std::string_view hex);

}  // namespace whet
