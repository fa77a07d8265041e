#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

// -1 is inferred; 0 copies the input's extent unless `allowzero`.
StatusOr<Shape> Resolve(Shape wanted, const Shape& in, bool allow_zero) {
  int64_t known = 1, unknown = -1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == 0 && !allow_zero) {
      if (i >= in.size())
        return InvalidArgument("shape {} copies dimension {} of {}", ShapeText(wanted), i,
                               ShapeText(in));
      wanted[i] = in[i];
    }
    if (wanted[i] == -1 && unknown < 0) {
      unknown = static_cast<int64_t>(i);
    } else if (wanted[i] < 0) {
      return InvalidArgument("shape {} has a negative extent", ShapeText(wanted));
    } else if (__builtin_mul_overflow(known, wanted[i], &known)) {
      return InvalidArgument("shape {} is too large", ShapeText(wanted));
    }
  }
  if (unknown >= 0) {
    if (known == 0 || Product(in) % known != 0)
      return InvalidArgument("shape {} does not fit {}", ShapeText(wanted), ShapeText(in));
    wanted[unknown] = Product(in) / known;
  }
  return wanted;
}

Status ImportReshape(ImportContext& c) {
  c.Ignore("consumed_inputs");
  WHET_RETURN_IF_ERROR(c.NeedInputs(c.opset >= 5 ? 2 : 1, c.opset >= 5 ? 2 : 1));
  WHET_ASSIGN_OR_RETURN(Shape wanted, c.TakeInts("shape", {}));
  if (c.Has(1)) {
    WHET_ASSIGN_OR_RETURN(wanted, c.ConstInts(1, "shape"));
  }
  WHET_ASSIGN_OR_RETURN(int64_t allow_zero, c.TakeInt("allowzero", 0));
  WHET_ASSIGN_OR_RETURN(Shape shape, Resolve(wanted, c.type(0).shape, allow_zero != 0));
  return c.Finish("Reshape", {c.inputs[0]}, {{"shape", shape}});
}

Status InferReshape(const OpView& v, std::vector<TensorType>* out) {
  const Shape& shape = v.attrs->Ints("shape");
  WHET_RETURN_IF_ERROR(graph::CheckShape(v.in[0]->dtype, shape));
  if (Product(shape) != v.in[0]->num_elements()) {
    return InvalidArgument("{} has {} elements, {} has {}", v.in[0]->ToString(),
                           v.in[0]->num_elements(), ShapeText(shape), Product(shape));
  }
  out->push_back(TensorType::Of(v.in[0]->dtype, shape));
  return OkStatus();
}

// Runs of dimensions with equal products on both sides correspond; only within a run indices are
// joined and taken apart.
Expr At(const Buffer& x, const Shape& out, const std::vector<Expr>& index) {
  const Shape& in = x->shape;
  std::vector<Expr> at;
  size_t i = 0, o = 0;
  while (i < in.size()) {
    size_t i_end = i + 1, o_end = o;
    int64_t in_product = in[i], out_product = 1;
    while (in_product != out_product && (o_end < out.size() || i_end < in.size())) {
      if (out_product < in_product && o_end < out.size()) {
        out_product *= out[o_end++];
      } else if (i_end < in.size()) {
        in_product *= in[i_end++];
      } else {
        out_product *= out[o_end++];
      }
    }
    Expr linear = expr::Int(0);
    for (size_t d = o; d < o_end; ++d) linear = linear * out[d] + index[d];
    int64_t inner = in_product;
    for (size_t d = i; d < i_end; ++d) {
      inner /= in[d];
      Expr e = inner == 1 ? linear : expr::FloorDiv(linear, inner);
      if (d > i) e = expr::FloorMod(e, in[d]);
      at.push_back(in[d] == 1 ? expr::Int(0) : e);
    }
    i = i_end;
    o = o_end;
  }
  return expr::Load(x, at);
}

}  // namespace

const OpRecord& OpReshape() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Reshape";
    r.kind = FusionKind::kInjective;
    r.view = ViewRole::kReshape;
    r.input_names = {"x"};
    r.attrs = {{"shape", AttrType::kInts, std::nullopt}};
    r.note = "the shape known at compile time";
    r.import = ImportReshape;
    r.infer = InferReshape;
    r.te = [](const OpView& v, const std::vector<Buffer>& in,
              te::Builder& b) -> StatusOr<std::vector<Buffer>> {
      const Shape& out = v.out[0]->shape;
      if (Product(out) == 0) return InvalidArgument("a tensor without elements needs no kernel");
      return std::vector<Buffer>{
          b.Compute("reshape", v.out[0]->dtype, AxesOf(out),
                    [&](const std::vector<Expr>& i) { return At(in[0], out, i); })};
    };
    r.reference = [](const OpView& v, Inputs in, Outputs out, bool want_err) {
      out[0].value = in[0]->value;
      if (want_err) out[0].err = in[0]->err;
      return OkStatus();
    };
    r.is_identity = [](const OpView& v) { return v.in[0]->shape == v.attrs->Ints("shape"); };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
