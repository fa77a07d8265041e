#include "tests/bench/expected.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/support/rng.h"

namespace whet::bench {
namespace {

// Of the sum of the terms' magnitudes: ten times what f32 sums of these lengths are off by, and
// what Winograd's transforms of the peers take.
constexpr double kAllowed = 1e-5;
constexpr double kTerms = 2e8;

struct Sum {
  double value = 0, magnitude = 0;
  void Add(double x) {
    value += x;
    magnitude += std::abs(x);
  }
};

// A position in [0, n), for a third of the calls its first or last.
int64_t Draw(Rng& rng, int64_t n, bool border) {
  if (border) return rng.Below(2) == 0 ? 0 : n - 1;
  return rng.Below(n);
}

int64_t Samples(double terms) {
  return static_cast<int64_t>(std::clamp(kTerms / std::max(terms, 1.0), 3000.0, 40000.0));
}

Expected OfConv(const ConvCase& c, const Problem& p, Rng& rng) {
  const std::vector<float>&x = p.inputs[0], &w = p.inputs[1], &b = p.inputs[2];
  const int64_t icg = c.ic / c.group, ocg = c.oc / c.group, oh = c.oh(), ow = c.ow();
  Expected e;
  const int64_t samples = Samples(static_cast<double>(icg * c.kh * c.kw));
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t n = rng.Below(c.batch), oc = Draw(rng, c.oc, i % 9 == 0);
    const int64_t y = Draw(rng, oh, i % 6 == 1), z = Draw(rng, ow, i % 6 == 4);
    Sum s;
    s.Add(b[static_cast<size_t>(oc)]);
    for (int64_t ic = 0; ic < icg; ++ic) {
      for (int64_t ky = 0; ky < c.kh; ++ky) {
        for (int64_t kx = 0; kx < c.kw; ++kx) {
          const int64_t iy = y * c.sh() - c.ph + ky * c.dilation;
          const int64_t ix = z * c.s - c.pw + kx * c.dilation;
          if (iy < 0 || ix < 0 || iy >= c.h || ix >= c.w) continue;
          const int64_t from = ((n * c.ic + oc / ocg * icg + ic) * c.h + iy) * c.w + ix;
          s.Add(static_cast<double>(x[static_cast<size_t>(from)]) *
                w[static_cast<size_t>(((oc * icg + ic) * c.kh + ky) * c.kw + kx)]);
        }
      }
    }
    const int64_t at = ((n * c.oc + oc) * oh + y) * ow + z;
    if (c.residual) s.Add(p.inputs[3][static_cast<size_t>(at)]);
    double v = std::max(s.value, 0.0);
    if (c.most > 0) v = std::min(v, c.most);
    e.at.push_back(at);
    e.value.push_back(v);
    e.tolerance.push_back(kAllowed * s.magnitude);
  }
  return e;
}

Expected OfProduct(const Problem& p, Rng& rng) {
  const graph::TensorType &a = p.workload.type(0), &b = p.workload.type(1);
  const int64_t m = a.shape[a.shape.size() - 2], k = a.shape.back(), n = b.shape.back();
  const int64_t batch = a.num_elements() / (m * k);
  const bool bias = p.inputs.size() > 2, relu = p.parsed.kind == "gemm_relu";
  Expected e;
  const int64_t samples = Samples(static_cast<double>(k));
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t g = rng.Below(batch), row = Draw(rng, m, i % 6 == 1),
                  column = Draw(rng, n, i % 6 == 4);
    Sum s;
    if (bias) s.Add(p.inputs[2][static_cast<size_t>(column)]);
    for (int64_t j = 0; j < k; ++j)
      s.Add(static_cast<double>(p.inputs[0][static_cast<size_t>((g * m + row) * k + j)]) *
            p.inputs[1][static_cast<size_t>((g * k + j) * n + column)]);
    e.at.push_back((g * m + row) * n + column);
    e.value.push_back(relu ? std::max(s.value, 0.0) : s.value);
    e.tolerance.push_back(kAllowed * s.magnitude);
  }
  return e;
}

}  // namespace

StatusOr<Problem> MakeProblem(const std::string& text, uint64_t seed) {
  Problem p;
  WHET_ASSIGN_OR_RETURN(p.parsed, ParseCase(text));
  WHET_ASSIGN_OR_RETURN(p.workload, CaseWorkload(text));
  for (size_t i = 0; i < p.workload.inputs.size(); ++i) {
    const std::vector<double> wide = fusion::MakeInput(p.workload, static_cast<int>(i), seed);
    p.inputs.emplace_back(wide.begin(), wide.end());
  }
  return p;
}

StatusOr<Expected> ExpectedOf(const Problem& p, uint64_t seed) {
  Rng rng(seed);
  if (const auto conv = ConvOf(p.parsed)) return OfConv(*conv, p, rng);
  if (p.workload.ops[0].op->name == std::string("MatMul")) return OfProduct(p, rng);
  std::vector<std::vector<double>> inputs;
  for (const auto& i : p.inputs) inputs.emplace_back(i.begin(), i.end());
  WHET_ASSIGN_OR_RETURN(std::vector<fusion::ReferenceOutput> all,
                        fusion::EvaluateReference(p.workload, inputs));
  Expected e;
  for (size_t i = 0; i < all[0].expected.size(); ++i) e.at.push_back(static_cast<int64_t>(i));
  e.value = std::move(all[0].expected);
  e.tolerance = std::move(all[0].tolerance);
  return e;
}

double WorstShare(const Expected& e, int64_t elements, const std::vector<float>& got) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  if (static_cast<int64_t>(got.size()) != elements) return kWrong;
  double worst = 0;
  for (size_t i = 0; i < e.at.size(); ++i) {
    const double off = std::abs(got[static_cast<size_t>(e.at[i])] - e.value[i]);
    if (off == 0 && e.tolerance[i] == 0) continue;
    const double share = off / e.tolerance[i];
    if (!(share <= worst)) worst = std::isnan(share) ? kWrong : share;
  }
  return worst;
}

}  // namespace whet::bench
