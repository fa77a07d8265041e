// Which record a compilation uses: the pure decision, fed row by row. A record is used only if the
// log's paired evidence says that it beats the default schedule; otherwise the miss has a reason.
//
// Evidence is gathered per (trace, exact device), so that boards never mix: of a trace's rows on
// one device only the best class counts (uncontended before contended, then the highest rung), and
// its ratio is the median of that class, the upper one of two. Taking the minimum instead would
// crown the luckiest sample. A trace that ever crashed, hung or answered wrongly here is out for
// good. Ties fall to the smaller median, then the older row: one log, one answer.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "db/record/record.h"

namespace whet::db {

enum class MissReason {
  kNone,
  kNoWorkload,   // nothing at all about this workload
  kOtherTarget,  // records exist, but for other feature sets
  kOtherThreads,
  kOtherCacheMode,
  kOtherCodegen,  // made by another codegen_version
  kOtherProgram,  // the initial loop program differs: the trace would not replay
  kOnlyImported,  // not measured here yet
  kOnlyLate,
  kOnlyEmulated,
  kNoValidTrial,  // no candidate was tried, or every trial failed
  kNotCompared,   // valid, but never measured in alternation with the default schedule
  kNotBetter,     // no record beats the default schedule
};
std::string_view MissName(MissReason reason);

struct BestQuery {
  RecordKey key;
  int64_t codegen_version = 0;
  Fingerprint initial_program;
  // The exact board to serve, if known: its own evidence about a trace overrules that of other
  // boards, and its records rank first.
  std::optional<Fingerprint> device;
};

struct BestRecord {
  TrialRow row;               // the row that carries the ratio
  double ratio = 1;           // candidate / default, < 1
  int64_t evidence_rows = 0;  // rows of the class that the ratio is the median of
  bool other_device = false;  // the evidence comes from another board than the query's
};

struct Best {
  std::optional<BestRecord> record;
  MissReason miss = MissReason::kNone;
  std::string why;        // words for the miss, e.g. "only for 4 threads, asked for 1"
  double default_ns = 0;  // the default schedule's latest median under the query; 0: none
  // By exact device: the least median of the default schedule among rows that nothing disturbed.
  // What times of different workloads are compared by; a contended row says nothing there.
  std::map<Fingerprint, double> calm_default_ns;
  int64_t damaged_rows = 0;  // rows of this key that failed their check and were left out
};

class BestChooser {
 public:
  struct Choice {
    int64_t seq = 0;
    double ratio = 1;
    int64_t evidence_rows = 0;
    bool other_device = false;
  };

  explicit BestChooser(std::optional<Fingerprint> device) : device_(device) {}

  // Any row of the query's key, codegen_version and initial program.
  void Add(const TrialRow& row);

  std::optional<Choice> Choose() const;  // nothing: see Miss
  // Rows that some query chooses: of any board that has rows here, or of none.
  std::set<int64_t> Choices() const;
  std::pair<MissReason, std::string> Miss() const;
  bool HeldFinals() const;
  double default_ns() const { return default_ns_; }  // the latest default row's median; 0: none
  const std::map<Fingerprint, double>& calm_default_ns() const { return calm_default_ns_; }

 private:
  struct Evidence {
    double ratio = 0;
    double median_ns = 0;
    int64_t seq = 0;
  };
  struct Class {  // the best class seen so far of one (trace, device)
    bool contended = true;
    int rung = -1;
    std::vector<Evidence> rows;
  };
  using Group = std::pair<Fingerprint, Fingerprint>;  // trace, device

  static Evidence Judged(const Class& c);
  std::optional<Choice> ChooseFor(const std::optional<Fingerprint>& board) const;
  std::string WhyNotCompared() const;

  const std::optional<Fingerprint> device_;
  std::map<Group, Class> groups_;
  std::set<Fingerprint> barred_;
  int64_t rows_ = 0, imported_ = 0, late_ = 0, emulated_ = 0, failed_ = 0, unpaired_ = 0;
  std::map<Fingerprint, double> calm_default_ns_;
  double default_ns_ = 0, unpaired_ns_ = 0;  // the latest default; the fastest of the unpaired
};

}  // namespace whet::db
