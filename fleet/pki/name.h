// Who a certificate is for: a role and an id, "worker/rack1" as text and "whet://worker/rack1" as
// the one subject alternative name of the certificate. Roles decide what may be called, ids tell
// holders apart. Pure functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"

namespace whet::pki {

enum class Role { kNone, kAdmin, kClient, kWorker, kServer, kTracker };

std::string_view RoleName(Role role);  // "worker"
// kNone for what is no role. InvalidArgument is the caller's to say: `kRoles` lists them.
Role RoleOf(std::string_view name);
inline constexpr const char* kRoles = "admin, client, worker, server, tracker";

// What listens shows a server's certificate, and a server dials trackers with it too.
inline bool Listens(Role role) { return role == Role::kServer || role == Role::kTracker; }
inline bool Dials(Role role) { return role != Role::kNone && role != Role::kTracker; }

struct Name {
  Role role = Role::kNone;
  std::string id;
  std::string Text() const;  // "worker/rack1"
  friend bool operator==(const Name&, const Name&) = default;
};

// 1 to 63 lower-case letters, digits and '-', the first no '-': safe in a file's name, a log line,
// a list with commas, and as what comes before the '.' of a worker's id.
bool IsId(std::string_view text);
inline constexpr const char* kIdRule =
    "1 to 63 lower-case letters, digits or '-', beginning with a letter or digit";

// What a stranger wrote, for a message or a log line: at most 100 bytes, and no control characters
// or quotes, which could make a line look like another.
std::string Printable(std::string_view text);

StatusOr<Name> ParseName(std::string_view text);  // of "worker/rack1"
std::string UriOf(const Name& name);
StatusOr<Name> NameOfUri(std::string_view uri);

}  // namespace whet::pki
