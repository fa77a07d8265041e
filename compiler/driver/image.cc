#include "compiler/driver/image.h"

#include <png.h>
// jpeglib.h wants these two first.
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csetjmp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

namespace whet::driver {
namespace {

constexpr uint32_t kMaxSide = 16384;          // 16384 x 16384 x 3 bytes are 768 MiB
constexpr int64_t kMaxFileBytes = 256 << 20;  // read whole

StatusOr<std::string> ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot open '{}': {}", path, std::strerror(errno));
  in.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(in.tellg());
  if (size < 0 || size > kMaxFileBytes)
    return InvalidArgument("'{}' has {} bytes; pictures have at most {}", path, size,
                           kMaxFileBytes);
  in.seekg(0);
  std::string bytes(static_cast<size_t>(size), '\0');
  if (!in.read(bytes.data(), size)) return InvalidArgument("cannot read '{}'", path);
  return bytes;
}

bool IsPng(std::string_view b) { return b.substr(0, 8) == "\x89PNG\r\n\x1a\n"; }
bool IsJpeg(std::string_view b) { return b.substr(0, 3) == "\xff\xd8\xff"; }

Status CheckSize(const std::string& path, uint32_t width, uint32_t height) {
  if (width == 0 || height == 0 || width > kMaxSide || height > kMaxSide) {
    return InvalidArgument("'{}' is {}x{} pixels; allowed are 1 to {} a side", path, width, height,
                           kMaxSide);
  }
  return OkStatus();
}

StatusOr<Image> DecodePng(const std::string& path, const std::string& bytes) {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()))
    return InvalidArgument("'{}': {}", path, png.message);
  Status size = CheckSize(path, png.width, png.height);
  if (!size.ok()) {
    png_image_free(&png);
    return size;
  }
  png.format = PNG_FORMAT_RGB;
  Image image{static_cast<int>(png.width), static_cast<int>(png.height), {}};
  image.rgb.resize(PNG_IMAGE_SIZE(png));
  const png_color white = {255, 255, 255};
  if (!png_image_finish_read(&png, &white, image.rgb.data(), 0, nullptr)) {
    return InvalidArgument("'{}': {}", path, png.message);  // the library has freed its part
  }
  return image;
}

// libjpeg reports through a function that must not return.
struct JpegError {
  jpeg_error_mgr base;
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

void OnJpegError(j_common_ptr info) {
  auto* error = reinterpret_cast<JpegError*>(info->err);
  info->err->format_message(info, error->message);
  std::longjmp(error->back, 1);
}

// No object with a destructor lives between setjmp and a possible longjmp. False: `error` has the
// message.
bool DecodeJpegInto(std::span<const unsigned char> bytes, jpeg_decompress_struct* info,
                    JpegError* error, Image* image) {
  info->err = jpeg_std_error(&error->base);
  error->base.error_exit = OnJpegError;
  error->base.output_message = [](j_common_ptr) {};  // warnings do not belong on standard error
  jpeg_create_decompress(info);
  if (setjmp(error->back) != 0) {
    jpeg_destroy_decompress(info);
    return false;
  }
  jpeg_mem_src(info, bytes.data(), bytes.size());
  jpeg_read_header(info, TRUE);
  if (info->image_width > kMaxSide || info->image_height > kMaxSide) {
    std::snprintf(error->message, sizeof error->message, "more than %u pixels a side", kMaxSide);
    jpeg_destroy_decompress(info);
    return false;
  }
  info->out_color_space = JCS_RGB;
  jpeg_start_decompress(info);
  image->width = static_cast<int>(info->output_width);
  image->height = static_cast<int>(info->output_height);
  image->rgb.resize(static_cast<size_t>(image->width) * image->height * 3);
  while (info->output_scanline < info->output_height) {
    JSAMPROW row =
        image->rgb.data() + static_cast<size_t>(info->output_scanline) * image->width * 3;
    jpeg_read_scanlines(info, &row, 1);
  }
  jpeg_finish_decompress(info);
  jpeg_destroy_decompress(info);
  return true;
}

StatusOr<Image> DecodeJpeg(const std::string& path, const std::string& bytes) {
  Image image;
  jpeg_decompress_struct info = {};
  JpegError error = {};
  if (!DecodeJpegInto({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()}, &info,
                      &error, &image)) {
    return InvalidArgument("'{}': {}", path, error.message);
  }
  WHET_RETURN_IF_ERROR(
      CheckSize(path, static_cast<uint32_t>(image.width), static_cast<uint32_t>(image.height)));
  return image;
}

// The source pixels and weights of one pixel of the result.
struct Taps {
  int first = 0;
  std::vector<float> weights;
};

std::vector<Taps> TriangleTaps(int from, int to) {
  const double scale = static_cast<double>(from) / to;
  const double support = std::max(scale, 1.0);
  std::vector<Taps> all(static_cast<size_t>(to));
  for (int o = 0; o < to; ++o) {
    const double center = (o + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int end = std::min(static_cast<int>(center + support + 0.5), from);
    std::vector<double> w;
    double sum = 0;
    for (int i = first; i < end; ++i) {
      w.push_back(std::max(0.0, 1 - std::abs((i + 0.5 - center) / support)));
      sum += w.back();
    }
    all[static_cast<size_t>(o)].first = first;
    for (double v : w) all[static_cast<size_t>(o)].weights.push_back(static_cast<float>(v / sum));
  }
  return all;
}

uint8_t Round8(float v) { return static_cast<uint8_t>(std::clamp(v + 0.5f, 0.0f, 255.0f)); }

}  // namespace

bool LooksLikeImage(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;  // a pipe would be waited for
  char begin[8] = {};
  std::ifstream in(path, std::ios::binary);
  in.read(begin, sizeof begin);
  const std::string_view b(begin, static_cast<size_t>(in.gcount()));
  return IsPng(b) || IsJpeg(b);
}

StatusOr<Image> ReadImage(const std::string& path) {
  WHET_ASSIGN_OR_RETURN(const std::string bytes, ReadWhole(path));
  if (IsPng(bytes)) return DecodePng(path, bytes);
  if (IsJpeg(bytes)) return DecodeJpeg(path, bytes);
  return InvalidArgument("'{}' is neither a PNG nor a JPEG picture", path);
}

Status WritePng(const std::string& path, const Image& image) {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  if (!png_image_write_to_file(&png, path.c_str(), 0, image.rgb.data(), 0, nullptr)) {
    return InvalidArgument("cannot write '{}': {}", path, png.message);
  }
  return OkStatus();
}

StatusOr<Image> Crop(const Image& image, int x, int y, int width, int height) {
  if (x < 0 || y < 0 || width < 1 || height < 1 || width > image.width - x ||
      height > image.height - y) {
    return InvalidArgument("crop {}x{} at ({},{}) reaches beyond the picture of {}x{}", width,
                           height, x, y, image.width, image.height);
  }
  Image out{width, height, {}};
  out.rgb.resize(static_cast<size_t>(width) * height * 3);
  for (int row = 0; row < height; ++row)
    std::memcpy(out.at(0, row), image.at(x, y + row), static_cast<size_t>(width) * 3);
  return out;
}

Image Resize(const Image& image, int width, int height) {
  if (width == image.width && height == image.height) return image;
  const std::vector<Taps> columns = TriangleTaps(image.width, width),
                          rows = TriangleTaps(image.height, height);
  Image wide{width, image.height,
             std::vector<uint8_t>(static_cast<size_t>(width) * image.height * 3)};
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < width; ++x) {
      const Taps& t = columns[static_cast<size_t>(x)];
      for (int c = 0; c < 3; ++c) {
        float sum = 0;
        for (size_t i = 0; i < t.weights.size(); ++i)
          sum += t.weights[i] * image.at(t.first + static_cast<int>(i), y)[c];
        wide.at(x, y)[c] = Round8(sum);
      }
    }
  }
  Image out{width, height, std::vector<uint8_t>(static_cast<size_t>(width) * height * 3)};
  for (int y = 0; y < height; ++y) {
    const Taps& t = rows[static_cast<size_t>(y)];
    for (int x = 0; x < width * 3; ++x) {
      float sum = 0;
      for (size_t i = 0; i < t.weights.size(); ++i)
        sum += t.weights[i] * wide.at(0, t.first + static_cast<int>(i))[x];
      out.at(0, y)[x] = Round8(sum);
    }
  }
  return out;
}

void DrawRectangle(Image& image, int x0, int y0, int x1, int y1, int thickness,
                   const uint8_t color[3]) {
  for (int y = std::max(y0, 0); y <= std::min(y1, image.height - 1); ++y) {
    for (int x = std::max(x0, 0); x <= std::min(x1, image.width - 1); ++x) {
      if (x - x0 < thickness || x1 - x < thickness || y - y0 < thickness || y1 - y < thickness)
        std::memcpy(image.at(x, y), color, 3);
    }
  }
}

}  // namespace whet::driver
