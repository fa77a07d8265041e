// A verb of the command line: `whet VERB ...`. One file per verb (cmd_<verb>.cc); verbs.cc lists
// them in the order of `whet --help`. A Verb object lives for the whole process and is used by the
// main thread alone.
#pragma once
#include <memory>
#include <vector>

#include "compiler/driver/flags.h"

namespace whet::driver {

class Verb {
 public:
  virtual ~Verb() = default;
  virtual void Declare(Flags& flags) = 0;  // binds the flags to the verb's own fields
  virtual int Run() = 0;  // an ExitCode; has said on standard error what went wrong
};

struct VerbEntry {
  const char* name;
  const char* summary;
  std::unique_ptr<Verb> (*make)();
};

// In the order in which people meet them.
const std::vector<VerbEntry>& Verbs();

}  // namespace whet::driver
