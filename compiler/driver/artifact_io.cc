#include "compiler/driver/artifact_io.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "compiler/driver/names.h"
#include "compiler/support/half.h"
#include "compiler/support/names.h"
#include "compiler/support/rng.h"
#include "deploy/runtime/npy.h"

namespace whet::driver {
namespace {

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t at = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, at));
    if (at == text.size()) return parts;
    text.remove_prefix(at + 1);
  }
}

StatusOr<std::vector<double>> Numbers(const std::string& part, const std::string& value,
                                      size_t least, size_t most) {
  std::vector<double> out;
  for (const std::string& n : Split(value, ',')) {
    double v = 0;
    const auto [end, failed] = std::from_chars(n.data(), n.data() + n.size(), v);
    if (failed != std::errc() || end != n.data() + n.size())
      return InvalidArgument("--preprocess: '{}' in '{}' is not a number", n, part);
    out.push_back(v);
  }
  if (out.size() < least || out.size() > most)
    return InvalidArgument("--preprocess: '{}' has {} numbers, expected {}", part, out.size(),
                           most);
  return out;
}

std::vector<int64_t> Shape(const whet_tensor& t) { return {t.shape, t.shape + t.rank}; }

// Real numbers in the input's type.
StatusOr<std::string> Encode(const std::vector<float>& values, const whet_tensor& t) {
  std::string bytes(t.bytes, '\0');
  char* at = bytes.data();
  for (const float v : values) {
    switch (t.dtype) {
      case WHET_F32: std::memcpy(at, &v, 4); break;
      case WHET_F64: {
        const double d = v;
        std::memcpy(at, &d, 8);
        break;
      }
      case WHET_F16: {
        const uint16_t h = F32ToF16(v);
        std::memcpy(at, &h, 2);
        break;
      }
      case WHET_BF16: {
        const uint16_t h = F32ToBF16(v);
        std::memcpy(at, &h, 2);
        break;
      }
      case WHET_U8:
        *at = static_cast<char>(static_cast<uint8_t>(std::clamp(v + 0.5f, 0.0f, 255.0f)));
        break;
      default:
        return InvalidArgument("a picture cannot become an input of type {}", DTypeName(t.dtype));
    }
    at += DTypeBytes(t.dtype);
  }
  return bytes;
}

StatusOr<NpyArray> ReadFor(const std::string& path, const whet_tensor& t) {
  NpyArray a;
  if (const std::string wrong = ReadNpy(path, &a); !wrong.empty())
    return InvalidArgument("{}", wrong);
  if (a.shape != Shape(t)) {
    return InvalidArgument("'{}' has shape {}; input '{}' needs {}", path, ShapeText(a.shape),
                           t.name, ShapeText(Shape(t)));
  }
  return a;
}

Status FillFromNpy(const std::string& path, const whet_tensor& t, void* out) {
  WHET_ASSIGN_OR_RETURN(const NpyArray a, ReadFor(path, t));
  if (t.dtype == WHET_BF16 && a.dtype == WHET_F32) {
    const auto* f = reinterpret_cast<const float*>(a.bytes.data());
    for (uint64_t i = 0; i < t.bytes / 2; ++i) static_cast<uint16_t*>(out)[i] = F32ToBF16(f[i]);
    return OkStatus();
  }
  if (a.dtype != t.dtype)
    return InvalidArgument("'{}' holds {}; input '{}' needs {}", path, DTypeName(a.dtype), t.name,
                           DTypeName(t.dtype));
  std::memcpy(out, a.bytes.data(), a.bytes.size());
  return OkStatus();
}

Status FillFromFile(const std::string& path, const std::string& preprocess, const whet_tensor& t,
                    void* out) {
  if (!LooksLikeImage(path)) return FillFromNpy(path, t, out);
  if (preprocess.empty()) {
    return InvalidArgument(
        "'{}' is a picture; say how it becomes input '{}' with --preprocess, for example "
        "--preprocess 'range=-1,1'",
        path, t.name);
  }
  WHET_ASSIGN_OR_RETURN(const Preprocess how, ParsePreprocess(preprocess));
  WHET_ASSIGN_OR_RETURN(const Image picture, ReadImage(path));
  WHET_ASSIGN_OR_RETURN(const std::string bytes, PictureToTensor(picture, how, t));
  std::memcpy(out, bytes.data(), bytes.size());
  return OkStatus();
}

void FillRandom(uint64_t seed, uint64_t tensor, const whet_tensor& t, void* out) {
  std::memset(out, 0, t.bytes);
  if (t.dtype < WHET_F16) return;
  const uint64_t count = t.bytes / static_cast<uint64_t>(DTypeBytes(t.dtype));
  for (uint64_t i = 0; i < count; ++i) {
    const float v = CounterUniform(seed, tensor, i);
    if (t.dtype == WHET_F32) static_cast<float*>(out)[i] = v;
    if (t.dtype == WHET_F64) static_cast<double*>(out)[i] = v;
    if (t.dtype == WHET_F16) static_cast<uint16_t*>(out)[i] = F32ToF16(v);
    if (t.dtype == WHET_BF16) static_cast<uint16_t*>(out)[i] = F32ToBF16(v);
  }
}

constexpr size_t kMaxShapeSets = 64;

Status ParseShape(const std::string& text, std::vector<ShapeSet>* sets,
                  std::set<std::string>* named) {
  const size_t eq = text.rfind('=');
  if (eq == std::string::npos || eq == 0)
    return InvalidArgument(
        "--shape '{}' is not NAME=D,D,...; write for example --shape x=1,3,224,224", text);
  std::vector<int64_t> dims;
  for (std::string_view rest = std::string_view(text).substr(eq + 1);;) {
    const size_t comma = std::min(rest.find_first_of(",x"), rest.size());
    int64_t d = 0;
    const auto [end, failed] = std::from_chars(rest.data(), rest.data() + comma, d);
    if (failed != std::errc() || end != rest.data() + comma || d < 0)
      return InvalidArgument("--shape '{}': '{}' is not a dimension (a number from 0)", text,
                             rest.substr(0, comma));
    dims.push_back(d);
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  const std::string name = text.substr(0, eq);
  if (!named->insert(name).second) {
    if (sets->size() == kMaxShapeSets)
      return InvalidArgument("--shape names '{}' more than {} times", name, kMaxShapeSets);
    sets->push_back(sets->back());
    *named = {name};
  }
  sets->back()[name] = std::move(dims);
  return OkStatus();
}

std::string InputList(const Model& model) {
  std::vector<std::string> all;
  for (const whet_tensor& t : model.inputs()) all.push_back(Describe(t));
  return ListOf(all);
}

// Those of every set of shapes.
std::string InputLists(const Model& artifact) {
  std::string lists = InputList(artifact);
  for (const auto& set : artifact.variants()) lists += "; or " + InputList(*set);
  return lists;
}

// The input that a --input argument means, and its file. An input's name may contain '=': the
// longest name wins.
StatusOr<std::pair<size_t, std::string>> ResolveInput(const Model& model, const std::string& spec) {
  const auto inputs = model.inputs();
  std::optional<size_t> found;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = inputs[i].name;
    const bool fits = spec.size() > name.size() && spec.compare(0, name.size(), name) == 0 &&
                      spec[name.size()] == '=';
    if (fits && (!found || name.size() > std::strlen(inputs[*found].name))) found = i;
  }
  if (found) return std::pair(*found, spec.substr(std::strlen(inputs[*found].name) + 1));
  const size_t eq = spec.find('=');
  if (inputs.size() == 1 && (eq == std::string::npos || std::filesystem::exists(spec)))
    return std::pair(size_t{0}, spec);
  if (eq == std::string::npos)
    return InvalidArgument("--input '{}' names no input; the model has {}: write NAME=FILE", spec,
                           InputList(model));
  return InvalidArgument("--input '{}': the model has no input '{}'; it has {}", spec,
                         spec.substr(0, eq), InputList(model));
}

}  // namespace

std::string Describe(const whet_tensor& t) {
  return fmt::format("'{}' {} {}", t.name, DTypeName(t.dtype), ShapeText(Shape(t)));
}

StatusOr<std::shared_ptr<const Model>> LoadArtifact(const std::string& path,
                                                    const LoadOptions& options) {
  std::string error;
  auto model = Model::Load(path, options, &error);
  if (!model) return InvalidArgument("{}", error);
  if (!model->parameters().empty())
    return InvalidArgument("'{}' is a tuning candidate without weights, not a compiled model",
                           path);
  return model;
}

std::string BuildText(const Model& model) {
  return model.builds().size() < 2 ? "" : " as " + model.build().name;
}

StatusOr<std::unique_ptr<Instance>> MakeInstance(std::shared_ptr<const Model> model, int threads) {
  // Pinned, so that figures do not depend on where the kernel happens to put the threads.
  const bool pin = threads > 1 && threads <= AvailableProcessors();
  auto instance = std::make_unique<Instance>(std::move(model), threads, pin);
  if (!instance->error().empty()) return ResourceExhausted("{}", instance->error());
  return instance;
}

StatusOr<Preprocess> ParsePreprocess(const std::string& text) {
  Preprocess p;
  for (const std::string& part : Split(text, ';')) {
    if (part.empty()) continue;
    const size_t eq = std::min(part.find('='), part.size());
    const std::string key = part.substr(0, eq), value = eq < part.size() ? part.substr(eq + 1) : "";
    if (key == "crop") {
      WHET_ASSIGN_OR_RETURN(const std::vector<double> v, Numbers(part, value, 4, 4));
      p.crop.emplace();
      for (double d : v) p.crop->push_back(static_cast<int>(std::clamp(d, -1e6, 1e6)));
    } else if (key == "range") {
      WHET_ASSIGN_OR_RETURN(const std::vector<double> v, Numbers(part, value, 2, 2));
      p.low = v[0];
      p.high = v[1];
    } else if (key == "mean") {
      WHET_ASSIGN_OR_RETURN(p.mean, Numbers(part, value, 3, 3));
    } else if (key == "std") {
      WHET_ASSIGN_OR_RETURN(p.deviation, Numbers(part, value, 3, 3));
      if (std::count(p.deviation.begin(), p.deviation.end(), 0.0) > 0)
        return InvalidArgument("--preprocess: '{}' divides by zero", part);
    } else if (key == "channels" && (value == "rgb" || value == "bgr")) {
      p.bgr = value == "bgr";
    } else if (key == "layout" && (value == "nhwc" || value == "nchw")) {
      p.layout = value;
    } else {
      return InvalidArgument(
          "--preprocess: '{}' is not one of crop=X,Y,W,H, range=LO,HI, mean=R,G,B, std=R,G,B, "
          "channels=rgb|bgr, layout=nhwc|nchw",
          part);
    }
  }
  return p;
}

StatusOr<std::string> PictureToTensor(const Image& picture, const Preprocess& how,
                                      const whet_tensor& t) {
  const std::vector<int64_t> s = Shape(t);
  const bool nhwc = how.layout.empty() ? s.size() == 4 && s[3] == 3 : how.layout == "nhwc";
  if (s.size() != 4 || s[0] != 1 || s[nhwc ? 3 : 1] != 3) {
    return InvalidArgument("input {} is not one picture of three channels (1xHxWx3 or 1x3xHxW)",
                           Describe(t));
  }
  const int64_t height = s[nhwc ? 1 : 2], width = s[nhwc ? 2 : 3];
  if (height < 1 || width < 1 || height > 16384 || width > 16384)
    return InvalidArgument("input {} has no picture's size", Describe(t));
  Image image = picture;
  if (how.crop) {
    WHET_ASSIGN_OR_RETURN(
        image, Crop(picture, (*how.crop)[0], (*how.crop)[1], (*how.crop)[2], (*how.crop)[3]));
  }
  image = Resize(image, static_cast<int>(width), static_cast<int>(height));
  std::vector<float> values(image.rgb.size());
  const auto scale = static_cast<float>(255.0 / (how.high - how.low == 0 ? 1 : how.high - how.low));
  for (int64_t pixel = 0; pixel < height * width; ++pixel) {
    for (int64_t c = 0; c < 3; ++c) {
      const auto v =
          static_cast<float>(image.rgb[static_cast<size_t>(pixel * 3 + (how.bgr ? 2 - c : c))]);
      float x = v / scale + static_cast<float>(how.low);
      if (!how.mean.empty() || !how.deviation.empty()) {
        const double mean = how.mean.empty() ? 0 : how.mean[static_cast<size_t>(c)],
                     deviation = how.deviation.empty() ? 1 : how.deviation[static_cast<size_t>(c)];
        x = static_cast<float>((v / 255.0 - mean) / deviation);
      }
      values[static_cast<size_t>(nhwc ? pixel * 3 + c : c * height * width + pixel)] = x;
    }
  }
  return Encode(values, t);
}

void AlignedBytes::Free::operator()(void* p) const { std::free(p); }

AlignedBytes::AlignedBytes(uint64_t bytes) : size_(bytes) {
  const uint64_t rounded = std::max<uint64_t>(
      (bytes + WHET_ALIGNMENT - 1) / WHET_ALIGNMENT * WHET_ALIGNMENT, WHET_ALIGNMENT);
  memory_.reset(std::aligned_alloc(WHET_ALIGNMENT, rounded));
  WHET_CHECK(memory_ != nullptr, "no memory for {} bytes", rounded);
  std::memset(memory_.get(), 0, rounded);
}

Buffers::Buffers(const Model& model) {
  for (const whet_tensor& t : model.inputs())
    inputs_.push_back(memory_.emplace_back(t.bytes).data());
  for (const whet_tensor& t : model.outputs())
    outputs_.push_back(memory_.emplace_back(t.bytes).data());
}

Status FillInputs(const Model& model, const std::vector<std::string>& specs,
                  const std::string& preprocess, MissingInputs missing, Buffers* buffers,
                  uint64_t seed) {
  if (!preprocess.empty()) WHET_RETURN_IF_ERROR(ParsePreprocess(preprocess).status());
  const auto inputs = model.inputs();
  std::vector<bool> given(inputs.size());
  for (const std::string& spec : specs) {
    WHET_ASSIGN_OR_RETURN(const auto resolved, ResolveInput(model, spec));
    const auto& [index, path] = resolved;
    if (given[index]) return InvalidArgument("--input names '{}' twice", inputs[index].name);
    given[index] = true;
    WHET_RETURN_IF_ERROR(FillFromFile(path, preprocess, inputs[index], buffers->input(index)));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (given[i]) continue;
    if (missing == MissingInputs::kError) {
      return InvalidArgument("input {} is missing; give it with --input {}=FILE.npy",
                             Describe(inputs[i]), inputs[i].name);
    }
    FillRandom(seed, i, inputs[i], buffers->input(i));
  }
  return OkStatus();
}

StatusOr<std::vector<ShapeSet>> ParseShapes(const std::vector<std::string>& texts) {
  std::vector<ShapeSet> sets(1);
  std::set<std::string> named;
  for (const std::string& t : texts) WHET_RETURN_IF_ERROR(ParseShape(t, &sets, &named));
  return sets;
}

StatusOr<std::shared_ptr<const Model>> SetOfShapes(const std::shared_ptr<const Model>& artifact,
                                                   const ShapeSet& shapes) {
  std::vector<std::vector<int64_t>> wanted;
  ShapeSet left = shapes;
  auto shapes_in = [&](const Model& m) {
    wanted.clear();
    for (const whet_tensor& t : m.inputs()) {
      auto given = shapes.find(t.name);
      wanted.push_back(given == shapes.end() ? Shape(t) : given->second);
      left.erase(t.name);
    }
  };
  std::string error;
  shapes_in(*artifact);
  if (!left.empty())
    return InvalidArgument("--shape: the model has no input '{}'; it has {}", left.begin()->first,
                           InputLists(*artifact));
  if (auto m = Model::ForShapes(artifact, wanted, &error)) return m;
  for (const auto& v : artifact->variants()) {
    shapes_in(*v);
    std::string ignored;
    if (auto m = Model::ForShapes(artifact, wanted, &ignored)) return m;
  }
  return InvalidArgument("{}", error);
}

// An artifact's shapes are as large as somebody has asked for.
Status CheckMemory(const Model& model) {
  double bytes = 0;
  for (const whet_tensor& t : model.inputs()) bytes += static_cast<double>(t.bytes);
  for (const whet_tensor& t : model.outputs()) bytes += static_cast<double>(t.bytes);
  const double here =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  // The second: a limit on this process.
  const bool fits =
      bytes < here &&
      std::unique_ptr<char, decltype(&std::free)>(
          static_cast<char*>(std::malloc(static_cast<size_t>(bytes) + 1)), std::free) != nullptr;
  if (fits) return OkStatus();
  return ResourceExhausted(
      "'{}': inputs and outputs take {}, more than there is ({} in this machine); compile it for "
      "smaller shapes",
      model.desc().name, BytesText(bytes), BytesText(here));
}

// Whether the files could be this set's inputs, found without memory for the inputs.
Status CheckShapes(const Model& model, const std::vector<std::string>& specs) {
  for (const std::string& spec : specs) {
    WHET_ASSIGN_OR_RETURN(const auto resolved, ResolveInput(model, spec));
    const auto& [index, path] = resolved;
    if (!LooksLikeImage(path)) WHET_RETURN_IF_ERROR(ReadFor(path, model.inputs()[index]).status());
  }
  return OkStatus();
}

StatusOr<FilledModel> ChooseAndFill(const std::shared_ptr<const Model>& artifact,
                                    const std::vector<std::string>& specs,
                                    const std::string& preprocess, MissingInputs missing,
                                    uint64_t seed) {
  std::vector<std::shared_ptr<const Model>> sets = {artifact};
  sets.insert(sets.end(), artifact->variants().begin(), artifact->variants().end());
  Status first = OkStatus();
  for (const auto& set : sets) {
    Status s = CheckMemory(*set);
    if (s.ok()) {
      FilledModel filled{set, Buffers(*set)};
      s = FillInputs(*set, specs, preprocess, missing, &filled.buffers, seed);
      if (s.ok()) return filled;
    } else if (const Status meant = CheckShapes(*set, specs); sets.size() == 1 || meant.ok()) {
      return s;
    } else {
      s = meant;
    }
    if (first.ok()) first = s;
  }
  if (sets.size() == 1) return first;
  return Status(first.code(), fmt::format("{}; the artifact is for these sets of inputs: {}",
                                          Message(first), InputLists(*artifact)));
}

std::vector<std::string> OutputPaths(const Model& model, const std::string& folder) {
  std::vector<std::string> paths;
  std::set<std::string> used;
  const auto outputs = model.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::string name = FileNameFor(outputs[i].name);
    if (!used.insert(name).second) {  // 'a:0' and 'a/0' look the same as file names
      name += fmt::format(".{}", i);
      used.insert(name);
    }
    paths.push_back((std::filesystem::path(folder) / (name + ".npy")).string());
  }
  return paths;
}

StatusOr<std::vector<std::string>> WriteOutputs(const Model& model, const Buffers& buffers,
                                                const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder))
    return InvalidArgument("cannot make the folder '{}': {}", folder,
                           error ? error.message() : "a file is in the way");
  std::vector<std::string> paths = OutputPaths(model, folder);
  const auto outputs = model.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::string wrong;
    if (outputs[i].dtype == WHET_BF16) {
      std::vector<float> wide(outputs[i].bytes / 2);
      for (size_t k = 0; k < wide.size(); ++k) wide[k] = BF16ToF32(buffers.output<uint16_t>(i)[k]);
      wrong = WriteNpy(paths[i], WHET_F32, Shape(outputs[i]), wide.data());
    } else {
      wrong = WriteNpy(paths[i], outputs[i].dtype, Shape(outputs[i]), buffers.outputs()[i]);
    }
    if (!wrong.empty()) return InvalidArgument("{}", wrong);
  }
  return paths;
}

}  // namespace whet::driver
