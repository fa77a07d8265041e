// README's table of operators: names and limits as the catalog says, element types as importing
// takes them. `operator_table_test --update` rewrites it.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>

#include "compiler/frontend/frontend.h"
#include "tests/golden/accepted_types.h"

namespace whet {
namespace {

constexpr std::string_view kBegin = "<!-- operators: written by operator_table_test --update -->\n";
constexpr std::string_view kEnd = "<!-- end of operators -->\n";
bool update = false;

std::string Readme() {
  std::ifstream in(WHET_README, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(OperatorTable, ReadmeSaysWhatIsImported) {
  const std::string path = WHET_README;
  const std::string text = Readme();
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos && begin < end)
      << path << " lacks the lines around the table";
  const size_t from = begin + kBegin.size();
  auto types = AcceptedTypes();
  ASSERT_TRUE(types.ok()) << types.status();
  const std::string wanted = frontend::OperatorTable(*types);
  if (update) {
    std::ofstream(path, std::ios::binary) << text.substr(0, from) + wanted + text.substr(end);
    return;
  }
  EXPECT_EQ(text.substr(from, end - from), wanted)
      << "run build/tests/operator_table_test --update";
}

// The sentence above the table: "there are no A, B and C, no tensors of ...".
TEST(OperatorTable, WhatReadmeCallsAbsentIsNotInTheCatalog) {
  const std::string text = Readme();
  constexpr std::string_view kNone = "Of these sets there are no";
  const size_t from = text.find(kNone), to = text.find(", no tensors", from);
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos && to < text.find(kBegin));
  // Which is what the other test says it is.
  const std::string table = text.substr(text.find(kBegin));
  const std::set<std::string> there = absl::StrSplit(table, absl::ByAnyChar(" ,:;|\n"));
  ASSERT_TRUE(there.contains("Conv"));
  const std::string names = absl::StrReplaceAll(
      text.substr(from + kNone.size(), to - from - kNone.size()), {{" and ", ", "}, {"\n", " "}});
  const std::vector<std::string> absent =
      absl::StrSplit(names, absl::ByAnyChar(" ,"), absl::SkipEmpty());
  EXPECT_FALSE(absent.empty());
  for (const std::string& name : absent) EXPECT_FALSE(there.contains(name)) << name;
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  whet::update = argc == 2 && std::string_view(argv[1]) == "--update";
  return RUN_ALL_TESTS();
}
