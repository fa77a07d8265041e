// whet-runner: runs candidates for rpc-worker. See worker/measure/runner.h.
//   whet-runner [--without LAYERS]   LAYERS of the sandbox are left out, for tests and to measure
//                                    what they cost: "seccomp,landlock"
#include <cstdio>
#include <cstring>

#include "compiler/support/sandbox.h"
#include "worker/measure/runner.h"

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--without") == 0) {
    const whet::StatusOr<uint32_t> layers = whet::ParseSandboxBits(argv[2]);
    if (!layers.ok()) {
      std::fprintf(stderr, "error: %s\n", whet::Message(layers.status()).c_str());
      return 2;
    }
    whet::LeaveOutSandboxLayers(*layers);
  }
  return whet::worker::RunRunnerZygote();
}
