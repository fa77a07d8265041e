// The demo's own knowledge: what BlazeFace (front camera, 128x128) wants to see and what its
// outputs mean. Values only.
//
// Input: 1x128x128x3 f32, RGB, v / 127.5 - 1. Outputs: 512 + 384 scores (logits) and for each a row
// of 16 numbers, of which the first four are the box: centre x, centre y, width, height, in pixels
// of the input, the centre relative to the anchor's. Anchors: two for each of 16x16 cells, then six
// for each of 8x8 cells, at the centres of the cells, row by row. Source of the scheme: Bazarevsky
// et al., "BlazeFace: Sub-millisecond Neural Face Detection on Mobile GPUs", 2019.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "compiler/driver/image.h"
#include "compiler/support/status.h"

namespace whet::driver {

inline constexpr int kFaceInput = 128;

struct Face {
  double score = 0;     // 0..1
  double x = 0, y = 0;  // centre, as a share of the picture's width and height
  double width = 0, height = 0;
};

// The picture, resized to 128x128, as the model's input.
std::vector<float> FaceInput(const Image& picture);

// The best-scored face. `scores` hold 512 then 384 logits, `boxes` as many rows of 16.
StatusOr<Face> BestFace(std::span<const float> scores16, std::span<const float> scores8,
                        std::span<const float> boxes16, std::span<const float> boxes8);

// What the demo's photograph must give, whatever the schedules: best score, centre, and how far off
// is still right.
struct ExpectedFace {
  double score = 0.944, score_tolerance = 0.002;
  double x = 0.486, y = 0.493, position_tolerance = 0.01;
};
// Empty when the face is right, else what is wrong.
std::string WrongFace(const Face& face, const ExpectedFace& expected);

// A box around the face, drawn into the picture that `face` is relative to.
void DrawFace(Image& picture, const Face& face);

}  // namespace whet::driver
