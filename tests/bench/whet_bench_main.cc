// whet-bench: our kernels and networks beside other people's, in one process and in turn. How it
// measures is in interleave.h, what in suites.h, what comes out in results.h; README has the
// commands.
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "compiler/driver/interrupt.h"
#include "compiler/support/env.h"
#include "compiler/support/paths.h"
#include "compiler/support/version.h"
#include "tests/bench/expected.h"
#include "tests/bench/interleave.h"
#include "tests/bench/log_file.h"
#include "tests/bench/own.h"
#include "tests/bench/results.h"
#include "tests/bench/service/service_bench.h"
#include "tests/bench/stats.h"
#include "tests/bench/suites.h"

namespace whet::bench {
namespace {

struct RunOptions {
  OwnOptions own;
  Interleaving timing;
  std::vector<std::string> suites, cases, peers = {"onednn", "openblas", "onnxruntime"};
  std::string json, target, ort, models, scratch;
  uint64_t seed = 1;
  bool check_only = false;
  cpu_set_t processors{};  // of this process before it was pinned: networks may use two
};

// Stays on the first processors that it may use, one for each thread. Those that it might use.
cpu_set_t Pin(int threads) {
  cpu_set_t may, use;
  CPU_ZERO(&may);
  if (sched_getaffinity(0, sizeof may, &may) != 0) return may;
  CPU_ZERO(&use);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&use) < threads; ++i) {
    if (CPU_ISSET(i, &may)) CPU_SET(i, &use);
  }
  sched_setaffinity(0, sizeof use, &use);
  return may;
}

std::string Processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "?";
}

std::string Now() {
  const std::time_t t = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%FT%TZ", std::gmtime(&t));
  return text;
}

Json Header(const RunOptions& o) {
  utsname name{};
  uname(&name);
  std::string schedules = !o.own.db.empty()  ? "tuned"
                          : o.own.search > 0 ? fmt::format("best of the prior's {}", o.own.search)
                                             : "untuned";
  return {{"whet_bench", 1},
          {"date", Now()},
          {"machine",
           {{"processor", Processor()},
            {"processors", sysconf(_SC_NPROCESSORS_ONLN)},
            {"kernel", name.release},
            {"target", o.own.target.ToString()}}},
          {"versions", {{"whet", kCompilerVersion}, {"codegen", kCodegenVersion}}},
          {"seed", o.seed},
          {"threads", o.own.threads},
          {"caches", o.timing.caches == Caches::kWarm ? "warm" : "turns"},
          {"schedules", schedules},
          {"absent", Json::array()},
          {"cases", Json::array()}};
}

// Rounded: more digits than a clock has.
Json SamplesJson(const std::vector<double>& v) {
  Json all = Json::array();
  for (double x : v) all.push_back(std::stod(fmt::format("{:.5g}", x)));
  return all;
}

// A contender that is about to be timed, and how far its results are off.
struct Entrant {
  Contender contender;
  double worst = 0;
};

class Run {
 public:
  explicit Run(RunOptions o) : o_(std::move(o)), rng_(o_.seed), results_(Header(o_)) {}

  Status Go() {
    WHET_ASSIGN_OR_RETURN(own_, OwnKernels::Make(o_.own));
    for (const auto& make : {OneDnn, OpenBlas}) Admit(make());
    driver::WatchInterrupts();
    const Status measured = All();
    // What was measured before Ctrl-C or an error is kept.
    const Status saved = Save();
    WHET_RETURN_IF_ERROR(measured);
    WHET_RETURN_IF_ERROR(saved);
    if (driver::Interrupted())
      return Status(absl::StatusCode::kCancelled,
                    fmt::format("interrupted after {} cases{}", results_["cases"].size(),
                                o_.json.empty() ? "" : "; '" + o_.json + "' has them"));
    if (failed_ > 0) return Internal("{} cases failed", failed_);
    return OkStatus();
  }

 private:
  // To the end, or until the first Ctrl-C.
  Status All() {
    for (const std::string& c : o_.cases) WHET_RETURN_IF_ERROR(Kernel("given", c));
    for (const std::string& suite : o_.suites) {
      for (const std::string& c : CasesOf(suite)) WHET_RETURN_IF_ERROR(Kernel(suite, c));
      if (suite == "chain") {
        for (const ChainOf& c : Chains()) WHET_RETURN_IF_ERROR(Chain(c));
      }
      if (suite == "networks" || suite == "scaling") WHET_RETURN_IF_ERROR(Networks(suite));
    }
    return OkStatus();
  }

  bool Wanted(const std::string& peer) const {
    return std::find(o_.peers.begin(), o_.peers.end(), peer) != o_.peers.end();
  }

  void Absent(const std::string& peer, const std::string& why) {
    fmt::print("without {}: {}\n", peer, why);
    results_["absent"].push_back({{"peer", peer}, {"why", why}});
  }

  void Admit(Peer peer) {
    if (!Wanted(peer.name)) return;
    if (!peer.absent.empty()) return Absent(peer.name, peer.absent);
    results_["versions"][peer.name] = peer.version;
    peers_.push_back(std::move(peer));
  }

  Status Save() const {
    return o_.json.empty() ? OkStatus() : WriteFile(o_.json, results_.dump(1) + "\n");
  }

  void Failed(Json c, const std::string& why) {
    ++failed_;
    fmt::print("{:<34} FAILED: {}\n", c["case"].get<std::string>(), why);
    c["failed"] = why;
    results_["cases"].push_back(std::move(c));
  }

  // Ours first, and every way of the peers that gives the right answer. Ours has to. With
  // `peers_first` the memory of ours is allocated last.
  StatusOr<std::vector<Entrant>> Entrants(const Problem& p, const Expected& expected,
                                          bool peers_first) {
    const int64_t elements = p.workload.outputs[0].type.num_elements();
    std::vector<Entrant> all;
    auto open_own = [&]() -> Status {
      WHET_ASSIGN_OR_RETURN(const OwnKernel kernel, own_->Find(p));
      WHET_ASSIGN_OR_RETURN(Contender own, OpenOwn(kernel, p, o_.own.threads));
      const double worst = WorstShare(expected, elements, own.result());
      if (!(worst <= 1))
        return Internal("ours is wrong by {:.3g} of what is allowed ({})", worst, own.detail);
      all.insert(all.begin(), {std::move(own), worst});
      return OkStatus();
    };
    if (!peers_first) WHET_RETURN_IF_ERROR(open_own());
    for (const Peer& peer : peers_) {
      for (Contender& c : peer.open(p)) {
        const double off = WorstShare(expected, elements, c.result());
        if (off <= 1)
          all.push_back({std::move(c), off});
        else
          fmt::print("{:<34} {} left out: wrong by {:.3g} of what is allowed\n", p.parsed.text,
                     c.name, off);
      }
    }
    if (peers_first) WHET_RETURN_IF_ERROR(open_own());
    return all;
  }

  // Reads and writes as many bytes as the case has to.
  static Contender Floor(const fusion::Workload& w) {
    size_t in = 0;
    for (const auto& i : w.inputs) in += static_cast<size_t>(i.type.bytes());
    const auto out = static_cast<size_t>(w.outputs[0].type.bytes());
    auto from = Allocate(in), to = Allocate(out);
    return {kFloor,
            "reads and writes so many bytes",
            [=] { Touch(from.get(), in, to.get(), out); },
            {}};
  }

  // Where memory happens to lie decides up to a fifth of the time of what streams through it, for
  // as long as it is kept. So all contenders are opened several times, each time with memory of
  // their own, and each is timed for a part of the rounds.
  static constexpr int kOpenings = 4;

  // `open` gives the same contenders each time, in the same order.
  Status Measure(Json c, const std::function<StatusOr<std::vector<Entrant>>(int opening)>& open) {
    Interleaving timing = o_.timing;
    timing.seconds /= kOpenings;
    timing.least_rounds = (timing.least_rounds + kOpenings - 1) / kOpenings;
    timing.most_rounds = (timing.most_rounds + kOpenings - 1) / kOpenings;
    Json contenders = Json::array();
    std::vector<std::vector<double>> us;
    std::vector<double> fma_gflops;
    int disturbed = 0;
    for (int opening = 0; opening < kOpenings && !driver::Interrupted(); ++opening) {
      WHET_ASSIGN_OR_RETURN(const std::vector<Entrant> entrants, open(opening));
      if (o_.check_only) return OkStatus();
      std::vector<std::function<void()>> run;
      for (const Entrant& e : entrants) run.push_back(e.contender.run);
      const Rounds rounds = Interleave(run, timing, rng_, o_.own.target.VectorBits(), calm_);
      us.resize(entrants.size());
      for (size_t i = 0; i < entrants.size(); ++i) {
        const Timed& t = rounds.timed[i];
        if (opening == 0) {
          contenders.push_back({{"name", entrants[i].contender.name},
                                {"detail", entrants[i].contender.detail},
                                {"worst_error", entrants[i].worst},
                                {"calls", t.calls}});
        }
        us[i].insert(us[i].end(), t.us.begin(), t.us.end());
      }
      disturbed += rounds.disturbed;
      fma_gflops.insert(fma_gflops.end(), rounds.fma_gflops.begin(), rounds.fma_gflops.end());
    }
    if (us.empty()) return OkStatus();  // interrupted before the first round
    for (size_t i = 0; i < us.size(); ++i) {
      contenders[i]["median_us"] = MedianOf(us[i]);
      contenders[i]["samples_us"] = SamplesJson(us[i]);
    }
    c["contenders"] = contenders;
    c["fma_gflops"] = SamplesJson(fma_gflops);
    c["disturbed_rounds"] = disturbed;
    Conclude(c);
    Print(c);
    results_["cases"].push_back(std::move(c));
    return OkStatus();
  }

  static void Print(const Json& c) {
    std::string line = fmt::format("{:<34}", c["case"].get<std::string>());
    line += fmt::format(" {:>10.1f} us", c["contenders"][0]["median_us"].get<double>());
    if (c.contains("share_of_fma"))
      line += fmt::format("  {:5.3f} of FMA", c["share_of_fma"].get<double>());
    if (c.contains("share_of_floor"))
      line += fmt::format("  {:5.3f} of floor", c["share_of_floor"].get<double>());
    for (const Json& r : c["ratios"]) {
      line +=
          fmt::format("  {} {:.3f} ({:.3f} to {:.3f})", r["peer"].get<std::string>(),
                      r["median"].get<double>(), r["low"].get<double>(), r["high"].get<double>());
    }
    fmt::print("{}  [{}]\n", line, c["contenders"][0]["detail"].get<std::string>());
    std::fflush(stdout);
  }

  Status Kernel(const std::string& suite, const std::string& text) {
    if (driver::Interrupted()) return OkStatus();
    Json c = {{"suite", suite}, {"case", text}};
    WHET_ASSIGN_OR_RETURN(const Problem p, MakeProblem(text, o_.seed));
    c["flops"] = p.workload.flops();
    c["bytes"] = p.workload.bytes();
    WHET_ASSIGN_OR_RETURN(const Expected expected, ExpectedOf(p, o_.seed));
    const bool products = ConvOf(p.parsed) || p.workload.ops[0].op->name == std::string("MatMul");
    auto open = [&](int opening) -> StatusOr<std::vector<Entrant>> {
      WHET_ASSIGN_OR_RETURN(std::vector<Entrant> all, Entrants(p, expected, opening % 2 == 1));
      if (!products || p.parsed.n[0] == 1) all.push_back({Floor(p.workload), 0});
      return all;
    };
    const Status measured = Measure(c, open);
    if (!measured.ok()) Failed(std::move(c), Message(measured));
    return OkStatus();
  }

  // Weights that keep the size of numbers from layer to layer, so that nothing becomes denormal.
  std::vector<float> Weights(const Problem& p, int input) {
    const ConvCase c = *ConvOf(p.parsed);
    const double fan_in = static_cast<double>(c.ic / c.group * c.kh * c.kw);
    const double scale = input == 1 ? std::sqrt(6 / fan_in) : 0.1;
    std::vector<float> v;
    for (size_t i = 0; i < p.inputs[static_cast<size_t>(input)].size(); ++i)
      v.push_back(static_cast<float>(scale * (2 * rng_.Uniform() - 1)));
    return v;
  }

  Status Chain(const ChainOf& chain) {
    if (driver::Interrupted()) return OkStatus();
    Json c = {{"suite", "chain"}, {"case", chain.name}};
    std::map<std::string, Problem> problems;
    std::vector<std::vector<float>> weights, biases;
    std::vector<OwnLayer> own;
    std::vector<Peer::Layer> theirs;
    double flops = 0;
    weights.reserve(chain.cases.size());
    biases.reserve(chain.cases.size());
    for (const std::string& text : chain.cases) {
      const auto [it, fresh] = problems.try_emplace(text);
      Problem& p = it->second;
      if (fresh) {
        WHET_ASSIGN_OR_RETURN(p, MakeProblem(text, o_.seed));
        WHET_ASSIGN_OR_RETURN(const Expected expected, ExpectedOf(p, o_.seed));
        if (auto right = Entrants(p, expected, false); !right.ok())
          return Failed(std::move(c), text + ": " + Message(right.status())), OkStatus();
      }
      flops += static_cast<double>(p.workload.flops());
      weights.push_back(Weights(p, 1));
      biases.push_back(Weights(p, 2));
      WHET_ASSIGN_OR_RETURN(const OwnKernel kernel, own_->Find(p));
      own.push_back({kernel, &p, &weights.back(), &biases.back()});
      theirs.push_back({*ConvOf(p.parsed), &weights.back(), &biases.back()});
    }
    c["flops"] = flops;
    return Measure(std::move(c), [&](int) -> StatusOr<std::vector<Entrant>> {
      std::vector<Entrant> entrants;
      WHET_ASSIGN_OR_RETURN(Contender ours, OpenOwnChain(own, o_.own.threads));
      entrants.push_back({std::move(ours), 0});
      for (const Peer& peer : peers_) {
        if (!peer.chain) continue;
        for (Contender& k : peer.chain(theirs)) entrants.push_back({std::move(k), 0});
      }
      return entrants;
    });
  }

  // Whole networks run in processes of their own, ours and onnxruntime's: a script starts them.
  Status Networks(const std::string& suite) {
    if (driver::Interrupted() || !Wanted("onnxruntime")) return OkStatus();
    if (o_.ort.empty()) {
      Absent("onnxruntime", suite +
                                " needs --ort FOLDER, where `npm install --ignore-scripts "
                                "onnxruntime-node@1.30.0` was run");
      return OkStatus();
    }
    const std::string build = ProgramDir() + "/..", out = o_.json + ".networks";
    std::vector<std::string> args = {"/usr/bin/python3",
                                     "-B",
                                     std::string(WHET_BENCH_SOURCES) + "/network_bench.py",
                                     suite,
                                     "--build",
                                     build,
                                     "--ort",
                                     o_.ort,
                                     "--json",
                                     out};
    if (!o_.models.empty()) args.insert(args.end(), {"--models", o_.models});
    if (!o_.own.db.empty()) args.insert(args.end(), {"--db", o_.own.db});
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);  // so that it hears of Ctrl-C once, from below
      if (CPU_COUNT(&o_.processors) > 0) sched_setaffinity(0, sizeof o_.processors, &o_.processors);
      execv(argv[0], argv.data());
      _exit(127);
    }
    if (child < 0) return Internal("python3 cannot be started");
    setpgid(child, child);
    // Whatever it has started, too, ends with the first Ctrl-C or SIGTERM; it writes what it has.
    for (bool told = false; waitpid(child, nullptr, WNOHANG) == 0; poll(nullptr, 0, 50)) {
      if (driver::Interrupted() && !told) told = kill(-child, SIGINT) == 0;
    }
    std::ifstream in(out);
    const Json more = Json::parse(in, nullptr, false);
    unlink(out.c_str());
    if (more.is_discarded() && driver::Interrupted()) return OkStatus();
    if (more.is_discarded()) return Internal("network_bench.py wrote no result");
    for (const Json& a : more["absent"]) results_["absent"].push_back(a);
    results_["versions"].update(more["versions"]);
    for (Json c : more["cases"]) {
      failed_ += c.contains("failed") ? 1 : 0;
      Conclude(c);
      results_["cases"].push_back(std::move(c));
    }
    return OkStatus();
  }

  const RunOptions o_;
  Rng rng_;
  Calm calm_{o_.own.target.VectorBits()};
  Json results_;
  std::unique_ptr<OwnKernels> own_;
  std::vector<Peer> peers_;
  int failed_ = 0;
};

int Explain(const Status& s) {
  if (s.ok()) return 0;
  fmt::print(stderr, "whet-bench: {}\n", Message(s));
  if (s.code() == absl::StatusCode::kCancelled) return 130;
  return s.code() == absl::StatusCode::kInternal ? 1 : 2;
}

enum class Readme { kWrite, kCheck };

Status WriteTable(const std::string& result, const std::string& readme, Readme what) {
  WHET_ASSIGN_OR_RETURN(const Json json, ReadResults(result));
  const std::string table = FiguresTable(json);
  if (readme.empty()) {
    fmt::print("{}", table);
    return OkStatus();
  }
  std::ifstream in(readme);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  WHET_ASSIGN_OR_RETURN(const std::string changed, WithTable(text, table));
  if (what == Readme::kCheck) {
    if (changed == text) return OkStatus();
    return Internal("the table in '{}' is not that of '{}'; `table {} --readme {}` writes it",
                    readme, result, result, readme);
  }
  std::ofstream out(readme);
  out << changed;
  out.close();
  return out ? OkStatus() : InvalidArgument("'{}' cannot be written", readme);
}

Status Keep(const std::string& result, const std::string& file) {
  constexpr size_t kRounds = 41;
  WHET_ASSIGN_OR_RETURN(Json json, ReadResults(result));
  std::ofstream out(file);
  out << Kept(std::move(json), kRounds);
  out.close();
  return out ? OkStatus() : InvalidArgument("'{}' cannot be written", file);
}

Status Compare(const std::string& before, const std::string& after) {
  WHET_ASSIGN_OR_RETURN(const Json a, ReadResults(before));
  WHET_ASSIGN_OR_RETURN(const Json b, ReadResults(after));
  WHET_ASSIGN_OR_RETURN(const std::string text, CompareResults(a, b));
  fmt::print("{}", text);
  return OkStatus();
}

// The distinct workloads of suites, as `whet tune` takes them.
Status PrintWorkloads(const std::vector<std::string>& suites) {
  std::set<std::string> seen;
  for (const std::string& suite : suites) {
    std::vector<std::string> cases = CasesOf(suite);
    if (suite == "chain") {
      for (const ChainOf& c : Chains()) cases.insert(cases.end(), c.cases.begin(), c.cases.end());
    }
    for (const std::string& c : cases) {
      WHET_ASSIGN_OR_RETURN(const fusion::Workload w, CaseWorkload(c));
      if (seen.insert(w.ToString()).second) fmt::print("{}", w.ToString());
    }
  }
  return OkStatus();
}

void List() {
  for (const std::string& s : SuiteNames()) {
    fmt::print("{:<11} {}\n", s, AboutSuite(s));
    for (const std::string& c : CasesOf(s)) fmt::print("            {}\n", c);
    if (s != "chain") continue;
    for (const ChainOf& c : Chains())
      fmt::print("            {}: {} convolutions\n", c.name, c.cases.size());
  }
}

Status CheckSuites(const std::vector<std::string>& suites) {
  for (const std::string& s : suites) {
    if (AboutSuite(s).empty())
      return InvalidArgument("there is no suite '{}'; there are {}", s,
                             fmt::join(SuiteNames(), ", "));
  }
  return OkStatus();
}

Status DoRun(RunOptions o) {
  if (o.suites.empty() && o.cases.empty())
    return InvalidArgument("nothing to measure: name suites (`whet-bench list`), or give --case");
  WHET_RETURN_IF_ERROR(CheckSuites(o.suites));
  if (!o.json.empty()) {  // before the minutes of measuring, not after
    const bool there = std::filesystem::exists(o.json);
    if (std::filesystem::is_directory(o.json) || !std::ofstream(o.json, std::ios::app))
      return InvalidArgument("--json '{}' cannot be written", o.json);
    if (!there) unlink(o.json.c_str());
  }
  if (!o.target.empty()) {
    WHET_ASSIGN_OR_RETURN(o.own.target, Target::Parse(o.target));
  }
  std::unique_ptr<RestoredLog> restored;
  if (o.own.db.ends_with(".gz")) {
    WHET_ASSIGN_OR_RETURN(restored, RestoredLog::Open(o.own.db));
    o.own.db = restored->path();
  }
  o.processors = Pin(o.own.threads);
  unsetenv("WHET_BENCH_SETTINGS");
  return Run(std::move(o)).Go();
}

// Libraries read their settings when they are loaded, before this program has a say: it starts
// again with them.
void RestartWithSettings(int threads, char** argv) {
  const char* kDone = "WHET_BENCH_SETTINGS";
  if (std::getenv(kDone) != nullptr) return;
  const std::string n = std::to_string(threads), core = OpenBlasCore();
  setenv("OMP_NUM_THREADS", n.c_str(), 1);
  setenv("OPENBLAS_NUM_THREADS", n.c_str(), 1);
  if (threads > 1) setenv("OMP_PROC_BIND", "true", 1);
  if (!core.empty()) setenv("OPENBLAS_CORETYPE", core.c_str(), 0);
  setenv(kDone, "1", 1);
  execv("/proc/self/exe", argv);
}

int Main(int argc, char** argv) {
  CLI::App app("whet's kernels and networks beside those of other libraries");
  app.require_subcommand(1);
  RunOptions o;
  std::string first, second, caches = "warm";
  std::vector<std::string> suites;
  bool untuned = false;

  CLI::App* run = app.add_subcommand("run", "measure suites, or cases given one by one");
  run->add_option("suites", o.suites, "`whet-bench list` says which");
  run->add_option("--case", o.cases, "a case by itself, 'gemm 512 512 512'");
  run->add_option("--json", o.json, "write the results to this file");
  CLI::Option* db = run->add_option("--db", o.own.db, "schedules from this tuning log");
  run->add_option("--search", o.own.search, "schedules: best of the prior's first N")->excludes(db);
  run->add_flag("--untuned", untuned, "schedules as without a log (the default)")->excludes(db);
  run->add_option("--threads", o.own.threads, "of both sides")->check(CLI::Range(1, 64));
  run->add_option("--caches", caches, "warm: an untimed call first; turns: as the others left them")
      ->check(CLI::IsMember({"warm", "turns"}));
  run->add_option("--seconds", o.timing.seconds, "of timed calls, a contender and case");
  run->add_option("--rounds", o.timing.least_rounds, "at least")->check(CLI::Range(3, 10000));
  run->add_option("--seed", o.seed, "of inputs and orders");
  run->add_option("--peers", o.peers, "those to run, separated by commas")->delimiter(',');
  run->add_option("--target", o.target, "as `whet doctor` prints it");
  run->add_option("--ort", o.ort, "folder where onnxruntime-node is installed");
  run->add_option("--models", o.models, "folder of trained models (tests/models/fetch)");
  run->add_flag("--check-only", o.check_only, "compare results, time nothing");

  ServiceOptions service_options;
  bool plain = false;
  CLI::App* service = app.add_subcommand(
      "service", "a tuner server under load: memory, results a second, a restart, leases");
  service->add_option("--workers", service_options.workers, "simulated, with real connections")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  service->add_option("--seconds", service_options.seconds, "of results")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  service->add_option("--rate", service_options.rate, "results a second")
      ->check(CLI::Range(1.0, 1e5))
      ->capture_default_str();
  service->add_option("--leases", service_options.leases, "a second, asked for by free workers")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  service->add_flag("--plaintext", plain, "without certificates");
  service->add_option("--log", service_options.log, "what the server says goes to this file");
  service->add_option("--json", service_options.json, "write the results to this file");

  CLI::App* compare = app.add_subcommand("compare", "what changed from one result to another");
  compare->add_option("before", first)->required();
  compare->add_option("after", second)->required();

  CLI::App* table = app.add_subcommand("table", "the table of figures that a result gives");
  table->add_option("result", first)->required();
  CLI::Option* readme =
      table->add_option("--readme", second, "write it between the markers in this file");
  bool check = false;
  table->add_flag("--check", check, "only say whether it stands there")->needs(readme);

  CLI::App* keep = app.add_subcommand("keep", "a result small enough to keep beside the sources");
  keep->add_option("result", first)->required();
  keep->add_option("file", second)->required();

  CLI::App* list = app.add_subcommand("list", "suites and their cases");
  CLI::App* workloads = app.add_subcommand("workloads", "of suites, for `whet tune`");
  workloads->add_option("suites", suites)->required();

  CLI::App* pack = app.add_subcommand("pack", "what decides in a tuning log, compressed");
  pack->add_option("log", first)->required();
  pack->add_option("file", second, "FILE.jsonl.gz")->required();
  CLI::App* restore = app.add_subcommand("restore", "a tuning log from what pack wrote");
  restore->add_option("file", first)->required();
  restore->add_option("log", second)->required();

  CLI11_PARSE(app, argc, argv);
  if (*compare) return Explain(Compare(first, second));
  if (*table) return Explain(WriteTable(first, second, check ? Readme::kCheck : Readme::kWrite));
  if (*keep) return Explain(Keep(first, second));
  if (*list) return List(), 0;
  if (*workloads) {
    const Status known = CheckSuites(suites);
    return Explain(known.ok() ? PrintWorkloads(suites) : known);
  }
  if (*pack) return Explain(PackLog(first, second));
  if (*restore) return Explain(RestoreLog(first, second));
  if (*service) {
    service_options.tls = !plain;
    return Explain(BenchService(service_options));
  }
  o.timing.caches = caches == "warm" ? Caches::kWarm : Caches::kTurns;
  RestartWithSettings(o.own.threads, argv);
  return Explain(DoRun(std::move(o)));
}

}  // namespace
}  // namespace whet::bench

int main(int argc, char** argv) { return whet::bench::Main(argc, argv); }
