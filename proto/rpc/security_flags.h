// The flags by which a program gets its certificate and its limits, the same in all of them. The
// templates take a CLI::App without this folder knowing of it.
#pragma once
#include <string>
#include <vector>

#include "proto/rpc/endpoint.h"

namespace whet::rpc {

struct SecurityFlags {
  std::string tls, deny;
  int64_t max_connections = Limits().max_connections;
  int64_t max_per_address = Limits().max_per_address;
};

template <typename App>
void AddBundleFlag(App& app, SecurityFlags* flags) {
  app.add_option("--tls", flags->tls,
                 "folder of a bundle of `whet pki issue`: TLS with certificates on both sides; "
                 "without it everything is on loopback");
}

template <typename App>
void AddListenerFlags(App& app, SecurityFlags* flags) {
  AddBundleFlag(app, flags);
  app.add_option("--deny", flags->deny,
                 "list of names and serials that are not admitted, read again when it changes "
                 "(default: the file 'denied' of the bundle)");
  app.add_option("--max-connections", flags->max_connections,
                 "with --tls: open connections of a port")
      ->capture_default_str();
  app.add_option("--max-connections-per-address", flags->max_per_address,
                 "with --tls: of these, from one address")
      ->capture_default_str();
}

// None without --tls. InvalidArgument for flags that have no use without it, or bounds that are
// none; else as Security::Open.
StatusOr<ListenOptions> ListeningWith(const SecurityFlags& flags, std::vector<pki::Role> roles);
StatusOr<std::shared_ptr<Security>> DiallingWith(const SecurityFlags& flags,
                                                 std::vector<pki::Role> roles);

}  // namespace whet::rpc
