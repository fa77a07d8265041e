#include "compiler/driver/verbs.h"

namespace whet::driver {

const std::vector<VerbEntry>& Verbs() {
  static const std::vector<VerbEntry> verbs = {
#ifdef WHET_HAS_COMPILE_MODEL
      {"compile", "compile a model into a shared library", MakeCompile},
      {"tune", "search for faster schedules by measuring", MakeTune},
#endif
      {"run", "run an artifact once on files", MakeRun},
      {"bench", "time an artifact on this machine", MakeBench},
#ifdef WHET_HAS_COMPILE_MODEL
      {"verify", "compare an artifact with the model's reference evaluation", MakeVerify},
      {"inspect", "what a model, an artifact or a tuning log holds", MakeInspect},
#endif
      {"log", "look into a tuning log; export and import it", MakeLog},
      {"jobs", "the jobs of a tuner server", MakeJobs},
      {"devices", "the devices of a tracker", MakeDevices},
      {"pki", "certificates of a fleet: make, issue, renew, deny", MakePki},
      {"doctor", "what this machine can do, and what is off", MakeDoctor},
#ifdef WHET_HAS_COMPILE_MODEL
      {"demo", "compile, tune and compare a small face detector", MakeDemo},
#endif
  };
  return verbs;
}

}  // namespace whet::driver
