#include "proto/rpc/gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include "compiler/support/env.h"
#include "proto/rpc/client_hello.h"
#include "proto/rpc/token_bucket.h"

namespace whet::rpc {
namespace {

constexpr int64_t kTick = 250 * kMillisecond;
constexpr int64_t kPauseWithoutDescriptors = 100 * kMillisecond;
constexpr int64_t kSayRefusalsEvery = 10 * kSecond;
constexpr int kAcceptsAtOnce = 64;
constexpr uint64_t kListenerKey = 0, kWakeKey = 1, kFirstKey = 2;
// An address may open as many connections as it may have at once, and after that so many a second
// that all of them are back within five: enough for a site whose server was restarted.
constexpr double kRefillSeconds = 5;

}  // namespace

// Where a connection comes from.
struct Remote {
  std::string address;  // "10.0.0.1"
  std::string peer;     // as gRPC has it
};

namespace {

Remote RemoteOf(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return {text, fmt::format("ipv4:{}:{}", text, ntohs(v4->sin_port))};
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
    inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], text, sizeof text);
    return {text, fmt::format("ipv4:{}:{}", text, ntohs(v6->sin6_port))};
  }
  inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  // One holder of a network has all the addresses below its /64.
  in6_addr network = v6->sin6_addr;
  std::memset(&network.s6_addr[8], 0, 8);
  char prefix[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &network, prefix, sizeof prefix);
  return {prefix, fmt::format("ipv6:[{}]:{}", text, ntohs(v6->sin6_port))};
}

}  // namespace

std::string PlainPeer(std::string_view peer) {
  std::string plain;
  for (size_t i = 0; i < peer.size(); ++i) {
    const std::string_view three = peer.substr(i, 3);
    if (three == "%5B" || three == "%5D") {
      plain += three == "%5B" ? '[' : ']';
      i += 2;
    } else {
      plain += peer[i];
    }
  }
  return plain;
}

class Gate::Impl {
 public:
  Impl(int listener, const Limits& limits, HandOn hand_on, Admits admits)
      : listener_(listener),
        limits_(limits),
        hand_on_(std::move(hand_on)),
        admits_(std::move(admits)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  ~Impl() {
    stopping_ = true;
    if (wake_ >= 0) eventfd_write(wake_, 1);
    if (thread_.joinable()) thread_.join();
    for (const auto& [key, c] : connections_) close(c.fd);
    for (const int fd : {listener_, epoll_, wake_}) {
      if (fd >= 0) close(fd);
    }
  }

  Status Start() {
    if (epoll_ < 0 || wake_ < 0) return ErrnoStatus(errno, "cannot watch connections");
    fcntl(listener_, F_SETFL, fcntl(listener_, F_GETFL) | O_NONBLOCK);
    if (!Watch(listener_, kListenerKey, EPOLLIN) || !Watch(wake_, kWakeKey, EPOLLIN))
      return ErrnoStatus(errno, "cannot watch connections");
    thread_ = std::thread([this] { Run(); });
    return OkStatus();
  }

  GateCounts counts() const {
    const std::lock_guard lock(mu_);
    GateCounts counts = counts_;
    counts.open = static_cast<int64_t>(connections_.size());
    return counts;
  }

  void Authorized(const std::string& peer, const pki::CertificateInfo& certificate) {
    const std::lock_guard lock(mu_);
    const auto key = by_peer_.find(peer);
    if (key == by_peer_.end()) return;
    connections_[key->second].holder = certificate;
  }

 private:
  struct Connection {
    int fd = -1;
    Remote remote;
    int64_t since_ns = 0;
    bool handed_on = false;
    std::optional<pki::CertificateInfo> holder;  // once a call was authorized
  };
  struct Address {
    int64_t open = 0;
    TokenBucket arrivals;
  };

  bool Watch(int fd, uint64_t key, uint32_t events, int operation = EPOLL_CTL_ADD) {
    epoll_event event = {};
    event.events = events;
    event.data.u64 = key;
    return epoll_ctl(epoll_, operation, fd, &event) == 0;
  }

  void Run() {
    std::array<epoll_event, 128> events;
    int64_t next_tick = 0;
    while (!stopping_) {
      const int n = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
                               static_cast<int>(kTick / kMillisecond));
      const int64_t now = MonotonicNs();
      for (int i = 0; i < n; ++i) {
        const uint64_t key = events[static_cast<size_t>(i)].data.u64;
        if (key == kListenerKey) {
          AcceptSome(now);
        } else if (key >= kFirstKey) {
          OnEvent(key, events[static_cast<size_t>(i)].events);
        }
      }
      if (now >= next_tick) {
        next_tick = now + kTick;
        Tick(now);
      }
    }
  }

  void AcceptSome(int64_t now) {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      sockaddr_storage storage = {};
      socklen_t size = sizeof storage;
      const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&storage), &size,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
          // Out of descriptors or memory: the ones that wait would be announced without end.
          spdlog::error("event=cannot_accept error=\"{}\"", strerror(errno));
          Watch(listener_, kListenerKey, 0, EPOLL_CTL_MOD);
          paused_until_ = now + kPauseWithoutDescriptors;
        }
        return;
      }
      Admit(now, fd, RemoteOf(storage));
    }
  }

  void Admit(int64_t now, int fd, Remote remote) {
    const std::lock_guard lock(mu_);
    ++counts_.accepted;
    const auto per_address = static_cast<double>(limits_.max_per_address);
    const auto [it, fresh] = addresses_.try_emplace(
        remote.address, Address{0, TokenBucket{per_address / kRefillSeconds, per_address}});
    int64_t* refused = nullptr;
    if (static_cast<int64_t>(connections_.size()) >= limits_.max_connections) {
      refused = &counts_.refused_full;
    } else if (it->second.open >= limits_.max_per_address) {
      refused = &counts_.refused_address;
    } else if (!it->second.arrivals.Take(now)) {
      refused = &counts_.refused_rate;
    }
    if (refused) {
      ++*refused;
      close(fd);
      if (fresh) addresses_.erase(it);
      return;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const uint64_t key = ++last_key_;
    // Edges: bytes that are only looked at would be announced without end.
    if (!Watch(fd, key, EPOLLIN | EPOLLRDHUP | EPOLLET)) {
      close(fd);
      return;
    }
    ++it->second.open;
    Connection& c = connections_[key];
    c.fd = fd;
    c.since_ns = now;
    by_peer_[remote.peer] = key;
    c.remote = std::move(remote);
  }

  void OnEvent(uint64_t key, uint32_t events) {
    int given = -1;
    {
      const std::lock_guard lock(mu_);
      const auto it = connections_.find(key);
      if (it == connections_.end()) return;
      Connection& c = it->second;
      if ((events & EPOLLHUP) != 0) {
        Drop(it);  // gRPC has shut it down, or the peer is gone
        return;
      }
      if (c.handed_on) return;
      hello_.resize(kMaxHelloBytes);
      const ssize_t n = recv(c.fd, hello_.data(), hello_.size(), MSG_PEEK);
      const Hello hello = n < 0 && (errno == EAGAIN || errno == EINTR) ? Hello::kMore
                          : n <= 0                                     ? Hello::kNotTls
                                   : InspectHello({hello_.data(), static_cast<size_t>(n)});
      if (hello == Hello::kMore && (events & EPOLLRDHUP) == 0) return;
      if (hello != Hello::kTls13) {
        ++(hello == Hello::kOldTls ? counts_.refused_old_tls : counts_.refused_not_tls);
        Drop(it);
        return;
      }
      given = fcntl(c.fd, F_DUPFD_CLOEXEC, 0);
      // From here on only its end is of interest, which is announced without being asked for.
      if (given < 0 || !Watch(c.fd, key, 0, EPOLL_CTL_MOD)) {
        if (given >= 0) close(given);
        Drop(it);
        return;
      }
      c.handed_on = true;
      ++counts_.handed_on;
    }
    hand_on_(given);
  }

  void Tick(int64_t now) {
    if (paused_until_ != 0 && now >= paused_until_) {
      paused_until_ = 0;
      Watch(listener_, kListenerKey, EPOLLIN, EPOLL_CTL_MOD);
    }
    const std::lock_guard lock(mu_);
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto next = std::next(it);
      Connection& c = it->second;
      if (!c.handed_on && now - c.since_ns > limits_.hello_ns) {
        ++counts_.refused_slow;
        End(it);
      } else if (!c.holder && now - c.since_ns > limits_.authorize_ns) {
        ++counts_.closed_unauthorized;
        End(it);
      } else if (c.holder) {
        if (const Status s = admits_(*c.holder); !s.ok()) {
          ++counts_.closed_denied;
          spdlog::warn("event=connection_closed peer={} reason=\"{}\"", c.remote.peer, Message(s));
          End(it);
        }
      }
      it = next;
    }
    for (auto it = addresses_.begin(); it != addresses_.end();) {
      it = it->second.open == 0 && it->second.arrivals.Full(now) ? addresses_.erase(it)
                                                                 : std::next(it);
    }
    SayRefusals(now);
  }

  void SayRefusals(int64_t now) {
    const int64_t refused = counts_.refused_full + counts_.refused_address + counts_.refused_rate +
                            counts_.refused_not_tls + counts_.refused_old_tls +
                            counts_.refused_slow + counts_.closed_unauthorized;
    if (refused == said_refused_ || now < say_at_) return;
    say_at_ = now + kSayRefusalsEvery;
    spdlog::warn(
        "event=connections_refused new={} full={} address={} rate={} not_tls={} old_tls={} slow={} "
        "unauthorized={}",
        refused - said_refused_, counts_.refused_full, counts_.refused_address,
        counts_.refused_rate, counts_.refused_not_tls, counts_.refused_old_tls,
        counts_.refused_slow, counts_.closed_unauthorized);
    said_refused_ = refused;
  }

  using Connections = std::unordered_map<uint64_t, Connection>;
  // Also gRPC's descriptor of it reads the end.
  void End(Connections::iterator it) {
    shutdown(it->second.fd, SHUT_RDWR);
    Drop(it);
  }
  void Drop(Connections::iterator it) {
    Connection& c = it->second;
    // A closed descriptor is not watched any more only when no duplicate of it is open.
    epoll_ctl(epoll_, EPOLL_CTL_DEL, c.fd, nullptr);
    close(c.fd);
    if (const auto peer = by_peer_.find(c.remote.peer);
        peer != by_peer_.end() && peer->second == it->first)
      by_peer_.erase(peer);
    if (const auto a = addresses_.find(c.remote.address); a != addresses_.end()) --a->second.open;
    connections_.erase(it);
  }

  const int listener_;
  const Limits limits_;
  const HandOn hand_on_;
  const Admits admits_;
  const int epoll_, wake_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;

  // Of the thread.
  std::string hello_;
  uint64_t last_key_ = kFirstKey;
  int64_t paused_until_ = 0, say_at_ = 0, said_refused_ = 0;

  mutable std::mutex mu_;
  Connections connections_;
  std::unordered_map<std::string, uint64_t> by_peer_;
  std::map<std::string, Address> addresses_;
  GateCounts counts_;
};

namespace {

std::mutex gates_mu;
std::set<Gate*>& Gates() {
  static auto& gates = *new std::set<Gate*>;
  return gates;
}

}  // namespace

StatusOr<std::unique_ptr<Gate>> Gate::Start(int listener, const Limits& limits, HandOn hand_on,
                                            Admits admits) {
  auto impl = std::make_unique<Impl>(listener, limits, std::move(hand_on), std::move(admits));
  WHET_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Gate>(new Gate(std::move(impl)));
}

Gate::Gate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  const std::lock_guard lock(gates_mu);
  Gates().insert(this);
}

Gate::~Gate() {
  const std::lock_guard lock(gates_mu);
  Gates().erase(this);
}

GateCounts Gate::counts() const { return impl_->counts(); }

void Gate::Authorized(std::string_view peer, const pki::CertificateInfo& certificate) {
  const std::string plain = PlainPeer(peer);
  const std::lock_guard lock(gates_mu);
  for (Gate* gate : Gates()) gate->impl_->Authorized(plain, certificate);
}

}  // namespace whet::rpc
