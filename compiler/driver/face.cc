#include "compiler/driver/face.h"

#include <algorithm>
#include <cmath>

namespace whet::driver {
namespace {

constexpr int kRow = 16;
constexpr int kScores16 = 16 * 16 * 2, kScores8 = 8 * 8 * 6;

double Sigmoid(double logit) { return 1 / (1 + std::exp(-std::clamp(logit, -100.0, 100.0))); }

Face Decode(int index, int cells, int anchors_per_cell, double score, const float* row) {
  const int cell = index / anchors_per_cell;
  Face f;
  f.score = score;
  f.x = (cell % cells + 0.5) / cells + row[0] / kFaceInput;
  f.y = (cell / cells + 0.5) / cells + row[1] / kFaceInput;
  f.width = row[2] / kFaceInput;
  f.height = row[3] / kFaceInput;
  return f;
}

}  // namespace

std::vector<float> FaceInput(const Image& picture) {
  const Image small = Resize(picture, kFaceInput, kFaceInput);
  std::vector<float> input(small.rgb.size());
  std::transform(small.rgb.begin(), small.rgb.end(), input.begin(),
                 [](uint8_t v) { return static_cast<float>(v) / 127.5f - 1.0f; });
  return input;
}

StatusOr<Face> BestFace(std::span<const float> scores16, std::span<const float> scores8,
                        std::span<const float> boxes16, std::span<const float> boxes8) {
  if (scores16.size() != kScores16 || scores8.size() != kScores8 ||
      boxes16.size() != kScores16 * kRow || boxes8.size() != kScores8 * kRow) {
    return InvalidArgument(
        "the outputs have {}, {}, {} and {} elements; a 128x128 BlazeFace gives {}, {}, {} and {}",
        scores16.size(), scores8.size(), boxes16.size(), boxes8.size(), kScores16, kScores8,
        kScores16 * kRow, kScores8 * kRow);
  }
  Face best;
  best.score = -1;
  auto look = [&](std::span<const float> scores, std::span<const float> boxes, int cells,
                  int per_cell) {
    for (int i = 0; i < static_cast<int>(scores.size()); ++i) {
      const double score = Sigmoid(scores[static_cast<size_t>(i)]);
      if (score > best.score)
        best = Decode(i, cells, per_cell, score, &boxes[static_cast<size_t>(i) * kRow]);
    }
  };
  look(scores16, boxes16, 16, 2);
  look(scores8, boxes8, 8, 6);
  if (best.score < 0) return Internal("every score of the model is NaN");
  return best;
}

std::string WrongFace(const Face& face, const ExpectedFace& e) {
  std::string wrong;
  auto check = [&](const char* what, double got, double want, double tolerance) {
    if (std::abs(got - want) <= tolerance) return;  // false for NaN
    wrong += fmt::format("{}{} is {:.4f}, expected {:.4f} within {:.4f}", wrong.empty() ? "" : "; ",
                         what, got, want, tolerance);
  };
  check("the score", face.score, e.score, e.score_tolerance);
  check("the centre's x", face.x, e.x, e.position_tolerance);
  check("the centre's y", face.y, e.y, e.position_tolerance);
  return wrong;
}

void DrawFace(Image& picture, const Face& f) {
  const uint8_t green[3] = {40, 220, 60};
  auto pixel = [](double share, int size) { return static_cast<int>(std::lround(share * size)); };
  DrawRectangle(picture, pixel(f.x - f.width / 2, picture.width),
                pixel(f.y - f.height / 2, picture.height), pixel(f.x + f.width / 2, picture.width),
                pixel(f.y + f.height / 2, picture.height), std::max(2, picture.width / 128), green);
}

}  // namespace whet::driver
