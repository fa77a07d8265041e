// Real programs with certificates: every method of every service is called with every role's
// certificate, and answers as the access table says; noise on every port, and nonsense from holders
// of good certificates, cost nobody else anything.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <random>

#include "compiler/support/env.h"
#include "compiler/support/subprocess.h"
#include "fleet/pki/authority.h"
#include "proto/rpc/access.h"
#include "proto/rpc/endpoint.h"
#include "tests/support/certificates.h"

namespace whet::testing {
namespace {

using pki::Role;

std::string BinDir() {
  const char* dir = std::getenv("WHET_BIN_DIR");
  return dir ? dir : ".";
}

// A program of ours with its standard output read line by line.
class Program {
 public:
  Program(const std::string& program, const std::vector<std::string>& args,
          const std::string& log) {
    int out[2];
    EXPECT_EQ(pipe(out), 0);
    std::string command = "exec '" + BinDir() + "/" + program + "'";
    for (const std::string& a : args) command += " '" + a + "'";
    command += " 2>>'" + log + "' >&5";
    SpawnOptions options;
    options.program = "/bin/sh";
    options.args = {"-c", command};
    options.fds = {{out[1], 5}};
    StatusOr<Subprocess> child = Subprocess::Spawn(options);
    EXPECT_TRUE(child.ok()) << child.status();
    if (child.ok()) process_ = std::move(*child);
    close(out[1]);
    out_ = out[0];
  }
  ~Program() {
    process_.Kill();
    close(out_);
  }
  Program(const Program&) = delete;

  std::string Listening(const std::string& role) {
    const int64_t deadline = MonotonicNs() + 30 * kSecond;
    while (MonotonicNs() < deadline) {
      if (const size_t at = text_.find(" " + role + "\n"); at != std::string::npos) {
        const size_t begin = text_.rfind("listening on ", at) + 13;
        return text_.substr(begin, at - begin);
      }
      pollfd p{out_, POLLIN, 0};
      char buffer[512];
      if (poll(&p, 1, 100) > 0) {
        const ssize_t n = read(out_, buffer, sizeof buffer);
        if (n <= 0) break;
        text_.append(buffer, static_cast<size_t>(n));
      }
    }
    ADD_FAILURE() << "no line of role " << role;
    return "";
  }

 private:
  Subprocess process_;
  int out_ = -1;
  std::string text_;
};

// One message to any method, of any kind; how the call ends.
grpc::Status CallWith(const std::string& bytes, const std::shared_ptr<grpc::Channel>& channel,
                      const std::string& method) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(&tag);
  queue.Next(&tag, &ok);
  if (ok) {
    const grpc::Slice slice(bytes);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), &tag);
    queue.Next(&tag, &ok);
  }
  do {  // its status comes after what it says
    grpc::ByteBuffer reply;
    call->Read(&reply, &tag);
    queue.Next(&tag, &ok);
  } while (ok);
  grpc::Status status;
  call->Finish(&status, &tag);
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

// A connection on which these bytes are sent, and what comes back thrown away until it ends or is
// silent for a while.
void Disturb(const std::string& address, const std::string& bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit = {0, 200'000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0) << address;
  send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  char buffer[4096];
  while (recv(fd, buffer, sizeof buffer, 0) > 0) {
  }
  close(fd);
}

std::vector<std::string> Noise() {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  std::vector<std::string> noise = {
      "",
      std::string(1, '\0'),
      std::string(200'000, '\xff'),
      "GET / HTTP/1.1\r\nHost: lab\r\n\r\n",
      "SSH-2.0-OpenSSH_9.2\r\n",
      preface.substr(0, 10),
      preface,
      preface + settings,
      preface + std::string("\xff\xff\xff\4\0\0\0\0\0", 9),  // a frame of 16 MiB
      preface + settings + std::string("\0\0\4\1\4\0\0\0\1\xff\xff\xff\xff", 13),  // no HPACK
      preface + settings + std::string("\0\0\1\0\1\0\0\0\5x", 10),          // data of no stream
      preface + settings + std::string("\0\0\4\x8\0\0\0\0\0\0\0\0\0", 13),  // a window of 0
      preface + settings + std::string("\0\0\x8\x6\1\0\0\0\0pingpong", 17),
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),  // half a hello
      std::string("\x16\x03\x03\xff\xff", 5),
      std::string("\x15\x03\x03\x00\x02\x02\x28", 7),
  };
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    std::string bytes = i % 2 == 0 ? "" : preface + settings;
    for (int n = 0; n < 300; ++n) bytes += static_cast<char>(random());
    noise.push_back(bytes);
  }
  return noise;
}

// A CA with a bundle "n1" of each role that dials, and a server with certificates.
class TlsFleet : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto now = static_cast<int64_t>(time(nullptr));
    StatusOr<pki::Authority> made = pki::Authority::Init(folder_ / "ca", pki::kCaDays, now);
    ASSERT_TRUE(made.ok()) << made.status();
    ca_ = std::make_unique<pki::Authority>(*std::move(made));
    for (const Role role : kDialling) ASSERT_TRUE(ca_->Issue({.name = {role, "n1"}}, now).ok());
    server_ = std::make_unique<Program>(
        "../tests/zoo-server",
        std::vector<std::string>{"--tracker", ":0", "--listen", "0.0.0.0:0", "--advertise",
                                 "127.0.0.1:0", "--db", folder_ / "t.db", "--builders", "1",
                                 "--tls", ca_->BundleDir({Role::kServer, "n1"})},
        folder_ / "server.log");
    tracker_ = rpc::DialableHere(server_->Listening("tracker"));
    tuner_ = rpc::DialableHere(server_->Listening("server"));
    ASSERT_TRUE(tuner_.starts_with("127.0.0.1:")) << tuner_;
  }
  std::shared_ptr<rpc::Security> Of(Role role) {
    rpc::SecurityOptions options;
    options.dir = ca_->BundleDir({role, "n1"});
    options.roles = {role};
    const auto security = rpc::Security::Open(options);
    EXPECT_TRUE(security.ok()) << security.status();
    return security.ok() ? *security : nullptr;
  }

  static constexpr Role kDialling[] = {Role::kServer, Role::kAdmin, Role::kClient, Role::kWorker};
  Folder folder_;
  std::unique_ptr<pki::Authority> ca_;
  std::unique_ptr<Program> server_;
  std::string tracker_, tuner_;
};

TEST_F(TlsFleet, NoiseOnAnyPortChangesNothing) {
  Program plain("../tests/zoo-server",
                {"--tracker", ":0", "--listen", "127.0.0.1:0", "--db", folder_ / "plain.db",
                 "--builders", "1"},
                folder_ / "plain.log");
  const std::string plain_tracker = plain.Listening("tracker"),
                    plain_tuner = plain.Listening("server");
  ASSERT_GE(Noise().size(), 10u);
  for (const std::string& address : {tracker_, tuner_, plain_tracker, plain_tuner}) {
    for (const std::string& bytes : Noise()) Disturb(address, bytes);
  }
  const auto admin = Of(Role::kAdmin);
  const std::string tracker_method = "/whet.v1.Tracker/ListDevices",
                    tuner_method = "/whet.v1.Tuner/GetInfo";
  EXPECT_TRUE(
      CallWith("", rpc::Dial(tracker_, admin.get(), rpc::Peer::kTracker), tracker_method).ok());
  EXPECT_TRUE(CallWith("", rpc::Dial(tuner_, admin.get()), tuner_method).ok());
  EXPECT_TRUE(CallWith("", rpc::Dial(plain_tracker), tracker_method).ok());
  EXPECT_TRUE(CallWith("", rpc::Dial(plain_tuner), tuner_method).ok());
}

TEST_F(TlsFleet, NonsenseFromHoldersOfGoodCertificatesIsAnsweredInWords) {
  std::mt19937 random(11);
  const auto admin = Of(Role::kAdmin);
  const auto tracker = rpc::Dial(tracker_, admin.get(), rpc::Peer::kTracker);
  const auto tuner = rpc::Dial(tuner_, admin.get());
  for (const rpc::AccessRow& row : rpc::AccessTable()) {
    const std::string method = row.method;
    const bool of_tracker = method.find(".Tracker/") != std::string::npos;
    for (int i = 0; i < 20; ++i) {
      std::string bytes;
      // A field's head with a length that fits, so that messages are read some way down.
      for (int n = 0; n < 40; ++n) {
        const auto length = static_cast<char>(random() % 9);
        bytes += static_cast<char>((1 + random() % 12) << 3 | (i % 4 == 0 ? random() % 8 : 2));
        bytes += length;
        for (char k = 0; k < length; ++k) bytes += static_cast<char>(random() % 128);
      }
      const grpc::Status s = CallWith(bytes, of_tracker ? tracker : tuner, method);
      EXPECT_NE(s.error_code(), grpc::StatusCode::UNAVAILABLE) << method << s.error_message();
      EXPECT_NE(s.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << method;
    }
  }
  EXPECT_TRUE(CallWith("", tuner, "/whet.v1.Tuner/GetInfo").ok());
}

TEST_F(TlsFleet, EveryMethodAnswersEveryRoleAsTheTableSays) {
  int allowed = 0, denied = 0;
  for (const Role role : kDialling) {
    const auto security = Of(role);
    for (const rpc::AccessRow& row : rpc::AccessTable()) {
      const std::string method = row.method;
      const bool of_tracker = method.find(".Tracker/") != std::string::npos;
      const auto channel = rpc::Dial(of_tracker ? tracker_ : tuner_, security.get(),
                                     of_tracker ? rpc::Peer::kTracker : rpc::Peer::kServer);
      const grpc::Status s = CallWith("", channel, method);
      const bool may = rpc::MayCall({role, "", "", {}}, method);
      EXPECT_EQ(s.error_code() != grpc::StatusCode::PERMISSION_DENIED, may)
          << pki::RoleName(role) << " " << method << ": " << s.error_code() << " "
          << s.error_message();
      EXPECT_NE(s.error_code(), grpc::StatusCode::UNAVAILABLE)
          << pki::RoleName(role) << " " << method << ": " << s.error_message();
      EXPECT_NE(s.error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
      ++(may ? allowed : denied);
    }
    // What is in no table is in no service either, and health is everybody's.
    const auto channel = rpc::Dial(tuner_, security.get());
    EXPECT_EQ(CallWith("", channel, "/whet.v1.Tuner/Reboot").error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_TRUE(CallWith("", channel, "/grpc.health.v1.Health/Check").ok());
  }
  EXPECT_GT(allowed, 10);
  EXPECT_GT(denied, 10);
}

}  // namespace
}  // namespace whet::testing
