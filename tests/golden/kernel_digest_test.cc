// A change of code generation shows in review: kernels.digests has the digest of the optimized LLVM
// IR of each schedule of replay/, for an AVX2 and an AVX-512 processor that are given by name, so
// that it is the same on every machine.
//   kernel_digest_test [GoogleTest flags]
//   kernel_digest_test --update     writes kernels.digests anew
// A line has the workload's fingerprint, the trace's, what it is built for, the digest of the IR
// (its prepack kernel included) and the number of its lines; the trace's rule and knobs follow.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compiler/codegen/codegen.h"
#include "compiler/schedule/schedule.h"
#include "compiler/task/workload_program.h"

namespace whet {
namespace {

constexpr const char* kPath = WHET_GOLDEN_DIR "/kernels.digests";
constexpr const char* kTargets[] = {"x86-64-v3", "x86-64-v4"};

// By "workload trace target": "digest lines what".
using Digests = std::map<std::string, std::string>;

StatusOr<std::string> DigestOfKernel(const loop::Lowered& lowered, const Target& target) {
  WHET_ASSIGN_OR_RETURN(std::string ir, codegen::GenerateIr(lowered, "kernel", target));
  if (lowered.prepack.body) {
    loop::Lowered prepack;
    prepack.main = lowered.prepack;
    WHET_ASSIGN_OR_RETURN(const std::string more, codegen::GenerateIr(prepack, "prepack", target));
    ir += more;
  }
  return fmt::format("{} {}", FingerprintOf(ir).Hex(), std::count(ir.begin(), ir.end(), '\n'));
}

StatusOr<Digests> Generate() {
  std::map<std::string, loop::Program> programs;
  Digests digests;
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(WHET_GOLDEN_DIR "/replay"))
    files.push_back(file.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      const auto row = nlohmann::json::parse(line);
      if (row.at("kind") == "workload") {
        WHET_ASSIGN_OR_RETURN(auto opened, task::OpenWorkload(row.at("text").get<std::string>()));
        programs.emplace(row.at("fingerprint"), std::move(opened.program));
        continue;
      }
      const std::string workload = row.at("workload"), text = row.at("trace");
      WHET_ASSIGN_OR_RETURN(const schedule::Trace trace, schedule::Trace::Parse(text));
      WHET_ASSIGN_OR_RETURN(const schedule::Schedule s,
                            schedule::Schedule::Replay(programs.at(workload), trace));
      WHET_ASSIGN_OR_RETURN(const loop::Lowered lowered, loop::Lower(s.program()));
      const size_t rule = text.find("rule ");
      const std::string what =
          rule == std::string::npos ? "" : text.substr(rule, text.find('\n', rule) - rule);
      for (const char* name : kTargets) {
        WHET_ASSIGN_OR_RETURN(const Target target, Target::Parse(name));
        const StatusOr<std::string> digest = DigestOfKernel(lowered, target);
        digests[fmt::format("{} {} {}", workload, FingerprintOf(text).Hex(), name)] =
            fmt::format("{} {}", digest.ok() ? *digest : "refused 0", what);
      }
    }
  }
  return digests;
}

std::string ToString(const Digests& d) {
  std::string text;
  for (const auto& [key, rest] : d) text += key + " " + rest + "\n";
  return text;
}

Digests ReadLines(const std::string& path) {
  Digests lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string workload, trace, target;
    words >> workload >> trace >> target;
    const std::string key = fmt::format("{} {} {}", workload, trace, target);
    lines[key] = line.substr(std::min(key.size() + 1, line.size()));
  }
  return lines;
}

TEST(KernelDigestTest, CodeIsGeneratedAsItWas) {
  const auto generated = Generate();
  ASSERT_TRUE(generated.ok()) << generated.status();
  EXPECT_GE(generated->size(), 120u);
  const Digests expected = ReadLines(kPath);
  std::string changes;
  int count = 0;
  const auto change = [&](const std::string& key, const std::string& was, const std::string& is) {
    if (++count <= 10) changes += fmt::format("  {}\n    was {}\n    is  {}\n", key, was, is);
  };
  for (const auto& [key, is] : *generated) {
    const auto was = expected.find(key);
    if (was == expected.end() || was->second != is)
      change(key, was == expected.end() ? "not there" : was->second, is);
  }
  for (const auto& [key, was] : expected) {
    if (generated->count(key) == 0) change(key, was, "not there");
  }
  EXPECT_EQ(count, 0) << count << " of " << generated->size()
                      << " kernels are generated in another way, for example\n"
                      << changes
                      << "If that is not meant, it is a bug: compare the IR, which "
                         "codegen::GenerateIr gives, before and after.\nIf it is meant, run "
                         "build/tests/kernel_digest_test --update and commit kernels.digests with "
                         "the change;\nwhere kernels become faster or slower by it, raise "
                         "kCodegenVersion in compiler/support/version.h, too.";
}

int Update() {
  const auto generated = Generate();
  if (!generated.ok()) {
    std::cerr << Message(generated.status()) << "\n";
    return 1;
  }
  std::ofstream(kPath) << ToString(*generated);
  std::cout << "wrote " << kPath << "\n";
  return 0;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--update") return whet::Update();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
