#include "proto/rpc/security.h"

#include <grpc/support/log.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <tuple>

#include "fleet/pki/deny_list.h"
#include "proto/rpc/sparing_log.h"

namespace whet::rpc {
namespace {

constexpr int64_t kSayAgain = 24 * 3600 * kSecond;

int64_t WallSeconds() { return RealClock().WallMs() / 1000; }

// Tells one version of a file from another; a file that is not there has one too.
using FileVersion = std::tuple<ino_t, off_t, int64_t, int64_t>;
FileVersion VersionOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

}  // namespace

// What the checks of a handshake need; outlives the Security for handshakes that are under way.
class Trust {
 public:
  Trust(pki::Bundle bundle, pki::DenyList denied)
      : bundle_(std::move(bundle)), denied_(std::move(denied)) {}

  void Set(pki::Bundle bundle) {
    const std::lock_guard lock(mu_);
    bundle_ = std::move(bundle);
  }
  void Set(pki::DenyList denied) {
    const std::lock_guard lock(mu_);
    denied_ = std::move(denied);
  }
  pki::CertificateInfo self() const {
    const std::lock_guard lock(mu_);
    return bundle_.self;
  }

  Status Admits(const pki::CertificateInfo& c) const {
    const std::lock_guard lock(mu_);
    return AdmitsLocked(c);
  }

  // The peer of a handshake. `roles`: it must have one of them.
  StatusOr<pki::CertificateInfo> Check(std::string_view pem, pki::Side side,
                                       const std::vector<pki::Role>& roles) const {
    const std::lock_guard lock(mu_);
    WHET_ASSIGN_OR_RETURN(pki::CertificateInfo c,
                          pki::VerifyCertificate(pem, bundle_.ca_pem, side, WallSeconds()));
    WHET_RETURN_IF_ERROR(AdmitsLocked(c));
    if (std::find(roles.begin(), roles.end(), c.name.role) == roles.end())
      return PermissionDenied("{} is of a role that is not expected here", c.name.Text());
    const auto& pins = bundle_.servers;
    if (side == pki::Side::kListens && !pins.empty() && !(c.name == bundle_.self.name) &&
        std::find(pins.begin(), pins.end(), c.name.id) == pins.end()) {
      return PermissionDenied("{} is not one of the servers in '{}'", c.name.Text(),
                              pki::ServersPath(bundle_.dir));
    }
    return c;
  }

 private:
  Status AdmitsLocked(const pki::CertificateInfo& c) const {
    if (denied_.Denies(c)) return PermissionDenied("{} is denied", c.name.Text());
    if (WallSeconds() > c.not_after_s)
      return PermissionDenied("the certificate of {} ended on {}", c.name.Text(),
                              pki::DateOf(c.not_after_s));
    return OkStatus();
  }

  mutable std::mutex mu_;
  pki::Bundle bundle_;
  pki::DenyList denied_;
};

namespace {

class PeerVerifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  PeerVerifier(std::shared_ptr<const Trust> trust, pki::Side side, std::vector<pki::Role> roles)
      : trust_(std::move(trust)), side_(side), roles_(std::move(roles)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* sync_status) override {
    const grpc::string_ref pem = request->peer_cert();
    const StatusOr<pki::CertificateInfo> c = trust_->Check({pem.data(), pem.size()}, side_, roles_);
    if (!c.ok()) {
      static SparingLog log;
      if (const auto left_out = log.Next())
        spdlog::warn("event=peer_refused reason=\"{}\" left_out={}", Message(c.status()),
                     *left_out);
      *sync_status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, Message(c.status()));
    }
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::shared_ptr<const Trust> trust_;
  const pki::Side side_;
  const std::vector<pki::Role> roles_;
};

// gRPC's server says it of every handshake, as its certificate names no host; it would use up what
// the sparing log has for errors.
constexpr std::string_view kSaidAlways = "No match found for server name";

void LogOfGrpc(gpr_log_func_args* args) {
  static SparingLog log;
  if (std::string_view(args->message).substr(0, kSaidAlways.size()) == kSaidAlways) return;
  if (const auto left_out = log.Next())
    spdlog::warn("event=grpc place={}:{} text=\"{}\" left_out={}", args->file, args->line,
                 pki::Printable(args->message), *left_out);
}

std::mutex live_mu;
// Never destroyed: a Security may live as long as the process.
std::set<const Security*>& Live() {
  static auto& live = *new std::set<const Security*>;
  return live;
}

}  // namespace

class Security::Impl {
 public:
  Impl(const SecurityOptions& options, std::string denied_path, std::shared_ptr<Trust> trust)
      : options_(options),
        denied_path_(std::move(denied_path)),
        trust_(std::move(trust)),
        provider_(std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
            pki::IdentityPath(options.dir), pki::IdentityPath(options.dir),
            pki::CaPath(options.dir), options.reload_s)) {}

  ~Impl() {
    {
      const std::lock_guard lock(mu_);
      stopping_ = true;
      wake_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  // What the bundle and the list were read from is taken before they are read.
  void Start(FileVersion identity, FileVersion ca, FileVersion servers, FileVersion denied) {
    identity_ = identity;
    ca_ = ca;
    servers_ = servers;
    denied_ = denied;
    SayWhenDue();
    thread_ = std::thread([this] { Run(); });
  }

  const SecurityOptions options_;
  const std::string denied_path_;
  const std::shared_ptr<Trust> trust_;
  const std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;

 private:
  void Run() {
    std::unique_lock lock(mu_);
    while (!stopping_) {
      wake_.wait_for(lock, std::chrono::nanoseconds(options_.poll_ns));
      if (stopping_) return;
      ReadAgain();
      SayWhenDue();
    }
  }

  void ReadAgain() {
    const std::string& dir = options_.dir;
    if (const FileVersion v = VersionOf(denied_path_); v != denied_) {
      denied_ = v;
      StatusOr<pki::DenyList> list = pki::DenyList::Read(denied_path_);
      if (list.ok()) {
        spdlog::info("event=deny_list_read entries={}", list->size());
        trust_->Set(*std::move(list));
      } else {
        spdlog::error("event=deny_list_not_read error=\"{}\" kept=\"the list of before\"",
                      Message(list.status()));
      }
    }
    const FileVersion identity = VersionOf(pki::IdentityPath(dir)),
                      ca = VersionOf(pki::CaPath(dir)), servers = VersionOf(pki::ServersPath(dir));
    if (identity == identity_ && ca == ca_ && servers == servers_) return;
    identity_ = identity;
    ca_ = ca;
    servers_ = servers;
    StatusOr<pki::Bundle> bundle = pki::LoadBundle(dir, options_.roles, WallSeconds());
    if (!bundle.ok()) {
      spdlog::error("event=bundle_not_read error=\"{}\" kept=\"the one of before\"",
                    Message(bundle.status()));
      return;
    }
    spdlog::info("event=bundle_read name={} serial={} until=\"{}\"", bundle->self.name.Text(),
                 bundle->self.serial, pki::DateOf(bundle->self.not_after_s));
    trust_->Set(*std::move(bundle));
    said_ns_.reset();
  }

  void SayWhenDue() {
    const pki::CertificateInfo self = trust_->self();
    const int64_t now = WallSeconds(), mono = MonotonicNs();
    if (!pki::RenewalDue(self, now) || (said_ns_ && mono - *said_ns_ < kSayAgain)) return;
    said_ns_ = mono;
    spdlog::warn(
        "event=certificate_due name={} days_left={} until=\"{}\" renew=\"whet pki renew {} {}\"",
        self.name.Text(), (self.not_after_s - now) / (24 * 3600), pki::DateOf(self.not_after_s),
        pki::RoleName(self.name.role), self.name.id);
  }

  std::mutex mu_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
  // Of the thread, once it runs.
  FileVersion identity_, ca_, servers_, denied_;
  std::optional<int64_t> said_ns_;
};

StatusOr<std::shared_ptr<Security>> Security::Open(const SecurityOptions& options) {
  const std::string denied_path =
      options.denied.empty() ? pki::DeniedPath(options.dir) : options.denied;
  const FileVersion identity = VersionOf(pki::IdentityPath(options.dir)),
                    ca = VersionOf(pki::CaPath(options.dir)),
                    servers = VersionOf(pki::ServersPath(options.dir)),
                    denied = VersionOf(denied_path);
  WHET_ASSIGN_OR_RETURN(pki::Bundle bundle,
                        pki::LoadBundle(options.dir, options.roles, WallSeconds()));
  if (!options.denied.empty() && denied == FileVersion())
    return NotFound("there is no deny list '{}'; an empty file denies nobody", options.denied);
  WHET_ASSIGN_OR_RETURN(pki::DenyList list, pki::DenyList::Read(denied_path));
  auto impl = std::make_unique<Impl>(options, denied_path,
                                     std::make_shared<Trust>(std::move(bundle), std::move(list)));
  impl->Start(identity, ca, servers, denied);
  return std::shared_ptr<Security>(new Security(std::move(impl)));
}

Security::Security(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  const std::lock_guard lock(live_mu);
  Live().insert(this);
}

Security::~Security() {
  const std::lock_guard lock(live_mu);
  Live().erase(this);
}

void LogGrpcSparingly() { gpr_set_log_function(LogOfGrpc); }

pki::CertificateInfo Security::self() const { return impl_->trust_->self(); }

Status Security::Admits(const pki::CertificateInfo& certificate) const {
  return impl_->trust_->Admits(certificate);
}

std::shared_ptr<grpc::ServerCredentials> Security::ForListening() const {
  grpc::experimental::TlsServerCredentialsOptions options(impl_->provider_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<PeerVerifier>(
          impl_->trust_, pki::Side::kDials,
          std::vector<pki::Role>{pki::Role::kAdmin, pki::Role::kClient, pki::Role::kWorker,
                                 pki::Role::kServer}));
  return grpc::experimental::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> Security::ForDialling(Peer peer) const {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(impl_->provider_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  // Certificates name ids, not hosts: boards move, and a host's name is not proof of anything here.
  options.set_check_call_host(false);
  std::vector<pki::Role> roles = {pki::Role::kServer};
  if (peer == Peer::kTracker) roles.push_back(pki::Role::kTracker);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<PeerVerifier>(
          impl_->trust_, pki::Side::kListens, std::move(roles)));
  return grpc::experimental::TlsCredentials(options);
}

Status AdmittedHere(const pki::CertificateInfo& certificate) {
  const std::lock_guard lock(live_mu);
  for (const Security* security : Live()) WHET_RETURN_IF_ERROR(security->Admits(certificate));
  return OkStatus();
}

}  // namespace whet::rpc
