/* The C interface of the runtime: load a compiled model and run it. Link libwhet_runtime.a (with
 * -lstdc++ -lpthread -ldl) or the C++ interface in model.h.
 *
 *   whet_session* s = whet_session_open("face.so", 2);
 *   if (!s) { fprintf(stderr, "%s\n", whet_last_error()); return 1; }
 *   const void* in[] = {picture};
 *   void* out[] = {scores8, scores16, boxes8, boxes16};
 *   if (whet_session_run(s, in, out) != 0) ...
 *   whet_session_close(s);
 *
 * One session is used by one thread at a time (a second caller is refused, not queued); open
 * several to run side by side. Every function that can fail leaves its reason in whet_last_error()
 * of the calling thread. */
#ifndef WHET_RUNTIME_H_
#define WHET_RUNTIME_H_

#include <stdint.h>

#include "deploy/runtime/whet_artifact.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct whet_session whet_session;

typedef struct whet_value_info { /* points into the loaded model; valid until the session is closed
                                  */
  const char* name;
  uint32_t dtype; /* whet_dtype */
  uint32_t rank;
  const int64_t* shape;
  uint64_t bytes;
} whet_value_info;

/* NULL on failure. `threads` from 1 to 1024. */
whet_session* whet_session_open(const char* path, int threads);
void whet_session_close(whet_session* session); /* NULL is fine */

uint32_t whet_session_input_count(const whet_session* session);
uint32_t whet_session_output_count(const whet_session* session);
/* 0 on success, -1 when there is no such input or output. */
int whet_session_input(const whet_session* session, uint32_t index, whet_value_info* info);
int whet_session_output(const whet_session* session, uint32_t index, whet_value_info* info);

/* A model may be compiled for several sets of input shapes; a session starts with the first.
 * Selects the one whose inputs have these shapes: one pointer per input, to as many numbers as it
 * has dimensions. From then on inputs, outputs and runs are those of that set; going back and forth
 * is cheap. 0 on success, -1 (and the set as before) when the model is not compiled for them. */
int whet_session_select(whet_session* session, const int64_t* const* shapes);

/* One pointer per input and output, in the model's order, each to `bytes` bytes in row-major order.
 * 64-byte aligned buffers are used in place, others are copied. 0 on success, -1 on failure. */
int whet_session_run(whet_session* session, const void* const* inputs, void* const* outputs);

/* Text that names what went wrong in this thread's last failed call; never NULL. */
const char* whet_last_error(void);

#ifdef __cplusplus
}
#endif
#endif /* WHET_RUNTIME_H_ */
