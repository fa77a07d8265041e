// The result file of whet-bench: what is in it, how two of them compare, and the table of figures
// that README has of one. JSON, version 1:
//
//   {"whet_bench": 1, "date", "machine": {...}, "versions": {...}, "seed", "threads", "caches",
//    "schedules", "absent": [{"peer", "why"}],
//    "cases": [{"suite", "case", "flops", "bytes", "failed": WHY or absent,
//               "contenders": [{"name", "detail", "worst_error", "calls", "median_us",
//                               "samples_us": [...]}],      ours first; samples by round
//               "fma_gflops": [...],                        by round
//               "disturbed_rounds": N,                      left out and repeated
//               "ratios": [{"peer", "median", "low", "high"}],   the peer's time over ours
//               "best": PEER, "share_of_fma", "share_of_floor"}]}
//
// Pure functions over such values.
#pragma once
#include <nlohmann/json.hpp>

#include <string>

#include "compiler/support/status.h"

namespace whet::bench {

using Json = nlohmann::ordered_json;

inline constexpr const char* kOwn = "whet";
inline constexpr const char* kFloor = "floor";  // reading and writing the operands' bytes

// Fills in ratios, the best peer and the shares of a case from its samples.
void Conclude(Json& c);

StatusOr<Json> ReadResults(const std::string& path);

// A result to keep beside the sources: of each case at most so many rounds, evenly spread and the
// same ones of all contenders, times with four digits, a line per case. Of networks on two threads
// all rounds: ratios of ratios scatter most.
std::string Kept(Json results, size_t rounds);

// What changed from one result to the other, case by case: ours over the best peer (or, without
// one, over the rate of multiply-adds) there and here; marked where the interval of the change
// leaves out 1. Cases that only one of them has are named.
StatusOr<std::string> CompareResults(const Json& before, const Json& after);

// A line per figure: what must be, what is aimed at, what was measured with its interval, whether
// it is reached. Figures whose cases the result lacks say so.
std::string FiguresTable(const Json& results);

// Replaces what stands between the markers of the table in the text.
inline constexpr const char* kTableBegin = "<!-- figures: written by whet-bench table -->";
inline constexpr const char* kTableEnd = "<!-- end of figures -->";
StatusOr<std::string> WithTable(const std::string& text, const std::string& table);

}  // namespace whet::bench
