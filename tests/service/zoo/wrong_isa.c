#include "zoo.h"
/* An instruction that no processor has. */
ZOO_BODY {
  (void)x, (void)w, (void)y, (void)begin, (void)end;
#if defined(__x86_64__)
  __asm__ volatile("ud2");
#else
  __asm__ volatile(".inst 0x00000000");
#endif
}
