// Attributes of a node: a small sorted map of typed values. Text: `{axis=1, alpha=0.5, mode="x",
// pads=[0,1]}`; a float always shows a point, exponent, inf or nan, so that printing and parsing
// agree on the type; `[]` is a list of integers and `f[]` one of floats.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/graph/scanner.h"

namespace whet::graph {

// The order of the alternatives is that of AttrType.
using AttrValue =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;
enum class AttrType : uint8_t { kInt, kFloat, kString, kInts, kFloats };
inline AttrType TypeOf(const AttrValue& v) { return static_cast<AttrType>(v.index()); }
std::string_view ToString(AttrType t);

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const char*, AttrValue>> list) {
    for (const auto& [name, value] : list) Set(name, value);
  }
  const AttrValue* Find(std::string_view name) const;
  void Set(std::string_view name, AttrValue value);
  void Erase(std::string_view name);
  // The value, which must be there with that type (a bug otherwise: records fill in every
  // attribute).
  int64_t Int(std::string_view name) const;
  double Float(std::string_view name) const;
  const std::string& Str(std::string_view name) const;
  const std::vector<int64_t>& Ints(std::string_view name) const;
  const std::vector<double>& Floats(std::string_view name) const;

  const std::vector<std::pair<std::string, AttrValue>>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  std::string ToString() const;               // "" when empty
  static StatusOr<Attrs> Parse(Scanner& in);  // after the opening brace has been seen, or nothing
  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  std::vector<std::pair<std::string, AttrValue>> entries_;  // sorted by name
};

std::string FormatFloat(double v);  // shortest text that reads back as `v` and is no integer
StatusOr<AttrValue> ParseAttrValue(Scanner& in);

}  // namespace whet::graph
