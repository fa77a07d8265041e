#include "compiler/support/names.h"

#include <fmt/format.h>

#include <numeric>

namespace whet {
namespace {

// Levenshtein distance, one row at a time.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

constexpr size_t kMostListed = 20;

}  // namespace

std::string ListOf(const std::vector<std::string>& names) {
  const size_t shown = names.size() <= kMostListed + 1 ? names.size() : kMostListed;
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::string Suggestion(std::string_view given, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  // More changes than two are another word, and so is a word of which nothing is left.
  size_t least = std::min<size_t>(3, given.size());
  for (const std::string& k : known) {
    if (const size_t d = Distance(given, k); d < least) {
      least = d;
      best = &k;
    }
  }
  return best ? fmt::format(" (did you mean '{}'?)", *best) : "";
}

}  // namespace whet
