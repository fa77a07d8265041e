// The runtime against artifacts written by hand in C (runtime_artifacts/): loading, refusing,
// running, threads, prepack, the C interface, .npy files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "deploy/runtime/model.h"
#include "deploy/runtime/npy.h"
#include "deploy/runtime/weight_turns.h"
#include "deploy/runtime/whet_runtime.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

std::string Artifact(const std::string& name) {
  return std::string(std::getenv("WHET_TEST_ARTIFACTS")) + "/" + name + ".so";
}

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/whet-runtime-XXXXXX";
    EXPECT_TRUE(mkdtemp(name));
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(File(name), std::ios::binary) << bytes;
    return File(name);
  }

 private:
  std::string path_;
};

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string LoadError(const std::string& path) {
  std::string error;
  EXPECT_EQ(Model::Load(path, &error), nullptr) << path;
  return error;
}

void ExpectPhasesRun(const std::string& name, int threads) {
  std::string error;
  auto model = Model::Load(Artifact(name), &error);
  ASSERT_TRUE(model) << error;
  ASSERT_EQ(model->inputs().size(), 1u);
  ASSERT_EQ(model->outputs().size(), 2u);
  EXPECT_STREQ(model->outputs()[0].name, "scores/y:0");
  Instance instance(model, threads);
  ASSERT_EQ(instance.error(), "");
  // One element further than aligned, so that the copying path is taken too.
  std::vector<float> x(1001), y(1001);
  std::iota(x.begin(), x.end(), -1.0f);  // x[i + 1] = i
  double sum = 0;
  for (int round = 0; round < 200; ++round) {
    std::fill(y.begin(), y.end(), 0.0f);
    instance.Run({x.data() + 1}, {y.data() + 1, &sum});
    for (int i = 0; i < 1000; ++i)
      ASSERT_EQ(y[i + 1], 2.0f * (999 - i) + 1) << "round " << round << " element " << i;
    ASSERT_EQ(sum, 1000.0 * 999 + 1000);
  }
  std::vector<double> step_ns;
  sum = 0;
  instance.RunProfiled({x.data() + 1}, {y.data() + 1, &sum}, step_ns);
  EXPECT_EQ(sum, 1000.0 * 999 + 1000);
  ASSERT_EQ(step_ns.size(), 3u);
  for (double ns : step_ns) EXPECT_GT(ns, 0);
}

TEST(RuntimeTest, PhasesAreSeparatedByBarriersAtEveryThreadCount) {
  for (int threads : {1, 2, 3, 7, 16}) ExpectPhasesRun("phases", threads);
}

// The last quarter of a thread's parts is done by who comes first: all of them once.
TEST(RuntimeTest, AThreadThatIsDoneHelpsTheOthers) {
  std::string error;
  const auto model = Model::Load(Artifact("uneven"), &error);
  ASSERT_TRUE(model) << error;
  for (int threads : {1, 2, 3, 5, 16, 20}) {
    Instance instance(model, threads);
    ASSERT_EQ(instance.error(), "");
    alignas(64) int64_t milliseconds = 0, who[16], runs[16] = {};
    for (int round = 0; round < 100; ++round) instance.Run({&milliseconds}, {who, runs});
    EXPECT_THAT(runs, testing::Each(200)) << threads << " threads";
  }
  Instance instance(model, 2);
  bool helped = false;
  for (const int wait : {20, 100, 500}) {  // longer where a machine is busy
    alignas(64) int64_t milliseconds = wait, who[16], runs[16] = {};
    instance.Run({&milliseconds}, {who, runs});
    EXPECT_THAT(runs, testing::Each(2));
    EXPECT_NE(who[0], who[8]);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(who[i], who[0]) << i;
    helped = who[6] == who[8] && who[7] == who[8];
    if (helped) break;
  }
  EXPECT_TRUE(helped);
}

TEST(RuntimeTest, LargerStructsOfANewerCompilerAreRead) { ExpectPhasesRun("phases_grown", 2); }

TEST(RuntimeTest, UnusableArtifactsAreRefusedWithTheReason) {
  EXPECT_THAT(LoadError(Artifact("bad_version")),
              HasSubstr("interface version is 2, this runtime knows 1"));
  EXPECT_THAT(LoadError(Artifact("bad_size")), HasSubstr("model struct has 64 bytes"));
  EXPECT_THAT(LoadError(Artifact("bad_feature")), HasSubstr("lacks: quantum-tile"));
  EXPECT_THAT(LoadError(Artifact("bad_offset")),
              HasSubstr("tensor 3 '' reaches beyond its memory of 4064 bytes"));
  EXPECT_THAT(LoadError(Artifact("bad_index")), HasSubstr("step 2 'sum' uses tensor 9 of 4"));
  EXPECT_THAT(LoadError(Artifact("bad_symbol")), HasSubstr("exports no whet_model_<name>_v1"));
}

TEST(RuntimeTest, FilesThatAreNoArtifactsAreRefusedBeforeTheyAreLoaded) {
  TempDir dir;
  EXPECT_THAT(LoadError(dir.File("absent.so")), HasSubstr("No such file"));
  EXPECT_THAT(LoadError(dir.File(".")), HasSubstr("it is a folder"));
  EXPECT_THAT(LoadError(dir.Write("empty.so", "")), HasSubstr("it is empty"));
  EXPECT_THAT(LoadError(dir.Write("text.so", std::string(500, 'x'))),
              HasSubstr("not an ELF shared library"));
  EXPECT_THAT(LoadError("/proc/self/exe"), HasSubstr("is not a whet artifact"));
  const std::string whole = ReadFile(Artifact("phases"));
  std::string foreign = whole;
  foreign[18] = static_cast<char>(243);  // e_machine: RISC-V
  EXPECT_THAT(LoadError(dir.Write("riscv.so", foreign)), HasSubstr("it is for riscv"));
  for (size_t bytes : {size_t{10}, size_t{64}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_THAT(LoadError(dir.Write("short.so", whole.substr(0, bytes))),
                HasSubstr("is not a whet artifact"))
        << bytes;
  }
}

TEST(RuntimeTest, PrepackRunsOnceAtLoadForConstants) {
  std::string error;
  auto model = Model::Load(Artifact("prepack"), &error);
  ASSERT_TRUE(model) << error;
  Instance instance(model, 2);
  const int32_t x[4] = {1, 10, 100, 1000};
  int32_t y[3] = {};
  instance.Run({x}, {y});
  EXPECT_THAT(y, testing::ElementsAre(4321, 8765, 12 * 1000 + 11 * 100 + 10 * 10 + 9));
}

TEST(RuntimeTest, ACandidateTakesItsWeightsFromTheCallerAndCanBeGivenOthers) {
  std::string error;
  auto model = Model::Load(Artifact("candidate"), &error);
  ASSERT_TRUE(model) << error;
  ASSERT_EQ(model->parameters(), std::vector<uint32_t>{2});
  Instance instance(model, 1);
  alignas(64) int32_t w[12] = {};
  const int32_t x[4] = {1, 1, 1, 1};
  int32_t y[3] = {};
  for (int32_t value : {1, 5}) {
    std::fill(std::begin(w), std::end(w), value);
    instance.Prepack({w});
    instance.Run({x}, {y});
    EXPECT_THAT(y, testing::ElementsAre(4 * value, 4 * value, 4 * value));
  }
}

TEST(ThreadPoolTest, PartsCoverTheRangeOnceAndDifferByOneAtMost) {
  for (int64_t extent : {1, 2, 5, 7, 64, 1000003}) {
    for (int threads : {1, 2, 3, 8, 64}) {
      int64_t next = 0, least = extent, most = 0;
      for (int t = 0; t < threads; ++t) {
        EXPECT_EQ(ThreadPool::PartBegin(extent, t, threads), next);
        const int64_t size = ThreadPool::PartBegin(extent, t + 1, threads) - next;
        least = std::min(least, size);
        most = std::max(most, size);
        next += size;
      }
      EXPECT_EQ(next, extent);
      EXPECT_LE(most - least, 1);
    }
  }
}

TEST(ThreadPoolTest, BarriersHoldUnderManyRounds) {
  ThreadPool pool(4);
  std::atomic<int> counter{0};
  std::atomic<int> wrong{0};
  for (int round = 0; round < 300; ++round) {
    counter = 0;
    pool.Parallel([&](int) {
      for (int phase = 1; phase <= 5; ++phase) {
        ++counter;
        pool.Barrier();
        if (counter.load() != 4 * phase) ++wrong;
        pool.Barrier();
      }
    });
  }
  EXPECT_EQ(wrong.load(), 0);
}

TEST(CpuFeaturesTest, WhatTheMachineReportsItHas) {
  std::string missing;
  EXPECT_TRUE(CpuHasFeatures(CpuFeatures(), &missing)) << missing;
  EXPECT_TRUE(CpuHasFeatures("", &missing));
  EXPECT_FALSE(CpuHasFeatures("no-such,neither", &missing));
  EXPECT_EQ(missing, "no-such,neither");
}

TEST(CApiTest, ASessionDescribesRunsAndRefuses) {
  EXPECT_EQ(whet_session_open("/absent/model.so", 1), nullptr);
  EXPECT_THAT(whet_last_error(), HasSubstr("cannot open '/absent/model.so'"));
  EXPECT_EQ(whet_session_open(Artifact("phases").c_str(), 0), nullptr);
  EXPECT_THAT(whet_last_error(), HasSubstr("threads is 0"));
  EXPECT_EQ(whet_session_open(Artifact("candidate").c_str(), 1), nullptr);
  EXPECT_THAT(whet_last_error(), HasSubstr("tuning candidate"));

  whet_session* s = whet_session_open(Artifact("prepack").c_str(), 2);
  ASSERT_NE(s, nullptr) << whet_last_error();
  EXPECT_EQ(whet_session_input_count(s), 1u);
  EXPECT_EQ(whet_session_output_count(s), 1u);
  whet_value_info info;
  ASSERT_EQ(whet_session_output(s, 0, &info), 0);
  EXPECT_STREQ(info.name, "y");
  EXPECT_EQ(info.bytes, 12u);
  EXPECT_EQ(whet_session_input(s, 1, &info), -1);
  EXPECT_THAT(whet_last_error(), HasSubstr("input 1 does not exist; the model has 1"));
  const int32_t x[4] = {1, 0, 0, 0};
  int32_t y[3] = {};
  const void* in[] = {x};
  void* out[] = {y};
  ASSERT_EQ(whet_session_run(s, in, out), 0) << whet_last_error();
  EXPECT_THAT(y, testing::ElementsAre(1, 5, 9));
  void* null_out[] = {nullptr};
  EXPECT_EQ(whet_session_run(s, in, null_out), -1);
  EXPECT_THAT(whet_last_error(), HasSubstr("output 0 is a null pointer"));
  whet_session_close(s);
  whet_session_close(nullptr);
}

TEST(NpyTest, EveryTypeAndRankComesBack) {
  TempDir dir;
  for (uint32_t t = 0; t <= WHET_U64; ++t) {
    if (t == WHET_BF16) continue;
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {5}, {2, 3}, {2, 0, 3}, {1, 2, 3, 4}}) {
      int64_t bytes = DTypeBytes(t);
      for (int64_t d : shape) bytes *= d;
      std::string data(static_cast<size_t>(bytes), '\0');
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7 + 1);
      ASSERT_EQ(WriteNpy(dir.File("a.npy"), t, shape, data.data()), "");
      NpyArray back;
      ASSERT_EQ(ReadNpy(dir.File("a.npy"), &back), "");
      EXPECT_EQ(back.dtype, t);
      EXPECT_EQ(back.shape, shape);
      EXPECT_EQ(back.bytes, data);
    }
  }
  EXPECT_THAT(WriteNpy(dir.File("a.npy"), WHET_BF16, {1}, "ab"), HasSubstr("bf16"));
  EXPECT_THAT(WriteNpy(dir.File("no/such/folder.npy"), WHET_U8, {1}, "a"),
              HasSubstr("cannot write"));
}

std::string NpyFile(const std::string& header, const std::string& data, char major = 1) {
  std::string s = "\x93NUMPY";
  s += major;
  s += '\0';
  s += static_cast<char>(header.size() & 255);
  s += static_cast<char>(header.size() >> 8);
  if (major > 1) s += std::string(2, '\0');
  return s + header + data;
}

TEST(NpyTest, DamagedAndForeignFilesAreNamed) {
  TempDir dir;
  NpyArray a;
  auto error = [&](const std::string& bytes) { return ReadNpy(dir.Write("b.npy", bytes), &a); };
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }";
  EXPECT_EQ(error(NpyFile(good, "12345678")), "");
  EXPECT_EQ(error(NpyFile(good, "12345678", 2)), "");
  EXPECT_THAT(ReadNpy(dir.File("absent.npy"), &a), HasSubstr("cannot open"));
  EXPECT_THAT(ReadNpy(dir.File("."), &a), HasSubstr("not a regular file"));
  EXPECT_THAT(error(""), HasSubstr("NumPy magic"));
  EXPECT_THAT(error(NpyFile(good, "1234")), HasSubstr("cut off: 4 of 8 bytes"));
  EXPECT_THAT(error(NpyFile(good, "", 9)), HasSubstr("version 9"));
  EXPECT_THAT(
      error(NpyFile("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", "12345678")),
      HasSubstr("'>f4'"));
  EXPECT_THAT(
      error(NpyFile("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }", "12345678")),
      HasSubstr("Fortran"));
  EXPECT_THAT(
      error(NpyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (2, x), }", "12345678")),
      HasSubstr("shape"));
  EXPECT_THAT(
      error(NpyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "12345678")),
      HasSubstr("shape"));
  EXPECT_THAT(
      error(NpyFile(
          "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }", "")),
      HasSubstr("larger than 4 GiB"));
  EXPECT_THAT(
      error(NpyFile("{'descr': '<f8', 'fortran_order': False, 'shape': (500000000,), }", "")),
      HasSubstr("cut off: 0 of"));
}

TEST(VariantsTest, AModelForSeveralSetsOfShapes) {
  std::string error;
  auto model = Model::Load(Artifact("variants"), &error);
  ASSERT_TRUE(model) << error;
  ASSERT_EQ(model->variants().size(), 1u);
  const std::vector<int64_t> four = {4}, eight = {8}, five = {5}, square = {2, 4};
  EXPECT_EQ(Model::ForShapes(model, {{four}}, &error), model);
  auto second = Model::ForShapes(model, {{eight}}, &error);
  EXPECT_EQ(second, model->variants()[0]);
  for (const auto& wrong : {five, square})
    EXPECT_EQ(Model::ForShapes(model, {{wrong}}, &error), nullptr);
  EXPECT_THAT(error, testing::AllOf(HasSubstr("not compiled for inputs of 2x4"),
                                    HasSubstr("it is for x 4; x 8")));
  // The library stays as long as one of its models is there.
  model.reset();
  Instance instance(second, 2);
  std::vector<float> x(8, 3), y(8);
  instance.Run({x.data()}, {y.data()});
  EXPECT_EQ(y, std::vector<float>(8, 106));
}

TEST(VariantsTest, SessionsSelectTheSet) {
  whet_session* s = whet_session_open(Artifact("variants").c_str(), 1);
  ASSERT_NE(s, nullptr) << whet_last_error();
  std::vector<float> x(8, 1), y(8);
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  const int64_t four = 4, eight = 8, five = 5;
  const int64_t *to_four[] = {&four}, *to_eight[] = {&eight}, *to_five[] = {&five},
                *none[] = {nullptr};
  whet_value_info info;
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(whet_session_select(s, to_eight), 0) << whet_last_error();
    EXPECT_EQ(whet_session_select(s, to_five), -1);
    EXPECT_THAT(whet_last_error(), HasSubstr("it is for x 4; x 8"));
    EXPECT_EQ(whet_session_select(s, none), -1);
    ASSERT_EQ(whet_session_output(s, 0, &info), 0);
    EXPECT_EQ(info.bytes, 32u);
    std::fill(y.begin(), y.end(), 0.0f);
    ASSERT_EQ(whet_session_run(s, in, out), 0);
    EXPECT_EQ(y[7], 102);
    ASSERT_EQ(whet_session_select(s, to_four), 0) << whet_last_error();
    std::fill(y.begin(), y.end(), 0.0f);
    ASSERT_EQ(whet_session_run(s, in, out), 0);
    EXPECT_EQ(y[3], 102);
    EXPECT_EQ(y[4], 0);
  }
  whet_session_close(s);
}

TEST(VariantsTest, OlderLibrariesHaveNoneAndDamagedOnesAreRefused) {
  std::string error;
  auto old = Model::Load(Artifact("variants_old"), &error);
  ASSERT_TRUE(old) << error;
  EXPECT_TRUE(old->variants().empty());
  EXPECT_THAT(LoadError(Artifact("bad_variant_names")),
              HasSubstr("variant 1: its inputs and outputs are not those of the model"));
  EXPECT_THAT(LoadError(Artifact("bad_variant_nesting")),
              HasSubstr("variant 1: it has variants of its own"));
}

// What the artifact's code for the chosen processor adds; 0 and the reason when none is.
float Added(const LoadOptions& options, std::string* error) {
  const auto model = Model::Load(Artifact("builds"), options, error);
  if (!model) return 0;
  float x[4] = {10, 20, 30, 40}, y[4] = {};
  Instance(model, 1).Run({x}, {y});
  EXPECT_EQ(y[3] - x[3], y[0] - x[0]);
  return y[0] - x[0];
}

TEST(BuildsTest, TheBestThatTheProcessorHasIsTaken) {
  std::string error;
  EXPECT_EQ(Added({.processor = "sse2,avx,avx2,avx512f"}, &error), 3) << error;
  EXPECT_EQ(Added({.processor = "sse2,avx,avx2"}, &error), 2) << error;
  EXPECT_EQ(Added({.processor = "sse2,avx"}, &error), 1) << error;
  // Not by name only: a feature whose name begins alike is another one.
  EXPECT_EQ(Added({.processor = "sse2,avx512fp16"}, &error), 1) << error;
  std::string missing;
  const float here = CpuHasFeatures("avx512f", &missing) ? 3
                     : CpuHasFeatures("avx2", &missing)  ? 2
                                                         : 1;
  EXPECT_EQ(Added({}, &error), here) << error;

  const auto model = Model::Load(Artifact("builds"), {.processor = "sse2,avx2"}, &error);
  ASSERT_TRUE(model) << error;
  ASSERT_EQ(model->builds().size(), 3u);
  EXPECT_EQ(model->builds()[0].name, "wide");
  EXPECT_EQ(model->builds()[0].missing, "avx512f");
  EXPECT_EQ(model->build().name, "middle+avx2");
  EXPECT_STREQ(model->desc().build, "middle+avx2");
  EXPECT_STREQ(model->desc().features, "avx2");
}

TEST(BuildsTest, WhatIsThereAndWhatIsMissingIsSaid) {
  std::string error;
  EXPECT_EQ(Added({.processor = "neon"}, &error), 0);
  EXPECT_THAT(error, HasSubstr("has no code for this machine; it has wide (this machine lacks "
                               "avx512f), middle+avx2 (this machine lacks avx2), least (this "
                               "machine lacks sse2); compile the model"));
  EXPECT_TRUE(Model::Load(Artifact("builds_everywhere"), {.processor = "neon"}, &error)) << error;
}

TEST(BuildsTest, OneCanBeForced) {
  std::string error;
  const std::string all = "sse2,avx,avx2,avx512f";
  EXPECT_EQ(Added({.build = "least", .processor = all}, &error), 1) << error;
  EXPECT_EQ(Added({.build = "middle", .processor = all}, &error), 2) << error;
  EXPECT_EQ(Added({.build = "cpu -arch=wide", .processor = all}, &error), 3) << error;
  EXPECT_EQ(Added({.build = "mid", .processor = all}, &error), 0);
  EXPECT_THAT(error, HasSubstr("has no code for 'mid'; it has wide, middle+avx2, least"));
  EXPECT_EQ(Added({.build = "wide", .processor = "sse2,avx2"}, &error), 0);
  EXPECT_THAT(error, HasSubstr("its code for 'wide' needs processor features this machine lacks: "
                               "avx512f; it has wide (this"));
  // A library for one processor has a name as well: its target.
  EXPECT_TRUE(Model::Load(Artifact("phases"), {.build = "cpu -arch=test"}, &error)) << error;
  EXPECT_EQ(Model::Load(Artifact("phases"), {.build = "other"}, &error), nullptr);
  EXPECT_THAT(error, HasSubstr("has no code for 'other'; it has cpu -arch=test"));
}

TEST(BuildsTest, DamagedOnesAreRefused) {
  EXPECT_THAT(LoadError(Artifact("bad_build_names")),
              HasSubstr("build 2: its name 'wide' is another's too"));
  EXPECT_THAT(LoadError(Artifact("bad_build_nesting")),
              HasSubstr("build 1: it has builds of its own"));
  EXPECT_THAT(LoadError(Artifact("bad_build_shapes")),
              HasSubstr("build 1: its inputs, outputs and sets of shapes are not those"));
}

TEST(WeightTurnsTest, RunsOnEachCopyInTurn) {
  std::string error;
  const auto model = Model::Load(Artifact("prepack"), &error);
  ASSERT_TRUE(model) << error;
  Instance instance(model, 1);
  alignas(64) const int32_t x[4] = {1, 10, 100, 1000};
  alignas(64) int32_t y[3] = {};
  instance.Bind({x}, {y});
  void* const own = instance.argument(0, 1);
  // 48 bytes each, laid at multiples of 64.
  EXPECT_EQ(WeightTurns::WeightBytes(model->desc()), 64u);
  {
    WeightTurns turns(&instance, 0, 1, 0);
    ASSERT_EQ(turns.error(), "");
    const auto copies = static_cast<int>(turns.copies());
    ASSERT_GT(copies, 1000);  // more than any second-level cache holds, or as many as are listed
    std::vector<void*> seen;
    for (int run = 0; run < 2 * copies; ++run) {
      turns.Next();
      seen.push_back(instance.argument(0, 1));
      std::fill(std::begin(y), std::end(y), 0);
      instance.ExecuteStep(0);
      EXPECT_THAT(y, testing::ElementsAre(4321, 8765, 13209)) << run;
      static_cast<int32_t*>(seen.back())[0] += run < copies ? 0 : 1;  // which one was read?
      instance.ExecuteStep(0);
      EXPECT_EQ(y[0], run < copies ? 4321 : 4322) << run;
    }
    EXPECT_THAT(std::set<void*>(seen.begin(), seen.end()), testing::SizeIs(turns.copies()));
    EXPECT_TRUE(std::equal(seen.begin(), seen.begin() + copies, seen.begin() + copies));
  }
  EXPECT_EQ(instance.argument(0, 1), own);
}

TEST(WeightTurnsTest, CopiesOnlyWhatTheCacheCouldKeep) {
  std::string error;
  const auto prepack = Model::Load(Artifact("prepack"), &error);
  Instance instance(prepack, 1);
  EXPECT_GT(WeightTurns(&instance, 0, 1, 1 << 30).copies(), 1u);
  EXPECT_EQ(WeightTurns(&instance, 0, 1, 64).copies(), 1u);  // the network stays in the cache
  EXPECT_EQ(WeightTurns(&instance, 0, 0, 0).copies(), 1u);   // no step
  const auto phases = Model::Load(Artifact("phases"), &error);
  ASSERT_TRUE(phases) << error;
  Instance without(phases, 1);
  EXPECT_EQ(WeightTurns(&without, 0, 3, 0).copies(), 1u);
}

}  // namespace
}  // namespace whet
