#include "db/record/best.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace whet::db {
namespace {

constexpr std::array<std::string_view, 13> kMissNames = {
    "none",           "no_workload",   "other_target",  "other_threads", "other_cache_mode",
    "other_codegen",  "other_program", "only_imported", "only_late",     "only_emulated",
    "no_valid_trial", "not_compared",  "not_better"};

std::string Candidates(int64_t n) {
  return n == 1 ? "1 candidate" : fmt::format("{} candidates", n);
}

bool Bars(FailureKind kind) {
  return kind == FailureKind::kWrongOutput || kind == FailureKind::kRunCrash ||
         kind == FailureKind::kRunTimeout;
}

}  // namespace

std::string_view MissName(MissReason reason) {
  const auto i = static_cast<size_t>(reason);
  WHET_CHECK(i < kMissNames.size(), "miss reason {}", i);
  return kMissNames[i];
}

void BestChooser::Add(const TrialRow& row) {
  ++rows_;
  if (row.origin == Origin::kImported) {
    ++imported_;
    return;
  }
  if (row.status == TrialStatus::kLate) {
    ++late_;
    return;
  }
  if (row.exec_class == ExecClass::kEmulated) {
    ++emulated_;
    return;
  }
  if (row.failure != FailureKind::kOk) {
    ++failed_;
    if (Bars(row.failure)) barred_.insert(row.trace_fingerprint());
    return;
  }
  if (row.is_default) {
    default_ns_ = row.median_ns;
    if (!row.contended && row.device) {
      double& ns = calm_default_ns_.try_emplace(*row.device, row.median_ns).first->second;
      ns = std::min(ns, row.median_ns);
    }
    return;
  }
  if (!row.baseline_ratio) {
    ++unpaired_;
    if (unpaired_ns_ == 0 || row.median_ns < unpaired_ns_) unpaired_ns_ = row.median_ns;
    return;
  }
  Class& c = groups_[{row.trace_fingerprint(), row.device.value_or(Fingerprint{})}];
  const auto grade = [](bool contended, int rung) { return std::pair(!contended, rung); };
  if (grade(row.contended, row.rung) < grade(c.contended, c.rung)) return;
  if (grade(row.contended, row.rung) > grade(c.contended, c.rung)) {
    c = {row.contended, row.rung, {}};
  }
  c.rows.push_back({*row.baseline_ratio, row.median_ns, row.seq});
}

BestChooser::Evidence BestChooser::Judged(const Class& c) {
  std::vector<Evidence> rows = c.rows;
  std::sort(rows.begin(), rows.end(), [](const Evidence& a, const Evidence& b) {
    return std::tie(a.ratio, a.seq) < std::tie(b.ratio, b.seq);
  });
  return rows[rows.size() / 2];
}

// While builders worked beside it, a ratio is only a reason for a final. Where finals were held,
// the luckiest of many such ratios does not win.
bool BestChooser::HeldFinals() const {
  return std::ranges::any_of(
      groups_, [](const auto& g) { return !g.second.contended && g.second.rung == 4; });
}

std::optional<BestChooser::Choice> BestChooser::Choose() const { return ChooseFor(device_); }

std::set<int64_t> BestChooser::Choices() const {
  std::set<std::optional<Fingerprint>> boards = {std::nullopt};
  for (const auto& [group, c] : groups_) boards.insert(group.second);
  std::set<int64_t> seqs;
  for (const std::optional<Fingerprint>& board : boards) {
    if (const auto choice = ChooseFor(board)) seqs.insert(choice->seq);
  }
  return seqs;
}

std::optional<BestChooser::Choice> BestChooser::ChooseFor(
    const std::optional<Fingerprint>& board) const {
  std::set<Fingerprint> own;  // traces that the asked board itself has judged
  for (const auto& [group, c] : groups_) {
    if (board && group.second == *board) own.insert(group.first);
  }
  const bool finals = HeldFinals();
  std::optional<Choice> best;
  std::tuple<bool, bool, double, double, int64_t> best_order;
  for (const auto& [group, c] : groups_) {
    const auto& [trace, device] = group;
    const bool other = board && device != *board;
    if (barred_.contains(trace) || (other && own.contains(trace))) continue;
    if (finals && c.contended) continue;
    const Evidence e = Judged(c);
    if (e.ratio >= 1) continue;
    const auto order = std::tuple(other, c.contended, e.ratio, e.median_ns, e.seq);
    if (best && best_order <= order) continue;
    best_order = order;
    best = Choice{e.seq, e.ratio, static_cast<int64_t>(c.rows.size()), other};
  }
  return best;
}

std::pair<MissReason, std::string> BestChooser::Miss() const {
  if (rows_ > 0 && imported_ == rows_) {
    return {MissReason::kOnlyImported,
            fmt::format("only imported records ({}), none measured here yet", imported_)};
  }
  if (rows_ > 0 && late_ + imported_ == rows_) {
    return {MissReason::kOnlyLate,
            fmt::format("only results that came too late to count ({})", late_)};
  }
  if (rows_ > 0 && late_ + imported_ + emulated_ == rows_) {
    return {MissReason::kOnlyEmulated,
            fmt::format("only trials under emulation ({}), whose times do not count", emulated_)};
  }
  double nearest = 0;
  const bool finals = HeldFinals();
  for (const auto& [group, c] : groups_) {
    if (barred_.contains(group.first) || (finals && c.contended)) continue;
    const double ratio = Judged(c).ratio;
    if (nearest == 0 || ratio < nearest) nearest = ratio;
  }
  if (nearest > 0) {
    return {MissReason::kNotBetter,
            fmt::format("the best candidate takes {:.3f} x the default schedule's time", nearest)};
  }
  if (unpaired_ > 0) {
    return {MissReason::kNotCompared, WhyNotCompared()};
  }
  return {MissReason::kNoValidTrial,
          failed_ > 0 ? Candidates(failed_) + " tried, none valid" : "no candidate was tried yet"};
}

// Only what looks faster than the default is measured side by side with it, at the end of a job.
std::string BestChooser::WhyNotCompared() const {
  const std::string tried = Candidates(unpaired_) + " tried";
  if (default_ns_ <= 0) return tried + ", none compared with the default schedule yet";
  const double ratio = unpaired_ns_ / default_ns_;
  return ratio < 1 ? fmt::format(
                         "{}; the best looks faster than the default schedule ({:.2f} x its time), "
                         "but they were not measured side by side yet: tune on",
                         tried, ratio)
                   : fmt::format(
                         "{}, none looks faster than the default schedule: the best took {:.2f} x "
                         "its time",
                         tried, ratio);
}

}  // namespace whet::db
