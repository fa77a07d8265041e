// Quantized operators of the domain com.microsoft, which quantization tools write in place of a
// dequantization, a float operator and a quantization. Here they become just these, or integer sums
// with a requantization; the graph passes for quantized models do the rest.
#include "compiler/ops/quantized.h"

namespace whet::ops {
namespace {

constexpr int64_t kMaxOpset = 1000;

// Inputs i, i + 1 (scale) and i + 2 (zero point) as a float. The zero point may be left out.
StatusOr<ValueId> DequantizedInput(ImportContext& c, int i) {
  if (!c.Has(i) || !c.Has(i + 1)) return InvalidArgument("input {} or its scale is missing", i);
  WHET_ASSIGN_OR_RETURN(const ValueId scale, AsScalar(c, c.inputs[i + 1], "scale"));
  std::vector<ValueId> in = {c.inputs[i], scale};
  if (c.Has(i + 2)) {
    WHET_ASSIGN_OR_RETURN(const ValueId zero, AsScalar(c, c.inputs[i + 2], "zero point"));
    in.push_back(zero);
  }
  return c.builder.Emit("DequantizeLinear", std::move(in));
}

// Makes the quantization of `y` by inputs i (scale) and i + 1 (zero point) the output. Without a
// zero point it is zero of type `t`.
Status FinishQuantized(ImportContext& c, ValueId y, int i, DType t) {
  if (!c.Has(i)) return InvalidArgument("scale of the output (input {}) is missing", i);
  WHET_ASSIGN_OR_RETURN(const ValueId scale, AsScalar(c, c.inputs[i], "scale of the output"));
  ValueId zero = graph::kNoValue;
  if (c.Has(i + 1)) {
    WHET_ASSIGN_OR_RETURN(zero, AsScalar(c, c.inputs[i + 1], "zero point of the output"));
  } else {
    zero = NoZeroPoint(c, t);
  }
  return c.Finish("QuantizeLinear", {y, scale, zero});
}

// The one result of another operator's import, with this node's attributes.
StatusOr<ValueId> ImportAs(ImportContext& c, const char* op, int opset, std::vector<ValueId> in) {
  const OpRecord* record = c.builder.graph().catalog->Find(op);
  if (record == nullptr) return Unimplemented("{} is not supported", op);
  if (!record->import) return c.builder.Emit(op, std::move(in), c.TakeAll());
  ImportContext inner(c.builder, op, opset, c.TakeAll(), std::move(in), {true});
  WHET_RETURN_IF_ERROR(record->import(inner));
  WHET_RETURN_IF_ERROR(inner.CheckAllTaken());
  return inner.outputs.at(0);
}

// a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero.
Status ImportQuantizedBinary(ImportContext& c, const char* op) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 8));
  WHET_ASSIGN_OR_RETURN(const ValueId a, DequantizedInput(c, 0));
  WHET_ASSIGN_OR_RETURN(const ValueId b, DequantizedInput(c, 3));
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.builder.Emit(op, {a, b}));
  return FinishQuantized(c, y, 6, c.type(0).dtype);
}

// x, x_scale, x_zero, y_scale, y_zero.
Status ImportQuantizedUnary(ImportContext& c, const char* op) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(4, 5));
  WHET_ASSIGN_OR_RETURN(const int64_t channels_last, c.TakeInt("channels_last", 0));
  // Of the float operator it stands for: Softmax over one axis since 13.
  WHET_ASSIGN_OR_RETURN(const int64_t opset, c.TakeInt("opset", c.opset));
  if (opset < 1 || opset > kMaxOpset) return InvalidArgument("opset {}", opset);
  WHET_ASSIGN_OR_RETURN(ValueId x, DequantizedInput(c, 0));
  const auto rank = c.type(0).rank();
  if (channels_last != 0) {
    Shape perm = {0, rank - 1};
    for (int64_t d = 1; d + 1 < rank; ++d) perm.push_back(d);
    if (rank < 3) return InvalidArgument("channels_last for an input of rank {}", rank);
    WHET_ASSIGN_OR_RETURN(x, c.builder.Emit("Transpose", {x}, {{"perm", perm}}));
  }
  WHET_ASSIGN_OR_RETURN(ValueId y, ImportAs(c, op, static_cast<int>(opset), {x}));
  if (channels_last != 0) {
    Shape perm = {0};
    for (int64_t d = 2; d < rank; ++d) perm.push_back(d);
    perm.push_back(1);
    WHET_ASSIGN_OR_RETURN(y, c.builder.Emit("Transpose", {y}, {{"perm", perm}}));
  }
  return FinishQuantized(c, y, 3, c.type(0).dtype);
}

// y_scale, y_zero, then (x, scale, zero) for each operand.
Status ImportQuantizedConcat(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(5));
  if (c.num_inputs() % 3 != 2)
    return InvalidArgument("{} inputs are not a scale, a zero point and triples", c.num_inputs());
  std::vector<ValueId> in;
  for (int i = 2; i < c.num_inputs(); i += 3) {
    WHET_ASSIGN_OR_RETURN(const ValueId x, DequantizedInput(c, i));
    in.push_back(x);
  }
  WHET_ASSIGN_OR_RETURN(const ValueId y, ImportAs(c, "Concat", c.opset, std::move(in)));
  return FinishQuantized(c, y, 0, c.type(2).dtype);
}

ValueId InputOr(const ImportContext& c, int i) { return c.Has(i) ? c.inputs[i] : graph::kNoValue; }

// a, a_scale, a_zero, b, b_scale, b_zero, sum of the bias (i32), y_scale, y_zero. Without a scale
// of the result it is a float.
Status ImportQGemm(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(6, 9));
  graph::GraphBuilder& b = c.builder;
  WHET_ASSIGN_OR_RETURN(const double alpha, c.TakeFloat("alpha", 1));
  WHET_ASSIGN_OR_RETURN(const int64_t trans_a, c.TakeInt("transA", 0));
  WHET_ASSIGN_OR_RETURN(const int64_t trans_b, c.TakeInt("transB", 0));
  if (c.type(0).rank() != 2 || c.type(3).rank() != 2)
    return InvalidArgument("operands of rank {} and {}; both have to have two dimensions",
                           c.type(0).rank(), c.type(3).rank());
  ValueId left = c.inputs[0], right = c.inputs[3];
  const Attrs turn = {{"perm", Shape{1, 0}}};
  if (trans_a != 0) {
    WHET_ASSIGN_OR_RETURN(left, b.Emit("Transpose", {left}, turn));
  }
  if (trans_b != 0) {
    WHET_ASSIGN_OR_RETURN(right, b.Emit("Transpose", {right}, turn));
  }
  WHET_ASSIGN_OR_RETURN(ValueId sum,
                        EmitMatMulInteger(c, left, right, InputOr(c, 2), InputOr(c, 5)));
  if (c.Has(6)) {
    WHET_ASSIGN_OR_RETURN(sum, b.Emit("Add", {sum, c.inputs[6]}));
  }
  WHET_ASSIGN_OR_RETURN(ValueId scale, AsScalar(c, c.inputs[1], "scale of the left operand"));
  if (alpha != 1) {
    const ValueId factor = b.Constant(
        "alpha", graph::Constant::OfDoubles(DType::kF32, {}, std::vector<double>{alpha}));
    WHET_ASSIGN_OR_RETURN(scale, b.Emit("Mul", {scale, factor}));
  }
  if (c.Has(7)) {
    WHET_ASSIGN_OR_RETURN(const ValueId y_scale, AsScalar(c, c.inputs[7], "scale of the output"));
    const ValueId y_zero = c.Has(8) ? c.inputs[8] : NoZeroPoint(c, c.type(0).dtype);
    WHET_ASSIGN_OR_RETURN(const ValueId zero, AsScalar(c, y_zero, "zero point of the output"));
    WHET_ASSIGN_OR_RETURN(const ValueId y,
                          EmitRequantize(c, sum, scale, c.inputs[4], y_scale, zero));
    c.outputs = {y};
    return OkStatus();
  }
  WHET_ASSIGN_OR_RETURN(scale, b.Emit("Mul", {scale, c.inputs[4]}));
  return c.Finish("DequantizeLinear", {sum, scale});
}

// scale(a) * scale(b) * sum + bias, as a float.
Status FinishScaledSum(ImportContext& c, ValueId sum, ValueId a_scale, ValueId b_scale,
                       ValueId bias) {
  WHET_ASSIGN_OR_RETURN(const ValueId scale, c.builder.Emit("Mul", {a_scale, b_scale}));
  WHET_ASSIGN_OR_RETURN(ValueId y, c.builder.Emit("Cast", {sum}, {{"to", std::string("f32")}}));
  WHET_ASSIGN_OR_RETURN(y, c.builder.Emit("Mul", {y, scale}));
  if (bias != graph::kNoValue) {
    WHET_ASSIGN_OR_RETURN(y, c.builder.Emit("Add", {y, bias}));
  }
  c.outputs = {y};
  return OkStatus();
}

OpRecord Contrib(const char* name, std::function<Status(ImportContext&)> import) {
  OpRecord r;
  r.name = std::string("com.microsoft.") + name;
  r.import = std::move(import);
  return r;
}

}  // namespace

const OpRecord& OpContribQLinearAdd() {
  static const OpRecord op =
      Contrib("QLinearAdd", [](ImportContext& c) { return ImportQuantizedBinary(c, "Add"); });
  return op;
}

const OpRecord& OpContribQLinearMul() {
  static const OpRecord op =
      Contrib("QLinearMul", [](ImportContext& c) { return ImportQuantizedBinary(c, "Mul"); });
  return op;
}

const OpRecord& OpContribQLinearSigmoid() {
  static const OpRecord op = Contrib(
      "QLinearSigmoid", [](ImportContext& c) { return ImportQuantizedUnary(c, "Sigmoid"); });
  return op;
}

const OpRecord& OpContribQLinearLeakyRelu() {
  static const OpRecord op = Contrib(
      "QLinearLeakyRelu", [](ImportContext& c) { return ImportQuantizedUnary(c, "LeakyRelu"); });
  return op;
}

const OpRecord& OpContribQLinearSoftmax() {
  static const OpRecord op = Contrib(
      "QLinearSoftmax", [](ImportContext& c) { return ImportQuantizedUnary(c, "Softmax"); });
  return op;
}

const OpRecord& OpContribQLinearAveragePool() {
  static const OpRecord op = Contrib("QLinearAveragePool", [](ImportContext& c) {
    return ImportQuantizedUnary(c, "AveragePool");
  });
  return op;
}

const OpRecord& OpContribQLinearGlobalAveragePool() {
  static const OpRecord op = Contrib("QLinearGlobalAveragePool", [](ImportContext& c) {
    return ImportQuantizedUnary(c, "GlobalAveragePool");
  });
  return op;
}

const OpRecord& OpContribQLinearConcat() {
  static const OpRecord op = Contrib("QLinearConcat", ImportQuantizedConcat);
  return op;
}

const OpRecord& OpContribQGemm() {
  static const OpRecord op = Contrib("QGemm", ImportQGemm);
  return op;
}

// a, b, a_scale, b_scale, a_zero, b_zero, bias.
const OpRecord& OpContribMatMulIntegerToFloat() {
  static const OpRecord op = Contrib("MatMulIntegerToFloat", [](ImportContext& c) -> Status {
    WHET_RETURN_IF_ERROR(c.NeedInputs(4, 7));
    WHET_ASSIGN_OR_RETURN(const ValueId sum, EmitMatMulInteger(c, c.inputs[0], c.inputs[1],
                                                               InputOr(c, 4), InputOr(c, 5)));
    WHET_ASSIGN_OR_RETURN(const ValueId scale, AsScalar(c, c.inputs[2], "scale"));
    return FinishScaledSum(c, sum, scale, c.inputs[3], InputOr(c, 6));
  });
  return op;
}

// a (float), b, b_scale, b_zero, bias.
const OpRecord& OpContribDynamicQuantizeMatMul() {
  static const OpRecord op = Contrib("DynamicQuantizeMatMul", [](ImportContext& c) -> Status {
    WHET_RETURN_IF_ERROR(c.NeedInputs(3, 5));
    const OpRecord& quantize = *c.builder.graph().catalog->Find("DynamicQuantizeLinear");
    ImportContext inner(c.builder, quantize.name, c.opset, {}, {c.inputs[0]}, {true, true, true});
    WHET_RETURN_IF_ERROR(quantize.import(inner));
    WHET_ASSIGN_OR_RETURN(const ValueId sum, EmitMatMulInteger(c, inner.outputs[0], c.inputs[1],
                                                               inner.outputs[2], InputOr(c, 3)));
    return FinishScaledSum(c, sum, inner.outputs[1], c.inputs[2], InputOr(c, 4));
  });
  return op;
}

}  // namespace whet::ops
