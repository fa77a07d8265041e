// Cast(Cast(x)) -> Cast(x) where the type in between holds every value of x's type exactly; the
// outer cast is the identity, and goes, when it leads back.
#include "compiler/graph/passes.h"
#include "compiler/graph/pattern.h"

namespace whet::graph {
namespace {

int MantissaBits(DType t) {
  switch (t) {
    case DType::kF16: return 11;
    case DType::kBF16: return 8;
    case DType::kF32: return 24;
    case DType::kF64: return 53;
    default: return 0;
  }
}
bool IsSigned(DType t) { return ToString(t)[0] == 'i'; }

// Every value of `a` is one of `b`.
bool Holds(DType a, DType b) {
  if (a == b || a == DType::kBool) return true;
  if (b == DType::kBool) return false;
  const int bits = SizeOf(a) * 8;
  if (IsFloat(a)) {
    // bf16 has f32's exponent, f16 a smaller one.
    return IsFloat(b) && MantissaBits(b) > MantissaBits(a) && SizeOf(b) > SizeOf(a);
  }
  const int value_bits = bits - (IsSigned(a) ? 1 : 0);
  if (IsFloat(b)) return value_bits <= MantissaBits(b) && (b != DType::kF16 || value_bits <= 11);
  if (IsSigned(a) && !IsSigned(b)) return false;
  return value_bits <= SizeOf(b) * 8 - (IsSigned(b) ? 1 : 0);
}

bool MergeCast(PatternRewriter& r, Node& n) {
  if (n.op->name != "Cast") return false;
  const Node* inner = r.Producer(n.inputs[0], "Cast");
  if (inner == nullptr) return false;
  const ValueId x = inner->inputs[0];
  const DType from = r.type(x).dtype, between = r.type(n.inputs[0]).dtype,
              to = r.type(n.outputs[0]).dtype;
  if (!Holds(from, between)) return false;
  return from == to ? r.ReplaceBy(n, x) : r.Become(n, "Cast", {x}, n.attrs);
}

}  // namespace

StatusOr<bool> MergeCasts(Graph& g) { return PatternRewriter(g).Run(MergeCast); }

}  // namespace whet::graph
