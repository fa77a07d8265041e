// Pictures for `whet run --preprocess` and the demo: reading PNG and JPEG, cropping, resizing,
// drawing a box, writing PNG. 8-bit RGB only, rows from the top; other PNG and JPEG forms are
// converted while reading. Plain values; stateless.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/support/status.h"

namespace whet::driver {

struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // width * height * 3

  uint8_t* at(int x, int y) { return &rgb[(static_cast<size_t>(y) * width + x) * 3]; }
  const uint8_t* at(int x, int y) const { return &rgb[(static_cast<size_t>(y) * width + x) * 3]; }
};

// PNG or JPEG, told apart by content. At most 16384 pixels a side. Transparent pixels are laid on
// white.
StatusOr<Image> ReadImage(const std::string& path);
Status WritePng(const std::string& path, const Image& image);

// True for files that begin like a PNG or a JPEG.
bool LooksLikeImage(const std::string& path);

StatusOr<Image> Crop(const Image& image, int x, int y, int width, int height);

// Triangle filter whose support grows with the reduction, so that nothing aliases; separable, each
// pass rounded to 8 bits, rows first. This is what Pillow calls BILINEAR, the resampling most
// models' own pre-processing uses.
Image Resize(const Image& image, int width, int height);

// A rectangle with corners (x0, y0), (x1, y1), `thickness` pixels inwards, clipped to the picture.
void DrawRectangle(Image& image, int x0, int y0, int x1, int y1, int thickness,
                   const uint8_t color[3]);

}  // namespace whet::driver
