#include "compiler/driver/local_servers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "compiler/support/env.h"
#include "compiler/support/paths.h"

namespace whet::driver {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kStartLimit = std::chrono::seconds(20);
constexpr auto kStopLimit = std::chrono::seconds(10);

std::string Tail(const std::string& path) {
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  constexpr size_t kMost = 2000;
  if (text.size() > kMost) text = "..." + text.substr(text.size() - kMost);
  return text;
}

}  // namespace

StatusOr<LocalServers::Child> LocalServers::Launch(const std::string& name,
                                                   std::vector<std::string> args) const {
  WHET_ASSIGN_OR_RETURN(const std::string program, FindProgram(name));
  Child child{name, log_dir_ + "/" + name + ".log"};
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
  const int log = open(child.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (std::string& a : args) argv.push_back(a.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  child.pid = fork();
  if (child.pid == 0) {  // only calls that are safe between fork and exec
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || dup2(null, 0) < 0 || dup2(out[1], 1) < 0 || dup2(log, 2) < 0)
      _exit(127);
    execv(argv[0], argv.data());
    _exit(127);
  }
  const int error = errno;
  for (int fd : {out[1], log, null}) {
    if (fd >= 0) close(fd);
  }
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
    if (n <= 0) return Unavailable("{} ended at once:\n{}", server.name, Tail(server.log));
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
  s->log_dir_ = options.log_dir;
  if (s->log_dir_.empty()) {
    std::string dir = (std::filesystem::temp_directory_path() / "whet-servers-XXXXXX").string();
    if (!mkdtemp(dir.data())) return ErrnoStatus(errno, "make " + dir);
    s->log_dir_ = dir;
    s->own_log_dir_ = true;
  }
  WHET_ASSIGN_OR_RETURN(s->server_child_,
                        s->Launch("tuner-server", {"--tracker", ":0", "--listen", "127.0.0.1:0",
                                                   "--db", options.db}));
  WHET_RETURN_IF_ERROR(s->AwaitPorts(s->server_child_));
  std::vector<std::string> worker = {"--key", kKey, "--tracker", s->tracker_};
  if (!options.state_dir.empty()) worker.insert(worker.end(), {"--state-dir", options.state_dir});
  WHET_ASSIGN_OR_RETURN(s->worker_child_, s->Launch("rpc-worker", worker));
  return s;
}

bool LocalServers::Ended(Child& child) {
  int status = 0;
  if (child.pid > 0 && waitpid(child.pid, &status, WNOHANG) == child.pid) child.pid = -1;
  return child.pid <= 0;
}

std::string LocalServers::Failure() {
  for (Child* c : {&server_child_, &worker_child_}) {
    if (Ended(*c)) return fmt::format("{} ended:\n{}", c->name, Tail(c->log));
  }
  return "";
}

void LocalServers::Stop(Child& child) {
  if (!Ended(child)) {
    kill(child.pid, SIGTERM);
    const auto until = Clock::now() + kStopLimit;
    while (!Ended(child)) {
      if (Clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        continue;
      }
      kill(-child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
      child.pid = -1;
    }
  }
  if (child.out >= 0) close(child.out);
  child.out = -1;
}

LocalServers::~LocalServers() {
  Stop(worker_child_);
  Stop(server_child_);
  std::error_code ignored;
  if (own_log_dir_) std::filesystem::remove_all(log_dir_, ignored);
}

}  // namespace whet::driver
