// What a person sees while a job runs: on a terminal one line that is redrawn (tasks, trials, best
// so far, estimated end); otherwise one plain line when a task ends and, so that a log shows life,
// one every ten seconds. Writes to standard error: results go to standard output. One thread.
#pragma once
#include <chrono>
#include <set>
#include <string>

#include "proto/tuner.pb.h"

namespace whet::driver {

class Progress {
 public:
  enum class Style { kBar, kLines, kSilent };
  static Style ForStderr();  // bar on a terminal, else lines

  explicit Progress(Style style) : style_(style) {}
  ~Progress() { Clear(); }
  void Show(const v1::JobSnapshot& snapshot);
  void Clear();  // removes the bar, so that other text can follow

  // "12:05" for 725 s
  static std::string Minutes(double seconds);
  // The bar's text, at most `columns` wide.
  static std::string BarText(const v1::JobSnapshot& snapshot, int columns);

 private:
  void ShowLines(const v1::JobSnapshot& snapshot);

  const Style style_;
  bool drawn_ = false;
  std::set<std::string> finished_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace whet::driver
