// How long a candidate takes to build (lower, generate, link), with the zygote warm and nothing
// else to do:
//   build_bench LOG [N]
// Builds the first N distinct candidates of a tuning log again for this machine (default: 300), one
// after the other, and prints one JSON object: builds, failures, and the median, 10th and 90th
// percentile in milliseconds, the child's start and sandbox included. Pin it to one core (taskset)
// for the figure.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <vector>

#include "compiler/support/clock.h"
#include "compiler/support/paths.h"
#include "compiler/target/target.h"
#include "db/store/tuning_log.h"
#include "tuner/service/builder_pool.h"

namespace whet {
namespace {

struct Times {
  std::vector<double> ms;
  int failed = 0;
};

v1::BuildReply Wait(tuner::BuilderPool& pool, const v1::BuildRequest& request) {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<v1::BuildReply> reply;
  pool.Build(request, [&](v1::BuildReply r) {
    const std::lock_guard lock(mutex);
    reply = std::move(r);
    done.notify_one();
  });
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return reply.has_value(); });
  return std::move(*reply);
}

StatusOr<std::vector<v1::BuildRequest>> Candidates(const std::string& path, size_t wanted) {
  WHET_ASSIGN_OR_RETURN(const auto log, db::LogReader::Open(path));
  const std::string target = Target::Host().ToString();
  std::vector<v1::BuildRequest> requests;
  std::set<std::string> seen;
  std::vector<Fingerprint> workloads;
  WHET_RETURN_IF_ERROR(
      log->ForEachTrial(nullptr,
                        [&](const db::TrialRow& row) {
                          if (!seen.insert(row.key.workload.Hex() + row.trace).second) return true;
                          v1::BuildRequest r;
                          r.set_trace(row.trace);
                          r.set_target(target);
                          r.set_threads(static_cast<uint32_t>(row.key.threads));
                          r.set_time_limit_ns(20 * kSecond);
                          r.set_memory_limit_bytes(int64_t{2} << 30);
                          workloads.push_back(row.key.workload);
                          requests.push_back(std::move(r));
                          return requests.size() < wanted;
                        })
          .status());
  for (size_t i = 0; i < requests.size(); ++i) {
    WHET_ASSIGN_OR_RETURN(const db::WorkloadRow workload, log->Workload(workloads[i]));
    requests[i].set_workload(workload.text);
  }
  return requests;
}

StatusOr<Times> Measure(const std::vector<v1::BuildRequest>& requests) {
  WHET_ASSIGN_OR_RETURN(const std::string program, FindProgram("whet-builder"));
  WHET_ASSIGN_OR_RETURN(const auto pool, tuner::BuilderPool::Start(program, 1));
  Times times;
  for (const v1::BuildRequest& request : requests) {
    const v1::BuildReply reply = Wait(*pool, request);
    if (reply.failure() == v1::FAILURE_OK) {
      times.ms.push_back(static_cast<double>(reply.build_ns()) * 1e-6);
    } else {
      if (times.failed++ == 0) fmt::print(stderr, "build_bench: {}\n", reply.message());
    }
  }
  return times;
}

Status Run(const std::string& path, size_t wanted) {
  WHET_ASSIGN_OR_RETURN(const auto requests, Candidates(path, wanted));
  WHET_ASSIGN_OR_RETURN(Times times, Measure(requests));
  std::sort(times.ms.begin(), times.ms.end());
  const auto at = [&](double q) {
    if (times.ms.empty()) return 0.0;
    return times.ms[static_cast<size_t>(q * static_cast<double>(times.ms.size() - 1))];
  };
  fmt::print(
      "{{\"builds\": {}, \"failed\": {}, \"median_ms\": {:.2f}, \"p10_ms\": {:.2f}, "
      "\"p90_ms\": {:.2f}}}\n",
      times.ms.size(), times.failed, at(0.5), at(0.1), at(0.9));
  return OkStatus();
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) {
  const int wanted = argc == 3 ? std::atoi(argv[2]) : 300;
  if (argc < 2 || argc > 3 || wanted < 1) {
    fmt::print(stderr, "usage: {} LOG [N]\n", argv[0]);
    return 2;
  }
  const whet::Status status = whet::Run(argv[1], static_cast<size_t>(wanted));
  if (status.ok()) return 0;
  fmt::print(stderr, "build_bench: {}\n", whet::Message(status));
  return 1;
}
