#include <map>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

// The expansion has n 2^(n-1) products.
constexpr int64_t kMaxDet = 6;

// Expansion along rows, from the last upwards: the minors of the last rows over each set of columns
// are computed once.
Status ImportDet(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  const Shape x = c.type(0).shape;
  if (x.size() < 2 || x.back() != x[x.size() - 2])
    return InvalidArgument("input {} has no square matrices", ShapeText(x));
  const int64_t n = x.back();
  if (n < 1 || n > kMaxDet)
    return Unimplemented("matrices of {} rows are not supported; 1 to {} are", n, kMaxDet);
  Emitter e(c);
  auto element = [&](int64_t row, int64_t column) {
    Shape starts(x.size(), 0), steps(x.size(), 1), sizes = x;
    starts[x.size() - 2] = row;
    starts[x.size() - 1] = column;
    sizes[x.size() - 2] = sizes[x.size() - 1] = 1;
    return e("Slice", {c.inputs[0]}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}});
  };
  std::map<int, ValueId> minors = {{0, graph::kNoValue}};  // by set of columns
  for (int64_t row = n - 1; row >= 0; --row) {
    std::vector<ValueId> elements;
    for (int64_t column = 0; column < n; ++column) elements.push_back(element(row, column));
    std::map<int, ValueId> larger;
    for (int set = 1; set < 1 << n; ++set) {
      if (__builtin_popcount(static_cast<unsigned>(set)) != n - row) continue;
      ValueId sum = graph::kNoValue;
      bool minus = false;
      for (int64_t column = 0; column < n; ++column) {
        if ((set >> column & 1) == 0) continue;
        const ValueId minor = minors.at(set & ~(1 << column));
        const ValueId product =
            minor == graph::kNoValue ? elements[column] : e("Mul", {elements[column], minor});
        sum = sum == graph::kNoValue ? product : e(minus ? "Sub" : "Add", {sum, product});
        minus = !minus;
      }
      larger[set] = sum;
    }
    minors = std::move(larger);
  }
  return e.Finish({e.Reshape(minors.at((1 << n) - 1), Shape(x.begin(), x.end() - 2))});
}

}  // namespace

const OpRecord& OpDet() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Det";
    r.note = "of up to 6 rows";
    r.import = InF32(ImportDet);
    return r;
  }();
  return op;
}

}  // namespace whet::ops
