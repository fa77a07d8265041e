// A program's certificate in use: credentials of gRPC for listening and dialling, both of which
// check the other side's certificate in whole themselves (chain, dates, use, role, pinned id, deny
// list) on top of what TLS checked. Files of the bundle are read again when they change, so that a
// renewal and a denial take effect without a restart: handshakes see the new certificate, and
// connections of whom is denied, or whose certificate has ended, are closed (see gate.h). Two
// thirds into its life the certificate is said to be due, in the log, once a day. Thread-safe.
#pragma once
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/support/clock.h"
#include "compiler/support/status.h"
#include "fleet/pki/bundle.h"

namespace whet::rpc {

// Who is dialled. A tuner server serves a tracker too, with its own certificate; a tracker's does
// not make it a server.
enum class Peer { kServer, kTracker };

struct SecurityOptions {
  std::string dir;                       // the bundle
  std::string denied;                    // the deny list; empty: that of the bundle
  std::vector<pki::Role> roles;          // for which this program takes a bundle
  int64_t poll_ns = 500 * kMillisecond;  // how often files are looked at
  unsigned reload_s = 5;                 // how often gRPC's TLS does
};

class Security {
 public:
  // What the bundle lacks or has too much of, in words; see fleet/pki/bundle.h.
  static StatusOr<std::shared_ptr<Security>> Open(const SecurityOptions& options);
  ~Security();
  Security(const Security&) = delete;

  pki::CertificateInfo self() const;
  std::shared_ptr<grpc::ServerCredentials> ForListening() const;
  std::shared_ptr<grpc::ChannelCredentials> ForDialling(Peer peer) const;

  // PermissionDenied for whom the deny list has, and for what has ended.
  Status Admits(const pki::CertificateInfo& certificate) const;

 private:
  class Impl;
  explicit Security(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What every Security of this process admits: handlers see a call, not the listener that it came
// through.
Status AdmittedHere(const pki::CertificateInfo& certificate);

}  // namespace whet::rpc
