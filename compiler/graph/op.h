// Operator records: everything the compiler knows about one operator, as data and functions in a
// record, one file per operator in compiler/ops. The core asks a record for a trait, never for its
// name. A record describes the *canonical* form: what an importer's operator set spreads over
// versions, optional inputs and constant inputs (axes, pads, shapes) is normalised to attributes by
// `import`, so that graph passes, workloads and schedules see one form.
//
// Records are built once and immutable; a catalog owns them for the life of the program.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/graph/attrs.h"
#include "compiler/graph/tensor_type.h"

namespace whet::te {
class Builder;
}

namespace whet::graph {

class ImportContext;

// Ordered: an operator that takes consumers or producers by kind compares with <.
#define WHET_FUSION_KINDS(X)     \
  X(kElementwise, "elementwise") \
  X(kBroadcast, "broadcast")     \
  X(kInjective, "injective")     \
  X(kReduction, "reduction")     \
  X(kOutFusable, "out-fusable")  \
  X(kOpaque, "opaque")
enum class FusionKind : uint8_t {
#define X(id, name) id,
  WHET_FUSION_KINDS(X)
#undef X
};
std::string_view ToString(FusionKind k);

// How an operator takes part in layout assignment.
enum class LayoutRole : uint8_t {
  kRowMajor,  // reads any layout, writes row-major
  kFollows,  // output and input axes correspond: the layout of its input is the best for its output
  kChannelsLast,  // works on (n, c, h, w): input and output best channels-last
};
// Operators whose output can be the same bytes as the input.
enum class ViewRole : uint8_t {
  kNone,
  kReshape,    // row-major order of elements is kept
  kTranspose,  // out dimension i is input dimension perm[i]
};

struct AttrSpec {
  std::string name;
  AttrType type = AttrType::kInt;
  std::optional<AttrValue> default_value;  // none: required
};

struct OpRecord;

// One application of an operator. Pointers are borrowed; an absent optional input is null.
struct OpView {
  const OpRecord* op = nullptr;
  const Attrs* attrs = nullptr;
  std::vector<const TensorType*> in;
  std::vector<const TensorType*> out;  // empty while types are being inferred
  int node = -1;                       // its position, where it is known to be a node of a graph
};

// A tensor of the reference evaluation, in row-major logical order. `err` bounds, per element and
// in units of 2^-24 (the unit roundoff of f32), how far an implementation that computes in the
// element type, in any order, may be from `value`; empty means exact. It is the sum of |a*b| times
// the number of terms for a contraction, is scaled by the derivative through smooth functions, and
// passes through max, min and data movement. It is infinite where rounding decides what the result
// is at all, NaN included. Of infinities and NaN a record's bound counts only where one of its
// inputs has an infinite one, or where it says kUndecided; elsewhere these are exact.
struct RefTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<double> value;
  std::vector<double> err;
  // The exact values (u64: their bits) where some 64-bit integer is of 2^53 or more; else empty,
  // `value` being exact. A reference that does not know this field computes with the nearest
  // doubles.
  std::vector<int64_t> ints = {};
  // Of the sum that made it; 0: it was no sum. A schedule may start that from what is added next,
  // and each of its steps then rounds at the size of the addend.
  double terms = 0;
  int64_t size() const { return static_cast<int64_t>(value.size()); }
  double ErrAt(int64_t i) const { return err.empty() ? 0 : err[static_cast<size_t>(i)]; }
};

// One unit of RefTensor::err.
inline constexpr double kErrUnit = 0x1.0p-24;
// What a record sets as the error of a result that may be a number as well as an infinity or NaN.
inline constexpr double kUndecided = -std::numeric_limits<double>::infinity();

// The values measured inputs are drawn from, uniformly: floats in [lo, hi), integers lo..hi-1.
struct InputRange {
  double lo = -1;
  double hi = 1;
};

struct OpRecord {
  std::string name;  // ONNX operator name where there is one; part of the workload text
  // Of the semantics; a change of meaning changes it, and with it every workload text.
  int version = 1;
  FusionKind kind = FusionKind::kOpaque;
  LayoutRole layout = LayoutRole::kRowMajor;
  ViewRole view = ViewRole::kNone;
  int min_inputs = 1;
  int max_inputs = 1;  // -1: any number
  // Roles, for te buffers: {"x", "w", "b"}; the last one repeats.
  std::vector<std::string> input_names;
  std::vector<AttrSpec> attrs;
  std::vector<DType> types;  // allowed for the first input; empty: all
  bool commutative = false;  // all inputs may be exchanged
  bool idempotent = false;   // f(f(x)) == f(x)
  bool importable = true;    // false: made by passes only, not an operator of a model
  bool takes_lists = false;  // `import` looks at sequences and optionals among its inputs
  std::string note;          // limits worth a line in the operator table

  // Turns a node of a model into canonical nodes (see import.h). Null: the attributes and inputs
  // are canonical already.
  std::function<Status(ImportContext&)> import;
  // Output types from input types and filled-in attributes. Null for records that only `import`.
  std::function<Status(const OpView&, std::vector<TensorType>* out)> infer;
  // Stages for the outputs; `in` are buffers of the inputs' shapes. Null: only ever folded at
  // import.
  std::function<StatusOr<std::vector<expr::Buffer>>(
      const OpView&, const std::vector<expr::Buffer>& in, te::Builder&)>
      te;
  // Evaluates in f64. `out` comes with dtype, shape and `value` sized; with `want_err` fills `err`
  // (or leaves it empty when exact). Null: not evaluable.
  std::function<Status(const OpView&, std::span<const RefTensor* const> in,
                       std::span<RefTensor> out, bool want_err)>
      reference;
  // Floating-point operations, a multiply-add being two. Null: one per output element.
  std::function<int64_t(const OpView&)> flops;
  // The same of `reference`, where that takes a shorter way than kernels can. Null: as `flops`.
  std::function<int64_t(const OpView&)> reference_flops;
  // Output 0 equals input 0, element for element and shape for shape. Null: never.
  std::function<bool(const OpView&)> is_identity;
  // What a measured input of this operator may hold. Null: [-1, 1).
  std::function<InputRange(const OpView&, int input)> range;
};

class OpCatalog {
 public:
  virtual ~OpCatalog() = default;
  virtual const OpRecord* Find(std::string_view name) const = 0;
  virtual std::vector<const OpRecord*> All() const = 0;  // by name
};

// Attributes with defaults filled in; an unknown name, a wrong type or a missing required one is an
// error.
StatusOr<Attrs> FillAttrs(const OpRecord& op, Attrs attrs);
// Checks input count, element types and shapes, and infers output types.
StatusOr<std::vector<TensorType>> InferTypes(const OpRecord& op, const Attrs& attrs,
                                             const std::vector<const TensorType*>& inputs);
OpView ViewOf(const OpRecord& op, const Attrs& attrs, const std::vector<const TensorType*>& in,
              const std::vector<TensorType>& out);
// Counts of operations end here, so that sums of them stay in 64 bits whatever the shapes.
inline constexpr int64_t kMaxFlops = int64_t{1} << 56;
int64_t FlopsProduct(const std::vector<int64_t>& factors);  // none negative
int64_t FlopsOf(const OpView& v);
// What evaluating the reference takes: operations, and elements that are read and written.
int64_t EvaluationCost(const OpView& v);

}  // namespace whet::graph
