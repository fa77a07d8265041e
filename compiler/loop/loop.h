// Loop programs: what a schedule transforms and code generation consumes. Statements are immutable
// and shared.
//
// A Block is one computation of one tensor element, out[indices] = value or a reduction step, over
// its own iteration variables; `bindings` says which value each takes as a function of the
// enclosing loops, `predicate` for which loop iterations it runs at all. Everything a primitive
// must prove (what is read, written, reduced) is in the block, whatever loops are around it.
// Lowering turns blocks into stores; nothing schedules after that.
//
// Loops are named by their variable; loop, block and buffer names are unique in a program, so that
// a trace can refer to them by name.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/expr/expr.h"
#include "compiler/expr/index_map.h"
#include "compiler/expr/simplify.h"
#include "compiler/te/te.h"

namespace whet::loop {

using expr::Buffer;
using expr::Expr;
using expr::Var;
using te::Reducer;

enum class ForKind : uint8_t { kSerial, kParallel, kVectorized, kUnrolled };
std::string_view ToString(ForKind k);

enum class StmtKind : uint8_t { kFor, kSeq, kBlock, kStore, kIf };

struct StmtNode : RefCounted {
  explicit StmtNode(StmtKind k) : kind(k) {}
  const StmtKind kind;
};
using Stmt = RefPtr<const StmtNode>;

struct ForNode : StmtNode {
  ForNode() : StmtNode(StmtKind::kFor) {}
  Var var;  // its name is the loop's name
  int64_t begin = 0;
  int64_t extent = 1;
  ForKind for_kind = ForKind::kSerial;
  std::vector<std::pair<std::string, int64_t>> annotations;  // e.g. {"partition", 1}
  Stmt body;
  int64_t Annotation(std::string_view key, int64_t missing = 0) const;
};

struct SeqNode : StmtNode {
  SeqNode() : StmtNode(StmtKind::kSeq) {}
  std::vector<Stmt> items;
};

struct Iter {
  Var var;  // named after the te axis
  int64_t extent = 1;
  bool reduce = false;
};

struct BlockFields {
  std::string name;
  std::vector<Iter> iters;
  std::vector<Expr> bindings;  // one per iter, in loop variables
  Expr predicate;              // in loop variables; null is true
  Buffer out;
  std::vector<Expr> out_indices;  // in iter variables, like value and init
  Reducer reducer = Reducer::kNone;
  Expr init;  // of a reduction that is not yet decomposed
  Expr value;
};
struct BlockNode : StmtNode, BlockFields {
  explicit BlockNode(BlockFields f) : StmtNode(StmtKind::kBlock), BlockFields(std::move(f)) {}
};

struct StoreNode : StmtNode {  // lowered form
  StoreNode() : StmtNode(StmtKind::kStore) {}
  Buffer out;
  std::vector<Expr> indices;
  Expr value;
};

struct IfNode : StmtNode {  // lowered form
  IfNode() : StmtNode(StmtKind::kIf) {}
  Expr cond;
  Stmt body;
};

template <typename T>
const T* As(const Stmt& s);  // null when of another kind
template <>
inline const ForNode* As<ForNode>(const Stmt& s) {
  return s && s->kind == StmtKind::kFor ? static_cast<const ForNode*>(s.get()) : nullptr;
}
template <>
inline const SeqNode* As<SeqNode>(const Stmt& s) {
  return s && s->kind == StmtKind::kSeq ? static_cast<const SeqNode*>(s.get()) : nullptr;
}
template <>
inline const BlockNode* As<BlockNode>(const Stmt& s) {
  return s && s->kind == StmtKind::kBlock ? static_cast<const BlockNode*>(s.get()) : nullptr;
}
template <>
inline const StoreNode* As<StoreNode>(const Stmt& s) {
  return s && s->kind == StmtKind::kStore ? static_cast<const StoreNode*>(s.get()) : nullptr;
}
template <>
inline const IfNode* As<IfNode>(const Stmt& s) {
  return s && s->kind == StmtKind::kIf ? static_cast<const IfNode*>(s.get()) : nullptr;
}

Stmt MakeFor(Var var, int64_t begin, int64_t extent, ForKind kind, Stmt body,
             std::vector<std::pair<std::string, int64_t>> annotations = {});
Stmt WithBody(const ForNode& f, Stmt body);  // the same loop around another body
Stmt MakeSeq(std::vector<Stmt> items);  // flattens nested sequences, drops nulls; null when empty
Stmt MakeBlock(BlockFields fields);
Stmt MakeStore(Buffer out, std::vector<Expr> indices, Expr value);
Stmt MakeIf(Expr cond, Stmt body);  // the body itself when cond is true, null when false

enum class Role : uint8_t { kInput, kOutput, kWorkspace };
struct Param {
  Buffer buffer;
  Role role = Role::kInput;
};

struct Program {
  std::string name;
  // Inputs then outputs, in the workload's order; then workspaces once placed.
  std::vector<Param> params;
  std::vector<Buffer> intermediates;  // written and read inside
  Stmt body;
};

// Children first, then `f` on the rebuilt node: null from f keeps it. A statement can be removed by
// returning an empty sequence (MakeSeq({}) is null, so use `Removed()`).
Stmt Removed();
Stmt Map(const Stmt& s, const std::function<Stmt(const Stmt&)>& f);
void Walk(const Stmt& s, const std::function<void(const Stmt&)>& f);  // parents first
// Rewrites every expression of a statement tree; block expressions and loop-level ones alike.
Stmt MapExprs(const Stmt& s, const std::function<Expr(const Expr&)>& f);
// Replaces a buffer in all loads and stores; `indices` maps the old index vector to the new one.
Stmt ReplaceBuffer(const Stmt& s, const Buffer& from, const Buffer& to,
                   const std::function<std::vector<Expr>(const std::vector<Expr>&)>& indices);

// The loads of an expression, in order.
std::vector<const expr::ExprNode*> Loads(const Expr& e);
bool Reads(const BlockNode& b, const Buffer& buffer);

// Where a named thing is: the enclosing loops, outermost first.
struct BlockSite {
  const BlockNode* block = nullptr;
  std::vector<const ForNode*> loops;
};
StatusOr<BlockSite> FindBlock(const Program& p, std::string_view name);
std::vector<BlockSite> AllBlocks(const Program& p);
const ForNode* FindLoop(const Program& p, std::string_view name);
Buffer FindBuffer(const Program& p, std::string_view name);
bool NameTaken(const Program& p, std::string_view name);

// The program a te function denotes: one nest per stage in order; physical layouts of inputs and
// outputs (a permutation each) are applied to their buffers. Loops are called `<stage>.<axis>`,
// blocks after stages.
StatusOr<Program> FromTe(const std::string& name, const te::Func& func,
                         const std::vector<expr::IndexMap>& inputs,
                         const std::vector<expr::IndexMap>& outputs);

std::string ToString(const Stmt& s, int indent = 0);
std::string ToString(const Program& p);

}  // namespace whet::loop
