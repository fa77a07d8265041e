// whet bench: how long one inference takes on this machine, and where the time goes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "compiler/driver/artifact_io.h"
#include "compiler/driver/device_lock.h"
#include "compiler/driver/interrupt.h"
#include "compiler/driver/report.h"
#include "compiler/driver/timing.h"
#include "compiler/driver/verbs.h"
#include "compiler/support/emulated.h"
#include "deploy/runtime/weight_turns.h"

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

class BenchVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags_ = &flags;
    flags.Positional("ARTIFACT", &artifact_, "a compiled model (.so)").Reads();
    flags.Add("--threads", &threads_, "threads to run on").Range(1, 1024);
    flags
        .Add("--input", &inputs_,
             "an input, as for `whet run`; inputs not given are random numbers in [-1, 1)")
        .Value("NAME=FILE")
        .Reads();
    flags.Add("--preprocess", &preprocess_, "how a picture becomes an input, see whet run --help")
        .Value("SPEC");
    flags
        .Add("--shape", &shapes_,
             "of an artifact for several sets of input shapes: the one to time; default: by the "
             "inputs given, else the first")
        .Value("NAME=D,D,...");
    flags.Add("--target", &load_.build, kBuildHelp).Value("NAME");
    flags.Add("--huge-pages", &load_.huge_pages,
              "copy the weights to memory in huge pages first; for as much memory again");
    flags.Add("--time", &time_, "measure for so long, after a warm-up (at least 20 runs)")
        .Value("SECONDS");
    flags.Add("--runs", &runs_, "measure exactly so many runs; 0: as --time says")
        .Range(0, 100'000'000);
    flags.Add("--profile", &profile_, "also time each task, named by the model's own nodes");
    flags.Add("--wait", &wait_, "wait so long for a worker or another bench to leave the device")
        .Value("SECONDS");
    flags
        .Add("--state-dir", &state_dir_,
             "folder of the device lock; default $XDG_STATE_HOME/whet or ~/.local/state/whet")
        .Value("DIR");
    flags.Add(
        "--serve-blocks", &serve_,
        "for comparisons: read lines `run N` from standard input, answer each with the "
        "milliseconds of one of N runs; `tasks N`: of a run's tasks one by one, each repeated on "
        "weights that take turns, as a worker times it; takes no device lock");
    flags.Json(&json_);
    flags.Example("whet bench face.so --threads 1");
    flags.Example("whet bench face.so --input picture.npy --profile --time 5s");
    flags.Example("whet bench face.so --target x86-64-v3");
    flags.Example("whet bench face.so --json - | jq .median_ms");
  }

  int Run() override { return Explain("bench", Go()); }

 private:
  Status Go() {
    // WHET_TARGET and configuration files say what to compile for.
    if (!flags_->OnCommandLine("--target")) load_.build.clear();
    const double seconds = ParseSeconds(time_), wait = ParseSeconds(wait_);
    if (seconds < 0)
      return InvalidArgument("--time '{}' is not a duration; write 5, 5s or 2m", time_);
    if (wait < 0) return InvalidArgument("--wait '{}' is not a duration; write 5, 5s or 2m", wait_);
    WatchInterrupts();
    WHET_ASSIGN_OR_RETURN(auto artifact, LoadArtifact(artifact_, load_));
    const std::string build = BuildText(*artifact);
    if (!shapes_.empty()) {
      WHET_ASSIGN_OR_RETURN(const std::vector<ShapeSet> sets, ParseShapes(shapes_));
      if (sets.size() > 1) return InvalidArgument("--shape: one set of shapes is run at a time");
      WHET_ASSIGN_OR_RETURN(artifact, SetOfShapes(artifact, sets[0]));
    }
    WHET_ASSIGN_OR_RETURN(const FilledModel filled,
                          ChooseAndFill(artifact, inputs_, preprocess_, MissingInputs::kRandom));
    const auto& [model, buffers] = filled;
    WHET_ASSIGN_OR_RETURN(const auto instance, MakeInstance(model, static_cast<int>(threads_)));
    if (!artifact->huge_pages_note().empty())
      fmt::print(stderr, "whet bench: --huge-pages: {}\n", artifact->huge_pages_note());
    if (serve_) return Serve(*instance, buffers);
    WHET_ASSIGN_OR_RETURN(const FileLock lock, LockDevice(state_dir_, wait));
    TimingOptions options;
    options.seconds = seconds;
    options.runs = runs_;
    const Timing t =
        TimeRuns(*instance, buffers, options, Profile::kNo, [] { return !Interrupted(); });
    Json json = {{"median_ms", t.median_ms},
                 {"min_ms", t.min_ms},
                 {"p90_ms", t.p90_ms},
                 {"runs", t.run_ms.size()},
                 {"threads", threads_},
                 {"emulated", Emulated()},
                 {"target", artifact->build().name},
                 {"memory_bytes", instance->memory_bytes()},
                 {"shared_bytes", artifact->shared_bytes()},
                 {"huge_pages_note", artifact->huge_pages_note()}};
    if (TextWanted(json_)) {
      fmt::print(
          "{}{}: median {:.4f} ms, min {:.4f}, p90 {:.4f} ({} runs, {} thread{}, {} of "
          "memory{}){}\n",
          model->desc().name, build, t.median_ms, t.min_ms, t.p90_ms, t.run_ms.size(), threads_,
          threads_ == 1 ? "" : "s", BytesText(static_cast<double>(instance->memory_bytes())),
          artifact->shared_bytes() == 0
              ? ""
              : " and " + BytesText(static_cast<double>(artifact->shared_bytes())) +
                    " that instances share",
          Emulated() ? "; emulated: these times mean nothing" : "");
    }
    if (profile_ && !Interrupted()) ReportProfile(*instance, buffers, options, &json);
    WHET_RETURN_IF_ERROR(WriteJson(json_, json));
    return Interrupted() ? Status(absl::StatusCode::kCancelled,
                                  "interrupted; the figures are of the runs before")
                         : OkStatus();
  }

  void ReportProfile(Instance& instance, const Buffers& buffers, const TimingOptions& options,
                     Json* json) const {
    const Timing t =
        TimeRuns(instance, buffers, options, Profile::kYes, [] { return !Interrupted(); });
    const whet_model& m = instance.model().desc();
    std::vector<double> ms;
    for (const auto& samples : t.step_ms) ms.push_back(Median(samples));
    const double sum = std::accumulate(ms.begin(), ms.end(), 0.0);
    std::vector<size_t> order(ms.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ms[a] > ms[b]; });
    Json tasks = Json::array();
    for (size_t i = 0; i < ms.size(); ++i) {
      tasks.push_back({{"name", m.steps[i].label},
                       {"ms", ms[i]},
                       {"share", sum > 0 ? ms[i] / sum : 0},
                       {"workload", m.kernels[m.steps[i].kernel].workload}});
    }
    (*json)["tasks"] = tasks;
    (*json)["tasks_sum_ms"] = sum;
    if (!TextWanted(json_)) return;
    std::vector<std::string> labels;
    for (uint32_t i = 0; i < m.n_steps; ++i) labels.emplace_back(m.steps[i].label);
    const std::string path = CommonPath(labels);
    fmt::print("\n{:>10} {:>7}  task{}\n", "ms", "share",
               path.empty() ? "" : " (without '" + path + "')");
    for (size_t i : order)
      fmt::print("{:>10.4f} {:>6.1f}%  {}\n", ms[i], sum > 0 ? 100 * ms[i] / sum : 0,
                 WithoutPath(m.steps[i].label, path));
    fmt::print(
        "{:>10.4f} {:>6.1f}%  all tasks; {:.1f} % of the whole run while profiling ({:.4f} ms)\n",
        sum, 100.0, 100 * sum / t.median_ms, t.median_ms);
  }

  using Turns = std::vector<std::unique_ptr<WeightTurns>>;  // by step

  // Of one run: its steps in their order, each by itself, the first of its repetitions untimed.
  static double TasksMs(Instance& instance, Turns& turns) {
    constexpr int kTimed = 3;
    double ms = 0;
    for (uint32_t step = 0; step < instance.model().desc().n_steps; ++step) {
      auto run = [&] {
        turns[step]->Next();
        instance.ExecuteStep(step);
      };
      run();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kTimed; ++i) run();
      ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                .count() /
            kTimed;
    }
    return ms;
  }

  static Status Serve(Instance& instance, const Buffers& buffers) {
    instance.Bind(buffers.inputs(), buffers.outputs());
    instance.Execute();
    std::cout << "ready" << std::endl;
    Turns turns;
    std::string word;
    int64_t n = 0;
    while (std::cin >> word) {
      if ((word != "run" && word != "tasks") || !(std::cin >> n) || n < 1)
        return InvalidArgument("expected a line `run N` or `tasks N` with N >= 1, got '{}'", word);
      double ms = 0;
      if (word == "tasks") {
        if (turns.empty()) {
          const whet_model& m = instance.model().desc();
          const uint64_t weights = WeightTurns::WeightBytes(m);
          for (uint32_t s = 0; s < m.n_steps; ++s) {
            turns.push_back(std::make_unique<WeightTurns>(&instance, s, s + 1, weights));
            if (!turns[s]->error().empty()) return ResourceExhausted("{}", turns[s]->error());
          }
        }
        for (int64_t i = 0; i < n; ++i) ms += TasksMs(instance, turns);
      } else {
        const auto begin = std::chrono::steady_clock::now();
        for (int64_t i = 0; i < n; ++i) instance.Execute();
        ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                 .count();
      }
      std::cout << fmt::format("{:.6f}", ms / static_cast<double>(n)) << std::endl;
    }
    return OkStatus();
  }

  const Flags* flags_ = nullptr;  // borrowed
  LoadOptions load_;
  std::string artifact_, preprocess_, json_, time_ = "1s", wait_ = "60s", state_dir_;
  std::vector<std::string> inputs_, shapes_;
  int64_t threads_ = 1, runs_ = 0;
  bool profile_ = false, serve_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeBench() { return std::make_unique<BenchVerb>(); }

}  // namespace whet::driver
