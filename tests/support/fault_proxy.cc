#include "tests/support/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <vector>

#include "compiler/support/clock.h"
#include "compiler/support/env.h"
#include "compiler/support/rng.h"

namespace whet::testing {
namespace {

constexpr int64_t kDraw = 50 * kMillisecond;  // how often faults are drawn
constexpr size_t kMaxBuffered = 4u
                                << 20;  // per direction; a sender beyond waits, as on a full window

sockaddr_in Loopback(int port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

void CloseWithReset(int fd) {
  const linger now{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close(fd);
}

}  // namespace

// Index 0 is the client's side, 1 the server's. A direction is named after where its bytes come
// from.
struct FaultProxy::Connection {
  struct Piece {
    int64_t at_ns;
    std::string bytes;
  };
  int fd[2] = {-1, -1};
  std::deque<Piece> pending[2];
  size_t buffered[2] = {0, 0};
  bool ended[2] = {false, false};  // nothing more comes from there
  bool told[2] = {false, false};   // and the other side knows
  bool half_closed[2] = {false, false};
  int64_t frozen_until = 0, slow_until = 0, swallow_until = 0;
  bool dead = false;

  void Die() {
    for (int& f : fd) {
      if (f >= 0) CloseWithReset(f);
      f = -1;
    }
    dead = true;
  }
};

StatusOr<std::unique_ptr<FaultProxy>> FaultProxy::Start(uint64_t seed) {
  std::unique_ptr<FaultProxy> proxy(new FaultProxy(seed));
  proxy->listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (proxy->listener_ < 0 ||
      bind(proxy->listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(proxy->listener_, 128) != 0 ||
      getsockname(proxy->listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      pipe2(proxy->wake_, O_CLOEXEC | O_NONBLOCK) != 0)
    return ErrnoStatus(errno, "cannot listen for the fault proxy");
  proxy->address_ = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  proxy->thread_ = std::thread([p = proxy.get()] { p->Run(); });
  return proxy;
}

FaultProxy::~FaultProxy() {
  stopping_ = true;
  if (wake_[1] >= 0 && write(wake_[1], "x", 1) < 0)
    stopping_ = true;  // it looks every 50 ms anyway
  if (thread_.joinable()) thread_.join();
  for (const int fd : {listener_, wake_[0], wake_[1]}) {
    if (fd >= 0) close(fd);
  }
}

void FaultProxy::set_target(const std::string& address) {
  const std::lock_guard lock(mu_);
  target_port_ = std::atoi(address.c_str() + address.rfind(':') + 1);
}
void FaultProxy::set_chances(const Chances& chances) {
  const std::lock_guard lock(mu_);
  chances_ = chances;
}
std::map<std::string, int64_t> FaultProxy::happened() const {
  const std::lock_guard lock(mu_);
  return happened_;
}

void FaultProxy::Run() {
  Rng rng(seed_);
  std::vector<std::unique_ptr<Connection>> connections;
  int64_t next_draw = MonotonicNs();
  const auto count = [this](const char* fault) {
    const std::lock_guard lock(mu_);
    ++happened_[fault];
  };
  const auto chances = [this] {
    const std::lock_guard lock(mu_);
    return chances_;
  };

  const auto accept_one = [&] {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) return;
    if (rng.Uniform() < chances().refuse) {
      count("refuse");
      CloseWithReset(client);
      return;
    }
    int port = 0;
    {
      const std::lock_guard lock(mu_);
      port = target_port_;
    }
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(port);
    // On loopback this is answered at once; a server that is down refuses, and so does the proxy.
    if (server < 0 ||
        connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      if (server >= 0) close(server);
      CloseWithReset(client);
      return;
    }
    fcntl(server, F_SETFL, O_NONBLOCK);
    const int on = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections.push_back(std::make_unique<Connection>());
    connections.back()->fd[0] = client;
    connections.back()->fd[1] = server;
  };

  const auto draw = [&](Connection* c, int64_t now) {
    const Chances p = chances();
    const auto happens = [&](double per_second, const char* fault) {
      if (per_second <= 0 || rng.Uniform() >= per_second * static_cast<double>(kDraw) * 1e-9)
        return false;
      count(fault);
      return true;
    };
    if (happens(p.delay, "delay")) c->slow_until = now + 500 * kMillisecond;
    if (happens(p.freeze, "freeze")) c->frozen_until = now + rng.Below(20 * kSecond);
    if (happens(p.half_close, "half_close")) {
      const size_t from = static_cast<size_t>(rng.Below(2));
      c->half_closed[from] = c->ended[from] = true;
      c->pending[from].clear();
    }
    if (c->swallow_until == 0 && happens(p.swallow, "swallow"))
      c->swallow_until = now + 1 + rng.Below(kSecond);
    if (happens(p.reset, "reset") || (c->swallow_until != 0 && now >= c->swallow_until)) c->Die();
  };

  // What came from a side, into the queue of its direction.
  const auto take = [&](Connection* c, size_t from, int64_t now) {
    char buffer[16 << 10];
    const ssize_t n = recv(c->fd[from], buffer, sizeof buffer, 0);
    if (n < 0) {
      if (errno != EAGAIN && errno != EINTR) c->Die();
      return;
    }
    if (n == 0) {
      c->ended[from] = true;
      return;
    }
    if (c->half_closed[from] || (from == 1 && c->swallow_until != 0)) return;  // lost
    const int64_t wait = now < c->slow_until ? 5 * kMillisecond + rng.Below(195 * kMillisecond) : 0;
    const int64_t before = c->pending[from].empty() ? 0 : c->pending[from].back().at_ns;
    c->pending[from].push_back(
        {std::max(before, now + wait), std::string(buffer, static_cast<size_t>(n))});
    c->buffered[from] += static_cast<size_t>(n);
  };

  // What is due, out to the other side.
  const auto give = [&](Connection* c, size_t from, int64_t now) {
    const int to = c->fd[1 - from];
    while (!c->dead && !c->pending[from].empty() && c->pending[from].front().at_ns <= now) {
      std::string& bytes = c->pending[from].front().bytes;
      const ssize_t n = send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0) {
        if (errno != EAGAIN && errno != EINTR) c->Die();
        return;
      }
      bytes_ += n;
      c->buffered[from] -= static_cast<size_t>(n);
      bytes.erase(0, static_cast<size_t>(n));
      if (!bytes.empty()) return;
      c->pending[from].pop_front();
    }
    if (!c->dead && c->ended[from] && c->pending[from].empty() && !c->told[from]) {
      c->told[from] = true;
      shutdown(to, SHUT_WR);
      if (c->told[0] && c->told[1]) c->Die();
    }
  };

  while (!stopping_) {
    std::vector<pollfd> polled = {{listener_, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    const int64_t before = MonotonicNs();
    int64_t next = next_draw;
    for (const auto& c : connections) {
      for (size_t side = 0; side < 2; ++side) {
        short events = 0;
        const bool frozen = before < c->frozen_until;
        if (!frozen && !c->ended[side] && c->buffered[side] < kMaxBuffered) events |= POLLIN;
        const auto& out = c->pending[1 - side];
        if (!frozen && !out.empty() && out.front().at_ns <= before) events |= POLLOUT;
        if (!frozen && !out.empty()) next = std::min(next, out.front().at_ns);
        polled.push_back({events ? c->fd[side] : -1, events, 0});
      }
    }
    poll(polled.data(), polled.size(), std::max(1, PollTimeoutMs(before, next)));
    const int64_t now = MonotonicNs();
    for (size_t i = 0; i < connections.size(); ++i) {
      Connection* c = connections[i].get();
      if (now < c->frozen_until) continue;
      for (size_t side = 0; side < 2 && !c->dead; ++side) {
        if (polled[2 + 2 * i + side].revents & (POLLIN | POLLHUP | POLLERR)) take(c, side, now);
      }
      for (size_t side = 0; side < 2 && !c->dead; ++side) give(c, side, now);
    }
    if (polled[0].revents & POLLIN) accept_one();
    if (now >= next_draw) {
      next_draw = now + kDraw;
      for (const auto& c : connections) {
        if (!c->dead) draw(c.get(), now);
      }
    }
    std::erase_if(connections, [](const auto& c) { return c->dead; });
  }
  for (const auto& c : connections) c->Die();
}

}  // namespace whet::testing
