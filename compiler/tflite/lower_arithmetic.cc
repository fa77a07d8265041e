// Element-wise operators, reductions, and conversions between real and quantized numbers.
#include <algorithm>

#include "compiler/tflite/context.h"

namespace whet::tflite {
namespace {

fb::Activation ActivationOf(const fb::Operator& op) {
  if (const auto* o = op.options_as_Add()) return o->activation();
  if (const auto* o = op.options_as_Sub()) return o->activation();
  if (const auto* o = op.options_as_Mul()) return o->activation();
  if (const auto* o = op.options_as_Div()) return o->activation();
  return fb::Activation::NONE;
}

// All inputs, in the order they are best computed in.
StatusOr<std::vector<ValueId>> RealInputs(OpContext& c, Order order) {
  std::vector<ValueId> in;
  for (int i = 0; i < c.num_inputs(); ++i) {
    WHET_ASSIGN_OR_RETURN(const ValueId v, c.Real(i, order));
    in.push_back(v);
  }
  return in;
}

template <int kInputs>
Status LowerElementwise(OpContext& c, const char* onnx) {
  WHET_RETURN_IF_ERROR(c.Need(kInputs, kInputs));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> in, RealInputs(c, order));
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Emit(onnx, in));
  return c.Finish(y, order, ActivationOf(c.op));
}

Status LowerAddN(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, -1));
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.Has(i)) return InvalidArgument("input {} is missing", i);
  }
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> in, RealInputs(c, order));
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Emit("Sum", in));
  return c.Finish(y, order);
}

template <fb::Activation kActivation>
Status LowerActivation(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Real(0, order));
  return c.Finish(x, order, kActivation);
}

Status LowerLeakyRelu(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_LeakyRelu()));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Real(0, order));
  WHET_ASSIGN_OR_RETURN(const ValueId y,
                        c.Emit("LeakyRelu", {x}, {{"alpha", static_cast<double>(o->alpha())}}));
  return c.Finish(y, order);
}

// 1/sqrt(x), x*x, (a-b)^2, floor(a/b).
Status LowerRsqrt(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(ValueId x, c.Real(0, order));
  WHET_ASSIGN_OR_RETURN(x, c.Emit("Sqrt", {x}));
  WHET_ASSIGN_OR_RETURN(x, c.Emit("Reciprocal", {x}));
  return c.Finish(x, order);
}

Status LowerSquare(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(ValueId x, c.Real(0, order));
  WHET_ASSIGN_OR_RETURN(x, c.Emit("Mul", {x, x}));
  return c.Finish(x, order);
}

Status LowerSquaredDifference(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> in, RealInputs(c, order));
  WHET_ASSIGN_OR_RETURN(ValueId d, c.Emit("Sub", in));
  WHET_ASSIGN_OR_RETURN(d, c.Emit("Mul", {d, d}));
  return c.Finish(d, order);
}

Status LowerFloorDiv(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> in, RealInputs(c, order));
  if (!IsFloat(c.builder.type(in[0]).dtype))
    return Unimplemented("of {} is not supported; of floats it is", ToString(c.dtype(0)));
  WHET_ASSIGN_OR_RETURN(ValueId y, c.Emit("Div", in));
  WHET_ASSIGN_OR_RETURN(y, c.Emit("Floor", {y}));
  return c.Finish(y, order);
}

Status LowerNotEqual(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> in, RealInputs(c, order));
  WHET_ASSIGN_OR_RETURN(ValueId y, c.Emit("Equal", in));
  WHET_ASSIGN_OR_RETURN(y, c.Emit("Not", {y}));
  return c.SetStored(0, y, order);
}

Status LowerCast(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Stored(0, order));
  WHET_ASSIGN_OR_RETURN(const ValueId y,
                        c.Emit("Cast", {x}, {{"to", std::string(ToString(c.out_dtype(0)))}}));
  return c.SetStored(0, y, order);
}

// Weights stored as f16 become f32 here and now, so that whoever reads them sees a constant.
Status LowerDequantize(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  if (IsFloat(c.dtype(0))) {
    if (auto constant = c.ConstOf(0); constant.ok()) {
      return c.SetStored(0,
                         c.builder.Constant(c.out_name(0), graph::Constant::OfDoubles(
                                                               c.out_dtype(0), (*constant)->shape(),
                                                               (*constant)->Doubles())),
                         Order::kFile);
    }
    return LowerCast(c, "");
  }
  if (c.quantization(0).scale.empty()) return InvalidArgument("its input is not quantized");
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Real(0, order));
  return c.SetReal(0, x, order);
}

// From floats, or from one quantization to another.
Status LowerQuantize(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Real(0, order));
  return c.SetReal(0, x, order);
}

Status LowerSoftmax(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_Softmax()));
  WHET_ASSIGN_OR_RETURN(ValueId x, c.Real(0, Order::kFile));
  if (o->beta() != 1) {
    WHET_ASSIGN_OR_RETURN(x, c.Emit("Mul", {x, c.Scalar(c.builder.type(x).dtype, o->beta())}));
  }
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Emit("Softmax", {x}, {{"axis", int64_t{-1}}}));
  return c.Finish(y, Order::kFile);
}

Status LowerLogSoftmax(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Real(0, Order::kFile));
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Emit("LogSoftmax", {x}, {{"axis", int64_t{-1}}}));
  return c.Finish(y, Order::kFile);
}

// x / max(|x|, 1e-6) along the last axis, |x|^2 being bounded as the format's own kernels do.
Status LowerL2Normalization(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Real(0, Order::kFile));
  const DType t = c.builder.type(x).dtype;
  WHET_ASSIGN_OR_RETURN(ValueId n, c.Emit("Mul", {x, x}));
  WHET_ASSIGN_OR_RETURN(n, c.Emit("ReduceSum", {n, c.Ints({-1})}, {{"keepdims", int64_t{1}}}));
  WHET_ASSIGN_OR_RETURN(n, c.Emit("Max", {n, c.Scalar(t, 1e-12)}));
  WHET_ASSIGN_OR_RETURN(n, c.Emit("Sqrt", {n}));
  WHET_ASSIGN_OR_RETURN(n, c.Emit("Div", {x, n}));
  const auto* o = c.op.options_as_L2Norm();
  return c.Finish(n, Order::kFile, o != nullptr ? o->activation() : fb::Activation::NONE);
}

Status LowerReduce(OpContext& c, const char* onnx) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_Reducer()));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> axes, c.ConstInts(1, "axes"));
  const int64_t rank = c.rank(0);
  Order order = c.PreferredOrder();
  Shape kept = c.shape(0);
  for (int64_t& a : axes) {
    WHET_ASSIGN_OR_RETURN(a, c.Axis(a, rank));
    kept[a] = -1;
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  if (axes.empty()) {  // all the format's kernels take this for "nothing to do"
    WHET_ASSIGN_OR_RETURN(const ValueId x, c.Moved(0, order));
    return c.SetMoved(0, x, order);
  }
  // What a convolution leaves is averaged over its area where it lies.
  const bool area = rank == 4 && axes == std::vector<int64_t>{1, 2};
  if (!area && !o->keep_dims()) order = Order::kFile;
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Real(0, order));
  if (order == Order::kChannelsFirst) {
    for (int64_t& a : axes) a = kChannelsFirstAxis[a];
  }
  ValueId y = kNoValue;
  if (area && order == Order::kChannelsFirst && std::string_view(onnx) == "ReduceMean") {
    WHET_ASSIGN_OR_RETURN(y, c.Emit("GlobalAveragePool", {x}));
  } else {
    const Attrs keep = {{"keepdims", int64_t{area || o->keep_dims()}}};
    if (std::string_view(onnx) == "ReduceSum") {
      WHET_ASSIGN_OR_RETURN(y, c.Emit(onnx, {x, c.Ints(axes)}, keep));
    } else {
      Attrs attrs = keep;
      attrs.Set("axes", axes);
      WHET_ASSIGN_OR_RETURN(y, c.Emit(onnx, {x}, std::move(attrs)));
    }
  }
  if (area && !o->keep_dims()) {
    WHET_ASSIGN_OR_RETURN(y, c.Reshape(y, {c.shape(0)[0], c.shape(0)[3]}));
    order = Order::kFile;
  }
  return c.Finish(y, order);
}

Status LowerArg(OpContext& c, const char* onnx) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> axis, c.ConstInts(1, "axis"));
  if (axis.size() != 1) return InvalidArgument("{} axes, not 1", axis.size());
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Stored(0, Order::kFile));
  WHET_ASSIGN_OR_RETURN(ValueId y,
                        c.Emit(onnx, {x}, {{"axis", axis[0]}, {"keepdims", int64_t{0}}}));
  if (c.out_dtype(0) != DType::kI64) {
    WHET_ASSIGN_OR_RETURN(y, c.Emit("Cast", {y}, {{"to", std::string(ToString(c.out_dtype(0)))}}));
  }
  return c.SetStored(0, y, Order::kFile);
}

// The first form of the operator allows a condition per row, the second one broadcasts.
Status LowerSelect(OpContext& c, const char* form) {
  WHET_RETURN_IF_ERROR(c.Need(3, 3));
  const bool rows = std::string_view(form) == "rows" && c.rank(0) == 1 && c.rank(1) > 1;
  const Order order = rows ? Order::kFile : c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(std::vector<ValueId> in, RealInputs(c, order));
  if (rows) {
    Shape shape(c.shape(1).size(), 1);
    shape[0] = c.shape(0)[0];
    WHET_ASSIGN_OR_RETURN(in[0], c.Reshape(in[0], shape));
  }
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Emit("Where", in));
  return c.Finish(y, order);
}

// Branches have no effects: with a condition that is data both are computed and one is selected.
Status LowerIf(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, -1, -1));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_If()));
  std::vector<ValueId> args;
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!c.Has(i)) return InvalidArgument("input {} is missing", i);
    WHET_ASSIGN_OR_RETURN(const ValueId v, c.Stored(i, Order::kFile));
    args.push_back(v);
  }
  auto constant = c.ConstOf(0);
  if (constant.ok()) {
    if ((*constant)->num_elements() != 1)
      return InvalidArgument("condition of {} elements", (*constant)->num_elements());
    const bool taken = (*constant)->Ints()[0] != 0;
    WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> out,
                          c.call(taken ? o->then_subgraph() : o->else_subgraph(), args));
    if (static_cast<int>(out.size()) < c.num_outputs())
      return InvalidArgument("a branch with {} outputs", out.size());
    for (int i = 0; i < c.num_outputs(); ++i)
      WHET_RETURN_IF_ERROR(c.SetStored(i, out[i], Order::kFile));
    return OkStatus();
  }
  WHET_ASSIGN_OR_RETURN(ValueId condition, c.Stored(0, Order::kFile));
  if (c.builder.type(condition).num_elements() != 1)
    return InvalidArgument("condition of {} elements", c.builder.type(condition).num_elements());
  WHET_ASSIGN_OR_RETURN(condition, c.Reshape(condition, {}));
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> yes, c.call(o->then_subgraph(), args));
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> no, c.call(o->else_subgraph(), args));
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (i >= static_cast<int>(yes.size()) || i >= static_cast<int>(no.size()))
      return InvalidArgument("branches with {} and {} outputs", yes.size(), no.size());
    if (!(c.builder.type(yes[i]) == c.builder.type(no[i])))
      return Unimplemented("branches that give {} and {} are not supported",
                           c.builder.type(yes[i]).ToString(), c.builder.type(no[i]).ToString());
    WHET_ASSIGN_OR_RETURN(const ValueId v, c.Emit("Where", {condition, yes[i], no[i]}));
    WHET_RETURN_IF_ERROR(c.SetStored(i, v, Order::kFile));
  }
  return OkStatus();
}

}  // namespace

std::vector<OpEntry> ArithmeticOperators() {
  using enum fb::BuiltinOperator;
  return {
      {ABS, LowerElementwise<1>, "Abs"},
      {ADD, LowerElementwise<2>, "Add"},
      {ADD_N, LowerAddN},
      {ARG_MAX, LowerArg, "ArgMax"},
      {ARG_MIN, LowerArg, "ArgMin"},
      {CAST, LowerCast},
      {CEIL, LowerElementwise<1>, "Ceil"},
      {COS, LowerElementwise<1>, "Cos"},
      {DEQUANTIZE, LowerDequantize},
      {DIV, LowerElementwise<2>, "Div"},
      {ELU, LowerElementwise<1>, "Elu"},
      {EQUAL, LowerElementwise<2>, "Equal"},
      {EXP, LowerElementwise<1>, "Exp"},
      {FLOOR, LowerElementwise<1>, "Floor"},
      {FLOOR_DIV, LowerFloorDiv},
      {GREATER, LowerElementwise<2>, "Greater"},
      {GREATER_EQUAL, LowerElementwise<2>, "GreaterOrEqual"},
      {HARD_SWISH, LowerElementwise<1>, "HardSwish"},
      {IF, LowerIf},
      {L2_NORMALIZATION, LowerL2Normalization},
      {LEAKY_RELU, LowerLeakyRelu},
      {LESS, LowerElementwise<2>, "Less"},
      {LESS_EQUAL, LowerElementwise<2>, "LessOrEqual"},
      {LOG, LowerElementwise<1>, "Log"},
      {LOGICAL_AND, LowerElementwise<2>, "And"},
      {LOGICAL_NOT, LowerElementwise<1>, "Not"},
      {LOGICAL_OR, LowerElementwise<2>, "Or"},
      {LOGISTIC, LowerElementwise<1>, "Sigmoid"},
      {LOG_SOFTMAX, LowerLogSoftmax},
      {MAXIMUM, LowerElementwise<2>, "Max"},
      {MEAN, LowerReduce, "ReduceMean"},
      {MINIMUM, LowerElementwise<2>, "Min"},
      {MUL, LowerElementwise<2>, "Mul"},
      {NEG, LowerElementwise<1>, "Neg"},
      {NOT_EQUAL, LowerNotEqual},
      {POW, LowerElementwise<2>, "Pow"},
      {PRELU, LowerElementwise<2>, "PRelu"},
      {QUANTIZE, LowerQuantize},
      {REDUCE_MAX, LowerReduce, "ReduceMax"},
      {REDUCE_MIN, LowerReduce, "ReduceMin"},
      {REDUCE_PROD, LowerReduce, "ReduceProd"},
      {RELU, LowerActivation<fb::Activation::RELU>},
      {RELU6, LowerActivation<fb::Activation::RELU6>},
      {RELU_N1_TO_1, LowerActivation<fb::Activation::RELU_N1_TO_1>},
      {ROUND, LowerElementwise<1>, "Round"},
      {RSQRT, LowerRsqrt},
      {SELECT, LowerSelect, "rows"},
      {SELECT_V2, LowerSelect},
      {SIN, LowerElementwise<1>, "Sin"},
      {SOFTMAX, LowerSoftmax},
      {SQRT, LowerElementwise<1>, "Sqrt"},
      {SQUARE, LowerSquare},
      {SQUARED_DIFFERENCE, LowerSquaredDifference},
      {SUB, LowerElementwise<2>, "Sub"},
      {SUM, LowerReduce, "ReduceSum"},
      {TANH, LowerElementwise<1>, "Tanh"},
  };
}

}  // namespace whet::tflite
