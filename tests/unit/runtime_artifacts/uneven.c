/* Sixteen parts that note which thread ran them and how often; the first takes as many milliseconds
 * as the input says. */
#include <time.h>

#include "deploy/runtime/whet_artifact.h"

#define PARTS 16

static void Note(void* const* b, void* scratch, const int64_t* dims, int64_t begin, int64_t end) {
  static _Thread_local char here;
  const int64_t* milliseconds = b[0];
  int64_t *who = b[1], *runs = b[2];
  for (int64_t i = begin; i < end; ++i) {
    if (i == 0) {
      const struct timespec pause = {0, *milliseconds * 1000000};
      nanosleep(&pause, 0);
    }
    who[i] = (int64_t)(intptr_t)&here;
    ++runs[i];
  }
}

static const int64_t shape[] = {PARTS};
static const whet_tensor tensors[] = {
    {sizeof(whet_tensor), WHET_INPUT, WHET_I64, 0, 0, 0, 8, "milliseconds"},
    {sizeof(whet_tensor), WHET_OUTPUT, WHET_I64, 1, shape, 0, PARTS * 8, "who"},
    {sizeof(whet_tensor), WHET_OUTPUT, WHET_I64, 1, shape, 0, PARTS * 8, "runs"},
};
static const whet_phase phases[] = {{sizeof(whet_phase), 0, Note, PARTS}};
static const whet_kernel kernels[] = {
    {sizeof(whet_kernel), 1, phases, 0, 3, 0, "0123456789abcdef0123456789abcdef"}};
static const uint32_t args[] = {0, 1, 2};
static const whet_step steps[] = {{sizeof(whet_step), 0, args, "note"},
                                  {sizeof(whet_step), 0, args, "note again"}};
static const whet_model model = {.size = sizeof(whet_model),
                                 .abi_version = WHET_ABI_VERSION,
                                 .name = "uneven",
                                 .target = "cpu -arch=test",
                                 .features = "",
                                 .metadata = "{}",
                                 .n_tensors = 3,
                                 .n_kernels = 1,
                                 .tensors = tensors,
                                 .kernels = kernels,
                                 .n_inputs = 1,
                                 .n_outputs = 2,
                                 .n_steps = 2,
                                 .steps = steps};
const whet_model* whet_model_uneven_v1(void) { return &model; }
