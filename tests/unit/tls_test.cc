// A port with certificates, from outside: whom it lets in, whom it turns away and how early, and
// what happens to those who are inside when they are denied, or their certificate ends.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <functional>
#include <mutex>
#include <sstream>
#include <thread>

#include "compiler/support/env.h"
#include "fleet/pki/authority.h"
#include "proto/rpc/access.h"
#include "proto/rpc/client_stream.h"
#include "proto/rpc/endpoint.h"
#include "proto/rpc/server_streams.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/tuner.grpc.pb.h"
#include "tests/support/certificates.h"

namespace whet::rpc {
namespace {

using pki::Authority;
using testing::CertificateSpec;
using testing::Folder;
using ::testing::HasSubstr;
using testing::MakeIdentity;

int64_t WallSeconds() { return static_cast<int64_t>(time(nullptr)); }

template <typename F>
bool Within(int64_t limit_ns, F&& condition) {
  const int64_t until = MonotonicNs() + limit_ns;
  while (!condition()) {
    if (MonotonicNs() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

class CountingTuner final : public v1::Tuner::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context, const v1::GetInfoRequest*,
                                    v1::ServerInfo* reply) override {
    ++calls;
    auto* reactor = context->DefaultReactor();
    Principal by;
    const grpc::Status allowed = Authorize(*context, "/whet.v1.Tuner/GetInfo", &by);
    reply->set_server_id(by.id);
    reactor->Finish(allowed);
    return reactor;
  }
  std::atomic<int> calls{0};
};

// Answers every heartbeat.
class EchoTracker final : public v1::Tracker::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachReply>* Attach(
      grpc::CallbackServerContext* context) override {
    Principal by;
    const grpc::Status allowed = Authorize(*context, "/whet.v1.Tracker/Attach", &by);
    return streams.Accept(allowed, std::move(by));
  }
  ServerStreams<v1::AttachRequest, v1::AttachReply> streams{
      [this](uint64_t session, v1::AttachRequest m) {
        ++messages;
        if (m.has_heartbeat()) streams.Send(session, v1::AttachReply());
      },
      [](uint64_t) {}, 100,
      [](const Principal& by, const v1::AttachRequest& m) {
        return m.has_register_() ? CheckOwnDevice(by, m.register_().device().worker_id(),
                                                  m.register_().device().device_id())
                                 : OkStatus();
      }};
  std::atomic<int> messages{0};
};

// A stream of one worker, from the outside.
class Attached {
 public:
  Attached(const std::string& address, const Security* security)
      : Attached(Dial(address, security, Peer::kTracker)) {}
  explicit Attached(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::Tracker::NewStub(channel)) {
    stream_ = ClientStream<v1::AttachRequest, v1::AttachReply>::Start(
        [this](grpc::ClientContext* c, auto* reactor) { stub_->async()->Attach(c, reactor); },
        [this](const v1::AttachReply&) { ++replies; },
        [this](const grpc::Status& s) {
          status = s;
          ended = true;
        });
  }
  ~Attached() {
    stream_->Cancel();
    EXPECT_TRUE(Within(10 * kSecond, [&] { return ended.load(); }));
  }
  void Beat() {
    v1::AttachRequest m;
    m.mutable_heartbeat();
    stream_->Send(std::move(m));
  }
  void Register(const std::string& worker) {
    v1::AttachRequest m;
    m.mutable_register_()->mutable_device()->set_worker_id(worker);
    m.mutable_register_()->mutable_device()->set_device_id(worker + "/cpu0");
    stream_->Send(std::move(m));
  }
  // Whether a message is answered.
  bool Lives() {
    const int before = replies;
    Beat();
    return Within(10 * kSecond, [&] { return replies > before || ended; }) && !ended;
  }

  std::atomic<int> replies{0};
  std::atomic<bool> ended{false};
  grpc::Status status;  // once ended

 private:
  std::unique_ptr<v1::Tracker::Stub> stub_;
  std::shared_ptr<ClientStream<v1::AttachRequest, v1::AttachReply>> stream_;
};

int Connected(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  timeval limit = {5, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return fd;
}

// What comes back after these bytes, until the other side ends the connection; "timeout" when it
// does not within five seconds.
std::string AfterPlain(const std::string& address, const std::string& bytes) {
  const int fd = Connected(address);
  std::string received;
  if (bytes.empty() ||
      send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size())) {
    char buffer[4096];
    while (true) {
      const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) received += "timeout";
      if (n <= 0) break;
      received.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return received;
}

struct RawClient {
  std::string identity;  // PEM of key and certificate; empty: none
  int least = TLS1_3_VERSION, most = TLS1_3_VERSION;
  std::string alpn = "\x02h2";
  std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9);
  bool to_the_end = false;  // reads until the other side ends the connection
};

// The first bytes of data after a handshake by hand; empty when there were none.
std::string AfterTls(const std::string& address, const RawClient& c) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_security_level(context, 0);
  SSL_CTX_set_min_proto_version(context, c.least);
  SSL_CTX_set_max_proto_version(context, c.most);
  SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
  if (!c.identity.empty()) {
    BIO* bio = BIO_new_mem_buf(c.identity.data(), static_cast<int>(c.identity.size()));
    EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    X509* x = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    EXPECT_EQ(SSL_CTX_use_certificate(context, x), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context, key), 1);
    X509_free(x);
    EVP_PKEY_free(key);
    BIO_free(bio);
  }
  if (!c.alpn.empty())
    SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(c.alpn.data()),
                            static_cast<unsigned>(c.alpn.size()));
  const int fd = Connected(address);
  SSL* ssl = SSL_new(context);
  SSL_set_fd(ssl, fd);
  std::string received;
  if (SSL_connect(ssl) == 1) {
    SSL_write(ssl, c.bytes.data(), static_cast<int>(c.bytes.size()));
    char buffer[4096];
    int n = 0;
    do {
      n = SSL_read(ssl, buffer, sizeof buffer);
      if (n > 0) received.append(buffer, static_cast<size_t>(n));
    } while (n > 0 && c.to_the_end);
  }
  ERR_clear_error();
  SSL_free(ssl);
  SSL_CTX_free(context);
  close(fd);
  return received;
}

bool IsHttp2(const std::string& received) { return received.size() >= 9 && received[3] == 4; }

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    signal(SIGPIPE, SIG_IGN);  // OpenSSL writes with write()
    StatusOr<Authority> ca = Authority::Init(ca_dir_, pki::kCaDays, WallSeconds());
    EXPECT_TRUE(ca.ok()) << ca.status();
    for (const auto& [role, id] :
         {std::pair{Role::kServer, "lab"}, std::pair{Role::kTracker, "registry"},
          std::pair{Role::kClient, "alice"}, std::pair{Role::kClient, "bob"},
          std::pair{Role::kWorker, "rack1"}, std::pair{Role::kWorker, "rack2"},
          std::pair{Role::kAdmin, "root"}}) {
      const Status s = ca->Issue({.name = {role, id}}, WallSeconds()).status();
      EXPECT_TRUE(s.ok()) << s;
    }
    limits_.hello_ns = kSecond;
    limits_.authorize_ns = 2 * kSecond;
  }
  ~TlsTest() override { listener_.Stop(std::chrono::seconds(1)); }

  std::string BundleOf(Role role, const std::string& id) const {
    return fmt::format("{}/bundles/{}-{}", ca_dir_, pki::RoleName(role), id);
  }
  std::shared_ptr<Security> Open(Role role, const std::string& id) {
    SecurityOptions options;
    options.dir = BundleOf(role, id);
    options.roles = {role};
    options.poll_ns = 50 * kMillisecond;
    options.reload_s = 1;
    StatusOr<std::shared_ptr<Security>> security = Security::Open(options);
    EXPECT_TRUE(security.ok()) << security.status();
    return security.ok() ? *security : nullptr;
  }
  void Listen(Role role = Role::kServer, const std::string& id = "lab") {
    ListenOptions options;
    options.security = Open(role, id);
    options.limits = limits_;
    StatusOr<Listener> listener = rpc::Listen("127.0.0.1:0", {&tuner_, &tracker_}, options);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }
  const std::string& address() const { return listener_.address; }
  GateCounts counts() const { return listener_.gate->counts(); }

  grpc::Status GetInfo(const Security* by, std::string* who = nullptr, Peer peer = Peer::kServer) {
    const auto stub = v1::Tuner::NewStub(Dial(address(), by, peer));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    v1::ServerInfo info;
    const grpc::Status s = stub->GetInfo(&context, v1::GetInfoRequest(), &info);
    if (who) *who = info.server_id();
    return s;
  }
  // Of client/alice, signed by the CA, valid for an hour.
  CertificateSpec Good() const {
    CertificateSpec spec;
    spec.not_before_s = WallSeconds() - 3600;
    spec.not_after_s = WallSeconds() + 3600;
    spec.ca_dir = ca_dir_;
    return spec;
  }

  Folder folder_;
  const std::string ca_dir_ = folder_ / "ca";
  Limits limits_;
  CountingTuner tuner_;
  EchoTracker tracker_;
  Listener listener_;
};

TEST_F(TlsTest, WhoHasACertificateIsWhoItSaysOnEveryCall) {
  Listen();
  for (const auto& [role, id] : {std::pair{Role::kClient, "alice"}, std::pair{Role::kClient, "bob"},
                                 std::pair{Role::kAdmin, "root"}}) {
    const auto security = Open(role, id);
    const auto stub = v1::Tuner::NewStub(Dial(address(), security.get()));
    for (int i = 0; i < 3; ++i) {  // on one connection
      grpc::ClientContext context;
      v1::ServerInfo info;
      const grpc::Status s = stub->GetInfo(&context, v1::GetInfoRequest(), &info);
      EXPECT_TRUE(s.ok()) << s.error_message();
      EXPECT_EQ(info.server_id(), (pki::Name{role, id}).Text());
    }
  }
}

TEST_F(TlsTest, HandshakesThatSucceedLeaveNoLineInTheLog) {
  std::ostringstream said;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(said)));
  Listen();
  {
    const auto alice = Open(Role::kClient, "alice");
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(GetInfo(alice.get()).ok());
  }
  EXPECT_EQ(said.str(), "");
  // The log is the one that is looked at: a handshake that fails is said in it.
  EXPECT_EQ(AfterTls(address(), {""}), "");
  EXPECT_TRUE(Within(10 * kSecond, [&] { return counts().open == 0; }));
  listener_.Stop(std::chrono::seconds(1));
  spdlog::set_default_logger(before);
  EXPECT_THAT(said.str(), HasSubstr("event=grpc"));
}

TEST_F(TlsTest, AnotherRolesMethodIsDenied) {
  Listen();
  const auto worker = Open(Role::kWorker, "rack1");
  const grpc::Status s = GetInfo(worker.get());
  EXPECT_EQ(s.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(s.error_message(), HasSubstr("worker/rack1 may not call"));
  const auto client = Open(Role::kClient, "alice");
  Attached attached(address(), client.get());
  ASSERT_TRUE(Within(10 * kSecond, [&] { return attached.ended.load(); }));
  EXPECT_EQ(attached.status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(TlsTest, WithoutACertificateOfTheCaNobodyReachesHttp) {
  Listen();
  EXPECT_TRUE(IsHttp2(AfterTls(address(), {MakeIdentity(Good())}))) << "the way that works";
  Folder other;
  ASSERT_TRUE(Authority::Init(other.path(), pki::kCaDays, WallSeconds()).ok());
  const std::vector<std::pair<const char*, std::function<void(CertificateSpec&)>>> wrong = {
      {"expired", [](auto& s) { s.not_after_s = WallSeconds() - 5; }},
      {"not yet valid", [](auto& s) { s.not_before_s = WallSeconds() + 1000; }},
      {"self-signed", [](auto& s) { s.ca_dir = ""; }},
      {"self-signed, a CA",
       [](auto& s) {
         s.ca_dir = "";
         s.constraints = "critical,CA:TRUE";
       }},
      {"of another CA", [&](auto& s) { s.ca_dir = other.path(); }},
      {"a tracker's",
       [](auto& s) {
         s.names = {"URI:whet://tracker/registry"};
         s.uses = "serverAuth";
       }},
      {"a role that is none", [](auto& s) { s.names = {"URI:whet://king/alice"}; }},
      {"two names", [](auto& s) { s.names.push_back("URI:whet://admin/root"); }},
      {"a host's name", [](auto& s) { s.names = {"DNS:lab"}; }},
      {"without a name", [](auto& s) { s.names.clear(); }},
      {"RSA", [](auto& s) { s.key = "RSA"; }},
      {"to sign others", [](auto& s) { s.constraints = "critical,CA:TRUE"; }},
  };
  for (const auto& [what, change] : wrong) {
    CertificateSpec spec = Good();
    change(spec);
    EXPECT_EQ(AfterTls(address(), {MakeIdentity(spec)}), "") << what;
  }
  EXPECT_EQ(AfterTls(address(), {""}), "") << "no certificate";
  EXPECT_FALSE(IsHttp2(AfterTls(address(), {.identity = MakeIdentity(Good()), .alpn = ""})))
      << "no protocol named";
  EXPECT_EQ(tuner_.calls, 0);
  EXPECT_EQ(tracker_.messages, 0);
  const auto alice = Open(Role::kClient, "alice");
  EXPECT_TRUE(GetInfo(alice.get()).ok()) << "the port goes on";
}

TEST_F(TlsTest, OlderTlsIsTurnedAwayBeforeGrpcSeesIt) {
  Listen();
  int n = 0;
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION}) {
    EXPECT_EQ(AfterTls(address(),
                       {.identity = MakeIdentity(Good()), .least = TLS1_VERSION, .most = version}),
              "");
    ++n;
  }
  EXPECT_TRUE(
      IsHttp2(AfterTls(address(), {.identity = MakeIdentity(Good()), .least = TLS1_2_VERSION})))
      << "an offer of both takes the newer";
  EXPECT_EQ(counts().refused_old_tls, n);
  EXPECT_EQ(counts().handed_on, 1);
}

TEST_F(TlsTest, WhatIsNotTlsIsTurnedAwayAtOnce) {
  Listen();
  const std::vector<std::string> junk = {
      "GET / HTTP/1.1\r\nHost: lab\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9),
      std::string(1, '\0'),
      std::string(100'000, '\xff'),
      std::string("\x16\x02\x00\x00\x05", 5),
      std::string("\x16\x03\x01\xff\xff", 5),
      std::string("\x16\x03\x01\x00\x00", 5),
      std::string("\x16\x03\x01\x00\x04\x02\x00\x00\x00", 9),
      std::string("\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9),
      std::string("\x15\x03\x03\x00\x02\x02\x28", 7),
      "SSH-2.0-OpenSSH_9.2\r\n",
      "\x80\x2e\x01\x03\x01",
      "whet",
  };
  const int64_t begin = MonotonicNs();
  for (const std::string& bytes : junk)
    EXPECT_THAT(AfterPlain(address(), bytes), ::testing::Not(HasSubstr("timeout"))) << bytes[0];
  EXPECT_LT(MonotonicNs() - begin, limits_.hello_ns) << "none of them was waited for";
  EXPECT_EQ(counts().refused_not_tls, static_cast<int64_t>(junk.size()));
  EXPECT_EQ(counts().handed_on, 0);
  // A gRPC client without TLS.
  EXPECT_EQ(GetInfo(nullptr).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(tuner_.calls, 0);
}

TEST_F(TlsTest, WhoIsSlowIsNotWaitedFor) {
  Listen();
  EXPECT_EQ(AfterPlain(address(), ""), "") << "nothing sent";
  EXPECT_EQ(AfterPlain(address(), std::string("\x16\x03\x01", 3)), "") << "half a hello";
  EXPECT_EQ(counts().refused_slow, 2);
  // A handshake and then silence, with the certificate of somebody who may be here.
  EXPECT_TRUE(IsHttp2(AfterTls(address(), {.identity = MakeIdentity(Good()), .to_the_end = true})));
  EXPECT_EQ(counts().closed_unauthorized, 1);
  EXPECT_TRUE(Within(10 * kSecond, [&] { return counts().open == 0; }));
}

TEST_F(TlsTest, ConnectionsAreLimitedPerAddressAndInAll) {
  limits_.max_per_address = 3;
  limits_.hello_ns = 60 * kSecond;
  limits_.authorize_ns = 60 * kSecond;
  Listen();
  std::vector<int> open;
  for (int i = 0; i < 3; ++i) open.push_back(Connected(address()));
  EXPECT_TRUE(Within(5 * kSecond, [&] { return counts().open == 3; }));
  EXPECT_EQ(AfterPlain(address(), ""), "");
  EXPECT_EQ(counts().refused_address, 1);
  for (const int fd : open) close(fd);
  EXPECT_TRUE(Within(5 * kSecond, [&] { return counts().open == 0; }));
  // What was closed leaves room, but not for more arrivals than the rate.
  for (int i = 0; i < 30; ++i) close(Connected(address()));
  EXPECT_TRUE(Within(5 * kSecond, [&] { return counts().refused_rate > 0; }));
  EXPECT_TRUE(Within(5 * kSecond, [&] { return counts().open == 0; }));

  listener_.Stop(std::chrono::seconds(1));
  limits_.max_per_address = 10;
  limits_.max_connections = 2;
  Listen();
  open = {Connected(address()), Connected(address())};
  EXPECT_TRUE(Within(5 * kSecond, [&] { return counts().open == 2; }));
  EXPECT_EQ(AfterPlain(address(), ""), "");
  EXPECT_EQ(counts().refused_full, 1);
  for (const int fd : open) close(fd);
}

TEST_F(TlsTest, AConnectionThatEndsIsForgotten) {
  Listen();
  const auto alice = Open(Role::kClient, "alice");
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(GetInfo(alice.get()).ok());
  EXPECT_TRUE(Within(10 * kSecond, [&] { return counts().open == 0; })) << counts().open;
  EXPECT_EQ(counts().handed_on, 20);
}

TEST_F(TlsTest, ADenialEndsALiveStreamAndNoOther) {
  Listen();
  const auto rack1 = Open(Role::kWorker, "rack1"), rack2 = Open(Role::kWorker, "rack2");
  Attached one(address(), rack1.get()), two(address(), rack2.get());
  ASSERT_TRUE(one.Lives());
  ASSERT_TRUE(two.Lives());
  const std::string list = pki::DeniedPath(BundleOf(Role::kServer, "lab"));
  // A list that cannot be read changes nothing.
  ASSERT_TRUE(WriteFile(list, "worker/rack1\nnonsense\n").ok());
  for (const int64_t until = MonotonicNs() + 300 * kMillisecond; MonotonicNs() < until;)
    ASSERT_TRUE(one.Lives());
  ASSERT_TRUE(WriteFile(list, "worker/rack1\n").ok());
  EXPECT_TRUE(Within(5 * kSecond, [&] { return one.ended.load(); }));
  EXPECT_FALSE(one.status.ok());
  EXPECT_TRUE(two.Lives());
  // And no way back in.
  Attached again(address(), rack1.get());
  EXPECT_TRUE(Within(5 * kSecond, [&] { return again.ended.load(); }));
  EXPECT_FALSE(again.status.ok());
  EXPECT_EQ(again.replies, 0);
  // Until it is taken off the list.
  ASSERT_TRUE(WriteFile(list, "").ok());
  EXPECT_TRUE(Within(10 * kSecond, [&] {
    Attached back(address(), rack1.get());
    return back.Lives();
  }));
  EXPECT_TRUE(two.Lives());
}

TEST_F(TlsTest, ADenialBySerialLeavesTheNextCertificateIn) {
  Listen();
  const auto alice = Open(Role::kClient, "alice");
  ASSERT_TRUE(GetInfo(alice.get()).ok());
  const std::string serial = alice->self().serial;
  ASSERT_TRUE(WriteFile(pki::DeniedPath(BundleOf(Role::kServer, "lab")), "serial:" + serial).ok());
  EXPECT_TRUE(Within(5 * kSecond, [&] { return !GetInfo(alice.get()).ok(); }));
  {
    StatusOr<Authority> ca = Authority::Open(ca_dir_);
    ASSERT_TRUE(ca.ok());
    ASSERT_TRUE(ca->Renew({Role::kClient, "alice"}, {}, "", WallSeconds()).ok());
  }
  EXPECT_TRUE(Within(20 * kSecond, [&] { return GetInfo(alice.get()).ok(); }))
      << "the renewed certificate is taken up without a restart";
  EXPECT_NE(alice->self().serial, serial);
}

TEST_F(TlsTest, AServersRenewalIsTakenUpWithoutARestart) {
  Listen();
  const std::string before = listener_.security->self().serial;
  const auto rack1 = Open(Role::kWorker, "rack1"), alice = Open(Role::kClient, "alice");
  Attached attached(address(), rack1.get());
  ASSERT_TRUE(attached.Lives());
  {
    StatusOr<Authority> ca = Authority::Open(ca_dir_);
    ASSERT_TRUE(ca.ok());
    ASSERT_TRUE(ca->Renew({Role::kServer, "lab"}, {}, "", WallSeconds()).ok());
  }
  EXPECT_TRUE(Within(5 * kSecond, [&] { return listener_.security->self().serial != before; }));
  EXPECT_TRUE(GetInfo(alice.get()).ok());
  EXPECT_TRUE(attached.Lives());
  // What it shows to new connections is the new one: deny the old one on the client's side.
  ASSERT_TRUE(
      WriteFile(pki::DeniedPath(BundleOf(Role::kClient, "alice")), "serial:" + before).ok());
  EXPECT_TRUE(Within(20 * kSecond, [&] {
    const auto fresh = Open(Role::kClient, "alice");
    return GetInfo(fresh.get()).ok();
  }));
}

TEST_F(TlsTest, ACertificateThatEndsEndsItsStreams) {
  Listen();
  CertificateSpec spec = Good();
  spec.names = {"URI:whet://worker/rack1"};
  spec.not_after_s = WallSeconds() + 4;
  ASSERT_TRUE(
      WriteFile(pki::IdentityPath(BundleOf(Role::kWorker, "rack1")), MakeIdentity(spec)).ok());
  const auto rack1 = Open(Role::kWorker, "rack1"), rack2 = Open(Role::kWorker, "rack2");
  Attached one(address(), rack1.get()), two(address(), rack2.get());
  ASSERT_TRUE(one.Lives());
  ASSERT_TRUE(two.Lives());
  EXPECT_TRUE(Within(10 * kSecond, [&] { return one.ended.load(); }));
  EXPECT_GT(WallSeconds(), spec.not_after_s);
  EXPECT_TRUE(two.Lives());
}

TEST_F(TlsTest, PinnedServersAreTheOnlyOnesThatAreTalkedTo) {
  Listen();
  const std::string bundle = BundleOf(Role::kWorker, "rack1");
  ASSERT_TRUE(WriteFile(pki::ServersPath(bundle), "elsewhere\n").ok());
  const auto rack1 = Open(Role::kWorker, "rack1");
  EXPECT_EQ(GetInfo(rack1.get()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(tuner_.calls, 0);
  ASSERT_TRUE(WriteFile(pki::ServersPath(bundle), "elsewhere\nlab\n").ok());
  EXPECT_TRUE(Within(10 * kSecond, [&] {
    return GetInfo(rack1.get()).error_code() == grpc::StatusCode::PERMISSION_DENIED;
  })) << "reached, and told that workers do not ask for that";
}

TEST_F(TlsTest, ATrackersCertificateIsNotAServers) {
  Listen(Role::kTracker, "registry");
  const auto alice = Open(Role::kClient, "alice");
  EXPECT_EQ(GetInfo(alice.get()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(tuner_.calls, 0);
  EXPECT_TRUE(GetInfo(alice.get(), nullptr, Peer::kTracker).ok());
}

TEST_F(TlsTest, AClientsCertificateServesNobody) {
  SecurityOptions options;
  options.dir = BundleOf(Role::kClient, "alice");
  options.roles = {Role::kServer, Role::kTracker};
  const auto opened = Security::Open(options);
  EXPECT_THAT(Message(opened.status()), HasSubstr("is for client/alice"));
  // Also when a program would show it nevertheless.
  Listen(Role::kClient, "alice");
  const auto bob = Open(Role::kClient, "bob");
  EXPECT_EQ(GetInfo(bob.get(), nullptr, Peer::kTracker).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(tuner_.calls, 0);
}

TEST_F(TlsTest, AWorkerCannotSpeakForAnother) {
  Listen();
  const auto rack1 = Open(Role::kWorker, "rack1");
  {
    Attached own(address(), rack1.get());
    own.Register("rack1.0123");
    EXPECT_TRUE(own.Lives());
  }
  const int before = tracker_.messages;
  Attached other(address(), rack1.get());
  other.Register("rack2.0123");
  EXPECT_TRUE(Within(10 * kSecond, [&] { return other.ended.load(); }));
  EXPECT_EQ(other.status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(other.status.error_message(), HasSubstr("'rack1....'"));
  EXPECT_EQ(tracker_.messages, before);
}

TEST_F(TlsTest, StreamsOfOneCertificateAreLimited) {
  Listen();
  const auto rack1 = Open(Role::kWorker, "rack1"), rack2 = Open(Role::kWorker, "rack2");
  const auto channel = Dial(address(), rack1.get(), Peer::kTracker);
  std::vector<std::unique_ptr<Attached>> streams;
  for (int64_t i = 0; i < kStreamsOfOne; ++i) {
    streams.push_back(std::make_unique<Attached>(channel));
    ASSERT_TRUE(streams.back()->Lives()) << i;
  }
  {
    Attached more(address(), rack1.get());
    EXPECT_TRUE(Within(10 * kSecond, [&] { return more.ended.load(); }));
    EXPECT_EQ(more.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(more.status.error_message(), HasSubstr("256 of them by worker/rack1"));
  }
  Attached other(address(), rack2.get());
  EXPECT_TRUE(other.Lives()) << "others are not held up";
  streams.pop_back();
  EXPECT_TRUE(Within(10 * kSecond, [&] {
    Attached again(address(), rack1.get());
    return again.Lives();
  })) << "one that ended leaves room";
}

TEST_F(TlsTest, AStreamThatSendsMoreThanAWorkerCanMeasureIsEnded) {
  Listen();
  const auto rack1 = Open(Role::kWorker, "rack1"), rack2 = Open(Role::kWorker, "rack2");
  Attached flood(address(), rack1.get()), other(address(), rack2.get());
  for (int i = 0; i < 5 * static_cast<int>(kMessagesAtOnce); ++i) flood.Register("rack1.0123");
  EXPECT_TRUE(Within(100 * kSecond, [&] { return flood.ended.load(); }));
  EXPECT_EQ(flood.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(flood.status.error_message(), HasSubstr("messages a second"));
  EXPECT_GE(tracker_.messages, static_cast<int>(kMessagesAtOnce));
  EXPECT_TRUE(other.Lives()) << "others are not held up";
}

TEST_F(TlsTest, CallsOfOneCertificateAreLimited) {
  Listen();
  const auto bob = Open(Role::kClient, "bob"), alice = Open(Role::kClient, "alice");
  const auto stub = v1::Tuner::NewStub(Dial(address(), bob.get()));
  grpc::Status s;
  const int64_t begin = MonotonicNs();
  for (int i = 0; i < 5000 && s.ok(); ++i) {
    grpc::ClientContext context;
    v1::ServerInfo info;
    s = stub->GetInfo(&context, v1::GetInfoRequest(), &info);
  }
  const double seconds = static_cast<double>(MonotonicNs() - begin) * 1e-9;
  if (seconds < 20) {  // else this machine makes fewer calls than are allowed
    EXPECT_EQ(s.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(s.error_message(), HasSubstr("try again"));
  }
  EXPECT_TRUE(GetInfo(alice.get()).ok()) << "others are not held up";
}

TEST_F(TlsTest, OversizedRequestsOfAGoodPeerAreRefusedAndTheNextOneIsServed) {
  Listen();
  const auto alice = Open(Role::kClient, "alice");
  const auto stub = v1::Tuner::NewStub(Dial(address(), alice.get()));
  const int before = tuner_.calls;
  {
    grpc::ClientContext context;
    context.AddMetadata("x-long", std::string(64 << 10, 'x'));
    v1::ServerInfo info;
    EXPECT_EQ(stub->GetInfo(&context, v1::GetInfoRequest(), &info).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  {
    grpc::ClientContext context;
    v1::SubmitJobRequest request;
    request.mutable_spec()->set_name(std::string(kMaxMessageBytes + 1, 'x'));
    v1::SubmitJobReply reply;
    EXPECT_FALSE(stub->SubmitJob(&context, request, &reply).ok());
  }
  EXPECT_EQ(tuner_.calls, before);
  EXPECT_TRUE(GetInfo(alice.get()).ok());
}

}  // namespace
}  // namespace whet::rpc
