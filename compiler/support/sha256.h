// SHA-256: the address of everything a peer sends (candidates, expected outputs). Unlike
// Fingerprint it resists forgery. Stateless; safe from any thread.
#pragma once
#include <string>
#include <string_view>

namespace whet {

std::string Sha256Hex(std::string_view bytes);  // 64 lower-case hex digits
bool IsSha256Hex(std::string_view text);        // so that it may be part of a file name

}  // namespace whet
