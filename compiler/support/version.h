// Versions that are stored beside results.
#pragma once
#include <cstdint>

namespace whet {

inline constexpr const char* kCompilerVersion = "0.1.0";
// Raised when generated code changes so that old measurements no longer speak for it. Records are
// keyed on it, not on the release, so that a release alone does not orphan a log.
inline constexpr int64_t kCodegenVersion = 3;

}  // namespace whet
