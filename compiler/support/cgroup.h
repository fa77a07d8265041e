// A control group for candidates: bounds their memory and their number, and ends all of them at
// once. Lies below the group that this process is in (which keeps the bounds that were set for it),
// version 1, version 2 or both, in whatever hierarchies let this user make one. One group serves
// all candidates of a process, one after the other, and is empty in between. Owned by one thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"

namespace whet {

// A hierarchy that this process has a place in: where its group's folder lies, and what it bounds.
struct CgroupPlace {
  std::string dir;
  bool unified = false;                  // version 2
  std::vector<std::string> controllers;  // version 1
};
// From the texts of /proc/self/cgroup and /proc/self/mountinfo.
std::vector<CgroupPlace> CgroupPlaces(std::string_view cgroup, std::string_view mountinfo);

// For a program that owns its group of version 2 (a service with Delegate=yes): moves this process,
// the only one there, one level down, without which no limits can be given to groups beside it.
// Call it before other processes are started. Does nothing where that is not how things are.
void MakeRoomInOwnCgroup();

class CandidateGroup {
 public:
  // Null where there is no place for one. Removes what a former process left.
  static std::unique_ptr<CandidateGroup> Make();
  ~CandidateGroup();
  CandidateGroup(const CandidateGroup&) = delete;
  CandidateGroup& operator=(const CandidateGroup&) = delete;

  bool bounds_memory() const { return !memory_file_.empty(); }
  bool bounds_processes() const { return !pids_file_.empty(); }
  bool ends_all() const { return !members_.empty(); }

  // Of the next candidate. Threads count as processes.
  Status SetLimits(int64_t memory_bytes, int processes);
  // In the candidate, while it has one thread.
  bool Enter() const;
  // fork() whose child begins in the group of version 2, if there is one: joining later is slow.
  pid_t ForkInto() const;
  // Ends what is in the group; false: something is left at the deadline.
  bool KillAll(int64_t deadline_ns);

 private:
  struct Member {  // a folder of ours
    std::string dir;
    bool unified = false, freezes = false;
    int join_fd = -1;  // version 1: written to; version 2: the folder
  };
  CandidateGroup() = default;
  void Add(const CgroupPlace& place);

  std::vector<Member> members_;
  std::string memory_file_, pids_file_;
};

}  // namespace whet
