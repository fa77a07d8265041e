/* One network, y = 2 x + w, for vectors of 4 and of 8 elements: the first is what the function
 * returns, the second its variant; both read the same constant. With OLD the first model's struct
 * ends before the variants, as an older compiler's does. With BREAK_* one thing is wrong. */
#include "deploy/runtime/whet_artifact.h"

static const float constants[16] __attribute__((aligned(WHET_ALIGNMENT))) = {100};

static void Run(void* const* b, void* scratch, const int64_t* dims, int64_t begin, int64_t end) {
  const float *x = b[0], *w = b[2];
  float* y = b[1];
  for (int64_t i = begin; i < end; ++i) y[i] = 2 * x[i] + w[0];
}

static const int64_t four[] = {4}, eight[] = {8}, one[] = {1};
#ifdef BREAK_NAMES
#define INPUT "z"
#else
#define INPUT "x"
#endif
#define TENSORS(shape, bytes, input)                                          \
  {                                                                           \
      {sizeof(whet_tensor), WHET_INPUT, WHET_F32, 1, shape, 0, bytes, input}, \
      {sizeof(whet_tensor), WHET_OUTPUT, WHET_F32, 1, shape, 0, bytes, "y"},  \
      {sizeof(whet_tensor), WHET_CONSTANT, WHET_F32, 1, one, 0, 4, ""},       \
  }
static const whet_tensor tensors4[] = TENSORS(four, 16, "x");
static const whet_tensor tensors8[] = TENSORS(eight, 32, INPUT);
static const whet_phase phase4 = {sizeof(whet_phase), 0, Run, 4};
static const whet_phase phase8 = {sizeof(whet_phase), 0, Run, 8};
static const whet_kernel kernel4 = {sizeof(whet_kernel), 1, &phase4, 0, 3, 0, ""};
static const whet_kernel kernel8 = {sizeof(whet_kernel), 1, &phase8, 0, 3, 0, ""};
static const uint32_t args[] = {0, 1, 2};
static const whet_step step = {sizeof(whet_step), 0, args, "double"};

#define MODEL(size, tensors, kernel, n_variants, variants) \
  {size,       WHET_ABI_VERSION,                           \
   "variants", "cpu -arch=test",                           \
   "",         "{}",                                       \
   3,          1,                                          \
   tensors,    kernel,                                     \
   1,          1,                                          \
   0,          1,                                          \
   0,          &step,                                      \
   0,          0,                                          \
   constants,  sizeof(constants),                          \
   0,          n_variants,                                 \
   variants}
static const whet_model model;
#ifdef BREAK_NESTING
static const whet_model* const nested[] = {&model};
static const whet_model of_eight = MODEL(sizeof(whet_model), tensors8, &kernel8, 1, nested);
#else
static const whet_model of_eight = MODEL(sizeof(whet_model), tensors8, &kernel8, 0, 0);
#endif
static const whet_model* const list[] = {&of_eight};
#ifdef OLD
#define SIZE WHET_MODEL_SIZE_MIN
#else
#define SIZE sizeof(whet_model)
#endif
static const whet_model model = MODEL(SIZE, tensors4, &kernel4, 1, list);
const whet_model* whet_model_variants_v1(void) { return &model; }
