/* The binary interface of a compiled model or candidate (one and the same, so that what is measured
 * is what is shipped).
 *
 * A shared library exports exactly one symbol, `whet_model_<name>_v1`, a function without arguments
 * that returns a `const whet_model*`. Everything the library points to is constant, lives as long
 * as the library is loaded, and may be shared between threads. Every struct starts with its own
 * size in bytes: a reader accepts a larger struct (newer, fields appended) and refuses a smaller
 * one.
 *
 * Execution. The model is a list of steps; a step runs a kernel on tensors; a kernel is a list of
 * phases that run one after the other; a phase is a function over a parallel range [0, extent). The
 * caller splits that range over its threads any way it likes: iterations of one phase are
 * independent, phases are separated by a barrier, and the same bits come out for every split.
 * Kernels hold no threads, allocate nothing and take no locks.
 *
 *   fn(buffers, scratch, dims, begin, end)
 *     buffers  one pointer per entry of the step's `tensors`, in that order, each aligned to
 * WHET_ALIGNMENT bytes scratch  `scratch_bytes` of memory private to the calling thread, aligned to
 * WHET_ALIGNMENT; contents undefined dims     values of the model's symbolic dimensions (n_dims of
 * them; a v1 producer may have none)
 *
 * Storage of a tensor: see whet_storage. Constants lie in one section of the library at
 * `constants`. Packed tensors are written once, by the `prepack` steps, before the first run, and
 * only read after that; a model whose weights were packed at compile time has no prepack steps and
 * keeps the results among its constants.
 *
 * Shapes are fixed. A library may hold the same network for several sets of input shapes: the model
 * its function returns is the first, `variants` lists the others. They have inputs and outputs of
 * the same names and types, and share kernels and constants where those are equal.
 *
 * A library may hold the same model compiled for several processors: the model its function returns
 * is the one that asks for the least, `builds` lists the others, the best first, each with variants
 * of its own. A reader takes the first whose `features` this processor has, else the one returned;
 * a reader that knows nothing of builds takes the one returned. All have the same inputs, outputs
 * and sets of shapes, and one section of constants, which holds once what they have in common.
 */
#ifndef WHET_ARTIFACT_H_
#define WHET_ARTIFACT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WHET_ABI_VERSION 1
#define WHET_ALIGNMENT 64
#define WHET_MODEL_SIZE_MIN 136      /* of whet_model, before anything was appended */
#define WHET_MODEL_SIZE_VARIANTS 144 /* with the variants, before builds were appended */
#define WHET_SYMBOL_PREFIX "whet_model_"
#define WHET_SYMBOL_SUFFIX "_v1"

typedef enum whet_dtype { /* the order is part of the interface */
                          WHET_BOOL = 0,
                          WHET_I8 = 1,
                          WHET_U8 = 2,
                          WHET_I32 = 3,
                          WHET_I64 = 4,
                          WHET_F16 = 5,
                          WHET_BF16 = 6,
                          WHET_F32 = 7,
                          WHET_F64 = 8,
                          WHET_I16 = 9,
                          WHET_U16 = 10,
                          WHET_U32 = 11,
                          WHET_U64 = 12
} whet_dtype;

typedef enum whet_storage {
  WHET_INPUT = 0,  /* the caller's, read only, in row-major order of `shape` */
  WHET_OUTPUT = 1, /* the caller's, written, in row-major order of `shape` */
  WHET_ARENA =
      2, /* at `offset` in the instance's arena; contents live only between the steps that use it */
  WHET_CONSTANT = 3,  /* at `offset` in `constants` */
  WHET_PARAMETER = 4, /* candidates only: a weight the caller supplies before the prepack steps, in
                         row-major order */
  WHET_PACKED = 5 /* at `offset` in the instance's packed memory, written by the prepack steps */
} whet_storage;

typedef struct whet_tensor {
  uint32_t size;    /* sizeof(whet_tensor) */
  uint32_t storage; /* whet_storage */
  uint32_t dtype;   /* whet_dtype */
  uint32_t rank;
  const int64_t* shape; /* for inputs, outputs and parameters; for the others the physical shape,
                           for information */
  uint64_t offset;      /* bytes; 0 for inputs, outputs and parameters */
  uint64_t bytes;
  const char* name; /* the model's own name for inputs and outputs; may be "" for the others */
} whet_tensor;

typedef void (*whet_phase_fn)(void* const* buffers, void* scratch, const int64_t* dims,
                              int64_t begin, int64_t end);

typedef struct whet_phase {
  uint32_t size;
  uint32_t reserved;
  whet_phase_fn fn;
  int64_t extent; /* > 0; 1 for a serial phase */
} whet_phase;

typedef struct whet_kernel {
  uint32_t size;
  uint32_t n_phases;
  const whet_phase* phases;
  uint64_t scratch_bytes; /* per thread, the largest of its phases */
  uint32_t n_buffers;
  uint32_t reserved;
  const char* workload; /* fingerprint of the workload, 32 hex digits */
} whet_kernel;

typedef struct whet_step {
  uint32_t size;
  uint32_t kernel;         /* index into kernels */
  const uint32_t* tensors; /* n_buffers indices into tensors */
  const char* label;       /* the model's own node names, separated by '+' */
} whet_step;

typedef struct whet_model {
  uint32_t size;
  uint32_t abi_version; /* WHET_ABI_VERSION */
  const char* name;
  const char* target;   /* canonical target text the code was generated for */
  const char* features; /* CPU features the code needs, comma separated, e.g. "avx2,fma"; checked
                           before any kernel runs */
  const char* metadata; /* JSON: compiler version, tasks and where each schedule came from */
  uint32_t n_tensors;
  uint32_t n_kernels;
  const whet_tensor* tensors; /* inputs and outputs first, in the model's order */
  const whet_kernel* kernels;
  uint32_t n_inputs;
  uint32_t n_outputs;
  uint32_t n_prepack_steps;
  uint32_t n_steps;
  const whet_step* prepack_steps;
  const whet_step* steps;
  uint64_t arena_bytes;
  uint64_t packed_bytes;
  const void* constants;
  uint64_t constants_bytes;
  uint32_t n_dims;
  uint32_t n_variants; /* 0 in libraries whose struct ends here */
  /* Appended; libraries of before have a smaller struct. */
  const struct whet_model* const* variants;
  /* Appended. */
  const char* build; /* short name of what it is compiled for, e.g. "x86-64-v3"; no two alike */
  const struct whet_model* const* builds;
  uint32_t n_builds; /* 0 in builds */
  uint32_t reserved;
} whet_model;

typedef const whet_model* (*whet_model_fn)(void);

#ifdef __cplusplus
}
#endif
#endif /* WHET_ARTIFACT_H_ */
