// Ctrl-C and SIGTERM as a flag that verbs look at between two pieces of work: what was measured is
// kept, the exit code is 130. A second signal ends the process at once. One per process.
#pragma once

namespace whet::driver {

void WatchInterrupts();
bool Interrupted();
// A descriptor that becomes readable with the first signal; -1 before WatchInterrupts.
int InterruptFd();

}  // namespace whet::driver
