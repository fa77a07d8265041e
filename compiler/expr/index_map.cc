#include "compiler/expr/index_map.h"

#include <cctype>

#include "compiler/expr/simplify.h"

namespace whet::expr {
namespace {

// Recursive descent over `sum := term (('+'|'-') term)*`, `term := atom (('*'|'//'|'%') atom)*`,
// `atom := name | integer | '(' sum ')'`.
class MapParser {
 public:
  explicit MapParser(std::string_view text) : text_(text) {}

  StatusOr<IndexMap> Run() {
    IndexMap m;
    WHET_RETURN_IF_ERROR(Expect("("));
    while (!Peek(")")) {
      if (!m.vars.empty()) WHET_RETURN_IF_ERROR(Expect(","));
      WHET_ASSIGN_OR_RETURN(std::string name, Name());
      m.vars.push_back(MakeVar(name));
      if (m.vars.size() > 16) return Error("more than 16 dimensions");
    }
    vars_ = m.vars;
    WHET_RETURN_IF_ERROR(Expect(")"));
    WHET_RETURN_IF_ERROR(Expect("->"));
    WHET_RETURN_IF_ERROR(Expect("("));
    while (!Peek(")")) {
      if (!m.out.empty()) WHET_RETURN_IF_ERROR(Expect(","));
      WHET_ASSIGN_OR_RETURN(Expr e, Sum(0));
      m.out.push_back(e);
      if (m.out.size() > 16) return Error("more than 16 dimensions");
    }
    WHET_RETURN_IF_ERROR(Expect(")"));
    Space();
    if (at_ != text_.size()) return Error("text after the end");
    return m;
  }

 private:
  Status Error(std::string_view what) const {
    return InvalidArgument("index map '{}', column {}: {}", text_.substr(0, 200), at_ + 1, what);
  }
  void Space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Peek(std::string_view token) {
    Space();
    return text_.substr(at_, token.size()) == token;
  }
  bool Accept(std::string_view token) {
    if (!Peek(token)) return false;
    at_ += token.size();
    return true;
  }
  Status Expect(std::string_view token) {
    return Accept(token) ? OkStatus() : Error(fmt::format("expected '{}'", token));
  }
  StatusOr<std::string> Name() {
    Space();
    size_t b = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    if (b == at_ || std::isdigit(static_cast<unsigned char>(text_[b])))
      return Error("expected a name");
    return std::string(text_.substr(b, at_ - b));
  }
  StatusOr<Expr> Atom(int depth) {
    if (depth > 16) return Error("nested too deeply");
    if (Accept("(")) {
      WHET_ASSIGN_OR_RETURN(Expr e, Sum(depth + 1));
      WHET_RETURN_IF_ERROR(Expect(")"));
      return e;
    }
    Space();
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) {
      int64_t v = 0;
      while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) {
        v = v * 10 + (text_[at_++] - '0');
        if (v > (int64_t{1} << 40)) return Error("number too large");
      }
      return Int(v);
    }
    WHET_ASSIGN_OR_RETURN(std::string name, Name());
    for (const Var& v : vars_) {
      if (v->name == name) return v;
    }
    return Error(fmt::format("unknown dimension '{}'", name));
  }
  StatusOr<Expr> Term(int depth) {
    WHET_ASSIGN_OR_RETURN(Expr a, Atom(depth));
    while (true) {
      const bool div = Accept("//"), mod = !div && Accept("%"), mul = !div && !mod && Accept("*");
      if (!div && !mod && !mul) return a;
      WHET_ASSIGN_OR_RETURN(Expr b, Atom(depth));
      if (!mul && (b->kind != Kind::kInt || b->int_value <= 0))
        return Error("divisor is not a positive number");
      a = div ? FloorDiv(a, b) : mod ? FloorMod(a, b) : a * b;
    }
  }
  StatusOr<Expr> Sum(int depth) {
    WHET_ASSIGN_OR_RETURN(Expr a, Term(depth));
    while (true) {
      const bool add = Accept("+"), sub = !add && !Peek("->") && Accept("-");
      if (!add && !sub) return a;
      WHET_ASSIGN_OR_RETURN(Expr b, Term(depth));
      a = add ? a + b : a - b;
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Var> vars_;
};

}  // namespace

StatusOr<IndexMap> IndexMap::Parse(std::string_view text) {
  if (text.size() > 4096)
    return InvalidArgument("index map of {} bytes; the limit is 4096", text.size());
  return MapParser(text).Run();
}

IndexMap IndexMap::Identity(int rank) {
  std::vector<int> order(rank);
  for (int i = 0; i < rank; ++i) order[i] = i;
  return Permutation(order);
}

IndexMap IndexMap::Permutation(const std::vector<int>& order) {
  IndexMap m;
  for (size_t i = 0; i < order.size(); ++i) {
    m.vars.push_back(MakeVar(std::string(1, static_cast<char>('a' + i))));
  }
  for (int i : order) m.out.push_back(m.vars[i]);
  return m;
}

std::string IndexMap::ToString() const {
  std::string s = "(";
  for (size_t i = 0; i < vars.size(); ++i) s += (i ? ", " : "") + vars[i]->name;
  s += ") -> (";
  for (size_t i = 0; i < out.size(); ++i) s += (i ? ", " : "") + expr::ToString(out[i]);
  return s + ")";
}

std::vector<int> IndexMap::AsPermutation() const {
  std::vector<int> order;
  if (out.size() != vars.size()) return {};
  for (const Expr& e : out) {
    int found = -1;
    for (size_t i = 0; i < vars.size(); ++i) {
      if (e == vars[i]) found = static_cast<int>(i);
    }
    if (found < 0) return {};
    for (int seen : order) {
      if (seen == found) return {};
    }
    order.push_back(found);
  }
  return order;
}

bool IndexMap::IsIdentity() const {
  if (out.size() != vars.size()) return false;
  for (size_t i = 0; i < out.size(); ++i) {
    if (!(out[i] == vars[i])) return false;
  }
  return true;
}

std::vector<Expr> IndexMap::Apply(const std::vector<Expr>& indices) const {
  Substitution s;
  for (size_t i = 0; i < vars.size(); ++i) s.Add(vars[i], indices[i]);
  std::vector<Expr> r;
  for (const Expr& e : out) r.push_back(Substitute(e, s));
  return r;
}

std::vector<int64_t> IndexMap::ApplyToShape(const std::vector<int64_t>& shape) const {
  Bounds bounds;
  for (size_t i = 0; i < vars.size(); ++i)
    bounds.Set(vars[i], {0, std::max<int64_t>(shape[i] - 1, 0)});
  std::vector<int64_t> r;
  for (size_t i = 0; i < out.size(); ++i) {
    auto range = bounds.Of(out[i]);
    r.push_back(range ? range->hi + 1 : 1);
  }
  // A zero-sized dimension stays zero wherever it goes.
  for (size_t i = 0; i < vars.size(); ++i) {
    if (shape[i] != 0) continue;
    for (size_t j = 0; j < out.size(); ++j) {
      if (Uses(out[j], vars[i])) r[j] = 0;
    }
  }
  return r;
}

}  // namespace whet::expr
