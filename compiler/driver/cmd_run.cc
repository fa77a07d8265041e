// whet run: one inference, inputs and outputs as files.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "compiler/driver/artifact_io.h"
#include "compiler/driver/output_file.h"
#include "compiler/driver/report.h"
#include "compiler/driver/verbs.h"

namespace whet::driver {
namespace {

class RunVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags_ = &flags;
    flags.Positional("ARTIFACT", &artifact_, "a compiled model (.so)").Reads();
    flags
        .Add("--input", &inputs_,
             "an input: NAME=FILE, or FILE when the model has only one; .npy, or PNG or JPEG with "
             "--preprocess")
        .Value("NAME=FILE")
        .Reads();
    flags
        .Add("--output-dir", &output_dir_,
             "folder for the outputs, one .npy each, named after the output")
        .Value("DIR");
    flags.Add("--threads", &threads_, "threads to run on").Range(1, 1024);
    flags.Add("--preprocess", &preprocess_, "how a picture becomes an input, see below")
        .Value("SPEC");
    flags.Add("--target", &load_.build, kBuildHelp).Value("NAME");
    flags.Json(&json_);
    flags.Notes(
        "SPEC is a list, separated by ';', of crop=X,Y,W,H (first), range=LO,HI (0..255 becomes "
        "LO..HI; default 0,1),\n"
        "mean=R,G,B and std=R,G,B ((v/255 - mean) / std instead), channels=rgb|bgr, "
        "layout=nhwc|nchw (default: by the\n"
        "input's shape). The picture is resized to the input's height and width, anti-aliased.\n"
        "In file names every character of an output's name but letters, digits, '.', '_' and '-' "
        "becomes '_'.");
    flags.Example("whet run face.so --input picture.npy --output-dir out");
    flags.Example(
        "whet run face.so --input input:0=me.jpg --preprocess 'crop=100,0,256,256;range=-1,1'");
  }

  int Run() override { return Explain("run", Go()); }

 private:
  Status Go() {
    // WHET_TARGET and configuration files say what to compile for.
    if (!flags_->OnCommandLine("--target")) load_.build.clear();
    WHET_ASSIGN_OR_RETURN(const auto artifact, LoadArtifact(artifact_, load_));
    WHET_ASSIGN_OR_RETURN(const FilledModel filled,
                          ChooseAndFill(artifact, inputs_, preprocess_, MissingInputs::kError));
    const auto& [model, buffers] = filled;
    std::vector<std::string> read = FilesOf(inputs_);
    read.push_back(artifact_);
    for (const std::string& path : OutputPaths(*model, output_dir_)) {
      WHET_RETURN_IF_ERROR(Annotate(CheckNotRead(path, read), "--output-dir"));
      WHET_RETURN_IF_ERROR(CheckDistinct("--json", json_, "an output of --output-dir", path));
      std::error_code ignored;  // what is not there yet may lack its folder, too
      if (std::filesystem::exists(path, ignored)) WHET_RETURN_IF_ERROR(CheckReplaceable(path));
    }
    WHET_ASSIGN_OR_RETURN(const auto instance, MakeInstance(model, static_cast<int>(threads_)));
    instance->Run(buffers.inputs(), buffers.outputs());
    WHET_ASSIGN_OR_RETURN(const auto paths, WriteOutputs(*model, buffers, output_dir_));
    nlohmann::ordered_json outputs = nlohmann::ordered_json::array();
    for (size_t i = 0; i < paths.size(); ++i) {
      const whet_tensor& t = model->outputs()[i];
      if (TextWanted(json_))
        fmt::print("{} {} {}\n", paths[i], DTypeName(t.dtype), ShapeText({t.shape, t.rank}));
      outputs.push_back({{"name", t.name},
                         {"dtype", DTypeName(t.dtype)},
                         {"shape", std::vector<int64_t>(t.shape, t.shape + t.rank)},
                         {"file", paths[i]}});
    }
    if (TextWanted(json_) && artifact->builds().size() > 1)
      fmt::print("ran{}\n", BuildText(*artifact));
    return WriteJson(json_, {{"outputs", outputs}, {"target", artifact->build().name}});
  }

  const Flags* flags_ = nullptr;  // borrowed
  LoadOptions load_;
  std::string artifact_, output_dir_ = ".", preprocess_, json_;
  std::vector<std::string> inputs_;
  int64_t threads_ = 1;
};

}  // namespace

std::unique_ptr<Verb> MakeRun() { return std::make_unique<RunVerb>(); }

}  // namespace whet::driver
