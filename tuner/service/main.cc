// tuner-server: holds tuning jobs, searches, builds candidates, dispatches them to leased workers,
// owns the tuning log.
#include "tuner/service/server_main.h"
#include "tuner/task/compiler_tasks.h"

int main(int argc, char** argv) {
  const whet::tuner::CompilerTasks tasks;
  return whet::tuner::RunServerMain(argc, argv, tasks, tasks, "whet-builder");
}
