#include "compiler/ops/util.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace whet::ops {

std::vector<DType> Floats() { return {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}; }

std::vector<DType> Numbers() {
  return {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI8,  DType::kU8,
          DType::kI32, DType::kI64,  DType::kI16, DType::kU16, DType::kU32, DType::kU64};
}

std::vector<DType> AllTypes() { return {}; }

Status SameTypes(const OpView& v) {
  for (const TensorType* t : v.in) {
    if (t != nullptr && t->dtype != v.in[0]->dtype) {
      return InvalidArgument("inputs of {} and {}; they must have one element type",
                             ToString(v.in[0]->dtype), ToString(t->dtype));
    }
  }
  return OkStatus();
}

std::string ShapeText(const Shape& s) { return fmt::format("[{}]", fmt::join(s, ",")); }

StatusOr<Shape> Broadcast(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      return InvalidArgument("shapes {} and {} do not broadcast", ShapeText(a), ShapeText(b));
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

StatusOr<int64_t> NormalizeAxis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    return InvalidArgument("axis {} is outside of rank {}", axis, rank);
  return axis < 0 ? axis + rank : axis;
}

StatusOr<std::vector<int64_t>> NormalizeAxes(std::vector<int64_t> axes, int64_t rank) {
  for (int64_t& a : axes) {
    WHET_ASSIGN_OR_RETURN(a, NormalizeAxis(a, rank));
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end())
    return InvalidArgument("an axis occurs twice");
  return axes;
}

std::vector<int64_t> AxesFrom(int64_t first, int64_t rank) {
  std::vector<int64_t> axes;
  for (int64_t a = first; a < rank; ++a) axes.push_back(a);
  return axes;
}

int64_t Product(const Shape& s, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t i = begin; i < std::min(end, s.size()); ++i) n *= s[i];
  return n;
}

Shape Strides(const Shape& s) {
  Shape strides(s.size(), 1);
  for (size_t i = s.size(); i-- > 1;) strides[i - 1] = strides[i] * s[i];
  return strides;
}

StatusOr<ValueId> Reshaped(graph::GraphBuilder& b, ValueId v, Shape shape) {
  if (b.type(v).shape == shape) return v;
  return b.Emit("Reshape", {v}, {{"shape", std::move(shape)}});
}

te::AxisSpec AxesOf(const Shape& shape) {
  static constexpr const char* kImage[] = {"n", "c", "h", "w"};
  te::AxisSpec axes;
  for (size_t i = 0; i < shape.size(); ++i)
    axes.emplace_back(shape.size() == 4 ? kImage[i] : "d" + std::to_string(i), shape[i]);
  return axes;
}

te::AxisSpec ReduceAxes(const Shape& extents) {
  te::AxisSpec axes;
  for (size_t i = 0; i < extents.size(); ++i)
    axes.emplace_back("r" + std::to_string(i), extents[i]);
  return axes;
}

Expr LoadBroadcast(const Buffer& b, const std::vector<Expr>& index) {
  std::vector<Expr> at;
  const size_t skip = index.size() - b->shape.size();
  for (size_t i = 0; i < b->shape.size(); ++i)
    at.push_back(b->shape[i] == 1 ? expr::Int(0) : index[skip + i]);
  return expr::Load(b, at);
}

Expr Const(DType t, double v) {
  if (t == DType::kBool) return expr::Bool(v != 0);
  return IsFloat(t) ? expr::Float(v, t) : expr::Int(expr::SaturateToInt(v, t), t);
}

Buffer PadSpatial(te::Builder& b, const Buffer& x, int64_t top, int64_t left, int64_t h, int64_t w,
                  double fill) {
  const Shape& s = x->shape;
  if (top == 0 && left == 0 && h <= s[2] && w <= s[3]) return x;
  auto inside = [](const Expr& i, int64_t before, int64_t extent, int64_t total) {
    Expr cond = expr::Bool(true);
    if (before > 0) cond = expr::Le(expr::Int(before), i);
    if (before + extent < total) cond = expr::And(cond, expr::Lt(i, expr::Int(before + extent)));
    return cond;
  };
  return b.Compute("pad", x->dtype, {{"n", s[0]}, {"c", s[1]}, {"h", h}, {"w", w}},
                   [&](const std::vector<Expr>& i) {
                     const Expr cond =
                         expr::And(inside(i[2], top, s[2], h), inside(i[3], left, s[3], w));
                     return expr::Select(cond, expr::Load(x, {i[0], i[1], i[2] - top, i[3] - left}),
                                         Const(x->dtype, fill));
                   });
}

double Roundoff(DType t) {
  switch (t) {
    case DType::kF32: return 1;
    case DType::kF64: return 0x1.0p-29;
    case DType::kF16: return 0x1.0p13;
    case DType::kBF16: return 0x1.0p16;
    case DType::kBool:
    case DType::kI8:
    case DType::kU8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kU32:
    case DType::kI64:
    case DType::kU64: return 0;
  }
  return 0;
}

double Wrap(DType t, double v) {
  auto modulo = [v](double half) {  // into [-half, half)
    const double m = std::fmod(v, 2 * half);
    return m < -half ? m + 2 * half : m >= half ? m - 2 * half : m;
  };
  auto unsigned_modulo = [v](double size) {  // into [0, size)
    const double m = std::fmod(v, size);
    return m < 0 ? m + size : m;
  };
  switch (t) {
    case DType::kBool: return v != 0;
    case DType::kI8: return modulo(0x1.0p7);
    case DType::kI16: return modulo(0x1.0p15);
    case DType::kI32: return modulo(0x1.0p31);
    case DType::kI64: return modulo(0x1.0p63);
    case DType::kU8: return unsigned_modulo(0x1.0p8);
    case DType::kU16: return unsigned_modulo(0x1.0p16);
    case DType::kU32: return unsigned_modulo(0x1.0p32);
    case DType::kU64: return unsigned_modulo(0x1.0p64);
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kF64: return v;
  }
  return v;
}

int64_t WordAt(const RefTensor& t, int64_t i) {
  const auto at = static_cast<size_t>(i);
  return t.ints.empty() ? expr::SaturateToInt(t.value[at], t.dtype) : t.ints[at];
}

void EnsureWords(RefTensor& t) {
  if (!t.ints.empty()) return;
  std::vector<int64_t> words(t.value.size());
  for (size_t i = 0; i < words.size(); ++i) words[i] = WordAt(t, static_cast<int64_t>(i));
  t.ints = std::move(words);
}

void SetWord(RefTensor& t, int64_t i, int64_t v) {
  const double d = t.dtype == DType::kU64 ? static_cast<double>(static_cast<uint64_t>(v))
                                          : static_cast<double>(v);
  if (t.ints.empty() && std::fabs(d) >= 0x1.0p53) EnsureWords(t);
  t.value[static_cast<size_t>(i)] = d;
  if (!t.ints.empty()) t.ints[static_cast<size_t>(i)] = v;
}

void ForEachStrided(const Shape& shape, const Shape& strides, int64_t offset,
                    const std::function<void(int64_t, int64_t)>& f) {
  const int64_t n = Product(shape);
  if (n == 0) return;
  Shape index(shape.size(), 0);
  int64_t source = offset;
  for (int64_t i = 0; i < n; ++i) {
    f(i, source);
    for (size_t d = shape.size(); d-- > 0;) {
      source += strides[d];
      if (++index[d] < shape[d]) break;
      source -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
}

void ForEachIndex(const Shape& shape, const std::function<void(int64_t, const Shape&)>& f) {
  const int64_t n = Product(shape);
  Shape index(shape.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    f(i, index);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

Shape BroadcastStrides(const Shape& from, const Shape& to) {
  Shape result(to.size(), 0);
  const Shape strides = Strides(from);
  const size_t skip = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) result[skip + i] = from[i] == 1 ? 0 : strides[i];
  return result;
}

void CopyStrided(const RefTensor& in, const Shape& strides, int64_t offset, RefTensor& out,
                 bool want_err) {
  PrepareCopy(in, out, want_err);
  ForEachStrided(out.shape, strides, offset,
                 [&](int64_t i, int64_t from) { CopyElement(in, from, out, i); });
}

void PrepareCopy(const RefTensor& x, RefTensor& y, bool want_err) {
  if (want_err && !x.err.empty()) y.err.resize(y.value.size());
  if (!x.ints.empty()) EnsureWords(y);
}

bool LessAt(const RefTensor& x, int64_t a, int64_t b) {
  if (x.ints.empty()) return x.value[a] < x.value[b];
  if (x.dtype == DType::kU64)
    return static_cast<uint64_t>(x.ints[a]) < static_cast<uint64_t>(x.ints[b]);
  return x.ints[a] < x.ints[b];
}

void CopyElement(const RefTensor& x, int64_t from, RefTensor& y, int64_t i) {
  y.value[i] = x.value[from];
  if (!y.ints.empty()) y.ints[i] = WordAt(x, from);
  if (!y.err.empty()) y.err[i] = x.ErrAt(from);
}

void AdmitElement(const RefTensor& x, int64_t from, RefTensor& y, int64_t i) {
  const double a = x.value[from], b = y.value[i];
  if (a == b || (std::isnan(a) && std::isnan(b))) {
    y.err[i] = y.err[i] == graph::kUndecided ? y.err[i] : std::max(y.err[i], x.ErrAt(from));
  } else if (!std::isfinite(a - b)) {
    y.err[i] = graph::kUndecided;
  } else if (y.err[i] != graph::kUndecided) {
    y.err[i] = std::max(y.err[i], std::fabs(a - b) / kErrUnit + x.ErrAt(from));
  }
}

// The innermost loop runs along rows of b and c, which the compiler vectorizes; four rows of b at a
// time keep the traffic of c low.
template <typename T>
void MatMulAdd(int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c) {
  for (int64_t i = 0; i < m; ++i) {
    T* row = c + i * n;
    int64_t p = 0;
    for (; p + 4 <= k; p += 4) {
      const T x0 = a[i * k + p], x1 = a[i * k + p + 1], x2 = a[i * k + p + 2],
              x3 = a[i * k + p + 3];
      const T *b0 = b + p * n, *b1 = b0 + n, *b2 = b1 + n, *b3 = b2 + n;
      for (int64_t j = 0; j < n; ++j)
        row[j] += (x0 * b0[j] + x1 * b1[j]) + (x2 * b2[j] + x3 * b3[j]);
    }
    for (; p < k; ++p) {
      const T x = a[i * k + p];
      const T* br = b + p * n;
      for (int64_t j = 0; j < n; ++j) row[j] += x * br[j];
    }
  }
}
template void MatMulAdd(int64_t, int64_t, int64_t, const double*, const double*, double*);
template void MatMulAdd(int64_t, int64_t, int64_t, const uint64_t*, const uint64_t*, uint64_t*);

void WrapSums(const RefTensor& a, const RefTensor& b, double terms, RefTensor& out,
              const BilinearFn<uint64_t>& f) {
  auto largest = [](const RefTensor& t) {
    double m = 0;
    for (double v : t.value) m = std::max(m, std::fabs(v));
    return m;
  };
  if (largest(a) * largest(b) * terms < 0x1.0p53) {
    for (double& d : out.value) d = Wrap(out.dtype, d);
    return;
  }
  auto words = [](const RefTensor& t) {
    std::vector<uint64_t> w(t.value.size());
    for (size_t i = 0; i < w.size(); ++i)
      w[i] = static_cast<uint64_t>(WordAt(t, static_cast<int64_t>(i)));
    return w;
  };
  const std::vector<uint64_t> p = words(a), q = words(b);
  std::vector<uint64_t> sums(out.value.size());
  f(p.data(), q.data(), sums.data());
  for (size_t i = 0; i < sums.size(); ++i)
    SetWord(out, static_cast<int64_t>(i), expr::WrapInt(static_cast<int64_t>(sums[i]), out.dtype));
}

void BilinearSums(const RefTensor& a, const RefTensor& b, double terms, RefTensor& out,
                  bool want_err, const BilinearFn<double>& f) {
  f(a.value.data(), b.value.data(), out.value.data());
  out.terms = terms;
  const double unit = Roundoff(out.dtype);
  if (!want_err || (unit == 0 && a.err.empty() && b.err.empty())) return;
  auto magnitudes = [](const RefTensor& t) {
    std::vector<double> m(t.value.size());
    for (size_t i = 0; i < m.size(); ++i) m[i] = std::fabs(t.value[i]);
    return m;
  };
  const std::vector<double> abs_a = magnitudes(a);
  std::vector<double> abs_b = magnitudes(b);
  out.err.assign(out.value.size(), 0);
  f(abs_a.data(), abs_b.data(), out.err.data());
  for (double& e : out.err) e *= terms * unit;
  if (!b.err.empty()) f(abs_a.data(), b.err.data(), out.err.data());
  if (a.err.empty()) return;
  for (size_t i = 0; i < b.err.size(); ++i) abs_b[i] += b.err[i] * kErrUnit;
  f(a.err.data(), abs_b.data(), out.err.data());
}

}  // namespace whet::ops
