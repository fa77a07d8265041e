// What `run`, `bench`, `verify` and the demo share around the runtime: loading an artifact, aligned
// buffers for its inputs and outputs, filling inputs from .npy files or pictures, writing outputs.
// A Buffers object belongs to one thread.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/driver/image.h"
#include "compiler/support/status.h"
#include "deploy/runtime/model.h"

namespace whet::driver {

StatusOr<std::shared_ptr<const Model>> LoadArtifact(const std::string& path,
                                                    const LoadOptions& options = {});
// --target of the commands that run an artifact.
inline constexpr const char* kBuildHelp =
    "of an artifact for several processors: the code to use, by its name in `whet inspect`; "
    "default: "
    "the best that runs here";
// " as x86-64-v3" where there is a choice, else "".
std::string BuildText(const Model& model);
// An instance of it, its memory allocated and its weights packed.
StatusOr<std::unique_ptr<Instance>> MakeInstance(std::shared_ptr<const Model> model, int threads);

// How a picture becomes an input, written
// "crop=X,Y,W,H;range=LO,HI;mean=R,G,B;std=R,G,B;channels=bgr;layout=nchw", every part optional:
// crop first; resize to the input's height and width; 0..255 mapped to LO..HI (default 0,1), or
// (v/255 - mean) / std; channels rgb (default) or bgr; layout from the input's shape unless it says
// nhwc or nchw.
struct Preprocess {
  std::optional<std::vector<int>> crop;
  double low = 0, high = 1;
  std::vector<double> mean, deviation;
  bool bgr = false;
  std::string layout;
};
StatusOr<Preprocess> ParsePreprocess(const std::string& text);
StatusOr<std::string> PictureToTensor(const Image& picture, const Preprocess& how,
                                      const whet_tensor& input);

class AlignedBytes {
 public:
  explicit AlignedBytes(uint64_t bytes);
  void* data() const { return memory_.get(); }
  uint64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> memory_;
  uint64_t size_;
};

class Buffers {
 public:
  explicit Buffers(const Model& model);
  const std::vector<const void*>& inputs() const { return inputs_; }
  const std::vector<void*>& outputs() const { return outputs_; }
  void* input(size_t i) const { return memory_[i].data(); }
  template <typename T>
  const T* output(size_t i) const {
    return static_cast<const T*>(outputs_[i]);
  }

 private:
  std::vector<AlignedBytes> memory_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

enum class MissingInputs { kError, kRandom };
// `specs` are NAME=FILE, or FILE when the model has one input. Pictures need `preprocess`. Inputs
// that are not named are an error, or get numbers in [-1, 1) from the seed (integers: zero,
// which is always a valid index).
Status FillInputs(const Model& model, const std::vector<std::string>& specs,
                  const std::string& preprocess, MissingInputs missing, Buffers* buffers,
                  uint64_t seed = 1);

// --shape texts, NAME=D,D,... A name may contain '='; the last one counts. An input that occurs
// again starts the next set, which has the shapes of the one before for what it does not name. At
// least one set comes back.
using ShapeSet = std::map<std::string, std::vector<int64_t>>;
StatusOr<std::vector<ShapeSet>> ParseShapes(const std::vector<std::string>& texts);
// The artifact or the variant of it whose inputs have these shapes; inputs that are not named are
// free.
StatusOr<std::shared_ptr<const Model>> SetOfShapes(const std::shared_ptr<const Model>& artifact,
                                                   const ShapeSet& shapes);

// An artifact may be for several sets of input shapes: the one that the given files fit, and its
// buffers, filled. With no files that decide, the first.
struct FilledModel {
  std::shared_ptr<const Model> model;
  Buffers buffers;
};
StatusOr<FilledModel> ChooseAndFill(const std::shared_ptr<const Model>& artifact,
                                    const std::vector<std::string>& specs,
                                    const std::string& preprocess, MissingInputs missing,
                                    uint64_t seed = 1);

// Where WriteOutputs writes, in order of the outputs.
std::vector<std::string> OutputPaths(const Model& model, const std::string& folder);
// One .npy per output into the folder, which is made if needed; bf16 is widened to f32. The paths.
StatusOr<std::vector<std::string>> WriteOutputs(const Model& model, const Buffers& buffers,
                                                const std::string& folder);

std::string Describe(const whet_tensor& tensor);  // "'input:0' f32 1x128x128x3"

}  // namespace whet::driver
