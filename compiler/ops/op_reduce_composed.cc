// Reductions that are a sum with something around it: the importer writes them as such, and fusion
// makes one kernel of the parts.
#include <limits>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

struct Composition {
  Emitter e;
  ReduceAxesOf how;
  ValueId Sum(ValueId v) { return e.Reduce("ReduceSum", v, how.axes, how.keepdims); }
};

using Compose = ValueId (*)(Composition& c, ValueId x);

ValueId Magnitudes(Composition& c, ValueId x) { return c.Sum(c.e("Abs", {x})); }

ValueId Squares(Composition& c, ValueId x) { return c.Sum(c.e("Mul", {x, x})); }

ValueId Euclidean(Composition& c, ValueId x) { return c.e("Sqrt", {Squares(c, x)}); }

ValueId LogOfSum(Composition& c, ValueId x) { return c.e("Log", {c.Sum(x)}); }

// log(sum(exp(x - m))) + m with m the largest element, which keeps exp in range; an infinite one
// becomes the largest finite number, so that the difference is never infinity minus infinity.
ValueId LogOfSumOfExp(Composition& c, ValueId x) {
  Emitter& e = c.e;
  const double limit = e.dtype(x) == DType::kF64 ? std::numeric_limits<double>::max()
                                                 : std::numeric_limits<float>::max();
  const Attrs finite{{"min", -limit}, {"max", limit}};
  const ValueId top = e("Clip", {e.Reduce("ReduceMax", x, c.how.axes, true)}, finite);
  const ValueId sum = c.Sum(e("Exp", {e("Sub", {x, top})}));
  return e("Add", {e("Log", {sum}), e.Reshape(top, e.shape(sum))});
}

// Integers of operators that leave the integers are computed in f64 and truncated.
Status ImportComposed(ImportContext& c, Compose compose, bool integral) {
  WHET_ASSIGN_OR_RETURN(ReduceAxesOf how, TakeReduceAxes(c, 18));
  const DType t = c.type(0).dtype;
  const DType inner = t == DType::kF16 || t == DType::kBF16 ? DType::kF32
                      : !IsFloat(t) && !integral            ? DType::kF64
                                                            : t;
  Composition k{Emitter(c), std::move(how)};
  const ValueId y = compose(k, k.e.Cast(c.inputs[0], inner));
  return k.e.Finish({k.e.Cast(y, t)});
}

OpRecord ComposedReduction(const std::string& name, Compose compose, bool integral) {
  OpRecord r;
  r.name = name;
  r.import = [compose, integral](ImportContext& c) { return ImportComposed(c, compose, integral); };
  return r;
}

}  // namespace

const OpRecord& OpReduceL1() {
  static const OpRecord op = ComposedReduction("ReduceL1", Magnitudes, true);
  return op;
}

const OpRecord& OpReduceL2() {
  static const OpRecord op = ComposedReduction("ReduceL2", Euclidean, false);
  return op;
}

const OpRecord& OpReduceLogSum() {
  static const OpRecord op = ComposedReduction("ReduceLogSum", LogOfSum, false);
  return op;
}

const OpRecord& OpReduceLogSumExp() {
  static const OpRecord op = ComposedReduction("ReduceLogSumExp", LogOfSumOfExp, false);
  return op;
}

const OpRecord& OpReduceSumSquare() {
  static const OpRecord op = ComposedReduction("ReduceSumSquare", Squares, true);
  return op;
}

}  // namespace whet::ops
