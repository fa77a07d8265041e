// What a sandboxed child does to itself before it runs anything it was given. Internal to
// sandbox.cc, which forks.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/support/cgroup.h"
#include "compiler/support/sandbox.h"

namespace whet::sandbox {

// Puts up those of `wanted` that are a process's own affair (not its namespaces, but for that of
// mounts), in an order in which none is in another's way. Returns those that stand. `group`: null
// for none. `also_keep`: a descriptor that stays open.
uint32_t PutUp(uint32_t wanted, const SandboxOptions& options, const CandidateGroup* group,
               int also_keep);

// Those of all layers that PutUp is asked for.
uint32_t OwnAffair();

// In a new user namespace: the outside's numbers stand for themselves.
bool MapUser(uid_t user, gid_t group);

}  // namespace whet::sandbox
