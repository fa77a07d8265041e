// Whether a candidate is for this device at all, by what its assignment says and by the first bytes
// of its file: before it is fetched, and before anything of it is mapped or started. Pure.
#pragma once
#include <string>
#include <string_view>

#include "compiler/support/status.h"
#include "proto/target.pb.h"

namespace whet::worker {

// `feature_set`: "x86_64 +avx,+avx2", what the candidate was built for; empty: not said, and OK.
// FailedPrecondition names the other architecture, or the features that the device lacks.
Status CheckFeatureSet(std::string_view feature_set, const v1::DeviceIdentity& device);

inline constexpr size_t kObjectHeaderBytes = 64;

// `file`: the object, or the first kObjectHeaderBytes of it; `arch`: "x86_64" or "aarch64".
// FailedPrecondition in words: no ELF file, another class, byte order, kind or architecture.
Status CheckObjectHeader(std::string_view file, std::string_view arch);

}  // namespace whet::worker
