#include "compiler/support/cgroup.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "compiler/support/clock.h"
#include "compiler/support/env.h"

namespace whet {
namespace {

constexpr const char* kPrefix = "whet-run-";
constexpr const char* kOwnLevel = "whet-main";
constexpr size_t kMaxProcText = 4u << 20;

std::vector<std::string_view> SplitAt(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

bool Has(const std::vector<std::string_view>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool Put(const std::string& file, std::string_view text) {
  const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  close(fd);
  errno = error;
  return ok;
}

std::vector<pid_t> Processes(const std::string& dir) {
  std::vector<pid_t> found;
  const StatusOr<std::string> text = ReadFile(dir + "/cgroup.procs", kMaxProcText);
  if (!text.ok()) return found;
  const char* p = text->c_str();
  char* end = nullptr;
  for (long pid = strtol(p, &end, 10); end != p; p = end, pid = strtol(p, &end, 10)) {
    // 0 stands for one in a PID namespace that we do not see, and for kill() means our own group.
    if (pid > 0) found.push_back(static_cast<pid_t>(pid));
  }
  return found;
}

bool Gives(const std::string& dir, const char* file, std::string_view word) {
  const StatusOr<std::string> text = ReadFile(dir + "/" + file, 4096);
  if (!text.ok()) return false;
  const std::string_view line = std::string_view(*text).substr(0, text->find('\n'));
  return Has(SplitAt(line, ' '), word);
}

// What processes that are gone left behind in `base`.
void RemoveLeftovers(const std::string& base) {
  const StatusOr<std::vector<std::string>> names = ListDir(base);
  if (!names.ok()) return;
  const std::string_view prefix = kPrefix;
  for (const std::string& name : *names) {
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    const pid_t owner = static_cast<pid_t>(atol(name.c_str() + prefix.size()));
    if (owner <= 0 || kill(owner, 0) == 0 || errno != ESRCH) continue;
    const std::string dir = base + "/" + name;
    for (const pid_t pid : Processes(dir)) kill(pid, SIGKILL);
    rmdir(dir.c_str());
  }
}

// Where groups below this place can be made, "" for nowhere.
std::string BaseOf(const CgroupPlace& place) {
  std::string dir = place.dir;
  const size_t slash = dir.rfind('/');
  if (place.unified && slash != std::string::npos && dir.substr(slash + 1) == kOwnLevel)
    dir.resize(slash);
  return access(dir.c_str(), W_OK) == 0 ? dir : "";
}

std::vector<CgroupPlace> OwnPlaces() {
  const StatusOr<std::string> cgroup = ReadFile("/proc/self/cgroup", kMaxProcText),
                              mounts = ReadFile("/proc/self/mountinfo", kMaxProcText);
  if (!cgroup.ok() || !mounts.ok()) return {};
  return CgroupPlaces(*cgroup, *mounts);
}

}  // namespace

std::vector<CgroupPlace> CgroupPlaces(std::string_view cgroup, std::string_view mountinfo) {
  struct Mount {
    std::string_view root, point, type;
    std::vector<std::string_view> options;
  };
  std::vector<Mount> mounts;
  for (const std::string_view line : SplitAt(mountinfo, '\n')) {
    // ID PARENT DEVICE ROOT POINT OPTIONS [optional fields] - TYPE SOURCE OPTIONS
    const auto words = SplitAt(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 10 || words.end() - dash < 4) continue;
    if (dash[1] == "cgroup" || dash[1] == "cgroup2")
      mounts.push_back({words[3], words[4], dash[1], SplitAt(dash[3], ',')});
  }
  std::vector<CgroupPlace> places;
  for (const std::string_view line : SplitAt(cgroup, '\n')) {
    // ID:CONTROLLERS:PATH; version 2 has no controllers here
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    std::string_view path = line.substr(second + 1);
    if (path.empty() || path.find("..") != std::string_view::npos) continue;
    const auto wanted = SplitAt(controllers, ',');
    for (const Mount& m : mounts) {
      const bool unified = m.type == "cgroup2";
      if (unified != controllers.empty()) continue;
      if (!unified && !Has(m.options, wanted[0])) continue;
      // A container sees a part of the hierarchy only.
      if (m.root != "/") {
        if (path.substr(0, m.root.size()) != m.root) continue;
        path.remove_prefix(m.root.size());
      }
      CgroupPlace place;
      place.dir = std::string(m.point) + (path == "/" ? "" : std::string(path));
      place.unified = unified;
      if (!unified) place.controllers.assign(wanted.begin(), wanted.end());
      places.push_back(std::move(place));
      break;
    }
  }
  return places;
}

void MakeRoomInOwnCgroup() {
  for (const CgroupPlace& place : OwnPlaces()) {
    const size_t slash = place.dir.rfind('/');
    if (!place.unified || (slash != std::string::npos && place.dir.substr(slash + 1) == kOwnLevel))
      continue;
    if (!Gives(place.dir, "cgroup.controllers", "memory") ||
        access((place.dir + "/cgroup.subtree_control").c_str(), W_OK) != 0 ||
        Processes(place.dir) != std::vector<pid_t>{getpid()})
      continue;
    const std::string below = place.dir + "/" + kOwnLevel;
    if (mkdir(below.c_str(), 0755) != 0 && errno != EEXIST) continue;
    Put(below + "/cgroup.procs", "0");
  }
}

std::unique_ptr<CandidateGroup> CandidateGroup::Make() {
  std::unique_ptr<CandidateGroup> group(new CandidateGroup);
  for (const CgroupPlace& place : OwnPlaces()) group->Add(place);
  return group->members_.empty() ? nullptr : std::move(group);
}

void CandidateGroup::Add(const CgroupPlace& place) {
  auto controls = [&](const char* name) {
    return std::find(place.controllers.begin(), place.controllers.end(), name) !=
           place.controllers.end();
  };
  if (!place.unified && !controls("memory") && !controls("pids") && !controls("freezer")) return;
  const std::string base = BaseOf(place);
  if (base.empty()) return;
  RemoveLeftovers(base);
  if (place.unified) {
    // Refused where processes live in `base` itself, or where whoever gave us the group keeps them.
    Put(base + "/cgroup.subtree_control", "+memory");
    Put(base + "/cgroup.subtree_control", "+pids");
  }
  Member m;
  m.dir = fmt::format("{}/{}{}", base, kPrefix, getpid());
  m.unified = place.unified;
  if (mkdir(m.dir.c_str(), 0755) != 0 && errno != EEXIST) return;
  m.join_fd = place.unified ? open(m.dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)
                            : open((m.dir + "/tasks").c_str(), O_WRONLY | O_CLOEXEC);
  if (m.join_fd < 0) {
    rmdir(m.dir.c_str());
    return;
  }
  auto limit = [&](std::string* file, const char* name) {
    const std::string path = m.dir + "/" + name;
    if (file->empty() && access(path.c_str(), W_OK) == 0) *file = path;
  };
  if (place.unified) {
    limit(&memory_file_, "memory.max");
    Put(m.dir + "/memory.swap.max", "0");  // a candidate that swaps is not measured
    limit(&pids_file_, "pids.max");
  } else {
    if (controls("memory")) limit(&memory_file_, "memory.limit_in_bytes");
    if (controls("memory")) Put(m.dir + "/memory.swappiness", "0");
    if (controls("pids")) limit(&pids_file_, "pids.max");
    m.freezes = controls("freezer");
  }
  members_.push_back(std::move(m));
}

CandidateGroup::~CandidateGroup() {
  KillAll(MonotonicNs() + kSecond);
  for (const Member& m : members_) {
    close(m.join_fd);
    rmdir(m.dir.c_str());
  }
}

Status CandidateGroup::SetLimits(int64_t memory_bytes, int processes) {
  if (bounds_memory() &&
      !Put(memory_file_, memory_bytes > 0 ? std::to_string(memory_bytes)
                         : memory_file_.find("memory.max") != std::string::npos ? "max"
                                                                                : "-1"))
    return ErrnoStatus(errno, fmt::format("cannot write '{}'", memory_file_));
  if (bounds_processes() && !Put(pids_file_, processes > 0 ? std::to_string(processes) : "max"))
    return ErrnoStatus(errno, fmt::format("cannot write '{}'", pids_file_));
  return OkStatus();
}

bool CandidateGroup::Enter() const {
  bool ok = true;
  for (const Member& m : members_) {
    // A single thread, named by 0: the kernel then needs not stop the world's forks.
    if (!m.unified) ok = write(m.join_fd, "0", 1) == 1 && ok;
  }
  return ok;
}

pid_t CandidateGroup::ForkInto() const {
  for (const Member& m : members_) {
    if (!m.unified) continue;
    clone_args args = {};
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = SIGCHLD;
    args.cgroup = static_cast<uint64_t>(m.join_fd);
    return static_cast<pid_t>(syscall(SYS_clone3, &args, sizeof args));
  }
  return fork();
}

bool CandidateGroup::KillAll(int64_t deadline_ns) {
  auto freeze = [&](const char* state) {
    for (const Member& m : members_) {
      if (m.freezes) Put(m.dir + "/freezer.state", state);
    }
  };
  bool frozen = false;
  while (true) {
    bool empty = true;
    for (const Member& m : members_) {
      const std::vector<pid_t> left = Processes(m.dir);
      if (left.empty()) continue;
      empty = false;
      if (!frozen) freeze("FROZEN");  // so that none forks while it is named
      frozen = true;
      if (m.unified && Put(m.dir + "/cgroup.kill", "1")) continue;
      for (const pid_t pid : left) kill(pid, SIGKILL);
    }
    if (frozen) freeze("THAWED");
    frozen = false;
    if (empty) return true;
    if (MonotonicNs() >= deadline_ns) return false;
    const timespec moment{0, 200'000};
    nanosleep(&moment, nullptr);
  }
}

}  // namespace whet
