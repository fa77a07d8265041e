#include "tests/bench/service/service_bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "compiler/driver/interrupt.h"
#include "compiler/support/env.h"
#include "compiler/support/paths.h"
#include "compiler/support/subprocess.h"
#include "fleet/pki/authority.h"
#include "proto/rpc/endpoint.h"
#include "proto/tuner.grpc.pb.h"
#include "tests/bench/service/load_fleet.h"

namespace whet::bench {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kWorkersOfCertificate = 100;  // streams of one certificate are limited

void SleepNs(int64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }

// Waits until it is true; false when it is not by the limit, or the bench was interrupted.
bool WaitFor(int64_t limit_ns, const std::function<bool()>& is) {
  const int64_t end = MonotonicNs() + limit_ns;
  while (!is()) {
    if (MonotonicNs() > end || driver::Interrupted()) return false;
    SleepNs(2 * kMillisecond);
  }
  return true;
}

Json Percentiles(std::vector<float> ms) {
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double q) {
    return ms.empty() ? 0.0
                      : static_cast<double>(
                            ms[static_cast<size_t>(q * static_cast<double>(ms.size() - 1))]);
  };
  return {{"count", ms.size()}, {"p50_ms", at(0.5)},    {"p90_ms", at(0.9)},
          {"p99_ms", at(0.99)}, {"p999_ms", at(0.999)}, {"max_ms", at(1)}};
}

class Bench {
 public:
  explicit Bench(const ServiceOptions& o) : o_(o) {}

  Status Run() {
    WHET_RETURN_IF_ERROR(Prepare());
    WHET_RETURN_IF_ERROR(StartServer());
    LoadFleet::Options options;
    options.workers = o_.workers;
    options.tracker = tracker_;
    options.connect = [this](int worker, const std::string& address) {
      return rpc::Dial(address, SecurityOf(worker), rpc::Peer::kServer);
    };
    options.certificate_id = [](int worker) {
      return fmt::format("load{}", worker / kWorkersOfCertificate);
    };
    fleet_ = std::make_unique<LoadFleet>(options);
    Status s = Connected();
    if (s.ok()) s = Results();
    if (s.ok()) s = Storm();
    if (s.ok()) s = Leases();
    fleet_.reset();
    server_.Signal(SIGTERM);
    server_.Wait(MonotonicNs() + 15 * kSecond);
    WHET_RETURN_IF_ERROR(s);
    return Report();
  }

 private:
  Status Prepare() {
    std::string name = "/dev/shm/whet-load-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) return Unavailable("cannot make a folder in /dev/shm");
    dir_ = name;
    // The log lies on a disk: what it costs to make a result durable is what is measured.
    std::string log = "whet-load-XXXXXX";
    if (mkdtemp(log.data()) == nullptr) return Unavailable("cannot make a folder here");
    log_dir_ = log;
    if (!o_.tls) return OkStatus();
    const int64_t now = time(nullptr);
    WHET_ASSIGN_OR_RETURN(pki::Authority ca, pki::Authority::Init(dir_ + "/ca", 30, now));
    const auto issue = [&](pki::Role role, const std::string& id,
                           std::vector<std::string> servers) -> Status {
      pki::Authority::Request request;
      request.name = {role, id};
      request.days = 2;
      request.servers = std::move(servers);
      return ca.Issue(request, now).status();
    };
    WHET_RETURN_IF_ERROR(issue(pki::Role::kServer, "lab", {}));
    WHET_RETURN_IF_ERROR(issue(pki::Role::kAdmin, "bench", {}));
    for (int i = 0; i * kWorkersOfCertificate < o_.workers; ++i) {
      const std::string id = fmt::format("load{}", i);
      WHET_RETURN_IF_ERROR(issue(pki::Role::kWorker, id, {}));
      WHET_ASSIGN_OR_RETURN(
          auto security,
          rpc::Security::Open({ca.BundleDir({pki::Role::kWorker, id}), "", {pki::Role::kWorker}}));
      workers_.push_back(std::move(security));
    }
    server_bundle_ = ca.BundleDir({pki::Role::kServer, "lab"});
    WHET_ASSIGN_OR_RETURN(
        admin_,
        rpc::Security::Open({ca.BundleDir({pki::Role::kAdmin, "bench"}), "", {pki::Role::kAdmin}}));
    return OkStatus();
  }

  const rpc::Security* SecurityOf(int worker) const {
    return o_.tls ? workers_[static_cast<size_t>(worker / kWorkersOfCertificate)].get() : nullptr;
  }

  // The same ports after a restart.
  Status StartServer() {
    WHET_ASSIGN_OR_RETURN(const std::string program, FindProgram("load-server"));
    SpawnOptions spawn;
    spawn.program = program;
    spawn.args = {
        "--listen",   server_address_.empty() ? std::string("127.0.0.1:0") : server_address_,
        "--tracker",  tracker_.empty() ? std::string(":0") : tracker_.substr(tracker_.rfind(':')),
        "--db",       log_dir_ + "/tuning.db",
        "--builders", "1"};
    if (o_.tls) {
      for (const std::string& flag :
           {std::string("--tls"), server_bundle_, std::string("--max-connections"),
            std::string("16000"), std::string("--max-connections-per-address"),
            std::string("16000")})
        spawn.args.push_back(flag);
    }
    int out[2];
    if (pipe(out) != 0) return Unavailable("no pipe");
    const int log = open((o_.log.empty() ? "/dev/null" : o_.log).c_str(),
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0) return InvalidArgument("--log '{}' cannot be written", o_.log);
    spawn.fds = {{out[1], 1}, {log, 2}};
    StatusOr<Subprocess> child = Subprocess::Spawn(spawn);
    close(out[1]);
    close(log);
    WHET_RETURN_IF_ERROR(child.status());
    server_ = std::move(*child);
    FILE* lines = fdopen(out[0], "r");
    char line[300], address[200], role[50];
    int found = 0;
    while (found < 2 && std::fgets(line, sizeof line, lines) != nullptr) {
      if (std::sscanf(line, "listening on %199s %49s", address, role) != 2) continue;
      (std::string(role) == "tracker" ? tracker_ : server_address_) = address;
      ++found;
    }
    std::fclose(lines);
    return found == 2 ? OkStatus() : Unavailable("load-server does not start");
  }

  int64_t ServerRss() const {
    return Field(fmt::format("/proc/{}/status", server_.pid()), "VmRSS:");
  }
  static int64_t Field(const std::string& file, const std::string& name) {
    std::ifstream in(file);
    std::string line;
    while (std::getline(in, line)) {
      if (line.starts_with(name)) return std::stoll(line.substr(name.size())) * 1024;
    }
    return 0;
  }
  double ServerCpuSeconds() const {
    std::ifstream in(fmt::format("/proc/{}/stat", server_.pid()));
    std::string text((std::istreambuf_iterator<char>(in)), {});
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string skip;
    for (int i = 0; i < 11; ++i) fields >> skip;
    double user = 0, system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

  Status Trouble(const std::string& what) {
    if (driver::Interrupted()) return Unavailable("interrupted");
    return Unavailable("{} (registered {}, serving {}, last trouble: {})", what,
                       fleet_->registered(), fleet_->serving(), fleet_->last_trouble());
  }

  Status Connected() {
    SleepNs(kSecond);
    const int64_t idle = ServerRss();
    const int64_t begin = MonotonicNs();
    for (int i = 0; i < o_.workers; ++i) {
      fleet_->Start(i);
      SleepNs(2 * kMillisecond);
    }
    if (!WaitFor(60 * kSecond, [&] { return fleet_->registered() == o_.workers; }))
      return Trouble("not all workers are registered after a minute");
    const double took = static_cast<double>(MonotonicNs() - begin) / 1e9;
    const double cpu = ServerCpuSeconds();
    SleepNs(15 * kSecond);  // three heartbeats
    const int64_t registered = ServerRss();
    json_["connected"] = {{"workers", o_.workers},
                          {"idle_mb", Mb(idle)},
                          {"connected_mb", Mb(registered)},
                          {"growth_mb", Mb(registered - idle)},
                          {"seconds", took},
                          {"heartbeats_cpu", (ServerCpuSeconds() - cpu) / 15}};
    Figure(fmt::format("{} workers connected, memory of the server over idle", o_.workers),
           "at most 150 MB", fmt::format("{:.0f} MB", Mb(registered - idle)),
           Mb(registered - idle) <= 150);
    return OkStatus();
  }

  StatusOr<std::string> Submit() {
    auto channel = rpc::Dial(server_address_, admin_.get(), rpc::Peer::kServer);
    auto stub = v1::Tuner::NewStub(channel);
    v1::SubmitJobRequest request;
    v1::JobSpec& spec = *request.mutable_spec();
    spec.set_name("load");
    spec.set_key("load");
    spec.set_threads(1);
    spec.set_strategy("random");
    spec.set_seed(1);
    spec.set_trials(15'000'000);
    v1::TaskSpec& task = *spec.add_tasks();
    task.set_workload("load");
    task.set_weight(1);
    task.set_name("load");
    v1::SubmitJobReply reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const grpc::Status s = stub->SubmitJob(&context, request, &reply);
    if (!s.ok()) return rpc::FromGrpc(s, "load-server");
    return reply.job_id();
  }

  Status Results() {
    fleet_->SetMeasureNs(static_cast<int64_t>(1e9 * o_.workers / o_.rate));
    WHET_RETURN_IF_ERROR(Submit().status());
    if (!WaitFor(60 * kSecond, [&] { return fleet_->serving() == o_.workers; }))
      return Trouble("not all workers are leased after a minute");
    SleepNs(static_cast<int64_t>(3e9 * o_.workers / o_.rate));  // until they are all at it
    fleet_->acks().Take();
    fleet_->turnarounds().Take();
    const int64_t begin = MonotonicNs(), acked = fleet_->acknowledged(), rss = ServerRss();
    const double cpu = ServerCpuSeconds();
    const auto end = begin + static_cast<int64_t>(o_.seconds * 1e9);
    if (WaitFor(end - begin, [] { return false; }); driver::Interrupted())
      return Unavailable("interrupted");
    const double seconds = static_cast<double>(MonotonicNs() - begin) / 1e9;
    const double rate = static_cast<double>(fleet_->acknowledged() - acked) / seconds;
    const Json acks = Percentiles(fleet_->acks().Take());
    json_["results"] = {
        {"seconds", seconds},
        {"a_second", rate},
        {"ack", acks},
        {"next_candidate", Percentiles(fleet_->turnarounds().Take())},
        {"server_cpu", (ServerCpuSeconds() - cpu) / seconds},
        {"serving_mb", Mb(rss)},
        {"serving_mb_after", Mb(ServerRss())},
        {"log_mb", Mb(static_cast<int64_t>(std::filesystem::file_size(log_dir_ + "/tuning.db")))},
        {"refusals", fleet_->refusals()}};
    Figure(fmt::format("results durably acknowledged, for {:.0f} s", seconds), "1,000 a second",
           fmt::format("{:.0f} a second", rate), rate >= 1000);
    Figure("result sent to acknowledged, p99", "at most 50 ms",
           fmt::format("{:.1f} ms", acks["p99_ms"].get<double>()), acks["p99_ms"] <= 50);
    return OkStatus();
  }

  Status Storm() {
    const int64_t lost = fleet_->leases_lost();
    server_.Kill();
    WHET_RETURN_IF_ERROR(StartServer());
    const int64_t begin = MonotonicNs();
    // First they notice that they are alone.
    WaitFor(5 * kSecond, [&] { return fleet_->serving() == 0 && fleet_->registered() == 0; });
    if (!WaitFor(120 * kSecond, [&] {
          return fleet_->serving() == o_.workers && fleet_->registered() == o_.workers;
        }))
      return Trouble("not all workers are back two minutes after a restart");
    const double took = static_cast<double>(MonotonicNs() - begin) / 1e9;
    const int64_t lost_now = fleet_->leases_lost() - lost;
    json_["storm"] = {{"seconds", took}, {"leases_lost", lost_now}};
    Figure(fmt::format("{} workers back after a restart, leases lost", o_.workers),
           "at most 15 s, 0", fmt::format("{:.1f} s, {}", took, lost_now),
           took <= 15 && lost_now == 0);
    return OkStatus();
  }

  Status Leases() {
    fleet_->leases().Take();
    fleet_->Churn(o_.leases);
    if (WaitFor(20 * kSecond, [] { return false; }); driver::Interrupted())
      return Unavailable("interrupted");
    fleet_->Churn(0);
    const Json leases = Percentiles(fleet_->leases().Take());
    const double rate = leases["count"].get<double>() / 20;
    json_["leases"] = {{"a_second", rate}, {"dispatch", leases}};
    Figure(fmt::format("free worker to lease, p99, {:.0f} a second", rate),
           fmt::format("at most 20 ms at {}", o_.leases),
           fmt::format("{:.1f} ms", leases["p99_ms"].get<double>()),
           leases["p99_ms"] <= 20 && rate >= 0.95 * o_.leases);
    return OkStatus();
  }

  static double Mb(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

  void Figure(const std::string& what, const std::string& must, const std::string& measured,
              bool met) {
    figures_.push_back({{"figure", what}, {"must", must}, {"measured", measured}, {"met", met}});
    fmt::print("{:<62} {:<22} {:<22} {}\n", what, must, measured, met ? "met" : "MISSED");
    std::fflush(stdout);
  }

  Status Report() {
    json_["figures"] = figures_;
    Json all = {{"whet_bench_service", 1},
                {"tls", o_.tls},
                {"processors", std::thread::hardware_concurrency()}};
    all.update(json_);
    if (o_.json.empty()) return OkStatus();
    return WriteFile(o_.json, all.dump(1) + "\n");
  }

 public:
  ~Bench() {
    fleet_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
    std::filesystem::remove_all(log_dir_, ignored);
  }

 private:
  const ServiceOptions o_;
  std::string dir_, log_dir_;
  std::string tracker_, server_address_, server_bundle_;
  std::vector<std::shared_ptr<rpc::Security>> workers_;
  std::shared_ptr<rpc::Security> admin_;
  Subprocess server_;
  std::unique_ptr<LoadFleet> fleet_;
  Json json_ = Json::object(), figures_ = Json::array();
};

}  // namespace

Status BenchService(const ServiceOptions& options) { return Bench(options).Run(); }

}  // namespace whet::bench
