// Frames, child processes, file helpers, expected outputs and configuration: what programs talk
// through.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "compiler/support/config.h"
#include "compiler/support/env.h"
#include "compiler/support/expected.h"
#include "compiler/support/frame.h"
#include "compiler/support/half.h"
#include "compiler/support/inputs.h"
#include "compiler/support/paths.h"
#include "compiler/support/sha256.h"
#include "compiler/support/subprocess.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/whet-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempDir() {
    if (std::system(("rm -rf " + path_).c_str()) != 0) ADD_FAILURE();
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

TEST(Frame, RoundTrips) {
  const std::string bytes = EncodeFrame(7, "payload") + EncodeFrame(8, "");
  size_t used = 0;
  StatusOr<Frame> first = DecodeFrame(bytes, 100, &used);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->type, 7u);
  EXPECT_EQ(first->payload, "payload");
  StatusOr<Frame> second = DecodeFrame(std::string_view(bytes).substr(used), 100, &used);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->type, 8u);
}

TEST(Frame, EveryFlippedBitIsNoticed) {
  const std::string bytes = EncodeFrame(3, "some payload");
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    size_t used = 0;
    EXPECT_FALSE(DecodeFrame(damaged, 1 << 20, &used).ok()) << "bit " << bit;
  }
}

TEST(Frame, LengthIsCappedBeforeMemoryIsTaken) {
  std::string huge = EncodeFrame(1, "x");
  huge[8] = huge[9] = huge[10] = huge[11] = '\x7f';
  size_t used = 0;
  const StatusOr<Frame> r = DecodeFrame(huge, 1000, &used);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(r.status()), HasSubstr("the limit is 1000"));
}

TEST(Frame, TravelsThroughASocketLargerThanItsBuffer) {
  const auto fds = SocketPair();
  ASSERT_TRUE(fds.ok());
  const std::string big(5 << 20, 'q');
  std::thread writer([&] { EXPECT_TRUE(WriteFrame(fds->first, 9, big).ok()); });
  const StatusOr<Frame> r = ReadFrame(fds->second, 8 << 20, MonotonicNs() + 20 * kSecond);
  writer.join();
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->payload, big);
  close(fds->first);
  EXPECT_EQ(ReadFrame(fds->second, 100).status().code(), absl::StatusCode::kUnavailable);
  // The peer is gone: an error, no SIGPIPE.
  EXPECT_EQ(WriteFrame(fds->second, 1, "x").code(), absl::StatusCode::kUnavailable);
  close(fds->second);
}

TEST(Frame, ReadHonoursItsDeadline) {
  const auto fds = SocketPair();
  ASSERT_TRUE(fds.ok());
  EXPECT_EQ(ReadFrame(fds->second, 100, MonotonicNs() + 5 * kMillisecond).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  close(fds->first);
  close(fds->second);
}

TEST(Subprocess, RunsWithOnlyTheNamedDescriptors) {
  const auto fds = SocketPair();
  ASSERT_TRUE(fds.ok());
  SpawnOptions options;
  options.program = "/bin/sh";
  // Descriptor 5 is the socket; every other one above 2 is closed.
  options.args = {"-c",
                  "for f in /proc/self/fd/*; do n=${f##*/}; [ $n -gt 2 ] && [ -e $f ] && printf "
                  "'%s ' $n >&5; done; exit 3"};
  options.fds = {{fds->second, 5}};
  StatusOr<Subprocess> child = Subprocess::Spawn(options);
  ASSERT_TRUE(child.ok()) << child.status();
  close(fds->second);
  const std::optional<int> status = child->Wait(MonotonicNs() + 20 * kSecond);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(DescribeWaitStatus(*status), "exited with 3");
  char text[200];
  const ssize_t n = read(fds->first, text, sizeof text);
  EXPECT_EQ(std::string(text, n > 0 ? static_cast<size_t>(n) : 0), "5 ");
  close(fds->first);
}

TEST(Subprocess, IsKilledByItsOwner) {
  SpawnOptions options;
  options.program = "/bin/sleep";
  options.args = {"1000"};
  StatusOr<Subprocess> child = Subprocess::Spawn(options);
  ASSERT_TRUE(child.ok());
  const pid_t pid = child->pid();
  EXPECT_FALSE(child->Wait(MonotonicNs()).has_value());
  child->Kill();
  EXPECT_NE(kill(pid, 0), 0);
}

TEST(Subprocess, MissingProgramIsAnError) {
  SpawnOptions options;
  options.program = "/nonexistent/program";
  EXPECT_THAT(Message(Subprocess::Spawn(options).status()), HasSubstr("/nonexistent/program"));
}

TEST(Env, FilesAreWholeAndErrorsNameThem) {
  const TempDir dir;
  ASSERT_TRUE(WriteFile(dir / "f", "one", Sync::kDurable).ok());
  ASSERT_TRUE(WriteFile(dir / "f", "two").ok());
  EXPECT_EQ(ReadFile(dir / "f", 100).value(), "two");
  EXPECT_EQ(ReadFile(dir / "f", 2).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadFile(dir / "missing", 2).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(ReadFile(dir / "", 2).status()), HasSubstr("folder"));
  ASSERT_TRUE(MakeDirs(dir / "a/b/c").ok());
  EXPECT_FALSE(MakeDirs(dir / "f/x").ok());
  EXPECT_THAT(ListDir(dir / "").value(),
              ::testing::ElementsAre("a", "f"));  // no temporary file is left
}

TEST(Env, FileLockIsExclusiveAndNamesItsHolder) {
  const TempDir dir;
  StatusOr<FileLock> first = FileLock::TryAcquire(dir / "lock", "rpc-worker pid 1");
  ASSERT_TRUE(first.ok());
  const StatusOr<FileLock> second = FileLock::TryAcquire(dir / "lock", "other");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(second.status()), HasSubstr("rpc-worker pid 1"));
  {
    const FileLock gone = std::move(*first);
  }
  EXPECT_TRUE(FileLock::TryAcquire(dir / "lock", "other").ok());
}

TEST(Sha256, KnownAnswer) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(IsSha256Hex(Sha256Hex("")));
  EXPECT_FALSE(IsSha256Hex("../../etc/passwd"));
}

TEST(Half, RoundTripsEveryValueAndRoundsToEven) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = F16ToF32(static_cast<uint16_t>(h));
    if (std::isnan(f)) continue;
    EXPECT_EQ(F32ToF16(f), h);
    EXPECT_EQ(F32ToBF16(BF16ToF32(static_cast<uint16_t>(h))),
              std::isnan(BF16ToF32(static_cast<uint16_t>(h))) ? (h | 0x40) : h);
  }
  EXPECT_EQ(F16ToF32(F32ToF16(1.0f + 0x1p-11f)), 1.0f);             // a tie, to even
  EXPECT_EQ(F16ToF32(F32ToF16(1.0f + 3 * 0x1p-11f)), 1 + 0x1p-9f);  // a tie, to even
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(65519.0f), 0x7bff);
}

TEST(Inputs, DependOnSeedTensorAndLogicalPosition) {
  const int64_t shape[] = {2, 3, 4}, permuted[] = {4, 2, 3}, strides[] = {1, 12, 4};
  float plain[24], other[24], seeded[24];
  FillInput(DType::kF32, 5, 2, 0, 0, {shape, {}}, plain);
  FillInput(DType::kF32, 5, 2, 0, 0, {permuted, strides}, other);
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 3; ++b) {
      for (int c = 0; c < 4; ++c) {
        EXPECT_EQ(plain[a * 12 + b * 4 + c],
                  CounterUniform(5, 2, static_cast<uint64_t>(a * 12 + b * 4 + c)));
        EXPECT_EQ(other[c * 6 + a * 3 + b], plain[a * 12 + b * 4 + c]);
      }
    }
  }
  FillInput(DType::kF32, 6, 2, 0, 0, {shape, {}}, seeded);
  EXPECT_FALSE(std::equal(plain, plain + 24, seeded));
}

TEST(Inputs, StayInTheirRange) {
  const int64_t shape[] = {1000};
  int64_t index[1000];
  FillInput(DType::kI64, 1, 0, 3, 7, {shape, {}}, index);
  EXPECT_EQ(*std::min_element(index, index + 1000), 3);
  EXPECT_EQ(*std::max_element(index, index + 1000), 6);
  float positive[1000];
  FillInput(DType::kF32, 1, 0, 0.5, 2, {shape, {}}, positive);
  EXPECT_GE(*std::min_element(positive, positive + 1000), 0.5f);
  EXPECT_LT(*std::max_element(positive, positive + 1000), 2.0f);
  FillInput(DType::kF32, 1, 0, NAN, INFINITY, {shape, {}}, positive);
  EXPECT_EQ(positive[7], CounterUniform(1, 0, 7));
}

TEST(Inputs, ScalarsAndEmptyTensors) {
  float one = 9;
  FillInput(DType::kF32, 1, 0, 0, 0, {}, &one);
  EXPECT_EQ(one, CounterUniform(1, 0, 0));
  const int64_t empty[] = {3, 0, 2};
  FillInput(DType::kF32, 1, 0, 0, 0, {empty, {}}, &one);
  EXPECT_EQ(one, CounterUniform(1, 0, 0));
}

std::string SmallExpected() {
  return EncodeExpected(
      {{11, {{{1, 2, 3}, {0.5f, 0.5f, 0}}}}, {12, {{{1, 2, std::nan("")}, {0, 0, 0}}}}});
}

TEST(Expected, ComparesWithinTolerance) {
  const std::string bytes = SmallExpected();
  const StatusOr<ExpectedView> view = ExpectedView::Parse(bytes);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->seeds(), 2u);
  EXPECT_EQ(view->seed(1), 12u);
  const float good[] = {1.5f, 1.5f, 3}, bad[] = {1, 2.6f, 3}, nan[] = {NAN, 2, 3};
  EXPECT_TRUE(CompareOutput(view->output(0, 0), DType::kF32, good, "y").ok());
  EXPECT_THAT(Message(CompareOutput(view->output(0, 0), DType::kF32, bad, "y")),
              HasSubstr("y: 1 of 3 elements are wrong, first element 1"));
  EXPECT_FALSE(CompareOutput(view->output(0, 0), DType::kF32, nan, "y").ok());
  const float want_nan[] = {1, 2, NAN}, no_nan[] = {1, 2, 3};
  EXPECT_TRUE(CompareOutput(view->output(1, 0), DType::kF32, want_nan, "y").ok());
  EXPECT_FALSE(CompareOutput(view->output(1, 0), DType::kF32, no_nan, "y").ok());
  // Where nothing is known anything is right.
  const double want[] = {1, NAN, INFINITY};
  const float unknown[] = {INFINITY, INFINITY, INFINITY}, any[] = {NAN, 1, -INFINITY};
  EXPECT_TRUE(CompareOutput({want, unknown}, DType::kF32, any, "y").ok());
}

TEST(Expected, TruncationIsNoticedAtEveryByte) {
  const std::string bytes = SmallExpected();
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::string part = bytes.substr(0, n);
    EXPECT_FALSE(ExpectedView::Parse(part).ok()) << n;
  }
  EXPECT_FALSE(ExpectedView::Parse(bytes + "12345678").ok());
}

struct Parsed {
  std::optional<int> exit;
  std::string listen = "default";
  int trials = 5;
  bool verbose = false;
};

Parsed Parse(std::vector<const char*> args) {
  Parsed p;
  CLI::App app("test");
  app.add_option("--listen", p.listen, "where")->capture_default_str();
  app.add_option("--max-trials", p.trials, "how many")->capture_default_str();
  app.add_flag("--verbose", p.verbose, "say more");
  args.insert(args.begin(), "program");
  p.exit = ParseProgram(app, static_cast<int>(args.size()), args.data());
  return p;
}

TEST(Config, FlagWinsOverEnvironmentOverFile) {
  const TempDir dir;
  ASSERT_TRUE(
      WriteFile(dir / "c.toml", "listen = \"file\"\nmax-trials = 7\nverbose = true\n").ok());
  const std::string file = dir / "c.toml";
  Parsed p = Parse({"--config", file.c_str()});
  EXPECT_FALSE(p.exit.has_value());
  EXPECT_EQ(p.listen, "file");
  EXPECT_EQ(p.trials, 7);
  EXPECT_TRUE(p.verbose);
  setenv("WHET_MAX_TRIALS", "8", 1);
  EXPECT_EQ(Parse({"--config", file.c_str()}).trials, 8);
  EXPECT_EQ(Parse({"--config", file.c_str(), "--max-trials", "9"}).trials, 9);
  setenv("WHET_MAX_TRIALS", "many", 1);
  EXPECT_EQ(Parse({}).exit, 2);
  unsetenv("WHET_MAX_TRIALS");
}

TEST(Config, MistakesAreNamed) {
  const TempDir dir;
  ASSERT_TRUE(WriteFile(dir / "c.toml", "listen = \"x\"\nmax-trails = 7\n").ok());
  const std::string file = dir / "c.toml";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Parse({"--config", file.c_str()}).exit, 2);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr(
          "line 2: there is no option 'max-trails'; the options are: listen, max-trials, verbose"));
  EXPECT_EQ(Parse({"--config", "/nonexistent.toml"}).exit, 2);
  EXPECT_EQ(Parse({"--bogus"}).exit, 2);
  EXPECT_EQ(Parse({"--help"}).exit, 0);
}

TEST(Config, DumpIsReadableAsConfiguration) {
  const TempDir dir;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Parse({"--listen", "a\"b", "--verbose", "--dump-config"}).exit, 0);
  ASSERT_TRUE(WriteFile(dir / "c.toml", ::testing::internal::GetCapturedStdout()).ok());
  const std::string file = dir / "c.toml";
  const Parsed p = Parse({"--config", file.c_str()});
  EXPECT_FALSE(p.exit.has_value());
  EXPECT_EQ(p.listen, "a\"b");
  EXPECT_EQ(p.trials, 5);
  EXPECT_TRUE(p.verbose);
}

}  // namespace
}  // namespace whet
