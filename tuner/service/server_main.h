// The main function of a tuner server: configuration, listeners, signals. The program passes the
// compiler; the tests pass scripted tasks.
#pragma once
#include <string>

#include "tuner/service/core.h"
#include "tuner/task/task.h"

namespace whet::tuner {

// `builder`: the program whose zygotes build candidates, as FindProgram finds it. Returns the exit
// code. Called once, on the main thread, before others exist; the providers outlive the call.
// `core`: limits of jobs and trials.
int RunServerMain(int argc, char** argv, const SpaceProvider& spaces,
                  const ReferenceProvider& references, const std::string& builder,
                  const CoreConfig& core = {});

}  // namespace whet::tuner
