// Who may call which method, and which addresses are listened on.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "proto/rpc/access.h"
#include "proto/rpc/client_hello.h"
#include "proto/rpc/endpoint.h"
#include "proto/rpc/token_bucket.h"
#include "proto/tracker.pb.h"
#include "proto/tuner.grpc.pb.h"
#include "proto/worker.pb.h"

namespace whet::rpc {
namespace {

using ::testing::HasSubstr;

// "/whet.v1.Tuner/SubmitJob" of every service in the schemas: a new file is found too.
std::set<std::string> MethodsInTheSchemas() {
  std::set<std::string> methods;
  const char* source = std::getenv("WHET_SOURCE_DIR");
  const std::string dir = std::string(source ? source : ".") + "/proto";
  const std::regex line("^ *(service|rpc) (\\w+)");
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    if (file.path().extension() != ".proto") continue;
    std::ifstream in(file.path());
    std::string service, text;
    for (std::smatch m; std::getline(in, text);) {
      if (!std::regex_search(text, m, line)) continue;
      if (m[1] == "service")
        service = m[2];
      else
        methods.insert(fmt::format("/whet.v1.{}/{}", service, m[2].str()));
    }
  }
  return methods;
}

TEST(Access, EveryMethodIsInTheTableAndNothingElseIs) {
  std::set<std::string> described, listed;
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  for (const auto* file : {v1::JobSpec::descriptor()->file(), v1::Register::descriptor()->file(),
                           v1::Hello::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int i = 0; i < file->service(s)->method_count(); ++i)
        described.insert(fmt::format("/{}/{}", file->service(s)->full_name(),
                                     file->service(s)->method(i)->name()));
    }
  }
  ASSERT_NE(pool->FindServiceByName("whet.v1.Tuner"), nullptr);
  for (const AccessRow& row : AccessTable())
    EXPECT_TRUE(listed.insert(row.method).second) << row.method << " is there twice";
  EXPECT_EQ(described, listed);
  EXPECT_EQ(MethodsInTheSchemas(), listed);
}

// A service whose one handler says who called.
class Asking final : public v1::Tuner::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context, const v1::GetInfoRequest*,
                                    v1::ServerInfo*) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(Authorize(*context, "/whet.v1.Tuner/GetInfo", &principal));
    return reactor;
  }
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest*, v1::ListJobsReply*) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(Authorize(*context, "/whet.v1.Tuner/NotInTheTable", &principal));
    return reactor;
  }
  Principal principal;
};

TEST(Access, HandlersGetAPrincipalAndRefuseWhatIsNotListed) {
  Asking service;
  const auto listener = Listen("127.0.0.1:0", {&service});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto stub = v1::Tuner::NewStub(Dial(listener->address));
  grpc::ClientContext first, second;
  v1::ServerInfo info;
  const grpc::Status listed = stub->GetInfo(&first, v1::GetInfoRequest(), &info);
  EXPECT_TRUE(listed.ok()) << listed.error_message();
  EXPECT_EQ(service.principal.role, Role::kAdmin);
  EXPECT_THAT(service.principal.name, ::testing::StartsWith("ipv4:127.0.0.1:"));
  v1::ListJobsReply jobs;
  const grpc::Status unlisted = stub->ListJobs(&second, v1::ListJobsRequest(), &jobs);
  EXPECT_EQ(unlisted.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(unlisted.error_message(), HasSubstr("may not call"));
  listener->server->Shutdown();
}

TEST(Access, IsDeniedByDefault) {
  const Principal local = PrincipalOfPeer("ipv4:127.0.0.1:5000"),
                  remote = PrincipalOfPeer("ipv4:10.0.0.1:5000");
  EXPECT_TRUE(MayCall(local, "/whet.v1.Tuner/SubmitJob"));
  EXPECT_TRUE(MayCall(PrincipalOfPeer("ipv6:%5B::1%5D:5000"), "/whet.v1.Tuner/SubmitJob"));
  EXPECT_FALSE(MayCall(local, "/whet.v1.Tuner/Reboot"));
  for (const AccessRow& row : AccessTable()) EXPECT_FALSE(MayCall(remote, row.method));
  EXPECT_FALSE(MayCall({Role::kWorker, ""}, "/whet.v1.Tuner/SubmitJob"));
  EXPECT_TRUE(MayCall({Role::kWorker, ""}, "/whet.v1.Dispatch/Work"));
  EXPECT_FALSE(MayCall(PrincipalOfPeer(""), "/whet.v1.Tuner/GetInfo"));
  for (const AccessRow& row : AccessTable()) {
    EXPECT_FALSE(MayCall({Role::kTracker, ""}, row.method)) << row.method;
    EXPECT_FALSE(MayCall({Role::kNone, ""}, row.method)) << row.method;
    EXPECT_TRUE(MayCall({Role::kAdmin, ""}, row.method)) << row.method;
    const bool measuring = std::string_view(row.method) == "/whet.v1.Tracker/Attach" ||
                           std::string_view(row.method) == "/whet.v1.Dispatch/Work";
    EXPECT_EQ(MayCall({Role::kWorker, ""}, row.method), measuring) << row.method;
  }
}

TEST(Access, AWorkerSpeaksForDevicesOfItsOwnNameOnly) {
  pki::CertificateInfo c;
  c.name = {Role::kWorker, "rack1"};
  const Principal rack1{Role::kWorker, "worker/rack1", "worker/rack1", c};
  EXPECT_EQ(WorkerIdPrefix(c), "rack1.");
  EXPECT_TRUE(CheckOwnDevice(rack1, "rack1.0123", "rack1.0123/cpu0").ok());
  for (const auto& [worker, device] :
       {std::pair{"rack10.0123", "rack10.0123/cpu0"}, std::pair{"rack1", "rack1/cpu0"},
        std::pair{"rack1.", "rack1./cpu0"}, std::pair{"rack1.0123", "rack2.0123/cpu0"},
        std::pair{"rack1.0123", "rack1.0123"}, std::pair{"rack1.0123", "rack1.01234/cpu0"},
        std::pair{"", ""}, std::pair{"0123", "0123/cpu0"}}) {
    EXPECT_EQ(CheckOwnDevice(rack1, worker, device).code(), absl::StatusCode::kPermissionDenied)
        << worker << " " << device;
  }
  EXPECT_TRUE(CheckOwnDevice(PrincipalOfPeer("ipv4:127.0.0.1:5000"), "0123", "0123/cpu0").ok());
}

TEST(Endpoint, ListenAddresses) {
  EXPECT_EQ(ParseListenAddress("--listen", ":9190").value(), "127.0.0.1:9190");
  EXPECT_EQ(ParseListenAddress("--listen", "localhost:1").value(), "127.0.0.1:1");
  EXPECT_EQ(ParseListenAddress("--listen", "[::1]:0").value(), "[::1]:0");
  EXPECT_EQ(ParseListenAddress("--listen", "127.1.2.3:80").value(), "127.1.2.3:80");
  for (const char* bad : {"0.0.0.0:1", "[::]:1", "192.168.0.1:1", "example.org:1", "*:1"}) {
    const Status refused = ParseListenAddress("--listen", bad).status();
    EXPECT_THAT(Message(refused), HasSubstr("--tls DIR")) << bad;
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_FALSE(Listen(bad, {}).ok()) << bad;
  }
  for (const char* bad : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", ":-1",
                          "127.0.0.1:999999999999"}) {
    EXPECT_THAT(Message(ParseListenAddress("--listen", bad).status()), HasSubstr("HOST:PORT"))
        << bad;
  }
  EXPECT_FALSE(ParseDialAddress("--tracker", "h:0").ok());
  EXPECT_EQ(ParseDialAddress("--tracker", ":1").value(), "127.0.0.1:1");
  EXPECT_THAT(Message(ParseDialAddress("--tracker", "h:1").status()), HasSubstr("TLS only"));
}

TEST(Endpoint, AnotherMachineIsNotDialledInPlaintext) {
  const auto stub = v1::Tuner::NewStub(Dial("192.0.2.1:9191"));  // an address for documents
  grpc::ClientContext context;
  v1::ServerInfo info;
  EXPECT_EQ(stub->GetInfo(&context, v1::GetInfoRequest(), &info).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(Endpoint, ASocketIsForAFolderThatIsItsOwnersAlone) {
  std::string folder = "/tmp/whet-rpc-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string address = "unix:" + folder + "/s";
  EXPECT_EQ(ParseListenAddress("--listen", address).value(), address);
  EXPECT_EQ(ParseDialAddress("--tracker", address).value(), address);
  for (const std::string& bad :
       {std::string("unix:"), std::string("unix:relative"), std::string("unix:/a b"),
        std::string("unix:/a\nb"), "unix:/" + std::string(200, 'a')})
    EXPECT_THAT(Message(ParseListenAddress("--listen", bad).status()), HasSubstr("unix:")) << bad;
  Asking service;
  {
    const auto listener = Listen(address, {&service});
    ASSERT_TRUE(listener.ok()) << listener.status();
    const auto stub = v1::Tuner::NewStub(Dial(address));
    grpc::ClientContext context;
    v1::ServerInfo info;
    const grpc::Status s = stub->GetInfo(&context, v1::GetInfoRequest(), &info);
    EXPECT_TRUE(s.ok()) << s.error_message();
    EXPECT_EQ(service.principal.role, Role::kAdmin);
    EXPECT_EQ(service.principal.id, "local");
    listener->server->Shutdown();
  }
  for (const unsigned mode : {0750u, 0705u, 0711u}) {
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    EXPECT_THAT(Message(Listen(address, {&service}).status()), HasSubstr("chmod 700"));
  }
  std::filesystem::remove_all(folder);
}

TEST(Endpoint, AddressesOfThisMachine) {
  for (const char* host : {"localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"})
    EXPECT_TRUE(IsLoopback(host)) << host;
  for (const char* host : {"", "0.0.0.0", "128.0.0.1", "::", "localhost.example",
                           "127.0.0.1.example", "::ffff:10.0.0.1", "127"})
    EXPECT_FALSE(IsLoopback(host)) << host;
  EXPECT_EQ(DialableHere("0.0.0.0:5"), "127.0.0.1:5");
  EXPECT_EQ(DialableHere("[::]:5"), "[::1]:5");
  EXPECT_EQ(DialableHere("10.0.0.1:5"), "10.0.0.1:5");
  EXPECT_EQ(PlainPeer("ipv6:%5Bfe80::1%5D:5"), "ipv6:[fe80::1]:5");
  EXPECT_EQ(PlainPeer("ipv4:10.0.0.1:5%5"), "ipv4:10.0.0.1:5%5");
}

std::string Big(int bytes, size_t value) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    text += static_cast<char>(value >> shift & 255);
  return text;
}

std::string HelloWith(const std::string& extensions, bool any_extensions = true) {
  std::string body = Big(2, 0x0303) + std::string(32, 'r') + Big(1, 2) + "ss" + Big(2, 2) +
                     Big(2, 0x1301) + Big(1, 1) + Big(1, 0);
  if (any_extensions) body += Big(2, extensions.size()) + extensions;
  const std::string handshake = Big(1, 1) + Big(3, body.size()) + body;
  return Big(1, 22) + Big(2, 0x0301) + Big(2, handshake.size()) + handshake;
}

std::string Versions(const std::vector<size_t>& versions) {
  std::string list;
  for (const size_t v : versions) list += Big(2, v);
  return Big(2, 43) + Big(2, list.size() + 1) + Big(1, list.size()) + list;
}

TEST(ClientHello, OnlyAnOfferOfTls13IsHandedOn) {
  const std::string other = Big(2, 10) + Big(2, 2) + "xx";
  const std::string good = HelloWith(other + Versions({0x0a0a, 0x0304, 0x0303}) + other);
  EXPECT_EQ(InspectHello(good), Hello::kTls13);
  EXPECT_EQ(InspectHello(good + "more"), Hello::kTls13);
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_EQ(InspectHello(good.substr(0, n)), Hello::kMore) << n;
  EXPECT_EQ(InspectHello(HelloWith(other + Versions({0x0303, 0x0302}))), Hello::kOldTls);
  EXPECT_EQ(InspectHello(HelloWith(other)), Hello::kOldTls);
  EXPECT_EQ(InspectHello(HelloWith("")), Hello::kOldTls);
  EXPECT_EQ(InspectHello(HelloWith("", false)), Hello::kOldTls);
  for (const std::string& bad :
       {std::string("GET / HTTP/1.1\r\n"), std::string("PRI * HTTP/2.0\r\n"), std::string("\0", 1),
        std::string("\x16\x02"), std::string("\x16\x03\x01\xff\xff"),
        std::string("\x16\x03\x01\0\x03", 5), std::string("\x16\x03\x01\0\x10\x02", 6),
        std::string("\x15\x03\x01\0\x02\x01\0", 7), std::string(100, '\x80')})
    EXPECT_EQ(InspectHello(bad), Hello::kNotTls) << bad;
  // Lengths that point beyond what there is.
  std::string beyond = HelloWith(Big(2, 43) + Big(2, 900) + "x");
  EXPECT_EQ(InspectHello(beyond), Hello::kNotTls);
  beyond = good;
  beyond[6] = 1;  // the handshake's length, larger than the record
  EXPECT_EQ(InspectHello(beyond), Hello::kNotTls);
  EXPECT_EQ(InspectHello(HelloWith(Big(2, 43) + Big(2, 3) + Big(1, 200) + Big(2, 0x0304))),
            Hello::kOldTls);
}

TEST(TokenBucket, GivesItsBurstAtOnceAndThenItsRate) {
  TokenBucket bucket{10, 3};
  int64_t now = 5 * kSecond;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.Take(now));
  EXPECT_FALSE(bucket.Take(now));
  EXPECT_FALSE(bucket.Take(now + 90 * kMillisecond));
  EXPECT_TRUE(bucket.Take(now + 110 * kMillisecond));
  EXPECT_FALSE(bucket.Full(now + 110 * kMillisecond));
  EXPECT_TRUE(bucket.Full(now + kSecond));
  now += 100 * kSecond;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.Take(now));
  EXPECT_FALSE(bucket.Take(now));
}

}  // namespace
}  // namespace whet::rpc
