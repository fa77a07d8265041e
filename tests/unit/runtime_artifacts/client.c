/* An application in C: the header must be C, and the library all that is linked. usage: client
 * prepack.so */
#include <stdio.h>

#include "deploy/runtime/whet_runtime.h"

int main(int argc, char** argv) {
  int32_t x[4] = {1, 10, 100, 1000}, y[3] = {0};
  const void* in[] = {x};
  void* out[] = {y};
  whet_value_info info;
  whet_session* s = argc == 2 ? whet_session_open(argv[1], 2) : NULL;
  if (!s || whet_session_input(s, 0, &info) != 0 || info.bytes != sizeof x ||
      whet_session_run(s, in, out) != 0) {
    fprintf(stderr, "%s\n", whet_last_error());
    return 1;
  }
  whet_session_close(s);
  return y[0] == 4321 && y[1] == 8765 && y[2] == 13209 ? 0 : 1;
}
