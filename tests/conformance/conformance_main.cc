// ONNX's backend tests against the whole compiler.
//   conformance_test [--shard I/N] [--filter GLOB] [--jobs N] [-v]
//                              runs tests; one that passes or fails against expectations.txt fails
//   conformance_test --summary [--passed N --total N]
//                              checks the numbers in expectations.txt, without running anything
//   conformance_test --list    prints the tests and what is expected of them
//   conformance_test --write-expectations [--jobs N]
//                              runs all and writes expectations.txt anew; a fault has no reason
//                              that could be written, so it stays an error
// With --vectors, all of this is about our own vectors and the expectations beside them.
// Each test runs in a forked child: lld and the compiled code stay there, and a crash costs one
// test. The data is at WHET_ONNX_TESTDATA, expectations.txt in WHET_CONFORMANCE_DIR.
#include <fnmatch.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "tests/conformance/expectations.h"
#include "tests/conformance/judge.h"
#include "tests/conformance/suite.h"

namespace whet::conformance {
namespace {

// Processor time of one test; the slowest takes about a second. A test that waits is ended by the
// clock, late enough for a machine with a lot else to do.
constexpr rlim_t kCpuSecondsPerTest = 60;
constexpr unsigned kSecondsPerTest = 270;

struct Flags {
  std::string filter = "*";
  int shard = 0, shards = 1, jobs = 1;
  bool verbose = false, list = false, summary = false, write = false, vectors = false;
  int64_t passed = -1, total = -1;
};

StatusOr<Flags> ParseFlags(int argc, char** argv) {
  Flags f;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "-v") {
      f.verbose = true;
    } else if (flag == "--list") {
      f.list = true;
    } else if (flag == "--summary") {
      f.summary = true;
    } else if (flag == "--vectors") {
      f.vectors = true;
    } else if (flag == "--write-expectations") {
      f.write = true;
    } else if (++i >= argc) {
      return InvalidArgument("'{}' is no flag, or has no value", flag);
    } else if (flag == "--filter") {
      f.filter = value;
    } else if (flag == "--jobs") {
      f.jobs = std::max(1, std::atoi(value));
    } else if (flag == "--passed") {
      f.passed = std::atoll(value);
    } else if (flag == "--total") {
      f.total = std::atoll(value);
    } else if (flag == "--shard") {
      if (std::sscanf(value, "%d/%d", &f.shard, &f.shards) != 2 || f.shard < 0 ||
          f.shard >= f.shards)
        return InvalidArgument("--shard {}: expected I/N with I from 0 to N-1", value);
    } else {
      return InvalidArgument("'{}' is no flag", flag);
    }
  }
  return f;
}

std::string Environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

// Runs tests in children, up to `jobs` at once, and calls `done` with each result.
class Fleet {
 public:
  Fleet(const std::vector<TestCase>& tests, int jobs, std::string folder)
      : tests_(tests), jobs_(static_cast<size_t>(jobs)), folder_(std::move(folder)) {}

  template <typename F>  // void(const TestCase&, const Outcome&)
  void Run(F&& done) {
    size_t next = 0;
    while (next < tests_.size() || !children_.empty()) {
      while (next < tests_.size() && children_.size() < jobs_) Start(next++);
      std::vector<pollfd> fds;
      for (const Child& c : children_) fds.push_back({c.fd, POLLIN, 0});
      if (poll(fds.data(), fds.size(), -1) < 0) continue;
      for (size_t i = fds.size(); i-- > 0;) {
        if (fds[i].revents == 0 || Read(children_[i])) continue;
        const Child c = std::move(children_[i]);
        children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i));
        done(tests_[c.test], Finish(c));
      }
    }
  }

 private:
  struct Child {
    pid_t pid = 0;
    int fd = -1;
    size_t test = 0;
    std::string text;
  };

  void Start(size_t test) {
    int fds[2];
    WHET_CHECK(pipe(fds) == 0, "pipe: {}", std::strerror(errno));
    const pid_t pid = fork();
    WHET_CHECK(pid >= 0, "fork: {}", std::strerror(errno));
    if (pid == 0) {
      close(fds[0]);
      const rlimit limit = {kCpuSecondsPerTest, kCpuSecondsPerTest};
      setrlimit(RLIMIT_CPU, &limit);
      alarm(kSecondsPerTest);
      const Outcome o = Judge(tests_[test], fmt::format("{}/{}.so", folder_, test));
      const std::string text = fmt::format("{}{}{}\n{}", static_cast<int>(o.verdict),
                                           o.folded ? 1 : 0, o.reason, o.detail);
      const bool whole =
          write(fds[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      _exit(whole ? 0 : 1);
    }
    close(fds[1]);
    children_.push_back({pid, fds[0], test, ""});
  }

  // False at the end.
  static bool Read(Child& c) {
    char buffer[4096];
    const ssize_t n = read(c.fd, buffer, sizeof buffer);
    if (n > 0) c.text.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  static Outcome Finish(const Child& c) {
    close(c.fd);
    int status = 0;
    waitpid(c.pid, &status, 0);
    const size_t line = c.text.find('\n');
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || line == std::string::npos) {
      const std::string how = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "no answer";
      return {Verdict::kFault, "", "the test's process ended: " + how, false};
    }
    return {static_cast<Verdict>(c.text[0] - '0'), c.text.substr(2, line - 2),
            c.text.substr(line + 1), c.text[1] == '1'};
  }

  const std::vector<TestCase>& tests_;
  const size_t jobs_;
  const std::string folder_;
  std::vector<Child> children_;
};

struct TempFolder {
  TempFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "whet-conformance-XXXXXX";
    if (mkdtemp(pattern.data())) path = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

// What is wrong, or "".
std::string Surprise(const Outcome& o, const std::string& expected) {
  if (o.verdict == Verdict::kFault) return "fault: " + o.detail;
  if (o.verdict == Verdict::kPassed)
    return expected.empty() ? "" : "passes, but is listed as '" + expected + "'";
  if (expected == o.reason) return "";
  return fmt::format("'{}' ({}), but expected is '{}'", o.reason, o.detail.substr(0, 300),
                     expected.empty() ? "a pass" : expected);
}

std::string CountsText(const Expectations& e) {
  std::string s = fmt::format("conformance: {} passed, {} unsupported of {}", e.passed,
                              e.total - e.passed, e.total);
  for (const auto& [kind, n] : e.unsupported) s += fmt::format(", {} {}", kind, n);
  return s;
}

int Summary(const Flags& f, const Expectations& e, const std::vector<TestCase>& tests) {
  Expectations counted = e;
  counted.total = static_cast<int64_t>(tests.size());
  Count(counted);
  int wrong = 0;
  auto check = [&](const std::string& what, int64_t written, int64_t real) {
    if (written == real) return;
    std::printf("%s: %ld is written, %ld is right\n", what.c_str(), long{written}, long{real});
    ++wrong;
  };
  check("total", e.total, counted.total);
  check("passed", e.passed, counted.passed);
  for (const auto& [kind, n] : counted.unsupported) {
    const auto it = e.unsupported.find(kind);
    check("unsupported " + kind, it == e.unsupported.end() ? 0 : it->second, n);
  }
  for (const auto& [kind, n] : e.unsupported)
    if (!counted.unsupported.count(kind)) check("unsupported " + kind, n, 0);
  if (f.passed >= 0) check("passed, in the name of the test", f.passed, counted.passed);
  if (f.total >= 0) check("total, in the name of the test", f.total, counted.total);
  for (const auto& [test, reason] : e.reasons) {
    const bool known = std::any_of(tests.begin(), tests.end(),
                                   [&, t = &test](const TestCase& c) { return c.name == *t; });
    if (known) continue;
    std::printf("%s is listed, but there is no such test\n", test.c_str());
    ++wrong;
  }
  std::printf("%s\n", CountsText(counted).c_str());
  return wrong == 0 ? 0 : 1;
}

int RunTests(const Flags& f, Expectations& e, const std::vector<TestCase>& all,
             const std::string& expectations_path) {
  std::vector<TestCase> tests;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool mine = static_cast<int>(i % static_cast<size_t>(f.shards)) == f.shard;
    if (mine && fnmatch(f.filter.c_str(), all[i].name.c_str(), 0) == 0) tests.push_back(all[i]);
  }
  if (tests.empty()) {
    std::printf("no test matches '%s'\n", f.filter.c_str());
    return 1;
  }
  const TempFolder folder;
  WHET_CHECK(!folder.path.empty(), "no temporary folder");
  setenv("TMPDIR", folder.path.c_str(), 1);  // what a child that crashes leaves goes with it
  if (Status s = Prepare(); !s.ok()) {
    std::printf("%s\n", Message(s).c_str());
    return 1;
  }
  int64_t passed = 0, folded = 0;
  std::map<std::string, std::string> surprises, reasons;
  std::fflush(stdout);  // children have nothing of it to write again
  Fleet(tests, f.jobs, folder.path).Run([&](const TestCase& t, const Outcome& o) {
    passed += o.verdict == Verdict::kPassed;
    folded += o.folded;
    if (o.verdict == Verdict::kUnsupported) reasons[t.name] = o.reason;
    const auto listed = e.reasons.find(t.name);
    const std::string expected = listed == e.reasons.end() ? "" : listed->second;
    std::string s = f.write && o.verdict != Verdict::kFault ? "" : Surprise(o, expected);
    if (f.verbose)
      std::printf("%s: %s %s\n", t.name.c_str(),
                  o.verdict == Verdict::kPassed ? "passed"
                  : o.reason.empty()            ? "fault"
                                                : o.reason.c_str(),
                  o.detail.c_str());
    if (!s.empty()) surprises[t.name] = std::move(s);
  });
  for (const auto& [test, s] : surprises) std::printf("%s: %s\n", test.c_str(), s.c_str());
  std::printf(
      "%zu tests: %ld passed (%ld of them folded to constants), %zu unsupported, %zu "
      "surprises\n",
      tests.size(), long{passed}, long{folded}, reasons.size(), surprises.size());
  if (f.write) {
    e.reasons = reasons;
    e.total = static_cast<int64_t>(all.size());
    Count(e);
    std::ofstream(expectations_path, std::ios::trunc) << ToText(e);
    std::printf("%s\n", CountsText(e).c_str());
  }
  return surprises.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  auto fail = [](const Status& s) {
    std::fprintf(stderr, "conformance_test: %s\n", Message(s).c_str());
    return 2;
  };
  const auto flags = ParseFlags(argc, argv);
  if (!flags.ok()) return fail(flags.status());
  const std::string folder = Environment("WHET_CONFORMANCE_DIR", WHET_CONFORMANCE_DIR);
  const auto tests = flags->vectors
                         ? FindOwnVectors(folder + "/vectors")
                         : FindTests(Environment("WHET_ONNX_TESTDATA", WHET_ONNX_TESTDATA));
  if (!tests.ok()) return fail(tests.status());
  const std::string path = folder + (flags->vectors ? "/vectors" : "") + "/expectations.txt";
  auto expectations = ReadExpectations(path);
  if (!expectations.ok()) return fail(expectations.status());
  if (flags->list) {
    for (const TestCase& t : *tests) {
      const auto it = expectations->reasons.find(t.name);
      std::printf("%s %s\n", t.name.c_str(),
                  it == expectations->reasons.end() ? "passes" : it->second.c_str());
    }
    return 0;
  }
  if (flags->summary) return Summary(*flags, *expectations, *tests);
  return RunTests(*flags, *expectations, *tests, path);
}

}  // namespace
}  // namespace whet::conformance

int main(int argc, char** argv) { return whet::conformance::Main(argc, argv); }
