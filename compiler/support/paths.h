// Where things are: the state folder, the device lock, sibling programs. Stateless.
#pragma once
#include <string>

#include "compiler/support/status.h"

namespace whet {

// The folder of identities, spools and locks: `flag` if not empty, else $XDG_STATE_HOME/whet, else
// ~/.local/state/whet, else /var/tmp/whet-<uid>. Made (mode 0700) when missing.
StatusOr<std::string> StateDir(const std::string& flag);

// The lock that `rpc-worker` and `whet bench` take on this machine, or on a part of it, while they
// measure.
std::string DeviceLockPath(const std::string& state_dir);

// The folder of the running program.
std::string ProgramDir();
// A program of ours: beside the running one, in ../libexec/whet, in ../bin, in $WHET_LIBEXEC.
// NotFound lists where it was looked for.
StatusOr<std::string> FindProgram(const std::string& name);

}  // namespace whet
