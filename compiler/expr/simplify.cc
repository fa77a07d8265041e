#include "compiler/expr/simplify.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

namespace whet::expr {
namespace {

bool IsIndexType(DType t) { return t == DType::kI64 || t == DType::kI32; }

Interval Corners(Interval a, Interval b, int64_t (*f)(int64_t, int64_t)) {
  const int64_t v[4] = {f(a.lo, b.lo), f(a.lo, b.hi), f(a.hi, b.lo), f(a.hi, b.hi)};
  return {*std::min_element(v, v + 4), *std::max_element(v, v + 4)};
}

// Ranges beyond this are not known: below it no sum or product of two ends overflows.
constexpr int64_t kHuge = int64_t{1} << 62;
std::optional<Interval> Known(__int128 lo, __int128 hi) {
  if (lo < -kHuge || hi > kHuge) return std::nullopt;
  return Interval{static_cast<int64_t>(lo), static_cast<int64_t>(hi)};
}
std::optional<Interval> Product(Interval a, Interval b) {
  const __int128 v[4] = {static_cast<__int128>(a.lo) * b.lo, static_cast<__int128>(a.lo) * b.hi,
                         static_cast<__int128>(a.hi) * b.lo, static_cast<__int128>(a.hi) * b.hi};
  return Known(*std::min_element(v, v + 4), *std::max_element(v, v + 4));
}

// Coefficients wrap like the expressions they stand for.
int64_t MulAdd(int64_t a, int64_t b, int64_t c) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) +
                              static_cast<uint64_t>(b) * static_cast<uint64_t>(c));
}

}  // namespace

void Bounds::Set(const Var& v, Interval range) {
  for (auto& [var, r] : ranges_) {
    if (var == v.get()) {
      r = range;
      return;
    }
  }
  ranges_.emplace_back(v.get(), range);
}

const Interval* Bounds::Find(const ExprNode* v) const {
  for (const auto& [var, r] : ranges_) {
    if (var == v) return &r;
  }
  return nullptr;
}

std::optional<Interval> Bounds::Of(const Expr& e) const {
  switch (e->kind) {
    case Kind::kInt:
      if (e->dtype == DType::kU64 && e->int_value < 0) return std::nullopt;
      return Known(e->int_value, e->int_value);
    case Kind::kVar: {
      const Interval* r = Find(e.get());
      return r ? std::optional<Interval>(*r) : std::nullopt;
    }
    case Kind::kSelect: {
      auto a = Of(e->args[1]), b = Of(e->args[2]);
      if (!a || !b) return std::nullopt;
      return Interval{std::min(a->lo, b->lo), std::max(a->hi, b->hi)};
    }
    case Kind::kBinary: break;
    default: return std::nullopt;
  }
  auto a = Of(e->args[0]), b = Of(e->args[1]);
  if (e->binary == BinaryOp::kFloorMod && b && b->single() && b->lo > 0) {
    if (a && FloorDivInt(a->lo, b->lo) == FloorDivInt(a->hi, b->lo)) {
      const int64_t base = FloorDivInt(a->lo, b->lo) * b->lo;
      return Interval{a->lo - base, a->hi - base};
    }
    return Interval{0, b->lo - 1};
  }
  if (!a || !b) return std::nullopt;
  switch (e->binary) {
    case BinaryOp::kAdd:
      return Known(static_cast<__int128>(a->lo) + b->lo, static_cast<__int128>(a->hi) + b->hi);
    case BinaryOp::kSub:
      return Known(static_cast<__int128>(a->lo) - b->hi, static_cast<__int128>(a->hi) - b->lo);
    case BinaryOp::kMul: return Product(*a, *b);
    case BinaryOp::kFloorDiv:
      if (b->lo <= 0 && b->hi >= 0) return std::nullopt;
      return Corners(*a, *b, FloorDivInt);
    case BinaryOp::kMin: return Interval{std::min(a->lo, b->lo), std::min(a->hi, b->hi)};
    case BinaryOp::kMax: return Interval{std::max(a->lo, b->lo), std::max(a->hi, b->hi)};
    default: return std::nullopt;
  }
}

std::optional<bool> Bounds::Decide(const Expr& c) const {
  if (!c) return true;
  if (c->kind == Kind::kInt) return c->int_value != 0;
  if (c->kind == Kind::kNot) {
    auto a = Decide(c->args[0]);
    return a ? std::optional<bool>(!*a) : std::nullopt;
  }
  if (c->kind != Kind::kBinary) return std::nullopt;
  if (c->binary == BinaryOp::kAnd || c->binary == BinaryOp::kOr) {
    const bool unit = c->binary == BinaryOp::kAnd;  // true is the unit of &&, false of ||
    auto a = Decide(c->args[0]), b = Decide(c->args[1]);
    if ((a && *a != unit) || (b && *b != unit)) return !unit;
    return a && b ? std::optional<bool>(unit) : std::nullopt;
  }
  if (!IsIndexType(c->args[0]->dtype)) return std::nullopt;
  // One interval of the difference decides more than two of the sides: common terms cancel.
  auto d = Of(Add(ToLinear(c->args[0]), ToLinear(c->args[1]), -1).ToExpr());
  if (!d) return std::nullopt;
  switch (c->binary) {
    case BinaryOp::kLt:
      if (d->hi < 0) return true;
      if (d->lo >= 0) return false;
      break;
    case BinaryOp::kLe:
      if (d->hi <= 0) return true;
      if (d->lo > 0) return false;
      break;
    case BinaryOp::kEq:
    case BinaryOp::kNe: {
      const bool eq = c->binary == BinaryOp::kEq;
      if (d->single() && d->lo == 0) return eq;
      if (d->lo > 0 || d->hi < 0) return !eq;
      break;
    }
    default: break;
  }
  return std::nullopt;
}

Expr Linear::ToExpr(DType type) const {
  Expr sum;
  for (const auto& [atom, c] : terms) {
    if (c < 0 && c > std::numeric_limits<int64_t>::min() && sum) {
      sum = sum - atom * -c;
    } else {
      Expr t = atom * c;
      sum = sum ? sum + t : t;
    }
  }
  if (!sum) return Int(constant, type);
  if (constant < 0 && constant > std::numeric_limits<int64_t>::min()) return sum - -constant;
  return sum + constant;
}

int64_t Linear::CoefficientOf(const Var& v) const {
  for (const auto& [atom, c] : terms) {
    if (atom == v) return c;
  }
  return 0;
}

Linear Add(const Linear& a, const Linear& b, int64_t scale) {
  Linear r;
  r.constant = MulAdd(a.constant, scale, b.constant);
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    const int c = i == a.terms.size()   ? 1
                  : j == b.terms.size() ? -1
                                        : Compare(a.terms[i].first, b.terms[j].first);
    if (c < 0) {
      r.terms.push_back(a.terms[i++]);
    } else if (c > 0) {
      if (const int64_t k = MulAdd(0, scale, b.terms[j].second))
        r.terms.emplace_back(b.terms[j].first, k);
      ++j;
    } else {
      const int64_t s = MulAdd(a.terms[i].second, scale, b.terms[j].second);
      if (s != 0) r.terms.emplace_back(a.terms[i].first, s);
      ++i, ++j;
    }
  }
  return r;
}

Linear ToLinear(const Expr& e) {
  if (e->kind == Kind::kInt) return {e->int_value, {}};
  if (e->kind == Kind::kBinary) {
    switch (e->binary) {
      case BinaryOp::kAdd: return Add(ToLinear(e->args[0]), ToLinear(e->args[1]));
      case BinaryOp::kSub: return Add(ToLinear(e->args[0]), ToLinear(e->args[1]), -1);
      case BinaryOp::kMul: {
        const int k = e->args[0]->kind == Kind::kInt ? 0 : e->args[1]->kind == Kind::kInt ? 1 : -1;
        if (k >= 0) return Add({}, ToLinear(e->args[1 - k]), e->args[k]->int_value);
        break;
      }
      default: break;
    }
  }
  return {0, {{e, 1}}};
}

namespace {

class Simplifier {
 public:
  Simplifier(const Bounds& bounds, bool by_parts) : bounds_(bounds), by_parts_(by_parts) {}

  Expr Run(const Expr& e) {
    if (e->args.empty()) return Single(e);
    if (!e->Shared()) return Node(e);
    if (auto it = done_.find(e.get()); it != done_.end()) return it->second;
    Expr r = Node(e);
    done_.emplace(e.get(), r);
    return r;
  }

 private:
  Expr Node(const Expr& e) {
    std::vector<Expr> args;
    args.reserve(e->args.size());
    bool changed = false;
    for (const Expr& a : e->args) {
      args.push_back(Run(a));
      changed |= !(args.back() == a);
    }
    // Nodes stay the same where nothing changes, and shared.
    const bool keeps =
        e->kind != Kind::kBinary || !(IsIndexType(e->args[0]->dtype) || e->dtype == DType::kBool);
    if (!changed && keeps) return e;
    switch (e->kind) {
      case Kind::kBinary: return BinaryExpr(e->binary, args[0], args[1]);
      case Kind::kNot: return Not(args[0]);
      case Kind::kSelect: return Select(args[0], args[1], args[2]);
      case Kind::kCast: return Cast(e->dtype, args[0]);
      case Kind::kCall: return Call(e->call, args[0]);
      case Kind::kLoad: return Load(e->buffer, std::move(args));
      default: return e;
    }
  }

  Expr Single(const Expr& e) {
    if (e->kind != Kind::kVar) return e;
    const Interval* r = bounds_.Find(e.get());
    return r && r->single() ? Int(r->lo, e->dtype) : e;
  }

  Expr BinaryExpr(BinaryOp op, const Expr& a, const Expr& b) {
    if (!IsIndexType(a->dtype)) {
      Expr e = Binary(op, a, b);
      if (e->dtype == DType::kBool) {
        if (auto d = bounds_.Decide(e)) return Bool(*d);
      }
      return e;
    }
    switch (op) {
      case BinaryOp::kAdd: return Add(ToLinear(a), ToLinear(b)).ToExpr(a->dtype);
      case BinaryOp::kSub: return Add(ToLinear(a), ToLinear(b), -1).ToExpr(a->dtype);
      case BinaryOp::kMul: return ToLinear(Binary(op, a, b)).ToExpr(a->dtype);
      case BinaryOp::kFloorDiv:
      case BinaryOp::kFloorMod:
        if (b->kind == Kind::kInt && b->int_value > 0) return DivMod(op, a, b->int_value);
        return Binary(op, a, b);
      case BinaryOp::kMin:
      case BinaryOp::kMax: {
        auto d = bounds_.Of(Add(ToLinear(a), ToLinear(b), -1).ToExpr());
        if (d && d->hi <= 0) return op == BinaryOp::kMin ? a : b;
        if (d && d->lo >= 0) return op == BinaryOp::kMin ? b : a;
        return Binary(op, a, b);
      }
      default: {
        Expr e = Binary(op, a, b);
        if (auto d = bounds_.Decide(e)) return Bool(*d);
        return e;
      }
    }
  }

  // a = c*q + r with r the terms whose coefficients c does not divide:
  //   a // c == q + r // c,   a % c == r % c,   and r // c is a constant when r's range says so.
  Expr DivMod(BinaryOp op, const Expr& a, int64_t c) {
    const Linear l = ToLinear(a);
    Linear q, r;
    q.constant = FloorDivInt(l.constant, c);
    r.constant = MulAdd(l.constant, q.constant, -c);
    for (const auto& [atom, k] : l.terms) {
      const int64_t kq = FloorDivInt(k, c);
      if (MulAdd(0, kq, c) == k) {
        q.terms.emplace_back(atom, kq);
      } else {
        r.terms.emplace_back(atom, k);
      }
    }
    const Expr rest = r.ToExpr(a->dtype);
    if (auto range = bounds_.Of(rest)) {
      const int64_t d = FloorDivInt(range->lo, c);
      if (d == FloorDivInt(range->hi, c)) {
        if (op == BinaryOp::kFloorMod) return (Add(r, Linear{d * c, {}}, -1)).ToExpr(a->dtype);
        q.constant += d;
        return q.ToExpr(a->dtype);
      }
    }
    if (op == BinaryOp::kFloorMod) return FloorMod(rest, c);
    return Add(q, ToLinear(DivCommon(rest, r, c))).ToExpr(a->dtype);
  }

  // r // c == (r // g) // (c / g) for a g that divides c and the coefficients of some terms, when
  // the others stay within a multiple of g: (32*o + i) // 64 == o // 2 for 0 <= i < 32. Null: none.
  Expr DivByParts(const Linear& r, int64_t c, DType type) {
    std::vector<std::pair<Expr, int64_t>> terms = r.terms;
    std::stable_sort(terms.begin(), terms.end(), [](const auto& x, const auto& y) {
      return std::abs(x.second) > std::abs(y.second);
    });
    int64_t g = c;
    for (size_t n = 1; n < terms.size(); ++n) {
      g = std::gcd(g, terms[n - 1].second);
      if (g <= 1) return nullptr;
      Linear small;
      small.constant = r.constant;
      for (const auto& t : r.terms) {
        if (std::find_if(terms.begin() + static_cast<std::ptrdiff_t>(n), terms.end(),
                         [&](const auto& x) { return x.first == t.first; }) != terms.end())
          small.terms.push_back(t);
      }
      const auto range = bounds_.Of(small.ToExpr());
      if (!range || FloorDivInt(range->lo, g) != FloorDivInt(range->hi, g)) continue;
      Linear s;
      s.constant = FloorDivInt(range->lo, g);
      for (const auto& [atom, k] : r.terms) {
        const bool is_small = std::any_of(small.terms.begin(), small.terms.end(),
                                          [&, a = atom](const auto& x) { return x.first == a; });
        if (!is_small) s.terms.emplace_back(atom, k / g);
      }
      return FloorDiv(s.ToExpr(type), c / g);
    }
    return nullptr;
  }

  // r // c with a factor common to c and every coefficient taken out: (4*i + 3) // 8 == i // 2.
  Expr DivCommon(const Expr& rest, const Linear& r, int64_t c) {
    if (by_parts_) {
      if (const Expr e = DivByParts(r, c, rest->dtype)) return e;
    }
    int64_t g = c;
    for (const auto& [atom, k] : r.terms) g = std::gcd(g, k);
    if (g <= 1 || r.terms.empty()) return FloorDiv(rest, c);
    Linear s;
    s.constant = FloorDivInt(r.constant, g);
    for (const auto& [atom, k] : r.terms) s.terms.emplace_back(atom, k / g);
    return FloorDiv(s.ToExpr(rest->dtype), c / g);
  }

  const Bounds& bounds_;
  const bool by_parts_;
  std::unordered_map<const ExprNode*, Expr> done_;  // nodes with several parents
};

}  // namespace

// The simplifier takes common factors out of a quotient, not out of its rest: x // n may stand
// there as y // m with n == g*m and x == g*y + r, 0 <= r < g.
Linear JoinDivMod(const Linear& l) {
  auto is = [](const Expr& e, BinaryOp op) {
    return e->kind == Kind::kBinary && e->binary == op && e->args[1]->kind == Kind::kInt &&
           e->args[1]->int_value > 0;
  };
  for (const auto& [quotient, scaled] : l.terms) {
    if (!is(quotient, BinaryOp::kFloorDiv)) continue;
    for (const auto& [rest, c] : l.terms) {
      if (!is(rest, BinaryOp::kFloorMod)) continue;
      const int64_t n = rest->args[1]->int_value, m = quotient->args[1]->int_value;
      if (n % m != 0 || MulAdd(0, c, n) != scaled) continue;
      const Linear x = ToLinear(rest->args[0]);
      const Linear left = Add(x, ToLinear(quotient->args[0]), -(n / m));
      if (!left.terms.empty() || left.constant < 0 || left.constant >= n / m) continue;
      Linear r = Add(Add(l, Linear{0, {{quotient, scaled}}}, -1), Linear{0, {{rest, c}}}, -1);
      return JoinDivMod(Add(r, x, c));
    }
  }
  return l;
}

Expr Simplify(const Expr& e, const Bounds& bounds) {
  return e ? Simplifier(bounds, false).Run(e) : e;
}
Expr SimplifyLowered(const Expr& e, const Bounds& bounds) {
  return e ? Simplifier(bounds, true).Run(e) : e;
}

}  // namespace whet::expr
