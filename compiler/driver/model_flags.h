// The flags that say which model is meant and how it is specialised, shared by compile, tune,
// verify and inspect; and how its tasks are printed. A ModelFlags lives in its verb.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "compiler/driver/compile_model.h"
#include "compiler/driver/flags.h"

namespace whet::driver {

class ModelFlags {
 public:
  enum class Needs { kShapes, kRecords };  // kRecords: also a target, and where the records are
  void Declare(Flags& flags, Needs needs = Needs::kRecords);
  void DeclareLayouts(Flags& flags);                // --layouts
  void AllowTargets() { several_targets_ = true; }  // before Declare: --target may be repeated
  // Turns the texts into `options`; InvalidArgument shows how a flag is written.
  Status Resolve();
  // The first flag on the command line that says something about a model, and about no other file;
  // or "". --target is not among them.
  std::string GivenForModels() const;
  bool TargetGiven() const { return flags_->OnCommandLine("--target"); }

  ModelOptions options;  // `model` is bound by the verb

 private:
  const Flags* flags_ = nullptr;  // borrowed
  std::vector<std::string> shapes_, bind_, targets_;
  int64_t threads_ = 1;
  bool several_targets_ = false;
};

nlohmann::ordered_json PlanJson(const PlanInfo& plan);
std::string PlanText(const PlanInfo& plan);
nlohmann::ordered_json TaskJson(const TaskInfo& task);
void PrintTasks(const std::vector<TaskInfo>& tasks);

}  // namespace whet::driver
