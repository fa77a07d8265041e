// The server's whet-builder zygotes: a queue of requests and one thread per zygote that feeds it. A
// zygote that is lost is started anew and its request answered with INFRASTRUCTURE. Start before
// gRPC's threads exist. Thread-safe.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "compiler/support/mailbox.h"
#include "compiler/support/status.h"
#include "compiler/support/subprocess.h"
#include "proto/build.pb.h"

namespace whet::tuner {

class BuilderPool {
 public:
  using Callback = std::function<void(v1::BuildReply reply)>;  // on a thread of the pool

  static StatusOr<std::unique_ptr<BuilderPool>> Start(const std::string& program, int builders);
  ~BuilderPool();  // requests that are queued are dropped
  BuilderPool(const BuilderPool&) = delete;
  BuilderPool& operator=(const BuilderPool&) = delete;

  void Build(v1::BuildRequest request, Callback done);
  const v1::BuilderHello& hello() const { return hello_; }
  int builders() const { return static_cast<int>(zygotes_.size()); }

 private:
  struct Zygote {
    Subprocess process;
    int fd = -1;
    std::thread thread;
  };
  struct Request {
    v1::BuildRequest build;
    Callback done;  // empty: stop
  };

  explicit BuilderPool(std::string program) : program_(std::move(program)) {}
  Status Spawn(Zygote* z, v1::BuilderHello* hello) const;
  void Serve(Zygote* z);
  v1::BuildReply Exchange(Zygote* z, const v1::BuildRequest& request);

  const std::string program_;
  v1::BuilderHello hello_;
  Mailbox<Request> requests_;
  std::atomic<bool> stopping_{false};
  std::vector<std::unique_ptr<Zygote>> zygotes_;
};

}  // namespace whet::tuner
