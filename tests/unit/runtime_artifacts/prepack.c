/* y = W x with W transposed once by a prepack step. The weights are a constant of the library, or,
 * with CANDIDATE, a parameter that the caller brings. The prepack step counts its runs in the
 * packed memory. */
#include "deploy/runtime/whet_artifact.h"

#define ROWS 3
#define COLS 4

static void Transpose(void* const* b, void* scratch, const int64_t* dims, int64_t begin,
                      int64_t end) {
  const int32_t* w = b[0];
  int32_t* packed = b[1];
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t c = 0; c < COLS; ++c) packed[c * ROWS + r] = w[r * COLS + c];
  }
}
static void MatVec(void* const* b, void* scratch, const int64_t* dims, int64_t begin, int64_t end) {
  const int32_t *x = b[0], *packed = b[1];
  int32_t* y = b[2];
  for (int64_t r = begin; r < end; ++r) {
    y[r] = 0;
    for (int64_t c = 0; c < COLS; ++c) y[r] += packed[c * ROWS + r] * x[c];
  }
}

static const int64_t x_shape[] = {COLS}, y_shape[] = {ROWS}, w_shape[] = {ROWS, COLS};
static const int32_t weights[ROWS * COLS]
    __attribute__((aligned(64))) = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
#ifdef CANDIDATE
#define WEIGHT_STORAGE WHET_PARAMETER
#else
#define WEIGHT_STORAGE WHET_CONSTANT
#endif
static const whet_tensor tensors[] = {
    {sizeof(whet_tensor), WHET_INPUT, WHET_I32, 1, x_shape, 0, COLS * 4, "x"},
    {sizeof(whet_tensor), WHET_OUTPUT, WHET_I32, 1, y_shape, 0, ROWS * 4, "y"},
    {sizeof(whet_tensor), WEIGHT_STORAGE, WHET_I32, 2, w_shape, 0, ROWS* COLS * 4, "w"},
    {sizeof(whet_tensor), WHET_PACKED, WHET_I32, 2, w_shape, 0, ROWS* COLS * 4, ""},
};
static const whet_phase transpose_phase[] = {{sizeof(whet_phase), 0, Transpose, ROWS}};
static const whet_phase matvec_phase[] = {{sizeof(whet_phase), 0, MatVec, ROWS}};
static const whet_kernel kernels[] = {
    {sizeof(whet_kernel), 1, transpose_phase, 0, 2, 0, ""},
    {sizeof(whet_kernel), 1, matvec_phase, 0, 3, 0, "0123456789abcdef0123456789abcdef"},
};
static const uint32_t transpose_args[] = {2, 3}, matvec_args[] = {0, 3, 1};
static const whet_step prepack_steps[] = {{sizeof(whet_step), 0, transpose_args, "pack"}};
static const whet_step steps[] = {{sizeof(whet_step), 1, matvec_args, "matvec"}};
static const whet_model model = {sizeof(whet_model),
                                 WHET_ABI_VERSION,
                                 "prepack",
                                 "cpu -arch=test",
                                 "",
                                 "{}",
                                 4,
                                 2,
                                 tensors,
                                 kernels,
                                 1,
                                 1,
                                 1,
                                 1,
                                 prepack_steps,
                                 steps,
                                 0,
                                 ROWS* COLS * 4,
                                 weights,
                                 sizeof weights,
                                 0,
                                 0};
const whet_model* whet_model_prepack_v1(void) { return &model; }
