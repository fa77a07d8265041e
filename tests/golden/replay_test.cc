// Records of earlier versions replay: for each row of replay/*.jsonl the workload opens with the
// fingerprint and the initial program that were stored, and the trace still means a program that
// lowers. A row that fails has become worthless in every user's log: such a change needs a new
// version of the operator or primitive, which old rows then miss in words, and its rows move out of
// here on purpose. To add rows: `whet log export FILE`, then keep the kinds workload and trial with
// the keys fingerprint, text, workload, trace and initial_program.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/loop/lower.h"
#include "compiler/schedule/schedule.h"
#include "compiler/task/workload_program.h"

namespace whet {
namespace {

TEST(ReplayTest, RecordsOfEarlierVersionsStillMeanPrograms) {
  std::map<std::string, task::WorkloadProgram> workloads;
  std::set<std::string> primitives;
  int rows = 0;
  for (const auto& file : std::filesystem::directory_iterator(WHET_GOLDEN_DIR "/replay")) {
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);) {
      const auto row = nlohmann::json::parse(line);
      if (row.at("kind") == "workload") {
        const std::string fingerprint = row.at("fingerprint");
        auto opened = task::OpenWorkload(row.at("text").get<std::string>());
        ASSERT_TRUE(opened.ok()) << opened.status() << "\n" << row.at("text");
        EXPECT_EQ(opened->workload.fingerprint().Hex(), fingerprint) << row.at("text");
        workloads.emplace(fingerprint, *std::move(opened));
        continue;
      }
      const auto at = workloads.find(row.at("workload"));
      ASSERT_NE(at, workloads.end()) << line;
      const loop::Program& initial = at->second.program;
      EXPECT_EQ(schedule::DigestOf(initial).Hex(), row.at("initial_program").get<std::string>())
          << at->second.workload.ToString();
      const std::string text = row.at("trace");
      const auto trace = schedule::Trace::Parse(text);
      ASSERT_TRUE(trace.ok()) << trace.status();
      EXPECT_EQ(trace->ToString(), text);
      const auto replayed = schedule::Schedule::Replay(initial, *trace);
      ASSERT_TRUE(replayed.ok()) << replayed.status() << "\n" << text;
      const auto lowered = loop::Lower(replayed->program());
      EXPECT_TRUE(lowered.ok()) << lowered.status() << "\n" << text;
      for (const schedule::Instr& i : trace->instrs) primitives.insert(i.primitive);
      ++rows;
    }
  }
  EXPECT_GE(rows, 60);
  EXPECT_GE(primitives.size(), 12u);
}

}  // namespace
}  // namespace whet
