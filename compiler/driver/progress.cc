#include "compiler/driver/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "compiler/driver/names.h"

namespace whet::driver {
namespace {

constexpr auto kLineEvery = std::chrono::seconds(10);
constexpr auto kRedrawEvery = std::chrono::milliseconds(100);

int Columns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

bool Ended(const v1::TaskProgress& t) { return t.state() == "done" || t.state() == "failed"; }
// Its winners, with the default schedule, side by side.
bool IsCompared(const v1::TaskProgress& t) { return t.state() == "finals"; }

// Nothing before every task has a first time: a growing sum would read as if it got slower.
std::string SpeedUp(const v1::JobSnapshot& s) {
  for (const v1::TaskProgress& t : s.tasks()) {
    if (t.default_ns() <= 0 && !Ended(t)) return "";
  }
  if (!(s.default_total_ns() > 0) || !(s.best_total_ns() > 0)) return "";
  return fmt::format("best {:.3f} ms ({:.2f}x)", s.best_total_ns() * 1e-6,
                     s.default_total_ns() / s.best_total_ns());
}

}  // namespace

Progress::Style Progress::ForStderr() {
  return isatty(STDERR_FILENO) ? Style::kBar : Style::kLines;
}

std::string Progress::Minutes(double seconds) {
  const auto s = static_cast<int64_t>(std::max(seconds, 0.0) + 0.5);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string Progress::BarText(const v1::JobSnapshot& s, int columns) {
  const auto ended = std::count_if(s.tasks().begin(), s.tasks().end(), Ended);
  const auto span = static_cast<double>(s.elapsed_ns() + s.remaining_ns());
  double share = 0;
  if (s.trials_wanted() > 0)
    share = static_cast<double>(s.trials_done()) / static_cast<double>(s.trials_wanted());
  else if (s.trials_done() > 0 && span > 0)  // by time only
    share = static_cast<double>(s.elapsed_ns()) / span;
  share = std::clamp(share, 0.0, 1.0);
  std::string parts[] = {fmt::format(" {:3.0f}%", 100 * share),
                         fmt::format("  tasks {}/{}", ended, s.tasks_size()),
                         fmt::format("  trials {}", s.trials_done()), SpeedUp(s),
                         "  " + Minutes(static_cast<double>(s.elapsed_ns()) * 1e-9)};
  if (s.trials_wanted() > 0) parts[2] += fmt::format("/{}", s.trials_wanted());
  if (!parts[3].empty()) parts[3] = "  " + parts[3];
  if (s.remaining_ns() > 0)
    parts[4] += " +" + Minutes(static_cast<double>(s.remaining_ns()) * 1e-9);
  else if (std::any_of(s.tasks().begin(), s.tasks().end(), IsCompared))
    parts[4] += "  comparing";
  // A narrow terminal loses whole parts, what matters least first.
  const auto join = [&] { return parts[0] + parts[1] + parts[2] + parts[3] + parts[4]; };
  for (const size_t spare : {1, 3, 2}) {
    if (static_cast<int>(join().size()) >= columns) parts[spare].clear();
  }
  const std::string text = join();
  const int room = columns - 1 - static_cast<int>(text.size()) - 2;
  std::string bar;
  if (room >= 10) {
    const int width = std::min(room, 30), full = static_cast<int>(share * width);
    bar = "[" + std::string(static_cast<size_t>(full), '#') +
          std::string(static_cast<size_t>(width - full), '.') + "]";
  }
  return (bar + text).substr(0, static_cast<size_t>(std::max(columns - 1, 0)));
}

void Progress::Show(const v1::JobSnapshot& s) {
  if (style_ == Style::kSilent) return;
  if (style_ == Style::kLines) return ShowLines(s);
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < kRedrawEvery && s.state() < v1::JOB_DONE) return;
  last_ = now;
  drawn_ = true;
  fmt::print(stderr, "\r\x1b[2K{}", BarText(s, Columns()));
  std::fflush(stderr);
}

void Progress::ShowLines(const v1::JobSnapshot& s) {
  std::vector<std::string> names;
  for (const v1::TaskProgress& t : s.tasks()) names.push_back(t.name());
  const std::string path = CommonPath(names);
  for (const v1::TaskProgress& t : s.tasks()) {
    if (!Ended(t) || !finished_.insert(t.name() + t.workload_fingerprint()).second) continue;
    std::string result = t.error().empty() ? "no valid trial" : t.error();
    if (t.default_ns() > 0 && t.best_ns() > 0)
      result = fmt::format("{:.4f} -> {:.4f} ms", t.default_ns() * 1e-6, t.best_ns() * 1e-6);
    fmt::print(stderr, "task {}/{}: {}; {} trials, {} failed: {}\n", finished_.size(),
               s.tasks_size(), result, t.trials(), t.failed(), WithoutPath(t.name(), path));
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kLineEvery) return;
  last_ = now;
  const std::string best = SpeedUp(s);
  fmt::print(stderr, "{} trials{}{}{}, {} elapsed{}\n", s.trials_done(),
             s.trials_wanted() > 0 ? fmt::format(" of {}", s.trials_wanted()) : "",
             best.empty() ? "" : ", ", best, Minutes(static_cast<double>(s.elapsed_ns()) * 1e-9),
             s.remaining_ns() > 0
                 ? ", about " + Minutes(static_cast<double>(s.remaining_ns()) * 1e-9) + " to go"
                 : "");
}

void Progress::Clear() {
  if (drawn_) fmt::print(stderr, "\r\x1b[2K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace whet::driver
