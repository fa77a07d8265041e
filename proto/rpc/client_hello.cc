#include "proto/rpc/client_hello.h"

#include <cstdint>

namespace whet::rpc {
namespace {

constexpr uint8_t kHandshakeRecord = 22, kClientHello = 1;
constexpr size_t kRecordHeader = 5, kHandshakeHeader = 4;
constexpr uint16_t kSupportedVersions = 43, kTls13 = 0x0304;

// Reads big-endian numbers and lengths off the front; once it ran out, `ok` stays false.
struct HelloReader {
  std::string_view bytes;
  bool ok = true;

  uint32_t Number(int size) {
    uint32_t value = 0;
    for (const char c : Take(static_cast<size_t>(size)))
      value = value << 8 | static_cast<uint8_t>(c);
    return value;
  }
  std::string_view Take(size_t n) {
    if (n > bytes.size()) {
      ok = false;
      n = 0;
    }
    const std::string_view taken = bytes.substr(0, n);
    bytes.remove_prefix(n);
    return taken;
  }
  // What a length of `size` bytes stands in front of.
  std::string_view Counted(int size) { return Take(Number(size)); }
};

bool OffersTls13(std::string_view versions) {
  HelloReader list{versions};
  HelloReader reader{list.Counted(1)};
  while (reader.ok && !reader.bytes.empty()) {
    if (reader.Number(2) == kTls13 && reader.ok) return true;
  }
  return false;
}

}  // namespace

Hello InspectHello(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  // As soon as a byte is wrong, so that nobody waits for the rest of an HTTP request.
  if (!bytes.empty() && at(0) != kHandshakeRecord) return Hello::kNotTls;
  if (bytes.size() > 1 && at(1) != 3) return Hello::kNotTls;
  if (bytes.size() < kRecordHeader) return Hello::kMore;
  const size_t record = static_cast<size_t>(at(3)) << 8 | at(4);
  if (record < kHandshakeHeader || record > kMaxHelloBytes - kRecordHeader) return Hello::kNotTls;
  if (bytes.size() > kRecordHeader && at(kRecordHeader) != kClientHello) return Hello::kNotTls;
  if (bytes.size() < kRecordHeader + record) return Hello::kMore;
  HelloReader outer{bytes.substr(kRecordHeader + 1, record - 1)};
  HelloReader hello{outer.Counted(3)};
  hello.Take(2 + 32);  // the version of before 1.3, and the random number
  hello.Counted(1);    // session
  hello.Counted(2);    // ciphers
  hello.Counted(1);    // compressions
  if (!outer.ok || !hello.ok) return Hello::kNotTls;
  if (hello.bytes.empty()) return Hello::kOldTls;  // before extensions
  HelloReader extensions{hello.Counted(2)};
  while (hello.ok && extensions.ok && !extensions.bytes.empty()) {
    const uint32_t type = extensions.Number(2);
    const std::string_view body = extensions.Counted(2);
    if (extensions.ok && type == kSupportedVersions && OffersTls13(body)) return Hello::kTls13;
  }
  return hello.ok && extensions.ok ? Hello::kOldTls : Hello::kNotTls;
}

}  // namespace whet::rpc
