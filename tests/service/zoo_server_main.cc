// A tuner server whose compiler is the zoo.
#include "compiler/target/target.h"
#include "tests/service/zoo_tasks.h"
#include "tuner/service/server_main.h"

namespace whet::testing {

StatusOr<std::string> ZooTasks::FeatureSetOf(std::string_view target) const {
  WHET_ASSIGN_OR_RETURN(const Target t, Target::Parse(target));
  return t.FeatureSet();
}

}  // namespace whet::testing

int main(int argc, char** argv) {
  const whet::testing::ZooTasks tasks;
  whet::tuner::CoreConfig core;
  core.build_limit_ns = 2 * whet::kSecond;  // for the animal that hangs in the builder
  return whet::tuner::RunServerMain(argc, argv, tasks, tasks, "zoo-builder", core);
}
