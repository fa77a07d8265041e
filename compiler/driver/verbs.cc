#include "compiler/driver/verbs.h"

namespace whet::driver {

const std::vector<VerbEntry>& Verbs() {
  static const std::vector<VerbEntry> verbs = {
      {"run", "run an artifact once on files", MakeRun},
      {"bench", "time an artifact on this machine", MakeBench},
      {"doctor", "what this machine can do, and what is off", MakeDoctor},
  };
  return verbs;
}

}  // namespace whet::driver
