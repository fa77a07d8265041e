#include "compiler/loop/parse.h"

#include <charconv>

#include "compiler/expr/parse.h"

namespace whet::loop {
namespace {

using expr::TakeWord;

bool Take(std::string_view& line, std::string_view token) {
  if (line.substr(0, token.size()) != token) return false;
  line.remove_prefix(token.size());
  return true;
}

Status Need(std::string_view& line, std::string_view token) {
  return Take(line, token) ? OkStatus()
                           : InvalidArgument("expected '{}' at '{}'", token, line.substr(0, 60));
}

StatusOr<int64_t> TakeInt(std::string_view& line, int64_t limit) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), v);
  if (error != std::errc()) return InvalidArgument("expected a number at '{}'", line.substr(0, 60));
  if (v < -limit || v > limit) return InvalidArgument("{} is outside -{}..{}", v, limit, limit);
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  return v;
}

StatusOr<std::string> TakeName(std::string_view& line) {
  const std::string_view all = line, word = TakeWord(line);
  if (!expr::IsName(word)) return InvalidArgument("expected a name at '{}'", all.substr(0, 60));
  return std::string(word);
}

StatusOr<Expr> TakeExpr(std::string_view& line, const expr::Symbols& symbols, DType type) {
  WHET_ASSIGN_OR_RETURN(Expr e, expr::ParsePrefix(line, symbols));
  if (e->dtype != type)
    return InvalidArgument("a value of type {} where {} belongs", ::whet::ToString(e->dtype),
                           ::whet::ToString(type));
  return e;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  StatusOr<Program> Run() {
    auto p = Whole();
    return p.ok()
               ? std::move(p)
               : StatusOr<Program>(Annotate(p.status(), fmt::format("program line {}", number_)));
  }

 private:
  // The current line without its indentation; empty line_ at the end of the text.
  void Next() {
    line_ = text_.substr(0, text_.find('\n'));
    at_end_ = text_.empty();
    text_.remove_prefix(std::min(line_.size() + 1, text_.size()));
    ++number_;
    indent_ = std::min(line_.find_first_not_of(' '), line_.size());
    line_.remove_prefix(indent_);
  }

  StatusOr<Program> Whole() {
    Program p;
    Next();
    WHET_RETURN_IF_ERROR(Need(line_, "program "));
    if (line_.empty()) return InvalidArgument("a program without a name");
    p.name = std::string(line_);
    for (Next(); !at_end_ && indent_ == 0; Next()) {
      const bool input = Take(line_, "input "), output = !input && Take(line_, "output ");
      const bool workspace = !input && !output && Take(line_, "workspace ");
      if (!input && !output && !workspace && !Take(line_, "buffer ")) break;
      WHET_ASSIGN_OR_RETURN(Buffer b, BufferLine());
      if (symbols_.FindBuffer(b->name)) return InvalidArgument("a second buffer '{}'", b->name);
      symbols_.buffers.push_back(b);
      if (input || output || workspace) {
        if (!p.intermediates.empty()) return InvalidArgument("parameters come before buffers");
        p.params.push_back({b, input ? Role::kInput : output ? Role::kOutput : Role::kWorkspace});
      } else {
        p.intermediates.push_back(b);
      }
    }
    if (!at_end_) {
      WHET_ASSIGN_OR_RETURN(p.body, Body(0, 0));
    }
    if (!at_end_) return InvalidArgument("indented by {}", indent_);
    return p;
  }

  StatusOr<Buffer> BufferLine() {
    WHET_ASSIGN_OR_RETURN(std::string name, TakeName(line_));
    WHET_RETURN_IF_ERROR(Need(line_, ": "));
    const bool constant = Take(line_, "const ");
    WHET_ASSIGN_OR_RETURN(DType type, ParseDType(TakeWord(line_)));
    WHET_RETURN_IF_ERROR(Need(line_, " "));
    WHET_ASSIGN_OR_RETURN(expr::Scope scope, expr::ParseScope(TakeWord(line_)));
    WHET_RETURN_IF_ERROR(Need(line_, "["));
    std::vector<int64_t> shape;
    int64_t elements = 1;
    while (!Take(line_, "]")) {
      if (!shape.empty()) WHET_RETURN_IF_ERROR(Need(line_, ","));
      WHET_ASSIGN_OR_RETURN(int64_t d, TakeInt(line_, kMaxElements));
      if (d < 0 || shape.size() == 16)
        return InvalidArgument("an extent of {} in dimension {}", d, shape.size());
      if (d > 0 && elements > kMaxElements / d)
        return InvalidArgument("buffer '{}' has more than {} elements", name, kMaxElements);
      elements *= std::max<int64_t>(d, 1);
      shape.push_back(d);
    }
    WHET_RETURN_IF_ERROR(EndOfLine());
    return expr::MakeBuffer(std::move(name), type, std::move(shape), scope, constant);
  }

  Status EndOfLine() const {
    return line_.empty() ? OkStatus() : InvalidArgument("'{}' after the end", line_.substr(0, 60));
  }

  // The statements at `indent`, the first of which is the current line; leaves the line after them.
  StatusOr<Stmt> Body(size_t indent, int depth) {
    if (depth > kMaxProgramDepth)
      return InvalidArgument("nested more than {} deep", kMaxProgramDepth);
    std::vector<Stmt> items;
    while (!at_end_ && indent_ == indent) {
      WHET_ASSIGN_OR_RETURN(Stmt s, Statement(indent, depth));
      items.push_back(std::move(s));
    }
    if (items.empty()) return InvalidArgument("expected a statement indented by {}", indent);
    return MakeSeq(std::move(items));
  }

  StatusOr<Stmt> Statement(size_t indent, int depth) {
    for (ForKind kind :
         {ForKind::kSerial, ForKind::kParallel, ForKind::kVectorized, ForKind::kUnrolled}) {
      if (Take(line_, fmt::format("{} ", ToString(kind)))) return Loop(kind, indent, depth);
    }
    if (Take(line_, "block ")) return Block(indent);
    if (Take(line_, "if ")) return If(indent, depth);
    return Store();
  }

  StatusOr<Stmt> Loop(ForKind kind, size_t indent, int depth) {
    WHET_ASSIGN_OR_RETURN(std::string name, TakeName(line_));
    WHET_RETURN_IF_ERROR(Need(line_, " in ["));
    WHET_ASSIGN_OR_RETURN(int64_t begin, TakeInt(line_, kMaxElements));
    WHET_RETURN_IF_ERROR(Need(line_, ", "));
    WHET_ASSIGN_OR_RETURN(int64_t end, TakeInt(line_, kMaxElements));
    WHET_RETURN_IF_ERROR(Need(line_, ")"));
    if (end < begin)
      return InvalidArgument("loop '{}' ends at {} before its begin {}", name, end, begin);
    std::vector<std::pair<std::string, int64_t>> annotations;
    while (Take(line_, " ")) {
      WHET_ASSIGN_OR_RETURN(std::string key, TakeName(line_));
      WHET_RETURN_IF_ERROR(Need(line_, "="));
      WHET_ASSIGN_OR_RETURN(int64_t value, TakeInt(line_, kMaxElements));
      annotations.emplace_back(std::move(key), value);
    }
    WHET_RETURN_IF_ERROR(EndOfLine());
    const Var var = expr::MakeVar(std::move(name));
    symbols_.vars.push_back(var);
    Next();
    WHET_ASSIGN_OR_RETURN(Stmt body, Body(indent + 2, depth + 1));
    symbols_.vars.pop_back();
    return MakeFor(var, begin, end - begin, kind, std::move(body), std::move(annotations));
  }

  StatusOr<Stmt> If(size_t indent, int depth) {
    WHET_ASSIGN_OR_RETURN(Expr cond, TakeExpr(line_, symbols_, DType::kBool));
    WHET_RETURN_IF_ERROR(EndOfLine());
    if (cond->kind == expr::Kind::kInt)
      return InvalidArgument("a condition that is always {}", expr::ToString(cond));
    Next();
    WHET_ASSIGN_OR_RETURN(Stmt body, Body(indent + 2, depth + 1));
    return MakeIf(std::move(cond), std::move(body));
  }

  // OUT[INDEX, ...]
  Status TakeTarget(Buffer& out, std::vector<Expr>& indices) {
    WHET_ASSIGN_OR_RETURN(std::string name, TakeName(line_));
    out = symbols_.FindBuffer(name);
    if (!out) return InvalidArgument("unknown buffer '{}'", name);
    WHET_RETURN_IF_ERROR(Need(line_, "["));
    while (!Take(line_, "]")) {
      if (!indices.empty()) WHET_RETURN_IF_ERROR(Need(line_, ", "));
      WHET_ASSIGN_OR_RETURN(Expr e, TakeExpr(line_, symbols_, DType::kI64));
      indices.push_back(std::move(e));
    }
    if (indices.size() != out->shape.size()) {
      return InvalidArgument("buffer '{}' has rank {}, {} indices", name, out->shape.size(),
                             indices.size());
    }
    return OkStatus();
  }

  StatusOr<Stmt> Store() {
    Buffer out;
    std::vector<Expr> indices;
    WHET_RETURN_IF_ERROR(TakeTarget(out, indices));
    WHET_RETURN_IF_ERROR(Need(line_, " = "));
    WHET_ASSIGN_OR_RETURN(Expr value, TakeExpr(line_, symbols_, out->dtype));
    WHET_RETURN_IF_ERROR(EndOfLine());
    Next();
    return MakeStore(std::move(out), std::move(indices), std::move(value));
  }

  StatusOr<Stmt> Block(size_t indent) {
    BlockFields b;
    WHET_ASSIGN_OR_RETURN(b.name, TakeName(line_));
    WHET_RETURN_IF_ERROR(Need(line_, "("));
    while (!Take(line_, ")")) {
      if (!b.iters.empty()) WHET_RETURN_IF_ERROR(Need(line_, ", "));
      Iter it;
      it.reduce = Take(line_, "reduce ");
      WHET_ASSIGN_OR_RETURN(std::string name, TakeName(line_));
      it.var = expr::MakeVar(std::move(name));
      WHET_RETURN_IF_ERROR(Need(line_, ":"));
      WHET_ASSIGN_OR_RETURN(it.extent, TakeInt(line_, kMaxElements));
      WHET_RETURN_IF_ERROR(Need(line_, " = "));
      WHET_ASSIGN_OR_RETURN(Expr binding, TakeExpr(line_, symbols_, DType::kI64));
      b.iters.push_back(std::move(it));
      b.bindings.push_back(std::move(binding));
    }
    if (Take(line_, " if ")) {
      WHET_ASSIGN_OR_RETURN(b.predicate, TakeExpr(line_, symbols_, DType::kBool));
    }
    WHET_RETURN_IF_ERROR(EndOfLine());
    Next();
    if (at_end_ || indent_ != indent + 2)
      return InvalidArgument("block '{}' without what it computes", b.name);
    const size_t outer = symbols_.vars.size();
    for (const Iter& it : b.iters) symbols_.vars.push_back(it.var);
    WHET_RETURN_IF_ERROR(BlockValue(b));
    symbols_.vars.resize(outer);
    Next();
    return MakeBlock(std::move(b));
  }

  Status BlockValue(BlockFields& b) {
    WHET_RETURN_IF_ERROR(TakeTarget(b.out, b.out_indices));
    WHET_RETURN_IF_ERROR(Need(line_, " "));
    for (Reducer r : {Reducer::kSum, Reducer::kProd, Reducer::kMax, Reducer::kMin}) {
      if (Take(line_, te::ToString(r))) b.reducer = r;
    }
    if (b.reducer != Reducer::kNone && b.out->dtype == DType::kBool)
      return InvalidArgument("block '{}' reduces conditions", b.name);
    WHET_RETURN_IF_ERROR(Need(line_, "= "));
    WHET_ASSIGN_OR_RETURN(b.value, TakeExpr(line_, symbols_, b.out->dtype));
    while (Take(line_, " ")) {
    }
    if (Take(line_, "from ")) {
      WHET_ASSIGN_OR_RETURN(b.init, TakeExpr(line_, symbols_, b.out->dtype));
    }
    return EndOfLine();
  }

  std::string_view text_, line_;
  size_t indent_ = 0;
  int number_ = 0;
  bool at_end_ = false;
  expr::Symbols symbols_;
};

}  // namespace

StatusOr<Program> Parse(std::string_view text) {
  if (text.size() > kMaxProgramBytes)
    return InvalidArgument("program of {} bytes; the limit is {}", text.size(), kMaxProgramBytes);
  return Parser(text).Run();
}

}  // namespace whet::loop
