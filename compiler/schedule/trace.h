// A trace: the primitives that turned a workload's initial program into a scheduled one, each
// decision explicit. It has one canonical text, which is what the tuning log stores and what is
// hashed:
//
//   whet-trace 1
//   rule conv_direct@1 ow_tile=8 oc_vectors=2
//   split@1 conv.ow 8 conv.ow.o conv.ow.i
//   vectorize@1 conv.oc.v
//
// The line "rule" is optional and says where the decisions came from; replay ignores it.
//
// Arguments are words, or quoted when they contain blanks (index maps). Replay runs the primitives
// only, so an old record replays after its rule has changed; a primitive whose meaning changes gets
// a new version.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/support/fingerprint.h"
#include "compiler/support/status.h"

namespace whet::schedule {

struct Instr {
  std::string primitive;
  int version = 1;
  std::vector<std::string> args;
};

struct Trace {
  std::string rule;  // "" when written by hand
  int rule_version = 1;
  std::vector<std::pair<std::string, int64_t>> knobs;
  std::vector<Instr> instrs;

  std::string ToString() const;
  // Caps (a trace may come from a peer): 256 KiB, 4096 instructions, 16 arguments of at most 256
  // bytes each.
  static StatusOr<Trace> Parse(std::string_view text);
  Fingerprint Hash() const { return FingerprintOf(ToString()); }
};

}  // namespace whet::schedule
