// Rules for names that people choose and peers send. Pure functions.
#pragma once
#include <algorithm>
#include <string_view>

namespace whet {

// What devices are asked for by: 1 to 64 letters, digits, '.', '_' or '-'.
inline bool IsDeviceKey(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}
inline constexpr const char* kDeviceKeyRule = "1 to 64 letters, digits, '.', '_' or '-'";

}  // namespace whet
