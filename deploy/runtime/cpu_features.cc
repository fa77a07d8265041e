#include "deploy/runtime/cpu_features.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace whet {
namespace {

// Named for both architectures, so that one can be compiled for on the other.
#define WHET_X86_FEATURES(X) \
  X("sse3")                  \
  X("ssse3")                 \
  X("sse4.1")                \
  X("sse4.2")                \
  X("popcnt")                \
  X("avx")                   \
  X("avx2")                  \
  X("fma")                   \
  X("f16c")                  \
  X("bmi")                   \
  X("bmi2")                  \
  X("avx512f")               \
  X("avx512cd")              \
  X("avx512bw")              \
  X("avx512dq")              \
  X("avx512vl")              \
  X("avx512vbmi")            \
  X("avx512vbmi2")           \
  X("avx512bitalg")          \
  X("avx512vpopcntdq")       \
  X("avx512ifma")            \
  X("avx512vnni")            \
  X("avx512bf16")            \
  X("avx512fp16")            \
  X("avxvnni")               \
  X("lzcnt")                 \
  X("movbe")                 \
  X("gfni")                  \
  X("vaes")                  \
  X("vpclmulqdq")            \
  X("amx-tile")              \
  X("amx-int8")              \
  X("amx-bf16")

constexpr const char* kX86Features[] = {
#define X(name) name,
    WHET_X86_FEATURES(X)
#undef X
};
constexpr const char* kX86Base[] = {"x87", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "64bit"};

struct ArmFeature {
  const char* name;
  int word;  // 0: always, 1: AT_HWCAP, 2: AT_HWCAP2
  int bit;   // of Linux' <asm/hwcap.h>
};
constexpr ArmFeature kArmFeatures[] = {
    {"neon", 0, 0}, {"fp-armv8", 0, 0},  {"aes", 1, 3},  {"sha2", 1, 6},    {"crc", 1, 7},
    {"lse", 1, 8},  {"fullfp16", 1, 10}, {"rdm", 1, 12}, {"jsconv", 1, 13}, {"dotprod", 1, 20},
    {"sve", 1, 22}, {"fp16fml", 1, 23},  {"sve2", 2, 1}, {"i8mm", 2, 13},   {"bf16", 2, 14},
};

#if defined(__x86_64__)

constexpr const char* kArch = "x86_64";

// The kernel hands tile registers out on request, per process.
bool TilesAllowed() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
}

bool Has(std::string_view f) {
  if (std::find(std::begin(kX86Base), std::end(kX86Base), f) != std::end(kX86Base)) return true;
  __builtin_cpu_init();
#define X(name) \
  if (f == name) return __builtin_cpu_supports(name) && (f.substr(0, 3) != "amx" || TilesAllowed());
  WHET_X86_FEATURES(X)
#undef X
  return false;
}

#elif defined(__aarch64__)

constexpr const char* kArch = "aarch64";

bool Has(std::string_view f) {
  for (const ArmFeature& c : kArmFeatures) {
    if (f != c.name) continue;
    return c.word == 0 || (getauxval(c.word == 1 ? AT_HWCAP : AT_HWCAP2) >> c.bit & 1) != 0;
  }
  return false;
}

#else
#error "whet's runtime supports x86_64 and aarch64"
#endif

template <typename Has>
bool AllOf(const std::string& features, const Has& has, std::string* missing) {
  missing->clear();
  for (size_t at = 0; at < features.size();) {
    const size_t end = std::min(features.find(',', at), features.size());
    std::string f = features.substr(at, end - at);
    at = end + 1;
    if (!f.empty() && f[0] == '+') f.erase(0, 1);
    if (!f.empty() && !has(f)) *missing += (missing->empty() ? "" : ",") + f;
  }
  return missing->empty();
}

}  // namespace

bool CpuHasFeatures(const std::string& features, std::string* missing) {
  return AllOf(features, Has, missing);
}

bool FeaturesAmong(const std::string& features, const std::string& have, std::string* missing) {
  const std::string list = "," + have + ",";
  return AllOf(
      features, [&](const std::string& f) { return list.find("," + f + ",") != std::string::npos; },
      missing);
}

std::string CpuFeatures() {
  std::string all;
  for (const std::string& name : KnownCpuFeatures(kArch)) {
    if (Has(name)) all += (all.empty() ? "" : ",") + name;
  }
  return all;
}

std::vector<std::string> KnownCpuFeatures(std::string_view arch) {
  std::vector<std::string> names;
  if (arch == "x86_64") {
    names.assign(std::begin(kX86Base), std::end(kX86Base));
    names.insert(names.end(), std::begin(kX86Features), std::end(kX86Features));
  }
  if (arch == "aarch64") {
    for (const ArmFeature& f : kArmFeatures) names.emplace_back(f.name);
  }
  return names;
}

}  // namespace whet
