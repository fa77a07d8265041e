// whet devices and whet jobs: what a tracker and a tuner server know.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "compiler/driver/report.h"
#include "compiler/driver/tuner_client.h"
#include "compiler/driver/verbs.h"

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

class DevicesVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags.Add("--tracker", &tracker_, "the tracker to ask").Value("HOST:PORT");
    flags.Add("--server", &server_, "or a tuner server, which asks its own tracker")
        .Value("HOST:PORT");
    flags.Add("--key", &key_, "only devices of this key").Value("KEY");
    flags.Json(&json_);
    flags.Example("whet devices --tracker 127.0.0.1:9190");
    flags.Example("whet devices --server 127.0.0.1:9191 --key rpi4 --json -");
  }

  int Run() override { return Explain("devices", Go()); }

 private:
  StatusOr<v1::ListDevicesReply> Ask() const {
    if (tracker_.empty() == server_.empty())
      return InvalidArgument("name one of --tracker HOST:PORT and --server HOST:PORT");
    if (!tracker_.empty()) return TrackerDevices(tracker_, key_);
    WHET_ASSIGN_OR_RETURN(const auto client, TunerClient::Connect(server_));
    return client->Devices(key_);
  }

  Status Go() const {
    WHET_ASSIGN_OR_RETURN(const v1::ListDevicesReply reply, Ask());
    Json devices = Json::array();
    if (TextWanted(json_))
      fmt::print("{:<12} {:<8} {:>6}  {:<28} {}\n", "key", "state", "heard", "device",
                 "what it is");
    for (const v1::DeviceEntry& e : reply.devices()) {
      const v1::DeviceIdentity& d = e.device();
      devices.push_back({{"key", d.key()},
                         {"device_id", d.device_id()},
                         {"state", e.state()},
                         {"server", e.server_id()},
                         {"epoch", e.epoch()},
                         {"heard_ago_s", static_cast<double>(e.heard_ago_ns()) * 1e-9},
                         {"target", d.target()},
                         {"cpu_model", d.cpu_model()},
                         {"processors", d.processors()},
                         {"governor", d.governor()},
                         {"kernel", d.kernel()},
                         {"machine", d.machine()},
                         {"emulated", d.emulated()}});
      if (TextWanted(json_)) {
        fmt::print("{:<12} {:<8} {:>5.1f}s  {:<28} {}, {} processors{}\n", d.key(), e.state(),
                   static_cast<double>(e.heard_ago_ns()) * 1e-9, d.device_id(), d.cpu_model(),
                   d.processors(), d.emulated() ? ", emulated" : "");
        if (!d.machine().empty()) fmt::print("{:<12} {}\n", "", d.machine());
      }
    }
    if (reply.devices().empty() && TextWanted(json_)) fmt::print("none\n");
    if (!key_.empty() && reply.devices().empty()) {
      std::string known;
      for (const std::string& k : reply.known_keys()) known += (known.empty() ? "" : ", ") + k;
      return NotFound("no device has the key '{}'; the keys are {}", key_,
                      known.empty() ? "none" : known);
    }
    return WriteJson(json_, {{"incarnation", reply.incarnation()},
                             {"known_keys", std::vector<std::string>(reply.known_keys().begin(),
                                                                     reply.known_keys().end())},
                             {"devices", devices}});
  }

  std::string tracker_, server_, key_, json_;
};

std::string StateText(v1::JobState state) {
  std::string name = v1::JobState_Name(state);  // JOB_NO_DEVICE
  name = name.rfind("JOB_", 0) == 0 ? name.substr(4) : "unknown";
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

class JobsVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags.Add("--server", &server_, "the tuner server to ask").Value("HOST:PORT");
    flags.Add("--cancel", &cancel_, "end this job; what it measured is kept").Value("JOB");
    flags.Json(&json_);
    flags.Example("whet jobs --server 127.0.0.1:9191");
  }

  int Run() override { return Explain("jobs", Go()); }

 private:
  Status Go() const {
    if (server_.empty()) return InvalidArgument("--server HOST:PORT is missing");
    WHET_ASSIGN_OR_RETURN(const auto client, TunerClient::Connect(server_));
    if (!cancel_.empty()) WHET_RETURN_IF_ERROR(client->Cancel(cancel_));
    WHET_ASSIGN_OR_RETURN(const v1::ListJobsReply reply, client->Jobs());
    Json jobs = Json::array();
    for (const v1::JobSnapshot& j : reply.jobs()) {
      jobs.push_back({{"job", j.job_id()},
                      {"name", j.name()},
                      {"state", StateText(j.state())},
                      {"error", j.error()},
                      {"trials", j.trials_done()},
                      {"trials_wanted", j.trials_wanted()},
                      {"seconds", static_cast<double>(j.elapsed_ns()) * 1e-9},
                      {"remaining_s", static_cast<double>(j.remaining_ns()) * 1e-9},
                      {"workers", j.workers()}});
      if (TextWanted(json_)) {
        fmt::print("{}  {:<10} {:>7} trials{} {:>8.0f} s  {}{}\n", j.job_id(), StateText(j.state()),
                   j.trials_done(),
                   j.trials_wanted() > 0 ? fmt::format(" of {}", j.trials_wanted()) : "",
                   static_cast<double>(j.elapsed_ns()) * 1e-9, j.name(),
                   j.error().empty() ? "" : ": " + j.error());
      }
    }
    if (jobs.empty() && TextWanted(json_)) fmt::print("no jobs\n");
    return WriteJson(json_, {{"jobs", jobs}});
  }

  std::string server_, cancel_, json_;
};

}  // namespace

std::unique_ptr<Verb> MakeDevices() { return std::make_unique<DevicesVerb>(); }
std::unique_ptr<Verb> MakeJobs() { return std::make_unique<JobsVerb>(); }

}  // namespace whet::driver
