#include "proto/rpc/security_flags.h"

namespace whet::rpc {
namespace {

constexpr int64_t kMostConnections = 100'000;

}  // namespace

StatusOr<ListenOptions> ListeningWith(const SecurityFlags& flags, std::vector<pki::Role> roles) {
  ListenOptions options;
  if (flags.tls.empty() && !flags.deny.empty())
    return InvalidArgument("--deny has no use without --tls: names come from certificates");
  for (const auto& [flag, value] :
       {std::pair{"--max-connections", flags.max_connections},
        std::pair{"--max-connections-per-address", flags.max_per_address}}) {
    if (value < 1 || value > kMostConnections)
      return InvalidArgument("{} {}: 1 to {} are possible", flag, value, kMostConnections);
  }
  options.limits.max_connections = flags.max_connections;
  options.limits.max_per_address = flags.max_per_address;
  WHET_ASSIGN_OR_RETURN(options.security, DiallingWith(flags, std::move(roles)));
  return options;
}

StatusOr<std::shared_ptr<Security>> DiallingWith(const SecurityFlags& flags,
                                                 std::vector<pki::Role> roles) {
  if (flags.tls.empty()) return std::shared_ptr<Security>();
  SecurityOptions options;
  options.dir = flags.tls;
  options.denied = flags.deny;
  options.roles = std::move(roles);
  StatusOr<std::shared_ptr<Security>> security = Security::Open(options);
  if (!security.ok()) return Annotate(security.status(), "--tls");
  return security;
}

}  // namespace whet::rpc
