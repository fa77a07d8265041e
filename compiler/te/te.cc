#include "compiler/te/te.h"

#include <fmt/format.h>

#include <limits>

namespace whet::te {

std::string_view ToString(Reducer r) {
  switch (r) {
    case Reducer::kNone: return "none";
    case Reducer::kSum: return "sum";
    case Reducer::kProd: return "prod";
    case Reducer::kMax: return "max";
    case Reducer::kMin: return "min";
  }
  return "?";
}

double Identity(Reducer r) {
  switch (r) {
    case Reducer::kNone:
    case Reducer::kSum: return 0;
    case Reducer::kProd: return 1;
    case Reducer::kMax: return -std::numeric_limits<double>::infinity();
    case Reducer::kMin: return std::numeric_limits<double>::infinity();
  }
  return 0;
}

Expr Combine(Reducer r, Expr acc, Expr value) {
  switch (r) {
    case Reducer::kNone: return value;
    case Reducer::kSum: return acc + value;
    case Reducer::kProd: return acc * value;
    case Reducer::kMax: return expr::Max(acc, value);
    case Reducer::kMin: return expr::Min(acc, value);
  }
  return value;
}

bool Builder::Taken(const std::string& name) const {
  for (const Buffer& b : func_.inputs) {
    if (b->name == name) return true;
  }
  for (const Stage& s : func_.stages) {
    if (s.name == name) return true;
  }
  return false;
}

std::string Builder::Unique(const std::string& base) const {
  std::string name = base;
  for (int i = 1; Taken(name); ++i) name = base + std::to_string(i);
  return name;
}

Buffer Builder::Input(std::string name, DType dtype, std::vector<int64_t> shape, bool constant) {
  Buffer b =
      expr::MakeBuffer(Unique(name), dtype, std::move(shape), expr::Scope::kGlobal, constant);
  func_.inputs.push_back(b);
  return b;
}

Buffer Builder::Compute(std::string name, DType dtype, const AxisSpec& axes,
                        const std::function<Expr(const std::vector<Expr>&)>& value) {
  return Reduce(std::move(name), dtype, axes, {}, Reducer::kNone,
                [&](const std::vector<Expr>& i, const std::vector<Expr>&) { return value(i); });
}

Buffer Builder::Reduce(
    std::string name, DType dtype, const AxisSpec& axes, const AxisSpec& reduce, Reducer reducer,
    const std::function<Expr(const std::vector<Expr>&, const std::vector<Expr>&)>& value) {
  if (IsHalf(dtype) && (reducer == Reducer::kSum || reducer == Reducer::kProd)) {
    const Buffer wide = Reduce(name, DType::kF32, axes, reduce, reducer,
                               [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
                                 return expr::Cast(DType::kF32, value(i, r));
                               });
    return Compute(name + "_round", dtype, axes, [&](const std::vector<Expr>& i) {
      return expr::Cast(dtype, expr::Load(wide, i));
    });
  }
  Stage s;
  s.name = Unique(name);
  std::vector<int64_t> shape;
  std::vector<Expr> idx, ridx;
  for (const auto& [axis, extent] : axes) {
    s.axes.push_back({axis, extent, expr::MakeVar("v_" + axis)});
    idx.push_back(s.axes.back().var);
    shape.push_back(extent);
  }
  for (const auto& [axis, extent] : reduce) {
    s.reduce.push_back({axis, extent, expr::MakeVar("v_" + axis)});
    ridx.push_back(s.reduce.back().var);
  }
  s.reducer = reducer;
  s.value = value(idx, ridx);
  WHET_CHECK(s.value->dtype == dtype, "stage {} has type {}", s.name,
             ::whet::ToString(s.value->dtype));
  s.out = expr::MakeBuffer(s.name, dtype, std::move(shape));
  func_.stages.push_back(s);
  return s.out;
}

Func Builder::Finish(std::vector<Buffer> outputs) {
  func_.outputs = std::move(outputs);
  return std::move(func_);
}

std::string ToString(const Func& f) {
  std::string text;
  for (const Buffer& b : f.inputs) {
    text += fmt::format("input {}: {}{}[{}]\n", b->name, b->constant ? "const " : "",
                        ::whet::ToString(b->dtype), fmt::join(b->shape, ","));
  }
  for (const Stage& s : f.stages) {
    std::vector<std::string> axes, reduce;
    for (const Axis& a : s.axes) axes.push_back(fmt::format("{}:{}", a.name, a.extent));
    for (const Axis& a : s.reduce) reduce.push_back(fmt::format("{}:{}", a.name, a.extent));
    text += fmt::format("stage {}[{}] = ", s.name, fmt::join(axes, ", "));
    if (s.reducer != Reducer::kNone) {
      text += fmt::format("{}[{}] ", ToString(s.reducer), fmt::join(reduce, ", "));
    }
    text += expr::ToString(s.value) + "\n";
  }
  for (const Buffer& b : f.outputs) text += fmt::format("output {}\n", b->name);
  return text;
}

}  // namespace whet::te
