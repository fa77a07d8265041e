// Names that people choose, mistype and peers send. Pure functions.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace whet {

// What devices are asked for by: 1 to 64 letters, digits, '.', '_' or '-'.
inline bool IsDeviceKey(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}
inline constexpr const char* kDeviceKeyRule = "1 to 64 letters, digits, '.', '_' or '-'";

// " (did you mean '--threads'?)" when one of `known` is close to `given`, else "".
std::string Suggestion(std::string_view given, const std::vector<std::string>& known);

// "a, b, c", or "a, b and 7 more" where they are too many to be read.
std::string ListOf(const std::vector<std::string>& names);

}  // namespace whet
