// Which instruction-set features the processor we run on has and the operating system lets us use.
// Names are LLVM's
// ("avx512vnni", "dotprod"), as they appear in an artifact's descriptor. Stateless; safe from any
// thread.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace whet {

// True when every feature of the comma-separated list is there; otherwise `missing` names those
// that are not. A feature this table does not know counts as missing: a newer compiler may ask for
// something this runtime cannot check.
bool CpuHasFeatures(const std::string& features, std::string* missing);

// The same for a processor that has just the features of the list `have`.
bool FeaturesAmong(const std::string& features, const std::string& have, std::string* missing);

// All the features of the table that this processor has, comma separated.
std::string CpuFeatures();

// Every name that the table has for "x86_64" or "aarch64"; none for another architecture.
std::vector<std::string> KnownCpuFeatures(std::string_view arch);

}  // namespace whet
