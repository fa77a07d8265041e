/* A candidate of the task y[i] = x[i] * w[i], f32[1000], whose kernel is the file's own ZOO_BODY(x,
 * w, y, begin, end). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>

#include "deploy/runtime/whet_artifact.h"

#ifndef ZOO_ABI
#define ZOO_ABI WHET_ABI_VERSION
#endif
#ifndef ZOO_N
#define ZOO_N 1000
#endif
#ifndef ZOO_FEATURES
#define ZOO_FEATURES ""
#endif

static void zoo_body(const float* x, const float* w, float* y, int64_t begin, int64_t end);

static void zoo_phase(void* const* buffers, void* scratch, const int64_t* dims, int64_t begin,
                      int64_t end) {
  (void)scratch;
  (void)dims;
  zoo_body((const float*)buffers[0], (const float*)buffers[1], (float*)buffers[2], begin, end);
}

static const int64_t zoo_shape[] = {ZOO_N};
static const whet_tensor zoo_tensors[] = {
    {sizeof(whet_tensor), WHET_INPUT, WHET_F32, 1, zoo_shape, 0, ZOO_N * 4, "x"},
    {sizeof(whet_tensor), WHET_OUTPUT, WHET_F32, 1, zoo_shape, 0, ZOO_N * 4, "y"},
    {sizeof(whet_tensor), WHET_PARAMETER, WHET_F32, 1, zoo_shape, 0, ZOO_N * 4, "w"},
};
static const whet_phase zoo_phases[] = {{sizeof(whet_phase), 0, zoo_phase, ZOO_N}};
static const whet_kernel zoo_kernels[] = {{sizeof(whet_kernel), 1, zoo_phases, 0, 3, 0, "0"}};
static const uint32_t zoo_uses[] = {0, 2, 1};
static const whet_step zoo_steps[] = {{sizeof(whet_step), 0, zoo_uses, "zoo"}};
static const whet_model zoo_model = {.size = sizeof(whet_model),
                                     .abi_version = ZOO_ABI,
                                     .name = "zoo",
                                     .target = "",
                                     .features = ZOO_FEATURES,
                                     .metadata = "{}",
                                     .n_tensors = 3,
                                     .n_kernels = 1,
                                     .tensors = zoo_tensors,
                                     .kernels = zoo_kernels,
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .n_prepack_steps = 0,
                                     .n_steps = 1,
                                     .prepack_steps = 0,
                                     .steps = zoo_steps,
                                     .arena_bytes = 0,
                                     .packed_bytes = 0,
                                     .constants = 0,
                                     .constants_bytes = 0,
                                     .n_dims = 0};

__attribute__((visibility("default"))) const whet_model* whet_model_zoo_v1(void) {
  return &zoo_model;
}

static inline void zoo_right(const float* x, const float* w, float* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] * w[i];
}
/* Right unless it got what it must not get. */
static inline void zoo_answer(int got, const float* x, const float* w, float* y, int64_t begin,
                              int64_t end) {
  zoo_right(x, w, y, begin, end);
  if (got) y[begin] = -1;
}
#define ZOO_BODY \
  static void zoo_body(const float* x, const float* w, float* y, int64_t begin, int64_t end)
