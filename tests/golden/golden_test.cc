// Each case of each *.golden file below this folder is one test (format: golden_file.h).
//   golden_test [GoogleTest flags]
//   golden_test --update     writes the expected programs and traces anew; look at the difference
//                            before committing
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "compiler/loop/lower.h"
#include "compiler/schedule/rule.h"
#include "tests/golden/golden_run.h"

namespace whet::golden {
namespace {

StatusOr<std::string> CasePasses(const Case& c) {  // "" or what is wrong
  size_t done = 0;
  auto outcome = Run(c.source, done);
  if (c.verb == Verb::kError) {
    if (outcome.ok()) return "nothing was refused";
    if (!c.source.steps.empty() && done + 1 != c.source.steps.size())
      return fmt::format("step {} is refused already: {}", done + 1, Message(outcome.status()));
    const std::string message = Message(outcome.status());
    return message.find(c.expected) != std::string::npos
               ? ""
               : fmt::format("the message is '{}'", message);
  }
  WHET_RETURN_IF_ERROR(outcome.status());
  std::string expected = c.expected;
  if (c.verb == Verb::kSame) {
    size_t other_done = 0;
    auto other = Run(c.other, other_done);
    WHET_RETURN_IF_ERROR(Annotate(other.status(), "the other program"));
    expected = other->Text();
  }
  const std::string text =
      c.verb == Verb::kExpectTrace ? outcome->trace.ToString() : outcome->Text();
  if (text == expected) return "";
  const auto at = std::mismatch(text.begin(), text.end(), expected.begin(), expected.end()).first -
                  text.begin();
  const auto line = std::count(text.begin(), text.begin() + at, '\n') + 1;
  return fmt::format("differs from line {} on; got\n{}expected\n{}", line, text, expected);
}

class CaseTest : public testing::Test {
 public:
  explicit CaseTest(Case c) : case_(std::move(c)) {}
  void TestBody() override {
    auto wrong = CasePasses(case_);
    ASSERT_TRUE(wrong.ok()) << wrong.status();
    ASSERT_EQ(*wrong, "");
  }

 private:
  const Case case_;
};

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::filesystem::path> GoldenFiles() {
  std::vector<std::filesystem::path> paths;
  for (const auto& e : std::filesystem::recursive_directory_iterator(WHET_GOLDEN_DIR)) {
    if (e.path().extension() == ".golden") paths.push_back(e.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

struct Named {
  std::filesystem::path path;
  File file;
};

// Nothing may exist that no golden case covers: primitives, passes, rules.
class CoverageTest : public testing::Test {
 public:
  explicit CoverageTest(const std::vector<Named>& files) {
    for (const Named& n : files) {
      for (const Case& c : n.file.cases) {
        if (c.verb == Verb::kError) continue;
        for (const std::string& step : c.source.steps) {
          seen_.insert(step.substr(0, step.find_first_of("@ ")));
          if (step.find(' ') != std::string::npos)
            seen_.insert(step.substr(0, step.find(' ', step.find(' ') + 1)));
        }
      }
    }
  }
  void TestBody() override {
    for (const schedule::Primitive* p : schedule::Primitives())
      EXPECT_TRUE(seen_.count(p->name)) << "no case runs " << p->name;
    for (const loop::Pass& p : loop::LowerPasses())
      EXPECT_TRUE(seen_.count(fmt::format("pass {}", p.name))) << "no case runs pass " << p.name;
    for (const schedule::Rule* r : schedule::Rules())
      EXPECT_TRUE(seen_.count(fmt::format("rule {}", r->name))) << "no case runs rule " << r->name;
  }

 private:
  std::set<std::string> seen_;
};

int Update(const std::vector<Named>& files) {
  int failures = 0;
  for (Named n : files) {
    for (const Case& c : n.file.cases) {
      if (c.verb != Verb::kExpect && c.verb != Verb::kExpectTrace) continue;
      size_t done = 0;
      auto outcome = Run(c.source, done);
      if (!outcome.ok()) {
        std::cerr << n.path.string() << ": " << c.title << ": " << Message(outcome.status())
                  << "\n";
        ++failures;
        continue;
      }
      const bool last = c.section + 1 == n.file.sections.size();
      n.file.sections[c.section].body =
          (c.verb == Verb::kExpectTrace ? outcome->trace.ToString() : outcome->Text()) +
          (last ? "" : "\n");
    }
    std::ofstream(n.path, std::ios::binary) << n.file.ToString();
  }
  return failures ? 1 : 0;
}

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::vector<Named> files;
  for (const auto& path : GoldenFiles()) {
    auto file = Parse(ReadAll(path));
    if (!file.ok()) {
      std::cerr << path.string() << ": " << Message(file.status()) << "\n";
      return 1;
    }
    files.push_back({path, std::move(*file)});
  }
  if (argc == 2 && std::string_view(argv[1]) == "--update") return Update(files);
  if (argc != 1) {
    std::cerr << "error: unknown argument '" << argv[1] << "'; usage: golden_test [--update]\n";
    return 2;
  }
  for (const Named& n : files) {
    const std::string suite = n.path.stem().string();
    for (const Case& c : n.file.cases) {
      testing::RegisterTest(suite.c_str(), c.title.c_str(), nullptr, nullptr, n.path.c_str(), 1,
                            [c]() -> testing::Test* { return new CaseTest(c); });
    }
  }
  testing::RegisterTest("coverage", "every primitive, pass and rule has a case", nullptr, nullptr,
                        __FILE__, __LINE__,
                        [&files]() -> testing::Test* { return new CoverageTest(files); });
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace whet::golden

int main(int argc, char** argv) { return whet::golden::Main(argc, argv); }
