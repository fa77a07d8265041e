/* A candidate that is right: y[i] = x[i] * w[i] on f32[4096], with the interface of an artifact.
 * A worker that has seen several candidates fail in a row runs it to see whether it is the
 * candidates. Plain C, without any instruction that a processor may lack. */
#include <stddef.h>
#include <stdint.h>

#include "deploy/runtime/whet_artifact.h"

enum { kElements = 4096 };

static void Multiply(void* const* buffers, void* scratch, const int64_t* dims, int64_t begin,
                     int64_t end) {
  const float* x = (const float*)buffers[0];
  const float* w = (const float*)buffers[1];
  float* y = (float*)buffers[2];
  (void)scratch;
  (void)dims;
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] * w[i];
}

static const int64_t kShape[] = {kElements};
static const whet_tensor kTensors[] = {
    {sizeof(whet_tensor), WHET_INPUT, WHET_F32, 1, kShape, 0, kElements * 4, "x"},
    {sizeof(whet_tensor), WHET_OUTPUT, WHET_F32, 1, kShape, 0, kElements * 4, "y"},
    {sizeof(whet_tensor), WHET_PARAMETER, WHET_F32, 1, kShape, 0, kElements * 4, "w"},
};
static const whet_phase kPhases[] = {{sizeof(whet_phase), 0, Multiply, kElements}};
static const whet_kernel kKernels[] = {{sizeof(whet_kernel), 1, kPhases, 0, 3, 0, "0"}};
static const uint32_t kUses[] = {0, 2, 1};
static const whet_step kSteps[] = {{sizeof(whet_step), 0, kUses, "known good"}};
static const whet_model kModel = {.size = sizeof(whet_model),
                                  .abi_version = WHET_ABI_VERSION,
                                  .name = "known good",
                                  .target = "",
                                  .features = "",
                                  .metadata = "{}",
                                  .n_tensors = 3,
                                  .n_kernels = 1,
                                  .tensors = kTensors,
                                  .kernels = kKernels,
                                  .n_inputs = 1,
                                  .n_outputs = 1,
                                  .n_steps = 1,
                                  .steps = kSteps};

__attribute__((visibility("default"))) const whet_model* whet_model_known_good_v1(void) {
  return &kModel;
}
