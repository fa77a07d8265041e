// whet verify: an artifact against the reference evaluation of its model.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "compiler/driver/artifact_io.h"
#include "compiler/driver/model_flags.h"
#include "compiler/driver/report.h"
#include "compiler/driver/verbs.h"

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

class VerifyVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags_ = &flags;
    flags.Positional("ARTIFACT", &options_.artifact, "a compiled model (.so)").Reads();
    flags.Positional("MODEL", &model_.options.model, "the model it was compiled from").Reads();
    model_.Declare(flags, ModelFlags::Needs::kShapes);
    flags
        .Add("--input", &options_.inputs,
             "an input, as for `whet run`; inputs not given are random numbers")
        .Value("NAME=FILE")
        .Reads();
    flags
        .Add("--preprocess", &options_.preprocess,
             "how a picture becomes an input, see whet run --help")
        .Value("SPEC");
    flags.Add("--target", &options_.build, kBuildHelp).Value("NAME");
    flags.Add("--seed", &seed_, "of the random inputs").Range(0, INT64_MAX);
    flags.Add("--rtol", &options_.rtol,
              "allowed difference as a share of each expected element; 0 with --atol 0: "
              "what rounding can explain");
    flags.Add("--atol", &options_.atol, "allowed difference beside that");
    flags.Add("--layers", &options_.layers,
              "compare after every task and name the first that diverges");
    flags.Json(&json_);
    flags.Notes(
        "The reference is computed operator by operator in double precision. Exits 1 on a "
        "mismatch.");
    flags.Example("whet verify face.so model.onnx");
    flags.Example("whet verify face.so model.onnx --input picture.npy --layers");
  }

  int Run() override {
    bool passed = true;
    const int code = Explain("verify", Go(&passed));
    return code == kExitDone && !passed ? kExitFailed : code;
  }

 private:
  static Json DifferencesJson(const std::vector<Difference>& list) {
    Json json = Json::array();
    for (const Difference& d : list) {
      json.push_back({{"name", d.name},
                      {"elements", d.elements},
                      {"outside", d.outside},
                      {"max_abs", d.max_abs},
                      {"max_rel", d.max_rel},
                      {"worst", d.worst},
                      {"expected", d.expected},
                      {"got", d.got}});
    }
    return json;
  }

  static void Print(const std::vector<Difference>& list) {
    for (const Difference& d : list) {
      fmt::print(
          "{:<4} {}: {} of {} elements outside, largest difference {:.3g} ({:.2g} of the largest "
          "value)",
          d.outside ? "BAD" : "ok", d.name, d.outside, d.elements, d.max_abs, d.max_rel);
      if (d.outside)
        fmt::print("; worst at {}: expected {:.8g}, got {:.8g}", d.worst, d.expected, d.got);
      fmt::print("\n");
    }
  }

  Status Go(bool* passed) {
    // WHET_TARGET and configuration files say what to compile for.
    if (!flags_->OnCommandLine("--target")) options_.build.clear();
    if (!(options_.rtol >= 0) || !(options_.atol >= 0))
      return InvalidArgument("--rtol and --atol must not be negative");
    WHET_RETURN_IF_ERROR(model_.Resolve());
    static_cast<ModelOptions&>(options_) = model_.options;
    options_.seed = static_cast<uint64_t>(seed_);
    WHET_ASSIGN_OR_RETURN(const VerifyReport report, VerifyArtifact(options_));
    *passed = report.passed;
    if (TextWanted(json_)) {
      Print(report.layers);
      Print(report.outputs);
      if (!report.first_divergent_layer.empty())
        fmt::print("the first task that diverges: {}\n", report.first_divergent_layer);
      fmt::print("{}{}\n", report.passed ? "the artifact agrees with the reference" : "MISMATCH",
                 report.build.empty() ? "" : "; it ran as " + report.build);
    }
    return WriteJson(json_, {{"passed", report.passed},
                             {"target", report.build},
                             {"first_divergent_layer", report.first_divergent_layer},
                             {"outputs", DifferencesJson(report.outputs)},
                             {"layers", DifferencesJson(report.layers)}});
  }

  const Flags* flags_ = nullptr;  // borrowed
  ModelFlags model_;
  VerifyOptions options_;
  std::string json_;
  int64_t seed_ = 1;
};

}  // namespace

std::unique_ptr<Verb> MakeVerify() { return std::make_unique<VerifyVerb>(); }

}  // namespace whet::driver
