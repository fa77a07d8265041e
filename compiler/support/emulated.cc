#include "compiler/support/emulated.h"

#include <cstdlib>
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace whet {

bool Emulated() {
  if (const char* told = std::getenv("WHET_EMULATED"); told && told[0] == '1') return true;
#if defined(__x86_64__)
  unsigned int eax = 0, name[3] = {};
  __cpuid(0x40000000, eax, name[0], name[1], name[2]);
  return std::memcmp(name, "TCGTCGTCGTCG", 12) == 0;
#else
  return false;
#endif
}

}  // namespace whet
