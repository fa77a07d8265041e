// The task of the zoo (tests/service/zoo): y[i] = x[i] * w[i] on f32[1000], with its expected
// outputs, and the runner program to measure its candidates with.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "compiler/support/env.h"
#include "compiler/support/expected.h"
#include "compiler/support/frame.h"
#include "compiler/support/inputs.h"
#include "compiler/support/subprocess.h"
#include "proto/run.pb.h"
#include "worker/measure/runner.h"

namespace whet::testing {

inline std::string EnvOr(const char* name, const char* fallback) {
  const char* v = std::getenv(name);
  return v ? v : fallback;
}
inline std::string Program(const std::string& name) {
  return EnvOr("WHET_BIN_DIR", "./bin") + "/" + name;
}
inline std::string ZooPath(const std::string& name) {
  return EnvOr("WHET_ZOO_DIR", "./zoo") + "/" + name + ".so";
}

class TempDir {
 public:
  TempDir() {
    std::string name = "/tmp/whet-test-XXXXXX";
    path_ = mkdtemp(name.data()) ? name : "";
  }
  ~TempDir() {
    if (std::system(("rm -rf '" + path_ + "'").c_str()) != 0) ADD_FAILURE();
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline constexpr int64_t kZooElements = 1000;
inline const std::vector<uint64_t>& ZooSeeds() {
  static const std::vector<uint64_t> seeds = {101, 202};
  return seeds;
}

inline std::vector<v1::BufferSpec> ZooBuffers(int64_t elements = kZooElements) {
  std::vector<v1::BufferSpec> buffers(3);
  const v1::BufferRole roles[] = {v1::BUFFER_INPUT, v1::BUFFER_OUTPUT, v1::BUFFER_PARAMETER};
  for (size_t i = 0; i < 3; ++i) {
    buffers[i].set_role(roles[i]);
    buffers[i].set_dtype(static_cast<uint32_t>(DType::kF32));
    buffers[i].add_shape(elements);
    buffers[i].set_tensor_index(i);
    buffers[i].set_lo(0.5);  // no product is near zero: zeros are a wrong answer everywhere
    buffers[i].set_hi(2);
  }
  return buffers;
}

inline std::string ZooExpectedFor(const std::vector<uint64_t>& wanted,
                                  int64_t elements = kZooElements) {
  std::vector<ExpectedForSeed> seeds;
  const int64_t shape[] = {elements};
  for (const uint64_t seed : wanted) {
    std::vector<float> x(static_cast<size_t>(elements)), w(static_cast<size_t>(elements));
    FillInput(DType::kF32, seed, 0, 0.5, 2, {shape, {}}, x.data());
    FillInput(DType::kF32, seed, 2, 0.5, 2, {shape, {}}, w.data());
    ExpectedOutput out;
    for (size_t i = 0; i < x.size(); ++i) {
      out.expected.push_back(static_cast<double>(x[i]) * static_cast<double>(w[i]));
      out.tolerance.push_back(1e-5f);
    }
    seeds.push_back({seed, {out}});
  }
  return EncodeExpected(seeds);
}

inline std::string ZooExpected() { return ZooExpectedFor(ZooSeeds()); }

inline v1::MeasureSpec ZooSpec(int64_t elements = kZooElements) {
  v1::MeasureSpec spec;
  for (const v1::BufferSpec& b : ZooBuffers(elements)) *spec.add_buffers() = b;
  for (const uint64_t seed : ZooSeeds()) spec.add_seeds(seed);
  spec.set_threads(1);
  spec.set_time_limit_ns(2 * kSecond);
  spec.set_memory_limit_bytes(int64_t{256} << 20);
  v1::MeasurePlan& plan = *spec.mutable_plan();
  plan.set_min_measured_ns(3 * kMillisecond);
  plan.set_rung2_ns(5 * kMillisecond);
  plan.set_rung3_ns(10 * kMillisecond);
  plan.set_min_pairs(10);
  plan.set_pairs_ns(10 * kMillisecond);
  plan.set_sigma(0.02);
  return spec;
}

class RunnerProcess {
 public:
  // `leaked`: a descriptor of ours that the runner has, too.
  explicit RunnerProcess(const std::vector<std::string>& args = {}, int leaked = -1) {
    const auto fds = SocketPair();
    SpawnOptions options;
    options.program = Program("whet-runner");
    options.args = args;
    options.fds = {{fds->second, worker::kRunnerFd}};
    if (leaked >= 0) options.fds.emplace_back(leaked, 9);
    StatusOr<Subprocess> child = Subprocess::Spawn(options);
    EXPECT_TRUE(child.ok()) << child.status();
    if (child.ok()) process_ = std::move(*child);
    close(fds->second);
    fd_ = fds->first;
    const StatusOr<Frame> frame =
        ReadFrame(fd_, worker::kMaxRunFrame, MonotonicNs() + 10 * kSecond);
    EXPECT_TRUE(frame.ok() && frame->type == worker::kRunnerHello &&
                hello_.ParseFromString(frame->payload));
  }
  // It ends by itself, and takes its control group along.
  ~RunnerProcess() {
    close(fd_);
    if (process_.running()) process_.Wait(MonotonicNs() + 10 * kSecond);
  }

  void Send(const v1::RunRequest& request) {
    EXPECT_TRUE(WriteFrame(fd_, worker::kRunRequest, request.SerializeAsString()).ok());
  }
  v1::Measurement Run(const v1::RunRequest& request) {
    v1::RunReply reply;
    Send(request);
    const StatusOr<Frame> frame =
        ReadFrame(fd_, worker::kMaxRunFrame, MonotonicNs() + 60 * kSecond);
    EXPECT_TRUE(frame.ok()) << frame.status();
    EXPECT_TRUE(frame.ok() && frame->type == worker::kRunReply &&
                reply.ParseFromString(frame->payload));
    EXPECT_EQ(reply.id(), request.id());
    return reply.measurement();
  }

  Subprocess& process() { return process_; }
  const v1::RunnerHello& hello() const { return hello_; }

 private:
  Subprocess process_;
  int fd_ = -1;
  v1::RunnerHello hello_;
};

}  // namespace whet::testing
