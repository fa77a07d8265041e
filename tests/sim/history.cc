#include "tests/sim/history.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace whet::testing {
namespace {

using TrialKey = std::tuple<std::string, uint32_t, int64_t>;

TrialKey TrialOf(const RunIds& ids) { return {ids.job, ids.task, ids.trial}; }

std::string TrialText(const TrialKey& t) {
  return fmt::format("job={} task={} trial={}", std::get<0>(t), std::get<1>(t), std::get<2>(t));
}

bool IsTerminalState(const std::string& state) {
  return state == "done" || state == "failed" || state == "cancelled" || state == "no_device";
}

const char* NameOf(What what) {
  switch (what) {
    case What::kGranted: return "granted";
    case What::kAssigned: return "assigned";
    case What::kRunBegins: return "run_begins";
    case What::kRunEnds: return "run_ends";
    case What::kTaken: return "taken";
    case What::kDurable: return "durable";
    case What::kRefused: return "refused";
    case What::kForgotten: return "forgotten";
    case What::kJobAccepted: return "job_accepted";
    case What::kJobEnded: return "job_ended";
  }
  return "?";
}

class Checker {
 public:
  explicit Checker(const History& history) : h_(history) {
    for (const FinalRow& row : h_.rows) rows_.emplace(row.ids, &row);
    for (const FinalJob& job : h_.jobs) jobs_[job.job] = job.state;
  }

  std::vector<Violation> Check() {
    CheckAcknowledged();
    CheckCountedOnce();
    CheckFences();
    CheckOverlap();
    CheckJobs();
    return std::move(violations_);
  }

 private:
  template <typename... Args>
  void Violated(int promise, fmt::format_string<Args...> f, Args&&... args) {
    violations_.push_back({promise, fmt::format(f, std::forward<Args>(args)...)});
  }

  // ---- P1
  void CheckAcknowledged() {
    std::set<RunIds> refused;
    for (const Happening& e : h_.happenings) {
      switch (e.what) {
        case What::kRefused: refused.insert(e.ids); break;
        case What::kForgotten:
          if (!rows_.contains(e.ids) && !refused.contains(e.ids))
            Violated(
                1,
                "a worker has forgotten {} at {} ns: it is not in the log, and nobody refused it",
                e.ids.Text(), e.at_ns);
          break;
        case What::kDurable:
          if (!rows_.contains(e.ids))
            Violated(1, "{} was said to be durable at {} ns, and is not in the log", e.ids.Text(),
                     e.at_ns);
          break;
        case What::kJobAccepted:
          if (!jobs_.contains(e.ids.job))
            Violated(1, "job {} was accepted at {} ns, and is not in the log", e.ids.job, e.at_ns);
          break;
        default: break;
      }
    }
  }

  // ---- P2
  void CheckCountedOnce() {
    std::map<TrialKey, int> counted;
    std::set<RunIds> seen;
    for (const FinalRow& row : h_.rows) {
      if (!seen.insert(row.ids).second) Violated(2, "{} has two rows", row.ids.Text());
      if (row.counted && row.evidence && ++counted[TrialOf(row.ids)] == 2)
        Violated(2, "{} counts more than once", TrialText(TrialOf(row.ids)));
    }
    std::map<RunIds, std::string> verdicts;
    for (const Happening& e : h_.happenings) {
      if (e.what != What::kDurable) continue;
      const auto [it, first] = verdicts.emplace(e.ids, e.text);
      if (!first && it->second != e.text)
        Violated(2, "{} was {} and, delivered again, {}", e.ids.Text(), it->second, e.text);
      const auto row = rows_.find(e.ids);
      if (row != rows_.end() && (e.text == "counted") != row->second->counted)
        Violated(2, "{} was told {}, and the log has it otherwise", e.ids.Text(), e.text);
    }
  }

  // ---- P3
  void CheckFences() {
    std::map<std::string, int64_t> last_epochs;  // by incarnation, where they start again
    std::set<RunIds> granted;
    std::map<TrialKey, RunIds> latest;  // assignment
    std::set<RunIds> assigned, taken;
    for (const Happening& e : h_.happenings) {
      if (e.what == What::kGranted) {
        if (!granted.insert(e.ids).second) continue;  // the same lease, said again
        int64_t& last = last_epochs[h_.epochs_outlive_restarts ? "" : e.ids.incarnation];
        if (e.ids.epoch <= last)
          Violated(3, "epoch {} of {} was granted at {} ns, after {}", e.ids.epoch, e.ids.device,
                   e.at_ns, last);
        last = std::max(last, e.ids.epoch);
      } else if (e.what == What::kAssigned) {
        if (!assigned.insert(e.ids).second)
          Violated(3, "{} was assigned twice under the same fence", e.ids.Text());
        latest[TrialOf(e.ids)] = e.ids;
      } else if (e.what == What::kTaken && e.text == "counted" && !e.ids.device.empty()) {
        if (!taken.insert(e.ids).second) continue;  // another delivery: P2's
        const auto it = latest.find(TrialOf(e.ids));
        if (it == latest.end())
          Violated(3, "{} counts at {} ns, and was never assigned", e.ids.Text(), e.at_ns);
        else if (it->second != e.ids)
          Violated(3, "{} counts at {} ns, after its trial went to {}", e.ids.Text(), e.at_ns,
                   it->second.Text());
      }
    }
    for (const RunIds& ids : h_.best) {
      const auto row = rows_.find(ids);
      if (row == rows_.end())
        Violated(3, "the log's best is {}, of which it has no row", ids.Text());
      else if (!row->second->counted || !row->second->evidence)
        Violated(3, "the log's best is {}, which is late or says nothing", ids.Text());
    }
  }

  // ---- P4
  void CheckOverlap() {
    struct Interval {
      int64_t begin, end;
      RunIds ids;
    };
    std::map<std::string, std::vector<Interval>> runs;      // by device
    std::map<std::pair<std::string, RunIds>, size_t> open;  // -> index
    for (const Happening& e : h_.happenings) {
      if (e.what == What::kRunBegins) {
        const auto key = std::pair(e.text, e.ids);
        if (open.contains(key)) Violated(4, "{} runs twice at once on {}", e.ids.Text(), e.text);
        open[key] = runs[e.text].size();
        runs[e.text].push_back({e.at_ns, INT64_MAX, e.ids});
      } else if (e.what == What::kRunEnds) {
        const auto it = open.find(std::pair(e.text, e.ids));
        if (it == open.end()) {
          Violated(4, "{} ended on {} at {} ns and had not begun", e.ids.Text(), e.text, e.at_ns);
          continue;
        }
        runs[e.text][it->second].end = e.at_ns;
        open.erase(it);
      }
    }
    for (auto& [device, list] : runs) {
      std::stable_sort(list.begin(), list.end(),
                       [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
      int64_t busy_until = INT64_MIN;
      const Interval* holder = nullptr;
      for (const Interval& i : list) {
        if (holder && i.begin < busy_until)
          Violated(4, "on {} {} began at {} ns, while {} ran", device, i.ids.Text(), i.begin,
                   holder->ids.Text());
        if (i.end >= busy_until) {
          busy_until = i.end;
          holder = &i;
        }
      }
    }
  }

  // ---- P5
  void CheckJobs() {
    std::map<std::string, int64_t> accepted;  // -> deadline
    std::map<std::string, std::pair<std::string, int64_t>> ended;
    for (const Happening& e : h_.happenings) {
      if (e.what == What::kJobAccepted) accepted[e.ids.job] = e.deadline_ns;
      if (e.what != What::kJobEnded) continue;
      if (!IsTerminalState(e.text)) {
        Violated(5, "job {} ended as '{}', which is no end", e.ids.job, e.text);
        continue;
      }
      const auto [it, first] = ended.emplace(e.ids.job, std::pair(e.text, e.at_ns));
      if (!first && it->second.first != e.text)
        Violated(5, "job {} ended as {} and then as {}", e.ids.job, it->second.first, e.text);
    }
    for (const auto& [job, deadline] : accepted) {
      const auto final_state = jobs_.find(job);
      const bool over = final_state != jobs_.end() && IsTerminalState(final_state->second);
      if (!over && h_.ended_ns >= deadline)
        Violated(5, "job {} is {} at {} ns, after its deadline of {} ns", job,
                 final_state == jobs_.end() ? "unknown" : final_state->second, h_.ended_ns,
                 deadline);
      const auto end = ended.find(job);
      if (end == ended.end()) continue;
      if (end->second.second > deadline)
        Violated(5, "job {} ended at {} ns, after its deadline of {} ns", job, end->second.second,
                 deadline);
      if (final_state == jobs_.end() || final_state->second != end->second.first)
        Violated(5, "job {} ended as {}, and the log says {}", job, end->second.first,
                 final_state == jobs_.end() ? "nothing" : final_state->second);
    }
  }

  const History& h_;
  std::map<RunIds, const FinalRow*> rows_;
  std::map<std::string, std::string> jobs_;
  std::vector<Violation> violations_;
};

}  // namespace

std::string RunIds::Text() const {
  return fmt::format("job={} task={} trial={} attempt={} incarnation={} epoch={} device={}", job,
                     task, trial, attempt, incarnation, epoch, device);
}

std::vector<Violation> CheckHistory(const History& history) { return Checker(history).Check(); }

std::string PrintHistory(const History& history, const std::string& job, size_t limit) {
  std::vector<std::string> lines;
  for (const Happening& e : history.happenings) {
    const bool of_all = e.ids.job.empty();
    if (!job.empty() && !of_all && e.ids.job != job) continue;
    lines.push_back(fmt::format("{:>16} {} {}{}{}\n", e.at_ns, NameOf(e.what), e.ids.Text(),
                                e.text.empty() ? "" : " ", e.text));
  }
  std::string text;
  for (size_t i = lines.size() - std::min(limit, lines.size()); i < lines.size(); ++i)
    text += lines[i];
  return text;
}

}  // namespace whet::testing
