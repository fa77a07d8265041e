// whet-bench service: a tuner server under load on this machine, the load's own cost included. The
// server is the real one with a compiler that takes no time (load_server_main.cc); the workers are
// simulated, their connections are not (load_fleet.h).
#pragma once
#include <cstdint>
#include <string>

#include "compiler/support/status.h"

namespace whet::bench {

struct ServiceOptions {
  int workers = 2000;
  double seconds = 60;  // of results
  double rate = 1000;   // results a second
  int leases = 500;     // a second, asked for
  bool tls = true;      // certificates both ways, as between hosts
  std::string log;      // what the server says goes to this file
  std::string json;     // file
};

// Prints a table of figures with their goals, and ends with InvalidArgument or Unavailable, in
// words, where it could not measure. A goal that is missed is no error.
Status BenchService(const ServiceOptions& options);

}  // namespace whet::bench
