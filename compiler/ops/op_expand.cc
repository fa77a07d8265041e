#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

Status ImportExpand(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 2));
  WHET_ASSIGN_OR_RETURN(Shape wanted, c.ConstInts(1, "shape"));
  WHET_RETURN_IF_ERROR(graph::CheckShape(c.type(0).dtype, wanted));
  WHET_ASSIGN_OR_RETURN(Shape shape, Broadcast(c.type(0).shape, wanted));
  return c.Finish("Expand", {c.inputs[0]}, {{"shape", shape}});
}

}  // namespace

const OpRecord& OpExpand() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Expand";
    r.kind = FusionKind::kInjective;
    r.layout = LayoutRole::kFollows;
    r.input_names = {"x"};
    r.attrs = {{"shape", AttrType::kInts, std::nullopt}};
    r.note = "the shape known at compile time";
    r.import = ImportExpand;
    r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
      const Shape& shape = v.attrs->Ints("shape");
      WHET_RETURN_IF_ERROR(graph::CheckShape(v.in[0]->dtype, shape));
      WHET_ASSIGN_OR_RETURN(Shape both, Broadcast(v.in[0]->shape, shape));
      if (both != shape)
        return InvalidArgument("{} does not expand to {}", v.in[0]->ToString(), ShapeText(shape));
      out->push_back(TensorType::Of(v.in[0]->dtype, shape));
      return OkStatus();
    };
    r.te = [](const OpView& v, const std::vector<Buffer>& in,
              te::Builder& b) -> StatusOr<std::vector<Buffer>> {
      return std::vector<Buffer>{
          b.Compute("expand", v.out[0]->dtype, AxesOf(v.out[0]->shape),
                    [&](const std::vector<Expr>& i) { return LoadBroadcast(in[0], i); })};
    };
    r.reference = [](const OpView& v, Inputs in, Outputs out, bool want_err) {
      CopyStrided(*in[0], BroadcastStrides(in[0]->shape, out[0].shape), 0, out[0], want_err);
      return OkStatus();
    };
    r.is_identity = [](const OpView& v) { return v.in[0]->shape == v.attrs->Ints("shape"); };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
