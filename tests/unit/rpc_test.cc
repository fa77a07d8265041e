// Who may call which method, and which addresses are listened on.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "proto/rpc/access.h"
#include "proto/rpc/endpoint.h"
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
}

TEST(Endpoint, ListenAddresses) {
  EXPECT_EQ(ParseListenAddress("--listen", ":9190").value(), "127.0.0.1:9190");
  EXPECT_EQ(ParseListenAddress("--listen", "localhost:1").value(), "127.0.0.1:1");
  EXPECT_EQ(ParseListenAddress("--listen", "[::1]:0").value(), "[::1]:0");
  EXPECT_EQ(ParseListenAddress("--listen", "127.1.2.3:80").value(), "127.1.2.3:80");
  for (const char* bad : {"0.0.0.0:1", "[::]:1", "192.168.0.1:1", "example.org:1", "*:1"}) {
    EXPECT_THAT(Message(ParseListenAddress("--listen", bad).status()), HasSubstr("TLS")) << bad;
  }
  for (const char* bad : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", ":-1",
                          "127.0.0.1:999999999999"}) {
    EXPECT_THAT(Message(ParseListenAddress("--listen", bad).status()), HasSubstr("HOST:PORT"))
        << bad;
  }
  EXPECT_FALSE(ParseDialAddress("--tracker", "h:0").ok());
  EXPECT_EQ(ParseDialAddress("--tracker", "h:1").value(), "h:1");
}

}  // namespace
}  // namespace whet::rpc
