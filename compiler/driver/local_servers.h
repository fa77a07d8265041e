// The embedded mode of `whet tune`: a tuner server (its tracker inside) and a worker for this
// machine, as child processes on sockets in a folder of mode 0700 (a port of loopback would let
// every user of the machine run code as this one): the same programs and protocol as on a fleet, so
// that what is shown here is what runs there. They are in a process group of their own (Ctrl-C
// reaches only us, and we stop them in order) and die with us however we die. The bundle of a fleet
// (WHET_TLS) is not theirs: nothing here is reached from elsewhere. Must be started before the
// process has threads. Owned by one thread.
#pragma once
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "compiler/support/status.h"

namespace whet::driver {

struct LocalServersOptions {
  std::string db;         // tuning log of the server
  std::string state_dir;  // of the worker; empty: the default
};

class LocalServers {
 public:
  static StatusOr<std::unique_ptr<LocalServers>> Start(const LocalServersOptions& options);
  ~LocalServers();  // SIGTERM, then SIGKILL after ten seconds; the worker first
  LocalServers(const LocalServers&) = delete;
  LocalServers& operator=(const LocalServers&) = delete;

  const std::string& server() const { return server_; }    // unix:PATH
  const std::string& tracker() const { return tracker_; }  // unix:PATH
  static constexpr const char* kKey = "local";

  // OK while both run; otherwise which one ended, and the end of its log. InvalidArgument when it
  // refused what it was given (a log that is none), else Unavailable.
  Status Failure();

 private:
  struct Child {
    std::string name;
    pid_t pid = -1;
    int status = 0;  // as waitpid has it, once it has ended
    int out = -1;    // its standard output
    int log = -1;    // a file without a name that takes its standard error
  };
  LocalServers() = default;
  // `orphaned` is the signal that it gets when this process dies.
  static StatusOr<Child> Launch(const std::string& name, std::vector<std::string> args,
                                int orphaned);
  Status AwaitPorts(Child& server);
  static bool Ended(Child& child);
  static Status EndOf(const Child& child);
  static void Stop(Child& child);

  std::string folder_, server_, tracker_;
  Child server_child_, worker_child_;
};

}  // namespace whet::driver
