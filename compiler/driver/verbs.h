// The makers of all verbs; each is defined in the verb's own cmd_<verb>.cc.
#pragma once
#include <memory>

#include "compiler/driver/names.h"
#include "compiler/driver/verb.h"

namespace whet::driver {

std::unique_ptr<Verb> MakeBench();
std::unique_ptr<Verb> MakeCompile();
std::unique_ptr<Verb> MakeDemo();
std::unique_ptr<Verb> MakeDevices();
std::unique_ptr<Verb> MakeDoctor();
std::unique_ptr<Verb> MakeInspect();
std::unique_ptr<Verb> MakeJobs();
std::unique_ptr<Verb> MakeLog();
std::unique_ptr<Verb> MakePki();
std::unique_ptr<Verb> MakeRun();
std::unique_ptr<Verb> MakeTune();
std::unique_ptr<Verb> MakeVerify();

}  // namespace whet::driver
