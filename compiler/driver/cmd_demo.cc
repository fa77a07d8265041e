// whet demo: the product's main job on a small real model: compile, tune, compile again, check the
// answer, compare.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "compiler/driver/artifact_io.h"
#include "compiler/driver/device_lock.h"
#include "compiler/driver/face.h"
#include "compiler/driver/interrupt.h"
#include "compiler/driver/output_file.h"
#include "compiler/driver/report.h"
#include "compiler/driver/timing.h"
#include "compiler/driver/tune_job.h"
#include "compiler/driver/verbs.h"
#include "compiler/support/emulated.h"

namespace whet::driver {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPairs = 41;
constexpr int kEmulatedPairs = 3;
constexpr double kBlockMs = 20;

struct Window {  // the part of the picture that the model sees
  int x = 100, y = 0, size = 256;
};

// One compiled version of the model, ready to run on the picture.
struct Version {
  std::string path;
  std::shared_ptr<const Model> model;
  std::unique_ptr<Instance> instance;
  std::unique_ptr<Buffers> buffers;
  Face face;
};

// The outputs are told apart by their sizes: names differ between exports of the model.
StatusOr<Face> DecodeFace(const Model& model, const Buffers& buffers) {
  std::span<const float> parts[4];
  const size_t sizes[4] = {512, 384, 512 * 16, 384 * 16};
  for (size_t i = 0; i < model.outputs().size(); ++i) {
    const size_t n = model.outputs()[i].bytes / sizeof(float);
    for (size_t k = 0; k < 4; ++k) {
      if (model.outputs()[i].dtype == WHET_F32 && n == sizes[k])
        parts[k] = {buffers.output<float>(i), n};
    }
  }
  return BestFace(parts[0], parts[1], parts[2], parts[3]);
}

class DemoVerb : public Verb {
 public:
  void Declare(Flags& flags) override {
    flags.Positional("MODEL", &model_, "BlazeFace for 128x128 pictures (ONNX)").Reads();
    flags.Positional("PICTURE", &picture_, "the demo's photograph (PNG or JPEG)").Reads();
    flags.Add("--out", &out_, "folder for the log, the artifacts and the picture with the face")
        .Value("DIR");
    flags
        .Add("--trials", &trials_,
             "trials wanted in the log; a second run measures only what is missing")
        .Range(0, 1'000'000);
    flags.Add("--time", &time_, "tune at most so long").Value("SECONDS");
    flags.Add("--threads", &threads_, "threads to tune for and run on").Range(1, 1024);
    flags.Add("--state-dir", &state_dir_, "state folder of the local worker").Value("DIR");
    flags.Add("--any-picture", &any_picture_,
              "another picture than the demo's: look at its largest central square, do not check "
              "the answer");
    flags.Json(&json_);
    flags.Notes("Exits 1 when the answer is wrong or tuning found no valid time.");
    flags.Example("whet demo blazeface.onnx astronaut.png --out demo");
    flags.Example("whet demo blazeface.onnx me.jpg --any-picture --time 30s");
  }

  int Run() override {
    std::string wrong;
    const int code = Explain("demo", Go(&wrong));
    if (code == kExitDone && !wrong.empty()) {
      fmt::print(stderr, "whet demo: {}\n", wrong);
      return kExitFailed;
    }
    return code;
  }

 private:
  Status Go(std::string* wrong) {
    seconds_ = ParseSeconds(time_);
    if (!(seconds_ > 0))
      return InvalidArgument("--time '{}' is not a duration; write 90, 90s or 3m", time_);
    for (const char* file : {"tuning.db", "face-untuned.so", "face-tuned.so", "face.png"})
      WHET_RETURN_IF_ERROR(CheckDistinct("--json", json_, "a file of --out", Path(file)));
    WHET_ASSIGN_OR_RETURN(Image picture, ReadImage(picture_));
    Window window;
    if (any_picture_) {
      window.size = std::min(picture.width, picture.height);
      window.x = (picture.width - window.size) / 2;
      window.y = (picture.height - window.size) / 2;
    }
    WHET_ASSIGN_OR_RETURN(const Image seen,
                          Crop(picture, window.x, window.y, window.size, window.size));
    std::error_code error;
    std::filesystem::create_directories(out_, error);
    if (error) return InvalidArgument("cannot make the folder '{}': {}", out_, error.message());

    Version before, after;
    Json json;
    WHET_RETURN_IF_ERROR(Compile("untuned", false, seen, &before, &json));
    WHET_ASSIGN_OR_RETURN(const TuneReport tuned, TuneModel());
    json["tuning"] = TuneJson(tuned);
    if (!tuned.has_winner()) {
      *wrong = "no task got a valid time";
      return WriteJson(json_, json);
    }
    WHET_RETURN_IF_ERROR(Compile("tuned", true, seen, &after, &json));
    for (const Version* v : {&before, &after}) {
      const std::string off = any_picture_ ? "" : WrongFace(v->face, {});
      if (!off.empty())
        *wrong += fmt::format("{}'{}' gives a wrong answer: {}", wrong->empty() ? "" : "; ",
                              v->path, off);
    }
    if (wrong->empty()) WHET_RETURN_IF_ERROR(Compare(before, after, &json));
    WHET_RETURN_IF_ERROR(ReportFace(after.face, window, &picture, &json));
    return WriteJson(json_, json);
  }

  void Say(const std::string& text) const {
    if (!TextWanted(json_)) return;
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }

  std::string Path(const std::string& name) const {
    return (std::filesystem::path(out_) / name).string();
  }

  Status Compile(const std::string& name, bool use_records, const Image& seen, Version* v,
                 Json* json) const {
    CompileOptions options;
    options.model = model_;
    options.threads = static_cast<int>(threads_);
    options.db = use_records ? Path("tuning.db") : "";
    options.use_records = use_records;
    options.name = "face";
    options.output = v->path = Path("face-" + name + ".so");
    WHET_ASSIGN_OR_RETURN(const CompileReport report, CompileModel(options));
    Say(fmt::format("compiled {}: {} of {} tasks tuned, {:.1f} s, {} of memory at the peak",
                    v->path, report.tuned, report.tuned + report.untuned, report.seconds,
                    BytesText(static_cast<double>(report.peak_bytes))));
    (*json)[name] = {{"artifact", v->path},
                     {"tasks", report.tuned + report.untuned},
                     {"tuned", report.tuned},
                     {"seconds", report.seconds},
                     {"peak_bytes", report.peak_bytes}};
    WHET_ASSIGN_OR_RETURN(v->model, LoadArtifact(v->path));
    WHET_ASSIGN_OR_RETURN(v->instance, MakeInstance(v->model, static_cast<int>(threads_)));
    v->buffers = std::make_unique<Buffers>(*v->model);
    const std::vector<float> input = FaceInput(seen);
    if (v->model->inputs().size() != 1 || v->model->inputs()[0].dtype != WHET_F32 ||
        v->model->inputs()[0].bytes != input.size() * sizeof(float)) {
      return InvalidArgument(
          "'{}' is not the demo's model: it does not take one f32 picture of 128x128x3", model_);
    }
    std::copy(input.begin(), input.end(), static_cast<float*>(v->buffers->input(0)));
    v->instance->Run(v->buffers->inputs(), v->buffers->outputs());
    WHET_ASSIGN_OR_RETURN(v->face, DecodeFace(*v->model, *v->buffers));
    // Stop its threads until they are needed: the servers of the tuning must start from a process
    // without threads.
    v->instance.reset();
    return OkStatus();
  }

  StatusOr<TuneReport> TuneModel() const {
    TuneOptions options;
    options.model.model = model_;
    options.model.db = Path("tuning.db");
    options.model.threads = static_cast<int>(threads_);
    options.state_dir = state_dir_;
    options.trials = trials_;
    options.seconds = seconds_;
    options.progress = Progress::ForStderr();
    WHET_ASSIGN_OR_RETURN(const TuningTasks tasks, FindTuningTasks(options));
    Say(fmt::format("tuning {} tasks on this machine: {} trials wanted, at most {}",
                    tasks.tasks.size(), trials_, Progress::Minutes(seconds_)));
    WHET_ASSIGN_OR_RETURN(TuneReport report, Tune(options, tasks));
    if (report.interrupted)
      return Status(absl::StatusCode::kCancelled,
                    "interrupted; what was measured is in " + options.model.db);
    std::string kinds;
    for (const v1::FailureCount& f : report.job.failed())
      kinds += fmt::format("{}{} {}", kinds.empty() ? " (" : ", ", f.count(), f.kind());
    Say(fmt::format(
        "tuned: {} trials in {:.1f} s, {} in the log, {} verified ({:.1f} per second), {} failed{}",
        report.trials(), report.seconds(), report.job.trials_done(), report.job.verified(),
        report.verified_per_second(), report.failed(), kinds.empty() ? "" : kinds + ")"));
    return report;
  }

  Status Compare(Version& before, Version& after, Json* json) const {
    WHET_ASSIGN_OR_RETURN(const FileLock lock, LockDevice(state_dir_, 60));
    for (Version* v : {&before, &after}) {
      WHET_ASSIGN_OR_RETURN(v->instance, MakeInstance(v->model, static_cast<int>(threads_)));
      v->instance->Bind(v->buffers->inputs(), v->buffers->outputs());
    }
    const int pairs = Emulated() ? kEmulatedPairs : kPairs;
    const Comparison c = Interleave([&] { after.instance->Execute(); },
                                    [&] { before.instance->Execute(); }, pairs, kBlockMs);
    Say(fmt::format("untuned  {:.4f} ms  (80 % of blocks within {:.1f} %)", c.b_median_ms,
                    100 * c.b_spread));
    Say(fmt::format("tuned    {:.4f} ms  (80 % of blocks within {:.1f} %)", c.a_median_ms,
                    100 * c.a_spread));
    Say(fmt::format(
        "speed-up {:.2f}  (95 % interval {:.2f} to {:.2f}; {} interleaved pairs of "
        "blocks, {} thread{})",
        1 / c.ratio, 1 / c.ratio_high, 1 / c.ratio_low, pairs, threads_, threads_ == 1 ? "" : "s"));
    if (Emulated()) Say("emulated: these times mean nothing, and no trial counts");
    (*json)["comparison"] = {{"untuned_ms", c.b_median_ms},
                             {"untuned_spread", c.b_spread},
                             {"tuned_ms", c.a_median_ms},
                             {"tuned_spread", c.a_spread},
                             {"speedup", 1 / c.ratio},
                             {"speedup_low", 1 / c.ratio_high},
                             {"speedup_high", 1 / c.ratio_low},
                             {"pairs", pairs},
                             {"threads", threads_},
                             {"emulated", Emulated()}};
    return OkStatus();
  }

  Status ReportFace(const Face& f, const Window& window, Image* picture, Json* json) const {
    Say(fmt::format(
        "face: score {:.4f}, centre ({:.3f}, {:.3f}), size {:.3f} x {:.3f} of the window", f.score,
        f.x, f.y, f.width, f.height));
    (*json)["face"] = {
        {"score", f.score}, {"x", f.x}, {"y", f.y}, {"width", f.width}, {"height", f.height}};
    Face whole = f;  // relative to the whole picture
    whole.x = (window.x + f.x * window.size) / picture->width;
    whole.y = (window.y + f.y * window.size) / picture->height;
    whole.width = f.width * window.size / picture->width;
    whole.height = f.height * window.size / picture->height;
    DrawFace(*picture, whole);
    WHET_RETURN_IF_ERROR(WritePng(Path("face.png"), *picture));
    Say("the face is marked in " + Path("face.png"));
    return OkStatus();
  }

  std::string model_, picture_, out_ = "whet-demo", time_ = "150s", state_dir_, json_;
  int64_t trials_ = 2000, threads_ = 1;
  double seconds_ = 0;
  bool any_picture_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeDemo() { return std::make_unique<DemoVerb>(); }

}  // namespace whet::driver
