// The task of whet-known-good.so, a candidate that is right. Where several candidates in a row
// fail, it is run in between: right answers and a valid time say that the failures were the
// candidates' own, anything else that this device's word is worth nothing for now.
#pragma once
#include <string>

#include "proto/measure.pb.h"

namespace whet::worker {

inline constexpr const char* kKnownGoodFile = "whet-known-good.so";

v1::MeasureSpec KnownGoodSpec();
std::string KnownGoodExpected();  // an ExpectedOutputs file

// After how many failures that may be the device's fault the next is looked into. Pure; the caller
// measures.
class FailureStreak {
 public:
  explicit FailureStreak(int probe_after = 5) : probe_after_(probe_after) {}

  // A candidate's measurement; true: run the known-good one now.
  bool Suspicious(const v1::Measurement& m);
  // What came of that.
  void Probed(const v1::Measurement& known_good);
  // The known-good candidate failed last: nothing else is to be believed until it does not.
  bool unfit() const { return unfit_; }
  const std::string& reason() const { return reason_; }

 private:
  const int probe_after_;
  int failures_ = 0;
  bool unfit_ = false;
  std::string reason_;
};

}  // namespace whet::worker
