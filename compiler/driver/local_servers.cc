#include "compiler/driver/local_servers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>

#include "compiler/support/env.h"
#include "compiler/support/nameless_file.h"
#include "compiler/support/paths.h"
#include "compiler/support/subprocess.h"

namespace whet::driver {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kStartLimit = std::chrono::seconds(20);
// A worker that is told to stop tries to deliver what it keeps for servers of before, which may be
// gone for good. Told again it ends at once, and keeps it.
constexpr auto kStopPatience = std::chrono::seconds(1);
constexpr auto kStopLimit = std::chrono::seconds(10);
constexpr std::string_view kBundleVariable = "WHET_TLS=";
constexpr std::string_view kRun = "run-";  // and the process's number
constexpr size_t kMaxFolder = 80;

std::string Tail(int log) {
  constexpr off_t kMost = 2000;
  const off_t size = lseek(log, 0, SEEK_END);
  std::string text(static_cast<size_t>(std::clamp<off_t>(size, 0, kMost)), '\0');
  const ssize_t n = pread(log, text.data(), text.size(), std::max<off_t>(size - kMost, 0));
  text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return size > kMost ? "..." + text : text;
}

// Folders of processes that are gone: they were killed, and had no time for it.
void RemoveStale(const std::string& state) {
  const StatusOr<std::vector<std::string>> names = ListDir(state);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (name.rfind(kRun, 0) != 0) continue;
    int pid = 0;
    const char* end = name.data() + name.size();
    if (std::from_chars(name.data() + kRun.size(), end, pid).ptr != end || pid <= 0) continue;
    std::error_code ignored;
    if (kill(pid, 0) != 0 && errno == ESRCH)
      std::filesystem::remove_all(state + "/" + name, ignored);
  }
}

// A new folder that is this user's alone, with a path short enough for a socket's.
StatusOr<std::string> SocketFolder(const std::string& state_dir) {
  WHET_ASSIGN_OR_RETURN(const std::string state, StateDir(state_dir));
  RemoveStale(state);
  std::error_code failed;
  std::string folder = std::filesystem::absolute(state, failed).string() + "/" + std::string(kRun) +
                       std::to_string(getpid());
  if (failed || folder.size() > kMaxFolder || folder.find(' ') != std::string::npos) {
    folder = "/tmp/whet-run-XXXXXX";
    if (!mkdtemp(folder.data())) return ErrnoStatus(errno, "cannot make a folder in /tmp");
    return folder;
  }
  std::filesystem::remove_all(folder, failed);  // of an earlier process of this number
  WHET_RETURN_IF_ERROR(MakeDirs(folder));
  return folder;
}

}  // namespace

StatusOr<LocalServers::Child> LocalServers::Launch(const std::string& name,
                                                   std::vector<std::string> args, int orphaned) {
  WHET_ASSIGN_OR_RETURN(const std::string program, FindProgram(name));
  Child child;
  child.name = name;
  WHET_ASSIGN_OR_RETURN(child.log, NamelessFile());
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (std::string& a : args) argv.push_back(a.data());
  argv.push_back(nullptr);
  std::vector<char*> env;
  for (char** e = environ; *e; ++e) {
    if (std::string_view(*e).substr(0, kBundleVariable.size()) != kBundleVariable)
      env.push_back(*e);
  }
  env.push_back(nullptr);
  const pid_t parent = getpid();
  child.pid = fork();
  if (child.pid == 0) {  // only calls that are safe between fork and exec
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, orphaned);
    if (getppid() != parent || dup2(null, 0) < 0 || dup2(out[1], 1) < 0 || dup2(child.log, 2) < 0)
      _exit(127);
    execve(argv[0], argv.data(), env.data());
    _exit(127);
  }
  const int error = errno;
  close(out[1]);
  if (null >= 0) close(null);
  if (child.pid < 0) {
    close(out[0]);
    return ErrnoStatus(error, "start " + name);
  }
  setpgid(child.pid, child.pid);
  child.out = out[0];
  return child;
}

Status LocalServers::AwaitPorts(Child& server) {
  const auto until = Clock::now() + kStartLimit;
  std::string text;
  while (server_.empty() || tracker_.empty()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd p = {server.out, POLLIN, 0};
    if (left <= 0 || poll(&p, 1, static_cast<int>(left)) == 0)
      return Unavailable("{} did not listen within {} s:\n{}", server.name, kStartLimit.count(),
                         Tail(server.log));
    char buffer[512];
    const ssize_t n = read(server.out, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (waitpid(server.pid, &server.status, 0) == server.pid) server.pid = -1;
      return EndOf(server);
    }
    text.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      std::istringstream words(text.substr(0, end));
      std::string listening, on, address, role;
      words >> listening >> on >> address >> role;
      if (role == "server") server_ = address;
      if (role == "tracker") tracker_ = address;
    }
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<LocalServers>> LocalServers::Start(const LocalServersOptions& options) {
  std::unique_ptr<LocalServers> s(new LocalServers);
  WHET_ASSIGN_OR_RETURN(s->folder_, SocketFolder(options.state_dir));
  WHET_ASSIGN_OR_RETURN(s->server_child_, Launch("tuner-server",
                                                 {"--tracker", ":0", "--listen",
                                                  "unix:" + s->folder_ + "/server.sock", "--db",
                                                  options.db, "--leftovers", "end"},
                                                 SIGKILL));
  WHET_RETURN_IF_ERROR(s->AwaitPorts(s->server_child_));
  // What it runs was built here: the layers that there are will do.
  std::vector<std::string> worker = {"--key", kKey, "--tracker", s->tracker_,
                                     "--allow-weak-sandbox"};
  if (!options.state_dir.empty()) worker.insert(worker.end(), {"--state-dir", options.state_dir});
  WHET_ASSIGN_OR_RETURN(s->worker_child_, Launch("rpc-worker", worker, SIGTERM));
  return s;
}

bool LocalServers::Ended(Child& child) {
  if (child.pid > 0 && waitpid(child.pid, &child.status, WNOHANG) == child.pid) child.pid = -1;
  return child.pid <= 0;
}

// Our programs end with 2 when they refuse what they were given, after one line "error: why".
Status LocalServers::EndOf(const Child& child) {
  const std::string log = Tail(child.log);
  if (WIFEXITED(child.status) && WEXITSTATUS(child.status) == 2) {
    const size_t at = log.rfind("error: ");
    if (at != std::string::npos) return InvalidArgument("{}", log.substr(at + 7));
  }
  return Unavailable("{} {}:\n{}", child.name, DescribeWaitStatus(child.status), log);
}

Status LocalServers::Failure() {
  for (Child* c : {&server_child_, &worker_child_}) {
    if (Ended(*c)) return EndOf(*c);
  }
  return OkStatus();
}

void LocalServers::Stop(Child& child) {
  if (!Ended(child)) {
    kill(child.pid, SIGTERM);
    const auto begin = Clock::now();
    for (bool again = false; !Ended(child);) {
      if (!again && Clock::now() > begin + kStopPatience) {
        again = true;
        kill(child.pid, SIGTERM);
      }
      if (Clock::now() < begin + kStopLimit) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        continue;
      }
      kill(-child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
      child.pid = -1;
    }
  }
  for (int* fd : {&child.out, &child.log}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

LocalServers::~LocalServers() {
  Stop(worker_child_);
  Stop(server_child_);
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace whet::driver
