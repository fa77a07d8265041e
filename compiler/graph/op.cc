#include "compiler/graph/op.h"

#include <fmt/format.h>

#include <algorithm>

namespace whet::graph {
namespace {

std::string Names(const std::vector<DType>& types) {
  std::string s;
  for (DType t : types) s += (s.empty() ? "" : ", ") + std::string(whet::ToString(t));
  return s;
}

std::string CountText(const OpRecord& op) {
  if (op.max_inputs < 0) return fmt::format("at least {}", op.min_inputs);
  if (op.max_inputs == op.min_inputs) return std::to_string(op.min_inputs);
  return fmt::format("{} to {}", op.min_inputs, op.max_inputs);
}

}  // namespace

std::string_view ToString(FusionKind k) {
  switch (k) {
#define X(id, name) \
  case FusionKind::id: return name;
    WHET_FUSION_KINDS(X)
#undef X
  }
  return "?";
}

StatusOr<Attrs> FillAttrs(const OpRecord& op, Attrs attrs) {
  for (const auto& [name, value] : attrs.entries()) {
    auto it = std::find_if(op.attrs.begin(), op.attrs.end(),
                           [&, &n = name](const AttrSpec& s) { return s.name == n; });
    if (it == op.attrs.end()) return InvalidArgument("{} has no attribute '{}'", op.name, name);
    if (it->type != TypeOf(value)) {
      return InvalidArgument("attribute '{}' of {} is a {}, not a {}", name, op.name,
                             ToString(TypeOf(value)), ToString(it->type));
    }
  }
  for (const AttrSpec& spec : op.attrs) {
    if (attrs.Find(spec.name) != nullptr) continue;
    if (!spec.default_value) return InvalidArgument("{} needs attribute '{}'", op.name, spec.name);
    attrs.Set(spec.name, *spec.default_value);
  }
  return attrs;
}

StatusOr<std::vector<TensorType>> InferTypes(const OpRecord& op, const Attrs& attrs,
                                             const std::vector<const TensorType*>& inputs) {
  const int n = static_cast<int>(inputs.size());
  if (!op.infer)
    return InvalidArgument("{} exists only in models; it has no canonical form", op.name);
  if (n < op.min_inputs || (op.max_inputs >= 0 && n > op.max_inputs)) {
    return InvalidArgument("{} takes {} inputs, not {}", op.name, CountText(op), n);
  }
  for (int i = 0; i < op.min_inputs; ++i) {
    if (inputs[i] == nullptr) return InvalidArgument("input {} of {} is missing", i, op.name);
  }
  if (!op.types.empty() && n > 0 &&
      std::find(op.types.begin(), op.types.end(), inputs[0]->dtype) == op.types.end()) {
    return InvalidArgument("{} of {} is not supported; it takes {}", op.name,
                           whet::ToString(inputs[0]->dtype), Names(op.types));
  }
  OpView v{&op, &attrs, inputs, {}};
  std::vector<TensorType> out;
  WHET_RETURN_IF_ERROR(op.infer(v, &out));
  for (const TensorType& t : out) WHET_RETURN_IF_ERROR(CheckShape(t.dtype, t.shape));
  return out;
}

OpView ViewOf(const OpRecord& op, const Attrs& attrs, const std::vector<const TensorType*>& in,
              const std::vector<TensorType>& out) {
  OpView v{&op, &attrs, in, {}};
  for (const TensorType& t : out) v.out.push_back(&t);
  return v;
}

int64_t FlopsProduct(const std::vector<int64_t>& factors) {
  int64_t product = 1;
  for (int64_t f : factors) {
    if (f == 0) return 0;
    if (__builtin_mul_overflow(product, f, &product) || product > kMaxFlops) product = kMaxFlops;
  }
  return product;
}

int64_t FlopsOf(const OpView& v) {
  if (v.op->flops) return std::min(v.op->flops(v), kMaxFlops);
  int64_t n = 0;
  if (v.op->kind == FusionKind::kInjective) return n;
  for (const TensorType* t : v.out) n += t->num_elements();
  return n;
}

int64_t EvaluationCost(const OpView& v) {
  int64_t n = v.op->reference_flops ? v.op->reference_flops(v) : FlopsOf(v);
  for (const TensorType* t : v.in) n += t == nullptr ? 0 : t->num_elements();
  for (const TensorType* t : v.out) n += t->num_elements();
  return std::min(n, kMaxFlops);
}

}  // namespace whet::graph
