/* y[i] = x[i] + w[i] with weights that fill more than a huge page; before them in the section lie
 * some that no step reads, as another build's would. */
#include "deploy/runtime/whet_artifact.h"

#define N (3 << 18)
#define UNUSED 4096

static const struct {
  float unused[UNUSED], w[N];
} constants __attribute__((aligned(WHET_ALIGNMENT))) = {{1}, {5, 6, [N - 1] = 7}};

static void Add(void* const* b, void* scratch, const int64_t* dims, int64_t begin, int64_t end) {
  const float *x = b[0], *w = b[1];
  float* y = b[2];
  for (int64_t i = begin * 1024; i < end * 1024; ++i) y[i] = x[i] + w[i];
}

static const int64_t shape[] = {N};
static const whet_tensor tensors[] = {
    {sizeof(whet_tensor), WHET_INPUT, WHET_F32, 1, shape, 0, N * 4, "x"},
    {sizeof(whet_tensor), WHET_OUTPUT, WHET_F32, 1, shape, 0, N * 4, "y"},
    {sizeof(whet_tensor), WHET_CONSTANT, WHET_F32, 1, shape, UNUSED * 4, N * 4, "w"},
};
static const whet_phase phase = {sizeof(whet_phase), 0, Add, N / 1024};
static const whet_kernel kernel = {sizeof(whet_kernel), 1, &phase, 0, 3, 0, ""};
static const uint32_t args[] = {0, 2, 1};
static const whet_step step = {sizeof(whet_step), 0, args, "add"};
static const whet_model model = {.size = sizeof(whet_model),
                                 .abi_version = WHET_ABI_VERSION,
                                 .name = "heavy",
                                 .target = "cpu -arch=test",
                                 .n_tensors = 3,
                                 .n_kernels = 1,
                                 .tensors = tensors,
                                 .kernels = &kernel,
                                 .n_inputs = 1,
                                 .n_outputs = 1,
                                 .n_steps = 1,
                                 .steps = &step,
                                 .constants = &constants,
                                 .constants_bytes = sizeof constants};
const whet_model* whet_model_heavy_v1(void) { return &model; }
