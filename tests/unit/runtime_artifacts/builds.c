/* One model, y = x + number, for three processors: "wide" asks for avx512f and adds 3, "middle"
 * asks for avx2 and adds 2, "least" is what the function returns, asks for sse2 (with EVERYWHERE:
 * for nothing) and adds 1. With BREAK_* one thing is wrong. */
#include "deploy/runtime/whet_artifact.h"

#define KERNEL(name, number)                                                                      \
  static void Run_##name(void* const* b, void* scratch, const int64_t* dims, int64_t begin,       \
                         int64_t end) {                                                           \
    for (int64_t i = begin; i < end; ++i) ((float*)b[1])[i] = ((const float*)b[0])[i] + (number); \
  }                                                                                               \
  static const whet_phase phase_##name = {sizeof(whet_phase), 0, Run_##name, 4};                  \
  static const whet_kernel kernel_##name = {sizeof(whet_kernel), 1, &phase_##name, 0, 2, 0, ""};
KERNEL(wide, 3)
KERNEL(middle, 2)
KERNEL(least, 1)

static const int64_t shape[] = {4};
static const whet_tensor tensors[] = {
    {sizeof(whet_tensor), WHET_INPUT, WHET_F32, 1, shape, 0, 16, "x"},
    {sizeof(whet_tensor), WHET_OUTPUT, WHET_F32, 1, shape, 0, 16, "y"},
};
#ifdef BREAK_SHAPES
static const int64_t two[] = {2};
static const whet_tensor wide_tensors[] = {
    {sizeof(whet_tensor), WHET_INPUT, WHET_F32, 1, two, 0, 8, "x"},
    {sizeof(whet_tensor), WHET_OUTPUT, WHET_F32, 1, two, 0, 8, "y"},
};
#else
#define wide_tensors tensors
#endif
static const uint32_t args[] = {0, 1};
static const whet_step step = {sizeof(whet_step), 0, args, "add"};

#define MODEL(build, features, tensors, kernel, builds, n_builds) \
  {sizeof(whet_model),                                            \
   WHET_ABI_VERSION,                                              \
   "builds",                                                      \
   "cpu -arch=" build,                                            \
   features,                                                      \
   "{}",                                                          \
   2,                                                             \
   1,                                                             \
   tensors,                                                       \
   kernel,                                                        \
   1,                                                             \
   1,                                                             \
   0,                                                             \
   1,                                                             \
   0,                                                             \
   &step,                                                         \
   0,                                                             \
   0,                                                             \
   0,                                                             \
   0,                                                             \
   0,                                                             \
   0,                                                             \
   0,                                                             \
   build,                                                         \
   builds,                                                        \
   n_builds,                                                      \
   0}
#ifdef BREAK_NAMES
#define MIDDLE "wide"
#else
#define MIDDLE "middle+avx2"
#endif
static const whet_model middle = MODEL(MIDDLE, "avx2", tensors, &kernel_middle, 0, 0);
#ifdef BREAK_NESTING
static const whet_model* const nested[] = {&middle};
static const whet_model wide = MODEL("wide", "avx512f", wide_tensors, &kernel_wide, nested, 1);
#else
static const whet_model wide = MODEL("wide", "avx512f", wide_tensors, &kernel_wide, 0, 0);
#endif
static const whet_model* const list[] = {&wide, &middle};
#ifdef EVERYWHERE
#define LEAST ""
#else
#define LEAST "sse2"
#endif
static const whet_model least = MODEL("least", LEAST, tensors, &kernel_least, list, 2);
const whet_model* whet_model_builds_v1(void) { return &least; }
