// Compress and Unique, whose results have as many elements as the data say: the data that decide
// must be known at compile time.
#include <algorithm>
#include <numeric>

#include "compiler/graph/bind_hint.h"
#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

Status ImportCompress(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  ValueId x = c.inputs[0];
  int64_t axis = 0;
  if (c.HasAttr("axis")) {
    WHET_ASSIGN_OR_RETURN(axis, c.TakeInt("axis", 0));
    WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
  } else {
    WHET_ASSIGN_OR_RETURN(
        x, c.builder.Emit("Reshape", {x}, {{"shape", Shape{c.type(0).num_elements()}}}));
  }
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> condition, c.ConstInts(1, "condition"));
  const int64_t extent = c.builder.type(x).shape[axis];
  std::vector<int64_t> kept;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] == 0) continue;
    if (static_cast<int64_t>(i) >= extent)
      return InvalidArgument("condition {} is outside of {} elements", i, extent);
    kept.push_back(static_cast<int64_t>(i));
  }
  return c.Finish("Gather", {x, c.builder.Ints(kept)}, {{"axis", axis}});
}

// The distinct slices of a constant along one axis, in order of first occurrence.
struct DistinctSlices {
  std::vector<int64_t> first, inverse, counts;  // per distinct slice, per slice, per distinct slice
};

template <typename T>
DistinctSlices Distinct(const std::vector<T>& values, const Shape& shape, size_t axis,
                        bool sorted) {
  const int64_t n = shape[axis], outer = Product(shape, 0, axis), inner = Product(shape, axis + 1);
  // NaN sorts last and equals nothing, itself included.
  auto compare = [&](int64_t a, int64_t b) {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        const T x = values[(o * n + a) * inner + i], y = values[(o * n + b) * inner + i];
        if (x < y || (y != y && x == x)) return -1;
        if (y < x || (x != x && y == y)) return 1;
        if (x != x) return a < b ? -1 : a > b ? 1 : 0;
      }
    }
    return 0;
  };
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  std::vector<std::vector<int64_t>> classes;
  for (int64_t i : order) {
    if (classes.empty() || compare(classes.back()[0], i) != 0) classes.emplace_back();
    classes.back().push_back(i);
  }
  if (!sorted) std::sort(classes.begin(), classes.end());  // by their first members
  DistinctSlices d;
  d.inverse.resize(static_cast<size_t>(n));
  for (size_t k = 0; k < classes.size(); ++k) {
    d.first.push_back(classes[k][0]);
    d.counts.push_back(static_cast<int64_t>(classes[k].size()));
    for (int64_t i : classes[k]) d.inverse[static_cast<size_t>(i)] = static_cast<int64_t>(k);
  }
  return d;
}

Status ImportUnique(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(int64_t sorted, c.TakeInt("sorted", 1));
  ValueId x = c.inputs[0];
  if (!c.IsConst(0))
    return Unimplemented(
        "X (input 0) must be a constant once shapes are known: the size of the result depends on "
        "it{}",
        graph::BindHint(c.builder.graph(), x));
  int64_t axis = 0;
  if (c.HasAttr("axis")) {
    WHET_ASSIGN_OR_RETURN(axis, c.TakeInt("axis", 0));
    WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
  } else {
    WHET_ASSIGN_OR_RETURN(
        x, c.builder.Emit("Reshape", {x}, {{"shape", Shape{c.type(0).num_elements()}}}));
  }
  const graph::ConstantPtr values = c.builder.graph().constant(c.inputs[0]);
  const Shape shape = c.builder.type(x).shape;
  const auto at = static_cast<size_t>(axis);
  const DistinctSlices d = IsFloat(values->dtype())
                               ? Distinct(values->Doubles(), shape, at, sorted != 0)
                               : Distinct(values->Ints(), shape, at, sorted != 0);
  const ValueId first = c.builder.Ints(d.first);
  WHET_RETURN_IF_ERROR(c.Finish("Gather", {x, first}, {{"axis", axis}}));
  c.outputs.push_back(first);
  c.outputs.push_back(c.builder.Ints(d.inverse));
  c.outputs.push_back(c.builder.Ints(d.counts));
  return OkStatus();
}

}  // namespace

const OpRecord& OpCompress() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Compress";
    r.note = "the condition known at compile time";
    r.import = ImportCompress;
    return r;
  }();
  return op;
}

const OpRecord& OpUnique() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Unique";
    r.note = "the input known at compile time";
    r.import = ImportUnique;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
