#include "compiler/loop/interpret.h"

#include <cmath>
#include <limits>
#include <unordered_map>

#include "compiler/support/half.h"

namespace whet::loop {
namespace {

class Interpreter {
 public:
  Interpreter(Memory& memory, int64_t max_steps) : memory_(memory), steps_left_(max_steps) {}

  Status Run(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kFor: {
        const auto* f = As<ForNode>(s);
        env_.emplace_back(f->var.get(), 0);
        for (int64_t i = f->begin; i < f->begin + f->extent; ++i) {
          if (--steps_left_ < 0)
            return ResourceExhausted("the program runs more steps than allowed");
          env_.back().second = i;
          WHET_RETURN_IF_ERROR(Run(f->body));
        }
        env_.pop_back();
        return OkStatus();
      }
      case StmtKind::kSeq:
        for (const Stmt& item : As<SeqNode>(s)->items) WHET_RETURN_IF_ERROR(Run(item));
        return OkStatus();
      case StmtKind::kIf: return Int(As<IfNode>(s)->cond) ? Run(As<IfNode>(s)->body) : error_;
      case StmtKind::kStore: {
        const auto* st = As<StoreNode>(s);
        return Write(st->out, st->indices, st->value);
      }
      case StmtKind::kBlock: return RunBlock(*As<BlockNode>(s));
    }
    return OkStatus();
  }

 private:
  Status RunBlock(const BlockNode& b) {
    if (b.predicate && !Int(b.predicate)) return error_;
    const size_t depth = env_.size();
    bool first = true;
    // A binding may name a variable that an iterator of this block hides: all of them come first.
    const size_t begin = values_.size();
    for (const Expr& e : b.bindings) values_.push_back(Int(e));
    for (size_t i = 0; i < b.bindings.size(); ++i) {
      const int64_t value = values_[begin + i];
      env_.emplace_back(b.iters[i].var.get(), value);
      first &= !b.iters[i].reduce || value == 0;
    }
    values_.resize(begin);
    if (b.init && first) WHET_RETURN_IF_ERROR(Write(b.out, b.out_indices, b.init));
    Status st = Write(b.out, b.out_indices, Written(b));
    env_.resize(depth);
    return st;
  }

  // What a block stores where it is not the first of a reduction; made once per block.
  const Expr& Written(const BlockNode& b) {
    if (b.reducer == Reducer::kNone) return b.value;
    Expr& e = written_[&b];
    if (!e) e = te::Combine(b.reducer, expr::Load(b.out, b.out_indices), b.value);
    return e;
  }

  // Null where the memory has none of its name.
  std::vector<double>* Values(const expr::BufferNode& b) {
    const auto [it, first] = buffers_.try_emplace(&b, nullptr);
    if (first) {
      if (const auto found = memory_.find(b.name); found != memory_.end())
        it->second = &found->second;
    }
    return it->second;
  }

  Status Write(const Buffer& b, const std::vector<Expr>& indices, const Expr& value) {
    if (--steps_left_ < 0) return ResourceExhausted("the program runs more steps than allowed");
    const double v = IsFloat(b->dtype) ? Float(value) : Number(Int(value), b->dtype);
    const int64_t at = Offset(*b, indices);
    WHET_RETURN_IF_ERROR(error_);
    std::vector<double>* values = Values(*b);
    if (!values) return Internal("'{}' is written and not a buffer of the program", b->name);
    (*values)[at] = v;
    return OkStatus();
  }

  int64_t Offset(const expr::BufferNode& b, const std::vector<Expr>& indices) {
    int64_t at = 0;
    for (size_t d = 0; d < indices.size(); ++d) {
      const int64_t i = Int(indices[d]);
      if (i < 0 || i >= b.shape[d]) {
        if (error_.ok())
          error_ = Internal("index {} of '{}' is {}, outside 0..{}", d, b.name, i, b.shape[d] - 1);
        return 0;
      }
      at = at * b.shape[d] + i;
    }
    return at;
  }

  // An integer in the form of expr::Int as a number.
  static double Number(int64_t v, DType t) {
    return t == DType::kU64 ? static_cast<double>(static_cast<uint64_t>(v))
                            : static_cast<double>(v);
  }

  double LoadValue(const expr::ExprNode& e) {
    const int64_t at = Offset(*e.buffer, e.args);
    const std::vector<double>* values = Values(*e.buffer);
    return !values || !error_.ok() ? 0 : (*values)[at];
  }

  int64_t Int(const Expr& e) {
    switch (e->kind) {
      case expr::Kind::kInt: return e->int_value;
      case expr::Kind::kVar:
        for (auto it = env_.rbegin(); it != env_.rend(); ++it) {
          if (it->first == e.get()) return it->second;
        }
        if (error_.ok()) error_ = Internal("variable '{}' has no value", e->name);
        return 0;
      case expr::Kind::kNot: return !Int(e->args[0]);
      case expr::Kind::kSelect: return Int(e->args[0]) ? Int(e->args[1]) : Int(e->args[2]);
      case expr::Kind::kLoad: return expr::SaturateToInt(LoadValue(*e), e->dtype);
      case expr::Kind::kCast:
        return IsFloat(e->args[0]->dtype) ? expr::SaturateToInt(Float(e->args[0]), e->dtype)
                                          : expr::WrapInt(Int(e->args[0]), e->dtype);
      case expr::Kind::kBinary: break;
      case expr::Kind::kFloat:
      case expr::Kind::kCall: return expr::SaturateToInt(Float(e), DType::kI64);
    }
    if (e->binary == expr::BinaryOp::kAnd) return Int(e->args[0]) && Int(e->args[1]);
    if (e->binary == expr::BinaryOp::kOr) return Int(e->args[0]) || Int(e->args[1]);
    if (IsFloat(e->args[0]->dtype)) {
      const double a = Float(e->args[0]), b = Float(e->args[1]);
      switch (e->binary) {
        case expr::BinaryOp::kEq: return a == b;
        case expr::BinaryOp::kNe: return a != b;
        case expr::BinaryOp::kLt: return a < b;
        default: return a <= b;
      }
    }
    const DType type = e->args[0]->dtype;
    const int64_t a = expr::WrapInt(Int(e->args[0]), type);
    const int64_t b = expr::WrapInt(Int(e->args[1]), type);
    return expr::BinaryValue(e->binary, a, b, type).value_or(0);
  }

  double Float(const Expr& e) { return RoundToFloat(e->dtype, FloatExact(e)); }

  double FloatExact(const Expr& e) {
    switch (e->kind) {
      case expr::Kind::kFloat: return e->float_value;
      case expr::Kind::kLoad: return LoadValue(*e);
      case expr::Kind::kSelect: return Int(e->args[0]) ? Float(e->args[1]) : Float(e->args[2]);
      case expr::Kind::kCast:
        return IsFloat(e->args[0]->dtype) ? Float(e->args[0])
                                          : FromInt(Int(e->args[0]), e->args[0]->dtype, e->dtype);
      case expr::Kind::kCall: return CallValue(e->call, Float(e->args[0]));
      case expr::Kind::kBinary: break;
      default: return Number(Int(e), e->dtype);
    }
    const double a = Float(e->args[0]), b = Float(e->args[1]);
    switch (e->binary) {
      case expr::BinaryOp::kAdd: return a + b;
      case expr::BinaryOp::kSub: return a - b;
      case expr::BinaryOp::kMul: return a * b;
      case expr::BinaryOp::kDiv: return a / b;
      case expr::BinaryOp::kMin: return std::isnan(a) || a < b ? a : b;
      case expr::BinaryOp::kMax: return std::isnan(a) || a > b ? a : b;
      case expr::BinaryOp::kPow: return std::pow(a, b);
      default: return std::numeric_limits<double>::quiet_NaN();
    }
  }

  // Rounded once: an f32 does not come from the f64 next to a 64-bit integer.
  static double FromInt(int64_t v, DType from, DType to) {
    if (to != DType::kF32) return Number(v, from);
    return from == DType::kU64 ? static_cast<float>(static_cast<uint64_t>(v))
                               : static_cast<float>(v);
  }

  static double CallValue(expr::Intrinsic f, double x) {
    switch (f) {
      case expr::Intrinsic::kExp: return std::exp(x);
      case expr::Intrinsic::kLog: return std::log(x);
      case expr::Intrinsic::kSqrt: return std::sqrt(x);
      case expr::Intrinsic::kTanh: return std::tanh(x);
      case expr::Intrinsic::kErf: return std::erf(x);
      case expr::Intrinsic::kAbs: return std::fabs(x);
      case expr::Intrinsic::kFloor: return std::floor(x);
      case expr::Intrinsic::kCeil: return std::ceil(x);
      case expr::Intrinsic::kRound: return std::nearbyint(x);
      case expr::Intrinsic::kPow2: return std::exp2(x);
      case expr::Intrinsic::kMantissa:
        return std::isfinite(x) && x > 0 ? std::ldexp(x, -std::ilogb(x)) : x;
      case expr::Intrinsic::kSin: return std::sin(x);
      case expr::Intrinsic::kCos: return std::cos(x);
      case expr::Intrinsic::kTan: return std::tan(x);
      case expr::Intrinsic::kAsin: return std::asin(x);
      case expr::Intrinsic::kAcos: return std::acos(x);
      case expr::Intrinsic::kAtan: return std::atan(x);
      case expr::Intrinsic::kSinh: return std::sinh(x);
      case expr::Intrinsic::kCosh: return std::cosh(x);
      case expr::Intrinsic::kAsinh: return std::asinh(x);
      case expr::Intrinsic::kAcosh: return std::acosh(x);
      case expr::Intrinsic::kAtanh: return std::atanh(x);
      case expr::Intrinsic::kExponent: return std::isfinite(x) && x > 0 ? std::ilogb(x) : 0;
    }
    return 0;
  }

  Memory& memory_;
  std::vector<std::pair<const expr::ExprNode*, int64_t>> env_;
  std::vector<int64_t> values_;  // of the bindings of the block that is being entered
  std::unordered_map<const expr::BufferNode*, std::vector<double>*> buffers_;
  std::unordered_map<const BlockNode*, Expr> written_;
  int64_t steps_left_;
  Status error_ = OkStatus();
};

}  // namespace

Status Interpret(const Program& p, Memory& memory, int64_t max_steps) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Param& param : p.params) {
    const auto n = static_cast<size_t>(param.buffer->num_elements());
    if (param.role == Role::kInput) {
      auto it = memory.find(param.buffer->name);
      if (it == memory.end() || it->second.size() != n)
        return InvalidArgument("input '{}' needs {} values", param.buffer->name, n);
    } else {
      memory[param.buffer->name].assign(n, nan);
    }
  }
  for (const Buffer& b : p.intermediates) memory[b->name].assign(b->num_elements(), nan);
  if (!p.body) return OkStatus();
  return Interpreter(memory, max_steps).Run(p.body);
}

}  // namespace whet::loop
