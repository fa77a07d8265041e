// README's table of operators is what the catalog says. `operator_table_test --update` rewrites it.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "compiler/frontend/frontend.h"

namespace whet {
namespace {

constexpr std::string_view kBegin = "<!-- operators: written by operator_table_test --update -->\n";
constexpr std::string_view kEnd = "<!-- end of operators -->\n";
bool update = false;

TEST(OperatorTable, ReadmeSaysWhatTheCatalogSays) {
  const std::string path = WHET_README;
  std::ifstream in(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos && begin < end)
      << path << " lacks the lines around the table";
  const size_t from = begin + kBegin.size();
  const std::string wanted = frontend::OperatorTable();
  if (update) {
    std::ofstream(path, std::ios::binary) << text.substr(0, from) + wanted + text.substr(end);
    return;
  }
  EXPECT_EQ(text.substr(from, end - from), wanted)
      << "run build/tests/operator_table_test --update";
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  whet::update = argc == 2 && std::string_view(argv[1]) == "--update";
  return RUN_ALL_TESTS();
}
