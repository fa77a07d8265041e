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
 * several to run side by side, those of one model with `like`, so that they share its weights.
 *
 * Threads are a session's own, or of a pool that sessions of any models share: then runs that are
 * started at the same time take turns, in the order in which they were started, each on all threads
 * of the pool. A session of one thread runs on its caller's alone, and waits for no one. Once a
 * session has run, further runs on buffers aligned alike allocate nothing and take no lock. Every
 * function that can fail leaves its reason in whet_last_error() of the calling thread. */
#ifndef WHET_RUNTIME_H_
#define WHET_RUNTIME_H_

#include <stdint.h>

#include "deploy/runtime/whet_artifact.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct whet_session whet_session;
typedef struct whet_pool whet_pool;

typedef struct whet_value_info { /* points into the loaded model; valid until the session is closed
                                  */
  const char* name;
  uint32_t dtype; /* whet_dtype */
  uint32_t rank;
  const int64_t* shape;
  uint64_t bytes;
} whet_value_info;

/* Threads of its own. NULL on failure. `threads` from 1 to 1024. */
whet_session* whet_session_open(const char* path, int threads);

typedef struct whet_session_options { /* zero: as whet_session_open(path, 1) does it */
  uint32_t size;                      /* sizeof(whet_session_options) */
  int32_t threads;                    /* from 1; 0: one; not to be given with `pool` */
  whet_pool* pool;                    /* NULL: threads of its own */
  const char* target; /* which code of an artifact for several processors; NULL: the best here */
  const whet_session* like; /* share the loaded model of this session; path and target are NULL */
  int32_t pin;              /* its own threads stay on one processor each */
  int32_t huge_pages; /* weights are copied to huge pages; not with `like`, which shares them */
} whet_session_options;

whet_session* whet_session_open_with(const char* path, const whet_session_options* options);
void whet_session_close(whet_session* session); /* NULL is fine */

/* Threads that sessions share. With `pin` each stays on one processor, the caller included. NULL on
 * failure. Released, it lives until the last session that uses it is closed. */
whet_pool* whet_pool_create(int threads, int pin);
void whet_pool_release(whet_pool* pool); /* NULL is fine */

/* What the code is for that is used, e.g. "x86-64-v3"; of an older artifact, its target text. */
const char* whet_session_target(const whet_session* session);
/* Bytes of memory that the session holds; `shared`, unless NULL: those beside the library's own
 * that all sessions of the loaded model hold together. */
uint64_t whet_session_memory(const whet_session* session, uint64_t* shared);
/* Why weights are not all in huge pages though it was asked for; else "". */
const char* whet_session_huge_pages_note(const whet_session* session);

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
