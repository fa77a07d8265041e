// OpenBLAS: cblas_sgemm, which packs its operands inside, and cblas_sgemv for one row. It knows
// processors by their model numbers, and takes one that is newer than itself for one of 2004.
#include "tests/bench/contender.h"

#ifdef WHET_HAVE_OPENBLAS
#include <cblas.h>

namespace whet::bench {
namespace {

std::shared_ptr<float[]> Copy(const std::vector<float>& values) {
  auto p = Allocate(values.size() * sizeof(float));
  std::copy(values.begin(), values.end(), p.get());
  return p;
}

std::vector<Contender> Open(const Problem& p) {
  const std::string& kind = p.parsed.kind;
  if (kind != "gemm" && kind != "bmm") return {};
  const std::vector<int64_t>& n = p.parsed.n;
  const size_t at = kind == "bmm" ? 1 : 0;
  const int64_t batch = kind == "bmm" ? n[0] : 1;
  const auto rows = static_cast<blasint>(n[at]), columns = static_cast<blasint>(n[at + 1]),
             inner = static_cast<blasint>(n[at + 2]);
  auto x = Copy(p.inputs[0]), w = Copy(p.inputs[1]);
  const int64_t elements = batch * rows * columns;
  auto y = Allocate(static_cast<size_t>(elements) * sizeof(float));
  auto add = [&](const char* name, const std::function<void()>& run) {
    return Contender{std::string("openblas ") + name, openblas_get_config(), run,
                     [y, run, elements] {
                       run();
                       return std::vector<float>(y.get(), y.get() + elements);
                     }};
  };
  std::vector<Contender> all = {add("sgemm", [=] {
    for (int64_t b = 0; b < batch; ++b)
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, inner, 1.F,
                  x.get() + b * rows * inner, inner, w.get() + b * inner * columns, columns, 0.F,
                  y.get() + b * rows * columns, columns);
  })};
  if (rows == 1 && batch == 1) {
    all.push_back(add("sgemv", [=] {
      cblas_sgemv(CblasRowMajor, CblasTrans, inner, columns, 1.F, w.get(), columns, x.get(), 1, 0.F,
                  y.get(), 1);
    }));
  }
  return all;
}

}  // namespace

Peer OpenBlas() {
  return {"openblas",
          fmt::format("{}, for {}", openblas_get_config(), openblas_get_corename()),
          "",
          Open,
          {}};
}

std::string OpenBlasCore() {
  if (openblas_get_corename() != std::string("Prescott")) return "";
  if (__builtin_cpu_supports("avx512f")) return "SkylakeX";
  return __builtin_cpu_supports("avx2") ? "Haswell" : "";
}

}  // namespace whet::bench
#else
namespace whet::bench {
Peer OpenBlas() {
  return {"openblas",
          "",
          "whet-bench was built without it: apt-get install libopenblas-dev, then configure again",
          {},
          {}};
}
std::string OpenBlasCore() { return ""; }
}  // namespace whet::bench
#endif
