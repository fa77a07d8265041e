// whet-runner: runs candidates for rpc-worker. See worker/measure/runner.h.
#include "worker/measure/runner.h"

int main() { return whet::worker::RunRunnerZygote(); }
