#include "compiler/ops/lists.h"

namespace whet::ops {
namespace {

// Whether input `i` is a constant condition, and which.
Status ConditionOf(ImportContext& c, int i, bool* known, bool* holds) {
  if (c.List(i) != nullptr || c.type(i).dtype != DType::kBool || c.type(i).num_elements() != 1)
    return InvalidArgument("the condition is not a bool of one element");
  *known = c.IsConst(i);
  if (*known) *holds = c.builder.graph().constant(c.inputs[i])->Ints()[0] != 0;
  return OkStatus();
}

Status ImportIf(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  bool known = false, holds = false;
  WHET_RETURN_IF_ERROR(ConditionOf(c, 0, &known, &holds));
  WHET_ASSIGN_OR_RETURN(auto then_branch, c.TakeBody("then_branch"));
  WHET_ASSIGN_OR_RETURN(auto else_branch, c.TakeBody("else_branch"));
  if (known) {
    WHET_ASSIGN_OR_RETURN(c.outputs, (holds ? then_branch : else_branch)->Inline({}));
    return OkStatus();
  }
  // Branches have no side effects: both are computed, and the results chosen from.
  WHET_ASSIGN_OR_RETURN(const ValueId condition, Scalar(c.builder, c.inputs[0]));
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> yes, then_branch->Inline({}));
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> no, else_branch->Inline({}));
  if (yes.size() != no.size())
    return InvalidArgument("the branches have {} and {} outputs", yes.size(), no.size());
  for (size_t i = 0; i < yes.size(); ++i) {
    WHET_ASSIGN_OR_RETURN(ValueId v, Choose(c, condition, yes[i], no[i]));
    c.outputs.push_back(v);
  }
  return OkStatus();
}

}  // namespace

const OpRecord& OpIf() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "If";
    r.note = "by a constant condition, or with results of the same type from both branches";
    r.import = ImportIf;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
