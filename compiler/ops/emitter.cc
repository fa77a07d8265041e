#include "compiler/ops/emitter.h"

#include <algorithm>

namespace whet::ops {
ValueId Emitter::operator()(std::string_view op, std::vector<ValueId> in, Attrs attrs) {
  if (!status_.ok()) return graph::kNoValue;
  auto v = c_.builder.Emit(op, std::move(in), std::move(attrs));
  if (v.ok()) return *v;
  status_ = v.status();
  return graph::kNoValue;
}

ValueId Emitter::Cast(ValueId v, DType to) {
  if (dtype(v) == to) return v;
  return (*this)("Cast", {v}, {{"to", std::string(ToString(to))}});
}

ValueId Emitter::Reshape(ValueId v, Shape shape) {
  return (*this)("Reshape", {v}, {{"shape", std::move(shape)}});
}

ValueId Emitter::Transpose(ValueId v, std::vector<int64_t> perm) {
  return (*this)("Transpose", {v}, {{"perm", std::move(perm)}});
}

ValueId Emitter::Reduce(std::string_view op, ValueId v, std::vector<int64_t> axes, bool keepdims) {
  return (*this)(op, {v}, {{"axes", std::move(axes)}, {"keepdims", int64_t{keepdims}}});
}

ValueId Emitter::ReduceAll(std::string_view op, ValueId v) {
  const int64_t n = Product(shape(v));
  int64_t rows = 1;
  for (int64_t d = 2; n >= kLongSum && d * d <= n; ++d) {
    if (n % d == 0) rows = d;
  }
  if (rows > 1) v = Reduce(op, Reshape(v, {rows, n / rows}), {0}, false);
  std::vector<int64_t> axes;
  for (size_t d = 0; d < shape(v).size(); ++d) axes.push_back(static_cast<int64_t>(d));
  return axes.empty() ? v : Reduce(op, v, axes, false);
}

ValueId Emitter::Scalar(DType t, double v) { return Tensor(t, {}, {v}); }

ValueId Emitter::Tensor(DType t, Shape shape, const std::vector<double>& values) {
  if (!status_.ok()) return graph::kNoValue;
  status_ = graph::CheckShape(t, shape);
  if (!status_.ok()) return graph::kNoValue;
  return c_.builder.Constant("", graph::Constant::OfDoubles(t, std::move(shape), values));
}

ValueId Emitter::Iota(DType t, int64_t extent, int64_t rank, int64_t axis) {
  if (status_.ok() && extent > kMaxConstant)
    status_ =
        ResourceExhausted("{} positions along axis {} exceed the limit of 2^24", extent, axis);
  if (!status_.ok()) return graph::kNoValue;
  Shape shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(axis)] = extent;
  std::vector<double> values(static_cast<size_t>(extent));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return Tensor(t, std::move(shape), values);
}

const TensorType& Emitter::type(ValueId v) const {
  static const TensorType nothing = TensorType::Of(DType::kF32, {});
  return v == graph::kNoValue ? nothing : c_.builder.type(v);
}

Status Emitter::Finish(std::vector<ValueId> outputs) {
  // Outputs are values of their own, never an input passed on.
  for (ValueId& o : outputs) {
    if (std::find(c_.inputs.begin(), c_.inputs.end(), o) != c_.inputs.end() && status_.ok())
      o = (*this)("Identity", {o});
  }
  if (status_.ok()) c_.outputs = std::move(outputs);
  return status_;
}

std::function<Status(ImportContext&)> InF32(std::function<Status(ImportContext&)> import) {
  return [import = std::move(import)](ImportContext& c) -> Status {
    if (!c.Has(0) || !IsHalf(c.type(0).dtype)) return import(c);
    const DType t = c.type(0).dtype;
    Emitter e(c);
    for (int i = 0; i < c.num_inputs(); ++i) {
      if (!c.Has(i)) continue;
      const DType own = c.type(i).dtype;
      if (IsFloat(own) && own != t)
        return InvalidArgument("input {} is {}, input 0 {}", i, ToString(own), ToString(t));
      if (own != t) continue;
      c.inputs[i] = e.Cast(c.inputs[i], DType::kF32);
      WHET_RETURN_IF_ERROR(e.status());
      c.builder.TryFold(c.inputs[i]);
    }
    WHET_RETURN_IF_ERROR(import(c));
    for (ValueId& o : c.outputs) {
      if (o != graph::kNoValue && e.dtype(o) == DType::kF32) o = e.Cast(o, t);
    }
    return e.status();
  };
}

}  // namespace whet::ops
