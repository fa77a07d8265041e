#include "compiler/graph/attrs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace whet::graph {
namespace {

auto LowerBound(std::string_view name) {
  return [name](const std::pair<std::string, AttrValue>& e) { return e.first < name; };
}

template <typename T>
const T& Get(const Attrs& attrs, std::string_view name) {
  const AttrValue* v = attrs.Find(name);
  WHET_CHECK(v != nullptr && std::holds_alternative<T>(*v), "attribute '{}'", name);
  return std::get<T>(*v);
}

std::string Format(const AttrValue& v) {
  switch (TypeOf(v)) {
    case AttrType::kInt: return std::to_string(std::get<int64_t>(v));
    case AttrType::kFloat: return FormatFloat(std::get<double>(v));
    case AttrType::kString: return Quote(std::get<std::string>(v));
    case AttrType::kInts:
      return fmt::format("[{}]", fmt::join(std::get<std::vector<int64_t>>(v), ","));
    case AttrType::kFloats: {
      const auto& list = std::get<std::vector<double>>(v);
      if (list.empty()) return "f[]";
      std::string s = "[";
      for (size_t i = 0; i < list.size(); ++i) s += (i ? "," : "") + FormatFloat(list[i]);
      return s + "]";
    }
  }
  return "";
}

// An integer, or a float when the text has a point, an exponent, or spells inf or nan.
StatusOr<AttrValue> ParseNumber(Scanner& in) {
  const bool negative = in.Peek("-");
  const std::string_view rest = in.Rest();
  const size_t end = rest.find_first_not_of("+-.0123456789abcdefinx", 0);
  const std::string_view token = rest.substr(0, end);
  const std::string_view body = token.substr(negative && !token.empty() ? 1 : 0);
  if (body == "inf" || body == "nan") {
    in.Advance(token.size());
    const double v = body == "inf" ? HUGE_VAL : std::nan("");
    return AttrValue(negative ? -v : v);
  }
  if (token.find_first_of(".e") == std::string_view::npos) {
    WHET_ASSIGN_OR_RETURN(int64_t v, in.Integer());
    return AttrValue(v);
  }
  double v = 0;
  const auto [stop, error] = std::from_chars(token.data(), token.data() + token.size(), v);
  if (error != std::errc()) return in.Error("expected a number");
  in.Advance(static_cast<size_t>(stop - token.data()));
  return AttrValue(v);
}

StatusOr<AttrValue> ParseList(Scanner& in) {
  std::vector<int64_t> ints;
  std::vector<double> floats;
  while (!in.Accept("]")) {
    if (!ints.empty() || !floats.empty()) WHET_RETURN_IF_ERROR(in.Expect(","));
    WHET_ASSIGN_OR_RETURN(AttrValue v, ParseNumber(in));
    if (const auto* i = std::get_if<int64_t>(&v)) {
      ints.push_back(*i);
    } else {
      floats.push_back(std::get<double>(v));
    }
    if (!ints.empty() && !floats.empty()) return in.Error("a list mixes integers and floats");
  }
  if (!floats.empty()) return AttrValue(std::move(floats));
  return AttrValue(std::move(ints));
}

}  // namespace

std::string_view ToString(AttrType t) {
  switch (t) {
    case AttrType::kInt: return "integer";
    case AttrType::kFloat: return "float";
    case AttrType::kString: return "string";
    case AttrType::kInts: return "list of integers";
    case AttrType::kFloats: return "list of floats";
  }
  return "?";
}

std::string FormatFloat(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  std::string s = fmt::format("{}", v);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

StatusOr<AttrValue> ParseAttrValue(Scanner& in) {
  if (in.Peek("\"")) {
    WHET_ASSIGN_OR_RETURN(std::string s, in.Quoted());
    return AttrValue(std::move(s));
  }
  if (in.Accept("f[")) {
    WHET_RETURN_IF_ERROR(in.Expect("]"));
    return AttrValue(std::vector<double>());
  }
  if (in.Accept("[")) return ParseList(in);
  return ParseNumber(in);
}

const AttrValue* Attrs::Find(std::string_view name) const {
  auto it = std::partition_point(entries_.begin(), entries_.end(), LowerBound(name));
  return it != entries_.end() && it->first == name ? &it->second : nullptr;
}

void Attrs::Set(std::string_view name, AttrValue value) {
  auto it = std::partition_point(entries_.begin(), entries_.end(), LowerBound(name));
  if (it != entries_.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    entries_.emplace(it, std::string(name), std::move(value));
  }
}

void Attrs::Erase(std::string_view name) {
  std::erase_if(entries_, [&](const auto& e) { return e.first == name; });
}

int64_t Attrs::Int(std::string_view name) const { return Get<int64_t>(*this, name); }
double Attrs::Float(std::string_view name) const { return Get<double>(*this, name); }
const std::string& Attrs::Str(std::string_view name) const { return Get<std::string>(*this, name); }
const std::vector<int64_t>& Attrs::Ints(std::string_view name) const {
  return Get<std::vector<int64_t>>(*this, name);
}
const std::vector<double>& Attrs::Floats(std::string_view name) const {
  return Get<std::vector<double>>(*this, name);
}

std::string Attrs::ToString() const {
  if (entries_.empty()) return "";
  std::string s = "{";
  for (size_t i = 0; i < entries_.size(); ++i)
    s += (i ? ", " : "") + entries_[i].first + "=" + Format(entries_[i].second);
  return s + "}";
}

StatusOr<Attrs> Attrs::Parse(Scanner& in) {
  Attrs attrs;
  if (!in.Accept("{")) return attrs;
  while (!in.Accept("}")) {
    if (!attrs.empty()) WHET_RETURN_IF_ERROR(in.Expect(","));
    WHET_ASSIGN_OR_RETURN(std::string name, in.Word());
    WHET_RETURN_IF_ERROR(in.Expect("="));
    WHET_ASSIGN_OR_RETURN(AttrValue v, ParseAttrValue(in));
    if (attrs.Find(name) != nullptr) return in.Error(fmt::format("attribute '{}' twice", name));
    attrs.Set(name, std::move(v));
  }
  return attrs;
}

}  // namespace whet::graph
