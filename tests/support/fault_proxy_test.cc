// The proxy breaks connections and never bytes: what arrives is what was sent, up to where it ends.
#include "tests/support/fault_proxy.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compiler/support/clock.h"

namespace whet::testing {
namespace {

// An echo server for as many connections as come, in one thread.
class Echo {
 public:
  Echo() {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&a), &size);
    port_ = ntohs(a.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Echo() {
    stopping_ = true;
    thread_.join();
    close(listener_);
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  void Run() {
    std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
    while (!stopping_) {
      poll(fds.data(), fds.size(), 20);
      for (size_t i = 1; i < fds.size(); ++i) {
        if (!fds[i].revents) continue;
        char buffer[4096];
        const ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
        if (n > 0 && send(fds[i].fd, buffer, static_cast<size_t>(n), MSG_NOSIGNAL) == n) continue;
        close(fds[i].fd);
        fds.erase(fds.begin() + static_cast<ptrdiff_t>(i--));
      }
      if (fds[0].revents & POLLIN) fds.push_back({accept(listener_, nullptr, nullptr), POLLIN, 0});
    }
    for (size_t i = 1; i < fds.size(); ++i) close(fds[i].fd);
  }
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

int Dial(const std::string& address) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  const timeval limit{5, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return fd;
}

// Sends `bytes` and reads the echo; what came back.
std::string RoundTrip(int fd, const std::string& bytes) {
  std::string got;
  size_t sent = 0;
  while (got.size() < bytes.size()) {
    if (sent < bytes.size()) {
      const ssize_t n =
          send(fd, bytes.data() + sent, std::min<size_t>(bytes.size() - sent, 1000), MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += static_cast<size_t>(n);
    }
    char buffer[1000];
    const ssize_t n = recv(fd, buffer, sizeof buffer, sent < bytes.size() ? MSG_DONTWAIT : 0);
    if (n > 0) got.append(buffer, static_cast<size_t>(n));
    if (n == 0 || (n < 0 && sent == bytes.size())) break;
  }
  return got;
}

std::string Bytes(size_t n) {
  std::string s(n, '\0');
  for (size_t i = 0; i < n; ++i) s[i] = static_cast<char>(i * 7 + i / 251);
  return s;
}

std::unique_ptr<FaultProxy> Proxy(const Echo& echo, const FaultProxy::Chances& chances) {
  auto proxy = FaultProxy::Start(1);
  EXPECT_TRUE(proxy.ok()) << proxy.status();
  (*proxy)->set_target(echo.address());
  (*proxy)->set_chances(chances);
  return *std::move(proxy);
}

TEST(FaultProxy, PassesEverythingWhenItIsCalm) {
  const Echo echo;
  const auto proxy = Proxy(echo, {});
  const int fd = Dial(proxy->address());
  EXPECT_EQ(RoundTrip(fd, Bytes(200'000)), Bytes(200'000));
  close(fd);
  EXPECT_TRUE(proxy->happened().empty());
  EXPECT_GE(proxy->bytes(), 400'000);
}

TEST(FaultProxy, DelaysWithoutChangingAnything) {
  const Echo echo;
  const auto proxy = Proxy(echo, {.delay = 20});
  const int fd = Dial(proxy->address());
  const int64_t deadline = MonotonicNs() + 20 * kSecond;
  while (proxy->happened()["delay"] < 2 && MonotonicNs() < deadline)
    ASSERT_EQ(RoundTrip(fd, Bytes(500)), Bytes(500));
  close(fd);
  EXPECT_GE(proxy->happened()["delay"], 2);
}

TEST(FaultProxy, WhatArrivesIsAPrefixOfWhatWasSent) {
  const Echo echo;
  for (const FaultProxy::Chances& chances :
       {FaultProxy::Chances{.reset = 20}, FaultProxy::Chances{.half_close = 20},
        FaultProxy::Chances{.swallow = 20}}) {
    const auto proxy = Proxy(echo, chances);
    const std::string sent = Bytes(3000);
    int broken = 0;
    for (const int64_t deadline = MonotonicNs() + 20 * kSecond;
         broken < 3 && MonotonicNs() < deadline;) {
      const int fd = Dial(proxy->address());
      for (bool whole = true; whole && MonotonicNs() < deadline;) {
        const std::string got = RoundTrip(fd, sent);
        EXPECT_EQ(got, sent.substr(0, got.size()));
        whole = got.size() == sent.size();
      }
      ++broken;
      close(fd);
    }
    EXPECT_EQ(broken, 3);
    EXPECT_FALSE(proxy->happened().empty());
  }
}

TEST(FaultProxy, RefusesAndSoDoesAServerThatIsDown) {
  const Echo echo;
  const auto proxy = Proxy(echo, {.refuse = 1});
  int fd = Dial(proxy->address());
  EXPECT_EQ(RoundTrip(fd, "x"), "");
  close(fd);
  EXPECT_EQ(proxy->happened()["refuse"], 1);
  proxy->set_chances({});
  proxy->set_target("127.0.0.1:1");
  fd = Dial(proxy->address());
  EXPECT_EQ(RoundTrip(fd, "x"), "");
  close(fd);
}

}  // namespace
}  // namespace whet::testing
