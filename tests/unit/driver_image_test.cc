// Pictures, pre-processing and the demo's face decoding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

// jpeglib.h wants <cstdio> first.
#include <jpeglib.h>

#include "compiler/driver/artifact_io.h"
#include "compiler/driver/face.h"
#include "compiler/driver/image.h"

namespace whet::driver {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DriverImageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/whet-image-XXXXXX";
    ASSERT_TRUE(mkdtemp(name));
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string File(const std::string& name) const { return dir_ + "/" + name; }

  std::string dir_;
};

// Red grows to the right, green downwards, blue is a checkerboard.
Image Pattern(int width, int height) {
  Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(width) * height * 3)};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      image.at(x, y)[0] = static_cast<uint8_t>(x * 5);
      image.at(x, y)[1] = static_cast<uint8_t>(y * 7);
      image.at(x, y)[2] = (x + y) % 2 ? 255 : 0;
    }
  }
  return image;
}

TEST_F(DriverImageTest, PngComesBackAsItWas) {
  const Image image = Pattern(31, 17);
  ASSERT_TRUE(WritePng(File("a.png"), image).ok());
  EXPECT_TRUE(LooksLikeImage(File("a.png")));
  const auto back = ReadImage(File("a.png"));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->width, 31);
  EXPECT_EQ(back->height, 17);
  EXPECT_EQ(back->rgb, image.rgb);
}

void WriteJpeg(const std::string& path, const Image& image) {
  jpeg_compress_struct info = {};
  jpeg_error_mgr error;
  info.err = jpeg_std_error(&error);
  jpeg_create_compress(&info);
  FILE* f = std::fopen(path.c_str(), "wb");
  ASSERT_NE(f, nullptr);
  jpeg_stdio_dest(&info, f);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.at(0, static_cast<int>(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::fclose(f);
}

TEST_F(DriverImageTest, JpegIsReadWithinItsLoss) {
  Image flat{40, 30, std::vector<uint8_t>(40 * 30 * 3)};
  for (size_t i = 0; i < flat.rgb.size(); ++i)
    flat.rgb[i] = static_cast<uint8_t>(i % 3 == 0 ? 200 : i % 3 == 1 ? 100 : 50);
  WriteJpeg(File("a.jpg"), flat);
  const auto back = ReadImage(File("a.jpg"));
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->rgb.size(), flat.rgb.size());
  for (size_t i = 0; i < flat.rgb.size(); ++i) EXPECT_NEAR(back->rgb[i], flat.rgb[i], 3);
}

TEST_F(DriverImageTest, DamagedPicturesAreErrors) {
  ASSERT_TRUE(WritePng(File("a.png"), Pattern(60, 60)).ok());
  WriteJpeg(File("a.jpg"), Pattern(60, 60));
  for (const char* name : {"a.png", "a.jpg"}) {
    std::filesystem::resize_file(File(name), 40);
    const auto image = ReadImage(File(name));
    ASSERT_FALSE(image.ok()) << name;
    EXPECT_THAT(Message(image.status()), HasSubstr(name));
  }
  std::ofstream(File("text.png")) << "hello";
  EXPECT_THAT(Message(ReadImage(File("text.png")).status()), HasSubstr("neither a PNG nor a JPEG"));
  EXPECT_THAT(Message(ReadImage(File("absent.png")).status()), HasSubstr("cannot open"));
  EXPECT_FALSE(WritePng(File("no/such/folder.png"), Pattern(2, 2)).ok());
}

TEST_F(DriverImageTest, CropTakesThePartAndRefusesTheRest) {
  const Image image = Pattern(20, 10);
  const auto part = Crop(image, 3, 2, 4, 5);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->at(0, 0)[0], 15);
  EXPECT_EQ(part->at(3, 4)[1], 42);
  EXPECT_THAT(Message(Crop(image, 17, 0, 4, 4).status()),
              HasSubstr("crop 4x4 at (17,0) reaches beyond the picture of 20x10"));
  EXPECT_FALSE(Crop(image, -1, 0, 4, 4).ok());
}

TEST_F(DriverImageTest, ResizeIsTheTriangleFilterAndDoesNotAlias) {
  // Halving: the weights inside are 1 3 3 1 over 8, at the border 3 3 1 over 7, rounded.
  Image row{8, 1, std::vector<uint8_t>(24)};
  const int values[8] = {0, 0, 255, 255, 0, 0, 80, 80};
  for (int x = 0; x < 8; ++x) std::fill_n(row.at(x, 0), 3, static_cast<uint8_t>(values[x]));
  const Image half = Resize(row, 4, 1);
  EXPECT_EQ(half.at(0, 0)[0], std::lround(255 / 7.0));
  EXPECT_EQ(half.at(1, 0)[0], std::lround(255 * 6 / 8.0));
  EXPECT_EQ(half.at(2, 0)[0], std::lround((255 + 80) / 8.0));
  EXPECT_EQ(half.at(3, 0)[0], std::lround(80 * 6 / 7.0));
  // A checkerboard becomes grey, where picking pixels would leave it black or white.
  const Image grey = Resize(Pattern(64, 64), 16, 16);
  for (int x = 2; x < 14; ++x) EXPECT_NEAR(grey.at(x, 8)[2], 127.5, 2);
}

TEST_F(DriverImageTest, RectanglesAreClipped) {
  Image image{6, 6, std::vector<uint8_t>(108)};
  const uint8_t white[3] = {255, 255, 255};
  DrawRectangle(image, 1, 1, 9, 9, 1, white);
  EXPECT_EQ(image.at(1, 3)[0], 255);
  EXPECT_EQ(image.at(5, 1)[0], 255);
  EXPECT_EQ(image.at(0, 0)[0], 0);
  EXPECT_EQ(image.at(3, 3)[0], 0);
}

whet_tensor Input(const std::vector<int64_t>& shape, uint32_t dtype = WHET_F32) {
  whet_tensor t = {sizeof t,
                   WHET_INPUT,
                   dtype,
                   static_cast<uint32_t>(shape.size()),
                   shape.data(),
                   0,
                   static_cast<uint64_t>(DTypeBytes(dtype)),
                   "in"};
  for (int64_t d : shape) t.bytes *= static_cast<uint64_t>(d);
  return t;
}

std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> f(bytes.size() / 4);
  std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(f.data()));
  return f;
}

TEST_F(DriverImageTest, PreprocessMapsRangeChannelsAndLayout) {
  Image image{2, 1, {0, 51, 102, 255, 153, 204}};
  const std::vector<int64_t> nhwc = {1, 1, 2, 3}, nchw = {1, 3, 1, 2};
  auto run = [&](const std::string& spec, const std::vector<int64_t>& shape) {
    const auto how = ParsePreprocess(spec);
    EXPECT_TRUE(how.ok()) << how.status();
    const auto bytes = PictureToTensor(image, *how, Input(shape));
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return Floats(*bytes);
  };
  EXPECT_THAT(run("", nhwc),
              ElementsAre(0.0f, 51 / 255.0f, 102 / 255.0f, 1.0f, 153 / 255.0f, 204 / 255.0f));
  EXPECT_THAT(run("range=-1,1", nhwc), ElementsAre(-1.0f, 51 / 127.5f - 1, 102 / 127.5f - 1, 1.0f,
                                                   153 / 127.5f - 1, 204 / 127.5f - 1));
  EXPECT_THAT(run("range=0,255", nchw), ElementsAre(0, 255, 51, 153, 102, 204));
  EXPECT_THAT(run("range=0,255;channels=bgr", nchw), ElementsAre(102, 204, 51, 153, 0, 255));
  const auto normalised = run("mean=0.5,0,0;std=0.25,1,1", nchw);
  EXPECT_FLOAT_EQ(normalised[0], -2);
  EXPECT_FLOAT_EQ(normalised[1], 2);
  EXPECT_THAT(Message(ParsePreprocess("rnge=0,1").status()),
              HasSubstr("'rnge=0,1' is not one of crop="));
  EXPECT_THAT(Message(ParsePreprocess("crop=1,2,3").status()),
              HasSubstr("has 3 numbers, expected 4"));
  EXPECT_THAT(Message(ParsePreprocess("std=1,0,1").status()), HasSubstr("divides by zero"));
  const std::vector<int64_t> flat = {1, 12};
  EXPECT_THAT(Message(PictureToTensor(image, Preprocess{}, Input(flat)).status()),
              HasSubstr("not one picture of three channels"));
}

// Computed once by another runtime for the demo's photograph: the two rows of the coarse grid whose
// scores stand out.
TEST_F(DriverImageTest, FacesAreDecodedFromAnchorsAndTheBestOneWins) {
  std::vector<float> s16(512, -90), s8(384, -200), b16(512 * 16), b8(384 * 16);
  s8[162] = 2.818102f;
  s8[163] = 2.163490f;
  const float rows[2][4] = {{6.26293f, 7.15809f, 52.50409f, 52.49495f},
                            {6.43261f, 6.93081f, 51.60542f, 51.59557f}};
  for (int r = 0; r < 2; ++r) std::copy_n(rows[r], 4, &b8[(162 + static_cast<size_t>(r)) * 16]);
  const auto face = BestFace(s16, s8, b16, b8);
  ASSERT_TRUE(face.ok()) << face.status();
  EXPECT_NEAR(face->score, 0.943646, 1e-5);
  EXPECT_NEAR(face->x, 0.486429, 1e-5);
  EXPECT_NEAR(face->y, 0.493423, 1e-5);
  EXPECT_NEAR(face->width, 0.410188, 1e-5);
  EXPECT_EQ(WrongFace(*face, {}), "");

  s16[511] = 5;  // the last anchor of the fine grid: cell (15, 15)
  const auto other = BestFace(s16, s8, b16, b8);
  ASSERT_TRUE(other.ok());
  EXPECT_NEAR(other->x, 15.5 / 16, 1e-6);
  EXPECT_THAT(WrongFace(*other, {}),
              HasSubstr("the score is 0.9933, expected 0.9440 within 0.0020; the centre's x"));

  std::fill(s16.begin(), s16.end(), NAN);
  std::fill(s8.begin(), s8.end(), NAN);
  EXPECT_FALSE(BestFace(s16, s8, b16, b8).ok());
  EXPECT_NE(WrongFace(Face{NAN, NAN, NAN, 0, 0}, {}), "");
  EXPECT_FALSE(BestFace(std::span(s16).first(3), s8, b16, b8).ok());
}

}  // namespace
}  // namespace whet::driver
