#include "deploy/runtime/cpu_features.h"

#include <algorithm>
#include <string_view>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace whet {
namespace {

#if defined(__x86_64__)

#define WHET_X86_FEATURES(X)                                                                      \
  X("sse3")                                                                                       \
  X("ssse3") X("sse4.1") X("sse4.2") X("popcnt") X("avx") X("avx2") X("fma") X("f16c") X("bmi")   \
      X("bmi2") X("avx512f") X("avx512cd") X("avx512bw") X("avx512dq") X("avx512vl")              \
          X("avx512vbmi") X("avx512vbmi2") X("avx512bitalg") X("avx512vpopcntdq") X("avx512ifma") \
              X("avx512vnni") X("avx512bf16") X("avx512fp16") X("avxvnni") X("lzcnt") X("movbe")  \
                  X("gfni") X("vaes") X("vpclmulqdq") X("amx-tile") X("amx-int8") X("amx-bf16")

// The kernel hands tile registers out on request, per process.
bool TilesAllowed() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
}

bool Has(std::string_view f) {
  for (std::string_view base : {"x87", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "64bit"}) {
    if (f == base) return true;  // part of every x86-64
  }
  __builtin_cpu_init();
#define X(name)                            \
  if (f == name)                           \
    return __builtin_cpu_supports(name) && \
           (std::string_view(name).substr(0, 3) != "amx" || TilesAllowed());
  WHET_X86_FEATURES(X)
#undef X
  return false;
}

constexpr const char* kKnown[] = {
#define X(name) name,
    WHET_X86_FEATURES(X)
#undef X
};

#elif defined(__aarch64__)

struct Capability {
  const char* name;
  int word;  // 0: always, 1: AT_HWCAP, 2: AT_HWCAP2
  int bit;   // of Linux' <asm/hwcap.h>
};
constexpr Capability kCapabilities[] = {
    {"neon", 0, 0}, {"fp-armv8", 0, 0},  {"aes", 1, 3},  {"sha2", 1, 6},    {"crc", 1, 7},
    {"lse", 1, 8},  {"fullfp16", 1, 10}, {"rdm", 1, 12}, {"jsconv", 1, 13}, {"dotprod", 1, 20},
    {"sve", 1, 22}, {"fp16fml", 1, 23},  {"sve2", 2, 1}, {"i8mm", 2, 13},   {"bf16", 2, 14},
};

bool Has(std::string_view f) {
  for (const Capability& c : kCapabilities) {
    if (f != c.name) continue;
    return c.word == 0 || (getauxval(c.word == 1 ? AT_HWCAP : AT_HWCAP2) >> c.bit & 1) != 0;
  }
  return false;
}

#else
#error "whet's runtime supports x86_64 and aarch64"
#endif

}  // namespace

bool CpuHasFeatures(const std::string& features, std::string* missing) {
  missing->clear();
  for (size_t at = 0; at < features.size();) {
    const size_t end = std::min(features.find(',', at), features.size());
    std::string f = features.substr(at, end - at);
    at = end + 1;
    if (!f.empty() && f[0] == '+') f.erase(0, 1);
    if (!f.empty() && !Has(f)) *missing += (missing->empty() ? "" : ",") + f;
  }
  return missing->empty();
}

std::string CpuFeatures() {
  std::string all;
  auto add = [&](const char* name) {
    if (Has(name)) all += (all.empty() ? "" : ",") + std::string(name);
  };
#if defined(__x86_64__)
  for (const char* name : kKnown) add(name);
#else
  for (const Capability& c : kCapabilities) add(c.name);
#endif
  return all;
}

}  // namespace whet
