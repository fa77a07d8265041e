#include "compiler/support/fingerprint.h"

#include <bit>
#include <cstring>

namespace whet {
namespace {

uint64_t Mix(uint64_t h) {  // the finalizer of MurmurHash3 (Appleby, public domain constants)
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdULL;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53ULL;
  return h ^ (h >> 33);
}

uint64_t Lane(std::string_view s, uint64_t seed) {
  uint64_t h = seed ^ (s.size() * 0x9e3779b97f4a7c15ULL);
  size_t i = 0;
  for (; i + 8 <= s.size(); i += 8) {
    uint64_t w = 0;
    std::memcpy(&w, s.data() + i, 8);
    h = std::rotl(h ^ Mix(w + seed), 27) * 5 + 0x52dce729;
  }
  uint64_t tail = 0;
  if (i < s.size()) std::memcpy(&tail, s.data() + i, s.size() - i);
  return Mix(h ^ Mix(tail ^ seed));
}

}  // namespace

std::string Fingerprint::Hex() const { return fmt::format("{:016x}{:016x}", hi, lo); }

Fingerprint FingerprintOf(std::string_view bytes) {
  return {Lane(bytes, 0x243f6a8885a308d3ULL), Lane(bytes, 0x13198a2e03707344ULL)};
}

StatusOr<Fingerprint> ParseFingerprint(std::string_view hex) {
  if (hex.size() != 32) {
    return InvalidArgument("fingerprint '{}' has {} digits, expected 32", hex, hex.size());
  }
  uint64_t part[2] = {0, 0};
  for (size_t i = 0; i < 32; ++i) {
    const char c = hex[i];
    const int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (v < 0) return InvalidArgument("fingerprint '{}' has the non-hex character '{}'", hex, c);
    part[i / 16] = part[i / 16] << 4 | static_cast<uint64_t>(v);
  }
  return Fingerprint{part[0], part[1]};
}

}  // namespace whet
