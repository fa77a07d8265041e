// What operator records are written with: type inference, te stages and f64 references for the
// common shapes of operator (unary, binary with broadcasting, reduction, data movement). Used by
// compiler/ops/op_*.cc only; pure functions.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "compiler/graph/import.h"
#include "compiler/graph/op.h"
#include "compiler/te/te.h"

namespace whet::ops {

using expr::Buffer;
using expr::Expr;
using graph::Attrs;
using graph::AttrType;
using graph::AttrValue;
using graph::FusionKind;
using graph::ImportContext;
using graph::kErrUnit;
using graph::LayoutRole;
using graph::OpRecord;
using graph::OpView;
using graph::RefTensor;
using graph::TensorType;
using graph::ValueId;
using graph::ViewRole;

using Shape = std::vector<int64_t>;
using Inputs = std::span<const RefTensor* const>;
using Outputs = std::span<RefTensor>;

// Elements of what a record fills in at import, where shapes or attributes say how many: far above
// what models need, and little memory.
inline constexpr int64_t kMaxConstant = int64_t{1} << 24;

std::vector<DType> Floats();   // f16, bf16, f32, f64
std::vector<DType> Numbers();  // floats and integers, without bool
std::vector<DType> AllTypes();

// ---- types
// --------------------------------------------------------------------------------------------------------
Status SameTypes(const OpView& v);  // all inputs have the element type of the first
StatusOr<Shape> Broadcast(const Shape& a, const Shape& b);
StatusOr<int64_t> NormalizeAxis(int64_t axis, int64_t rank);
// Sorted, distinct, non-negative.
StatusOr<std::vector<int64_t>> NormalizeAxes(std::vector<int64_t> axes, int64_t rank);
std::vector<int64_t> AxesFrom(int64_t first, int64_t rank);  // first, ..., rank - 1
std::string ShapeText(const Shape& s);
int64_t Product(const Shape& s, size_t begin = 0, size_t end = SIZE_MAX);
Shape Strides(const Shape& s);  // row-major

// `v` with another shape; itself when it has that already.
StatusOr<ValueId> Reshaped(graph::GraphBuilder& b, ValueId v, Shape shape);

// ---- tensor expressions
// ---------------------------------------------------------------------------------------------
// Axes of a stage: n, c, h, w for rank 4, else d0, d1, ...
te::AxisSpec AxesOf(const Shape& shape);
te::AxisSpec ReduceAxes(const Shape& extents);  // r0, r1, ...
// `b` at indices of a result it broadcasts into.
Expr LoadBroadcast(const Buffer& b, const std::vector<Expr>& index);
Expr Const(DType t, double v);
// A "pad" stage (n, c, h, w) that extends the two last axes; `x` itself when nothing is needed. The
// result has extents `h` and `w`; positions outside of x hold `fill`.
Buffer PadSpatial(te::Builder& b, const Buffer& x, int64_t top, int64_t left, int64_t h, int64_t w,
                  double fill);

// ---- references
// -----------------------------------------------------------------------------------------------------
// The unit roundoff of a type in units of 2^-24; 0 for integers.
double Roundoff(DType t);
// What storing `v` as `t` leaves: integers wrap around, floats are kept as they are (f64 is the
// reference's precision).
double Wrap(DType t, double v);
// Elements of an i64 or u64 tensor (its bits), exactly.
inline bool IsWord(DType t) { return t == DType::kI64 || t == DType::kU64; }
int64_t WordAt(const RefTensor& t, int64_t i);
// Fills `ints` from `value` when it is empty, for a result some of whose elements are of 2^53 or
// more.
void EnsureWords(RefTensor& t);
// Sets both forms of an element; the exact one only when it has to be there.
void SetWord(RefTensor& t, int64_t i, int64_t v);
// Calls f(out_linear, source_index) for each element of a result, in order, where source index is
// offset + sum(index[d] * stride[d]).
void ForEachStrided(const Shape& shape, const Shape& strides, int64_t offset,
                    const std::function<void(int64_t, int64_t)>& f);
// Calls f(linear, index) for each position of a shape, in order.
void ForEachIndex(const Shape& shape, const std::function<void(int64_t, const Shape&)>& f);
// Row-major strides of `from` as seen from a result of `to` it broadcasts into: 0 where it repeats.
Shape BroadcastStrides(const Shape& from, const Shape& to);
// out[i] = in[offset + strides . index(i)], values and errors; infallible.
void CopyStrided(const RefTensor& in, const Shape& strides, int64_t offset, RefTensor& out,
                 bool want_err);
// The larger of two numbers, and NaN where one is.
inline double Larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }
// The largest |f(t) - f(x)| for t in [x - e, x + e] of a function that is monotone between `steps`.
// Infinite where it has no value at an end.
template <typename F>
double MovedBetween(const F& f, double x, double e, std::initializer_list<double> steps = {}) {
  const double y = f(x);
  double most = 0;
  auto reaches = [&](double t) {
    const double d = std::fabs(f(t) - y);
    most = std::isnan(d) ? HUGE_VAL : std::max(most, d);
  };
  reaches(x - e);
  reaches(x + e);
  for (double s : steps) {
    if (!(std::fabs(x - s) <= e)) continue;
    for (double t : {s, std::nextafter(s, -HUGE_VAL), std::nextafter(s, HUGE_VAL)}) reaches(t);
  }
  return most;
}
// y[i] = x[from], the value in both forms, and the error where y has errors.
void CopyElement(const RefTensor& x, int64_t from, RefTensor& y, int64_t i);
// y[i], which has errors, may be x[from] as well.
void AdmitElement(const RefTensor& x, int64_t from, RefTensor& y, int64_t i);
// x[a] < x[b], exactly.
bool LessAt(const RefTensor& x, int64_t a, int64_t b);
// Before the first element is copied: makes room for what `x` has besides values.
void PrepareCopy(const RefTensor& x, RefTensor& y, bool want_err);
// c[m, n] += a[m, k] * b[k, n], all row-major; of double and uint64_t.
template <typename T>
void MatMulAdd(int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c);
template <typename T>
using BilinearFn = std::function<void(const T* a, const T* b, T* out)>;
void BilinearSums(const RefTensor& a, const RefTensor& b, double terms, RefTensor& out,
                  bool want_err, const BilinearFn<double>& f);
// Integer results: modulo the size of the type, exactly.
void WrapSums(const RefTensor& a, const RefTensor& b, double terms, RefTensor& out,
              const BilinearFn<uint64_t>& f);
// Runs a bilinear function f(a, b, out += a*b), of double and of uint64_t, for the value and, with
// errors wanted, for the bound terms * sum|a*b| + sum(|a| * err(b) + err(a) * |b| + err(a) *
// err(b)). `terms` is the length of a sum.
template <typename F>
void Bilinear(const RefTensor& a, const RefTensor& b, double terms, RefTensor& out, bool want_err,
              const F& f) {
  BilinearSums(a, b, terms, out, want_err, f);
  if (!IsFloat(out.dtype)) WrapSums(a, b, terms, out, f);
}

// ---- record makers
// --------------------------------------------------------------------------------------------------
struct UnarySpec {
  std::string name;
  int version = 1;
  std::vector<DType> types;
  std::vector<graph::AttrSpec> attrs;
  // Half precisions are computed in f32, and rounded once: `x` is never f16 or bf16.
  std::function<Expr(const OpView&, const Expr& x)> te;
  std::function<double(const OpView&, double x)> value;
  // |derivative| at x with y = f(x); null: 1 (1-Lipschitz and exact, like max).
  std::function<double(const OpView&, double x, double y)> slope;
  // How far y = f(x) may move when x does by at most `e`, for functions whose slope at x does not
  // say it: those with steps, poles and vertical tangents. `e` and the result are numbers, not in
  // units of err. Null: slope * e.
  std::function<double(const OpView&, double x, double y, double e)> moved;
  double ulp = 0;  // own rounding as a multiple of |y|, in units of 2^-24 for f32; 0: exact
  // Own rounding that does not shrink with y (cancellation inside the function), added to that.
  std::function<double(const OpView&, double x)> absolute;
  std::function<Status(const OpView&)> check;  // of attributes; null: nothing to check
  bool idempotent = false;
  std::function<Status(ImportContext&)> import;
  std::function<bool(const OpView&)> is_identity;
  std::function<graph::InputRange(const OpView&, int)> range;
  int64_t flops_per_element = 1;
};
OpRecord Unary(UnarySpec spec);

struct BinarySpec {
  std::string name;
  int version = 1;
  std::vector<DType> types;
  bool commutative = false;
  bool compare = false;  // the result is bool
  std::vector<graph::AttrSpec> attrs;
  std::function<Expr(const OpView&, const Expr& a, const Expr& b)> te;
  std::function<double(const OpView&, double a, double b)> value;
  // The error bound of the result, own rounding excluded; null: max(ea, eb).
  std::function<double(const OpView&, double a, double ea, double b, double eb, double y)> err;
  double ulp = 0;
  bool adds = false;  // a sum may start from the other operand
  std::function<graph::InputRange(const OpView&, int)> range;
  std::function<Status(const OpView&)> check;  // of attributes; null: nothing to check
};
OpRecord Binary(BinarySpec spec);
// Operator sets before 7 align the second operand by attributes `axis` and `broadcast`.
Status ImportBinary(ImportContext& c);
// Any number of inputs (Max, Min, Sum): a chain of `op`.
Status ImportChain(ImportContext& c, const std::string& op);
// Inputs as they are, attributes as they are.
Status ImportPlain(ImportContext& c);

struct ReduceSpec {
  std::string name;
  std::vector<DType> types;
  te::Reducer reducer = te::Reducer::kSum;
  bool mean = false;
  int axes_input_since = 18;  // the opset in which axes became an input
};
OpRecord Reduce(ReduceSpec spec);
// Axes (normalised; none left: nothing is reduced) and keepdims of a node, whose operator set says
// whether axes are an attribute or an input.
struct ReduceAxesOf {
  std::vector<int64_t> axes;
  bool keepdims = true;
};
StatusOr<ReduceAxesOf> TakeReduceAxes(ImportContext& c, int axes_input_since);

}  // namespace whet::ops
