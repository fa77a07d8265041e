#include <limits>

#include "compiler/graph/bind_hint.h"
#include "compiler/ops/lists.h"

namespace whet::ops {
namespace {

constexpr ValueId kAlways = graph::kNoValue;

class LoopUnroller {
 public:
  LoopUnroller(ImportContext& c, graph::ImportBody& body)
      : c_(c), body_(body), carried_(c.inputs.begin() + 2, c.inputs.end()) {}

  Status Run() {
    if (body_.num_inputs() != static_cast<int>(carried_.size()) + 2 ||
        body_.num_outputs() < static_cast<int>(carried_.size()) + 1) {
      return InvalidArgument("{} values are carried; the body has {} inputs and {} outputs",
                             carried_.size(), body_.num_inputs(), body_.num_outputs());
    }
    scanned_.resize(static_cast<size_t>(body_.num_outputs()) - carried_.size() - 1);
    WHET_RETURN_IF_ERROR(TripCount());
    const double yes[] = {1};
    ValueId condition =
        c_.Has(1) ? c_.inputs[1]
                  : c_.builder.Constant("", graph::Constant::OfDoubles(DType::kBool, {}, yes));
    int64_t i = 0;
    for (; i < trips_; ++i) {
      WHET_ASSIGN_OR_RETURN(const bool ends, Ends(condition));
      if (ends) break;
      if (i == kMaxIterations)
        return ResourceExhausted("more than {} iterations are not unrolled", kMaxIterations);
      WHET_ASSIGN_OR_RETURN(condition, Iterate(i, condition));
    }
    c_.outputs = carried_;
    return Scans(condition);
  }

 private:
  Status TripCount() {
    trips_ = std::numeric_limits<int64_t>::max();
    if (!c_.Has(0)) return OkStatus();
    WHET_ASSIGN_OR_RETURN(trips_, c_.ConstInt(0, "trip count"));
    return OkStatus();
  }

  // A condition that depends on data does not end the unrolling: from there on an iteration's
  // results are taken only while all conditions so far held.
  StatusOr<bool> Ends(ValueId condition) {
    if (c_.lists->Find(condition) != nullptr || c_.builder.type(condition).dtype != DType::kBool)
      return InvalidArgument("the condition is not a bool");
    WHET_ASSIGN_OR_RETURN(condition, Scalar(c_.builder, condition));
    if (c_.builder.TryFold(condition))
      return c_.builder.graph().constant(condition)->Ints()[0] == 0;
    if (!c_.Has(0) || trips_ > kMaxIterations)
      return Unimplemented(
          "the condition must be a constant, since the number of iterations would depend on data{}",
          graph::BindHint(c_.builder.graph(), condition));
    if (!scanned_.empty())
      return Unimplemented(
          "the condition must be a constant, since the shape of a scan output would depend on "
          "data{}",
          graph::BindHint(c_.builder.graph(), condition));
    if (running_ == kAlways) {
      running_ = condition;
    } else {
      WHET_ASSIGN_OR_RETURN(running_, c_.builder.Emit("And", {running_, condition}));
    }
    return false;
  }

  StatusOr<ValueId> Iterate(int64_t i, ValueId condition) {
    std::vector<ValueId> in = {Number(i), condition};
    in.insert(in.end(), carried_.begin(), carried_.end());
    WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> out, body_.Inline(std::move(in)));
    for (size_t k = 0; k < carried_.size(); ++k) {
      if (running_ == kAlways) {
        carried_[k] = out[k + 1];
      } else {
        WHET_ASSIGN_OR_RETURN(carried_[k], Choose(c_, running_, out[k + 1], carried_[k]));
      }
    }
    for (size_t k = 0; k < scanned_.size(); ++k)
      scanned_[k].push_back(out[k + 1 + carried_.size()]);
    return out[0];
  }

  // One more dimension, before the others, for the iterations.
  Status Scans(ValueId condition) {
    if (scanned_.empty()) return OkStatus();
    const bool none = scanned_[0].empty();
    if (none) {
      // Nothing ran: the body, once, says what type the results would have.
      WHET_RETURN_IF_ERROR(Iterate(0, condition).status());
    }
    for (std::vector<ValueId>& items : scanned_) {
      if (c_.lists->Find(items[0]) != nullptr)
        return InvalidArgument("a scan output is not a tensor");
      if (none) {
        const TensorType& item = c_.builder.type(items[0]);
        Shape shape = item.shape;
        shape.insert(shape.begin(), 0);
        WHET_RETURN_IF_ERROR(graph::CheckShape(item.dtype, shape));
        c_.outputs.push_back(
            c_.builder.Constant("", graph::Constant::OfDoubles(item.dtype, shape, {})));
        continue;
      }
      WHET_ASSIGN_OR_RETURN(ValueId v, Join(c_.builder, items, 0, Joined::kStack));
      c_.outputs.push_back(v);
    }
    return OkStatus();
  }

  ValueId Number(int64_t i) {
    const int64_t n[] = {i};
    return c_.builder.Constant("", graph::Constant::OfInts({}, n));
  }

  ImportContext& c_;
  graph::ImportBody& body_;
  std::vector<ValueId> carried_;
  std::vector<std::vector<ValueId>> scanned_;  // per output, the value of each iteration
  int64_t trips_ = 0;
  ValueId running_ = kAlways;
};

Status ImportLoop(ImportContext& c) {
  WHET_ASSIGN_OR_RETURN(auto body, c.TakeBody("body"));
  if (c.lists == nullptr) return Unimplemented("loops are not supported here");
  if (c.inputs.size() < 2) c.inputs.resize(2, graph::kNoValue);
  for (int i = 0; i < 2; ++i) {
    if (c.List(i) != nullptr) return InvalidArgument("input {} is not a tensor", i);
  }
  for (int i = 2; i < c.num_inputs(); ++i) {
    if (!c.Has(i)) return InvalidArgument("input {} is missing", i);
  }
  return LoopUnroller(c, *body).Run();
}

}  // namespace

const OpRecord& OpLoop() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Loop";
    r.takes_lists = true;
    r.note = "unrolled; the trip count known at compile time";
    r.import = ImportLoop;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
