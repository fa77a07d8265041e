/* A model of three kernels in four phases: t = 2x, y[i] = t[n-1-i] + 1 (which needs a barrier in
 * between), then the sum of y in two serial phases through scratch. With GROWN the structs are
 * larger than this runtime's, as a newer compiler's would be. With BREAK_* one thing is wrong. */
#include "deploy/runtime/whet_artifact.h"

#define N 1000
#define TILES 10

#ifdef GROWN
#define TYPE(T)        \
  struct {             \
    T v;               \
    uint64_t later[3]; \
  }
#else
#define TYPE(T) \
  struct {      \
    T v;        \
  }
#endif
typedef TYPE(whet_tensor) tensor_entry;
typedef TYPE(whet_phase) phase_entry;
typedef TYPE(whet_kernel) kernel_entry;
typedef TYPE(whet_step) step_entry;
typedef TYPE(whet_model) model_entry;

static void Double(void* const* b, void* scratch, const int64_t* dims, int64_t begin, int64_t end) {
  const float* x = b[0];
  float* t = b[1];
  for (int64_t i = begin * (N / TILES); i < end * (N / TILES); ++i) t[i] = 2 * x[i];
}
static void Reverse(void* const* b, void* scratch, const int64_t* dims, int64_t begin,
                    int64_t end) {
  const float* t = b[0];
  float* y = b[1];
  for (int64_t i = begin; i < end; ++i) y[i] = t[N - 1 - i] + 1;
}
static void SumFirst(void* const* b, void* scratch, const int64_t* dims, int64_t begin,
                     int64_t end) {
  double* s = scratch;
  *s = 0;
  for (int64_t i = 0; i < N; ++i) *s += ((const float*)b[0])[i];
}
static void SumSecond(void* const* b, void* scratch, const int64_t* dims, int64_t begin,
                      int64_t end) {
  *(double*)b[1] = *(double*)scratch;
}

static const int64_t vector_shape[] = {N / 10, 10};
static const tensor_entry tensors[] = {
    {{sizeof(tensor_entry), WHET_INPUT, WHET_F32, 2, vector_shape, 0, N * 4, "x"}},
    {{sizeof(tensor_entry), WHET_OUTPUT, WHET_F32, 2, vector_shape, 0, N * 4, "scores/y:0"}},
    {{sizeof(tensor_entry), WHET_OUTPUT, WHET_F64, 0, 0, 0, 8, "sum"}},
#ifdef BREAK_OFFSET
    {{sizeof(tensor_entry), WHET_ARENA, WHET_F32, 1, vector_shape, 128, N * 4, ""}},
#else
    {{sizeof(tensor_entry), WHET_ARENA, WHET_F32, 1, vector_shape, 64, N * 4, ""}},
#endif
};
static const phase_entry double_phases[] = {{{sizeof(phase_entry), 0, Double, TILES}}};
static const phase_entry reverse_phases[] = {{{sizeof(phase_entry), 0, Reverse, N}}};
static const phase_entry sum_phases[] = {{{sizeof(phase_entry), 0, SumFirst, 1}},
                                         {{sizeof(phase_entry), 0, SumSecond, 1}}};
static const kernel_entry kernels[] = {
    {{sizeof(kernel_entry), 1, &double_phases[0].v, 0, 2, 0, "00000000000000000000000000000001"}},
    {{sizeof(kernel_entry), 1, &reverse_phases[0].v, 0, 2, 0, "00000000000000000000000000000002"}},
    {{sizeof(kernel_entry), 2, &sum_phases[0].v, 8, 2, 0, "00000000000000000000000000000003"}},
};
static const uint32_t double_args[] = {0, 3}, reverse_args[] = {3, 1};
#ifdef BREAK_INDEX
static const uint32_t sum_args[] = {1, 9};
#else
static const uint32_t sum_args[] = {1, 2};
#endif
static const step_entry steps[] = {
    {{sizeof(step_entry), 0, double_args, "double"}},
    {{sizeof(step_entry), 1, reverse_args, "reverse+add"}},
    {{sizeof(step_entry), 2, sum_args, "sum"}},
};
#ifdef BREAK_VERSION
#define VERSION 2
#else
#define VERSION WHET_ABI_VERSION
#endif
#ifdef BREAK_SIZE
#define SIZE 64
#else
#define SIZE sizeof(model_entry)
#endif
#ifdef BREAK_FEATURE
#define FEATURES "quantum-tile"
#else
#define FEATURES ""
#endif
static const model_entry model = {{SIZE,
                                   VERSION,
                                   "phases",
                                   "cpu -arch=test",
                                   FEATURES,
                                   "{}",
                                   4,
                                   3,
                                   &tensors[0].v,
                                   &kernels[0].v,
                                   1,
                                   2,
                                   0,
                                   3,
                                   0,
                                   &steps[0].v,
                                   64 + N * 4,
                                   0,
                                   0,
                                   0,
                                   0,
                                   0}};
#ifdef BREAK_SYMBOL
const whet_model* someone_elses_function(void) { return &model.v; }
#else
const whet_model* whet_model_phases_v1(void) { return &model.v; }
#endif
