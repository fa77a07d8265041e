// The tuner server as it is, with a compiler that takes no time.
#include "tests/bench/service/load_tasks.h"
#include "tuner/service/server_main.h"

int main(int argc, char** argv) {
  const whet::bench::LoadTasks tasks;
  return whet::tuner::RunServerMain(argc, argv, tasks, tasks, "load-builder");
}
