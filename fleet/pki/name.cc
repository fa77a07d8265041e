#include "fleet/pki/name.h"

#include <algorithm>
#include <array>
#include <utility>

namespace whet::pki {
namespace {

constexpr std::string_view kScheme = "whet://";
constexpr std::array<std::pair<Role, std::string_view>, 5> kRoleNames = {
    {{Role::kAdmin, "admin"},
     {Role::kClient, "client"},
     {Role::kWorker, "worker"},
     {Role::kServer, "server"},
     {Role::kTracker, "tracker"}}};

}  // namespace

std::string_view RoleName(Role role) {
  for (const auto& [r, name] : kRoleNames) {
    if (r == role) return name;
  }
  return "none";
}

Role RoleOf(std::string_view name) {
  for (const auto& [role, n] : kRoleNames) {
    if (n == name) return role;
  }
  return Role::kNone;
}

std::string Name::Text() const { return fmt::format("{}/{}", RoleName(role), id); }

bool IsId(std::string_view text) {
  return !text.empty() && text.size() <= 63 && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

std::string Printable(std::string_view text) {
  std::string printable(text.substr(0, 100));
  std::replace_if(
      printable.begin(), printable.end(),
      [](char c) { return c < 32 || c > 126 || c == '"' || c == '\''; }, '?');
  return printable;
}

StatusOr<Name> ParseName(std::string_view text) {
  const size_t slash = text.find('/');
  const Name name{RoleOf(text.substr(0, slash)),
                  std::string(slash == std::string_view::npos ? "" : text.substr(slash + 1))};
  if (name.role == Role::kNone || !IsId(name.id)) {
    return InvalidArgument("'{}' is not ROLE/NAME: roles are {}, a name is {}", Printable(text),
                           kRoles, kIdRule);
  }
  return name;
}

std::string UriOf(const Name& name) { return std::string(kScheme) + name.Text(); }

StatusOr<Name> NameOfUri(std::string_view uri) {
  if (uri.substr(0, kScheme.size()) != kScheme)
    return InvalidArgument("the certificate's name '{}' does not begin with {}", Printable(uri),
                           kScheme);
  return ParseName(uri.substr(kScheme.size()));
}

}  // namespace whet::pki
