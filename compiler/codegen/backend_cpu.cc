// Loop program -> LLVM IR for CPUs. One function per root-level nest (a phase). Loops that the
// schedule unrolled are emitted as many times, vectorized ones once with a vector per expression;
// register buffers become one value per element. Addresses are split into a part that changes with
// the loops, computed once per loop level, and a constant displacement, so that nothing is left for
// strength reduction to find in unrolled bodies.
//
// What makes instructions stands alone, never twice among the arguments of one call: their order
// would be the C++ compiler's choice, and code has to come out the same from every build.
//
// Over the usual file length: the emitter is one class over one state (builder, scopes, masks,
// bounds), and cutting it would spread that state over files.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "compiler/codegen/llvm_common.h"
#include "compiler/expr/simplify.h"
#include "compiler/support/half.h"

namespace whet::codegen {
namespace {

using expr::Expr;
using expr::Kind;
using llvm::Value;
using loop::As;
using loop::Stmt;

class PhaseEmitter {
 public:
  PhaseEmitter(llvm::Module& m, const loop::Program& p,
               const std::map<const expr::BufferNode*, int64_t>& scratch, const Target& target)
      : m_(m), ctx_(m.getContext()), b_(ctx_), program_(p), scratch_(scratch), target_(target) {}

  StatusOr<int64_t> Emit(const Stmt& nest, const std::string& symbol) {
    auto* ptr = b_.getPtrTy();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(),
                                         {ptr, ptr, ptr, b_.getInt64Ty(), b_.getInt64Ty()}, false);
    fn_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, m_);
    fn_->setVisibility(llvm::GlobalValue::HiddenVisibility);
    SetFunctionTarget(*fn_, target_);
    for (unsigned i : {0u, 1u, 2u}) {
      fn_->addParamAttr(i, llvm::Attribute::NoAlias);
      fn_->addParamAttr(i, llvm::Attribute::NoCapture);
    }
    auto* entry = llvm::BasicBlock::Create(ctx_, "entry", fn_);
    auto* code = llvm::BasicBlock::Create(ctx_, "code", fn_);
    b_.SetInsertPoint(entry);
    entry_end_ = b_.CreateBr(code);
    scopes_.push_back({entry_end_, {}});
    b_.SetInsertPoint(code);
    domain_ = llvm::MDBuilder(ctx_).createAnonymousAliasScopeDomain();

    int64_t extent = 1;
    const auto* f = As<loop::ForNode>(nest);
    if (f && f->for_kind == loop::ForKind::kParallel) {
      extent = f->extent;
      // begin and end count iterations from 0
      Value* begin = b_.CreateAdd(fn_->getArg(3), b_.getInt64(f->begin));
      Value* end = b_.CreateAdd(fn_->getArg(4), b_.getInt64(f->begin));
      EmitLoop(*f, begin, end, /*may_be_empty=*/true);
    } else {
      EmitStmt(nest);
    }
    b_.CreateRetVoid();
    if (!status_.ok()) return status_;
    return extent;
  }

 private:
  // The vectors across those of a register buffer, by its first element there and their distance.
  using TurnedBlocks =
      std::map<std::tuple<const expr::BufferNode*, int64_t, int64_t>, std::vector<Value*>>;
  struct Variable {
    Value* value = nullptr;  // null: a constant, or the lanes of the vectorized loop
    int64_t constant = 0;
    bool lanes = false;
    size_t scope = 0;
  };
  struct Scope {
    llvm::Instruction* address_end;  // derived addresses of this level are inserted before it
    std::map<std::string, Value*> cache;
    std::map<std::string, Variable> derived;  // quotients and rests of this level's variables
  };

  void Fail(Status s) {
    if (status_.ok()) status_ = std::move(s);
  }

  // ---- statements
  // -----------------------------------------------------------------------------------------------
  void EmitStmt(const Stmt& s) {
    if (!status_.ok()) return;
    switch (s->kind) {
      case loop::StmtKind::kFor: return EmitFor(*As<loop::ForNode>(s));
      case loop::StmtKind::kSeq:
        for (const Stmt& item : As<loop::SeqNode>(s)->items) EmitStmt(item);
        return;
      case loop::StmtKind::kIf: return EmitIf(*As<loop::IfNode>(s));
      case loop::StmtKind::kStore: return EmitStore(*As<loop::StoreNode>(s));
      case loop::StmtKind::kBlock: return Fail(Internal("a block reached code generation"));
    }
  }

  void EmitFor(const loop::ForNode& f) {
    if (f.for_kind == loop::ForKind::kVectorized && f.extent > 1) {
      if (lanes_ > 1)
        return Fail(FailedPrecondition("vectorized loop '{}' is inside another", f.var->name));
      vars_[f.var.get()] = {nullptr, f.begin, true, 0};
      bounds_.Set(f.var, {f.begin, f.begin + f.extent - 1});
      lane_var_ = f.var;
      lanes_ = f.extent;
      lane_begin_ = f.begin;
      EmitStmt(f.body);
      lanes_ = 1;
      lane_var_ = nullptr;
      return;
    }
    if (f.for_kind == loop::ForKind::kUnrolled || f.extent == 1) {
      for (int64_t i = f.begin; i < f.begin + f.extent; ++i) {
        vars_[f.var.get()] = {nullptr, i, false, 0};
        bounds_.Set(f.var, {i, i});
        EmitStmt(f.body);
      }
      return;
    }
    EmitLoop(f, b_.getInt64(f.begin), b_.getInt64(f.begin + f.extent), false);
  }

  void EmitLoop(const loop::ForNode& f, Value* begin, Value* end, bool may_be_empty) {
    auto* pre = b_.GetInsertBlock();
    auto* head = llvm::BasicBlock::Create(ctx_, "loop", fn_);
    auto* body = llvm::BasicBlock::Create(ctx_, "body", fn_);
    auto* done = llvm::BasicBlock::Create(ctx_, "done", fn_);
    if (may_be_empty) {
      b_.CreateCondBr(b_.CreateICmpSLT(begin, end), head, done);
    } else {
      b_.CreateBr(head);
    }
    b_.SetInsertPoint(head);
    auto* i = b_.CreatePHI(b_.getInt64Ty(), 2);
    i->addIncoming(begin, pre);
    auto* address_end = b_.CreateBr(body);
    scopes_.push_back({address_end, {}});
    vars_[f.var.get()] = {i, 0, false, scopes_.size() - 1};
    bounds_.Set(f.var, {f.begin, f.begin + f.extent - 1});
    b_.SetInsertPoint(body);
    ForgetLoads();
    turned_.clear();
    const int64_t outer_prefetch = std::exchange(prefetch_, f.Annotation("prefetch"));
    EmitStmt(f.body);
    prefetch_ = outer_prefetch;
    Value* next = b_.CreateNSWAdd(i, b_.getInt64(1));
    i->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(next, end), head, done);
    b_.SetInsertPoint(done);
    scopes_.pop_back();
    ForgetLoads();
    turned_.clear();
  }

  void EmitIf(const loop::IfNode& s) {
    const Expr cond = expr::Simplify(s.cond, bounds_);
    if (expr::IsTrue(cond)) return EmitStmt(s.body);
    if (expr::IsFalse(cond)) return;
    shared_.clear();
    Value* c = EmitExpr(cond);
    if (c->getType()->isVectorTy()) {
      if (auto* constant = llvm::dyn_cast<llvm::Constant>(c)) {
        if (constant->isAllOnesValue()) return EmitStmt(s.body);
        if (constant->isNullValue()) return;
      }
      Value* outer = mask_;
      mask_ = outer ? b_.CreateAnd(outer, c) : c;
      ForgetLoads();
      EmitStmt(s.body);
      mask_ = outer;
      ForgetLoads();
      return;
    }
    auto* then = llvm::BasicBlock::Create(ctx_, "then", fn_);
    auto* done = llvm::BasicBlock::Create(ctx_, "done", fn_);
    b_.CreateCondBr(c, then, done);
    b_.SetInsertPoint(then);
    // Addresses cached while in here would not reach the code after; they go to loop levels, which
    // do.
    ForgetLoads();
    const TurnedBlocks before = turned_;
    EmitStmt(s.body);
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
    ForgetLoads();
    KeepTurned(before);
  }

  void EmitStore(const loop::StoreNode& s) {
    shared_.clear();
    if (lanes_ > 1 && EmitCombinedLanes(s)) return;
    Value* v = EmitExpr(s.value);
    if (!status_.ok()) return;
    const bool wide = lanes_ > 1;
    const Address a = AddressOf(*s.out, s.indices);
    if (!status_.ok()) return;
    if (s.out->scope == expr::Scope::kRegister) {
      if (wide && a.lane_stride == 1) v = Widen(v);
      llvm::AllocaInst* slot = RegisterSlot(*s.out, a, v->getType());
      if (!slot) return;
      if (mask_ && v->getType()->isVectorTy())
        v = b_.CreateSelect(mask_, v, b_.CreateLoad(v->getType(), slot));
      b_.CreateStore(v, slot);
      std::erase_if(turned_, [&](const auto& t) { return std::get<0>(t.first) == s.out.get(); });
      return;
    }
    if (!wide) {
      v = ToMemory(v);
      Mark(b_.CreateAlignedStore(v, Pointer(*s.out, a), ElementAlign(*s.out)), *s.out);
    } else if (a.lane_stride == 1) {
      v = ToMemory(Widen(v));
      if (const unsigned first = LeadingLanes()) {
        v = b_.CreateShuffleVector(v, FirstLanes(first, first));
        Mark(b_.CreateAlignedStore(v, Pointer(*s.out, a), ElementAlign(*s.out)), *s.out);
      } else if (mask_) {
        Mark(b_.CreateMaskedStore(v, Pointer(*s.out, a), ElementAlign(*s.out), mask_), *s.out);
      } else {
        Mark(b_.CreateAlignedStore(v, Pointer(*s.out, a), ElementAlign(*s.out)), *s.out);
      }
    } else if (a.lane_stride == 0) {
      return Fail(FailedPrecondition("all lanes of '{}' store to one element of '{}'",
                                     lane_var_->name, s.out->name));
    } else {
      v = ToMemory(Widen(v));
      Mark(b_.CreateMaskedScatter(v, LanePointers(*s.out, a), ElementAlign(*s.out), MaskOrAll()),
           *s.out);
    }
    ForgetLoads(s.out.get());
  }

  // A step of a reduction over the vectorized loop, out = out (op) value with the same element of
  // `out` for all lanes: the lanes are combined in pairs, halves of the vector first, and the
  // result with the element. False when the store is none.
  bool EmitCombinedLanes(const loop::StoreNode& s) {
    for (const Expr& i : s.indices) {
      if (expr::Uses(i, lane_var_)) return false;
    }
    if (s.value->kind != Kind::kBinary || IsHalf(s.value->dtype)) return false;
    auto is_element = [&](const Expr& e) {
      if (e->kind != Kind::kLoad || e->buffer.get() != s.out.get()) return false;
      for (size_t d = 0; d < s.indices.size(); ++d) {
        if (!expr::Same(expr::Simplify(e->args[d], bounds_), expr::Simplify(s.indices[d], bounds_)))
          return false;
      }
      return true;
    };
    using expr::BinaryOp;
    const BinaryOp op = s.value->binary;
    if (op != BinaryOp::kAdd && op != BinaryOp::kMul && op != BinaryOp::kMin &&
        op != BinaryOp::kMax)
      return false;
    const int side = is_element(s.value->args[0]) ? 0 : 1;
    if (!is_element(s.value->args[side])) return false;
    if (mask_) {
      Fail(FailedPrecondition("lanes of '{}' are combined under a condition", s.out->name));
      return true;
    }
    Value* v = Widen(EmitExpr(s.value->args[1 - side]));
    if (!status_.ok()) return true;
    const int64_t lanes = lanes_;
    // The low half of what is left with its high half, in vectors of four lanes at least: scalars
    // have no minimum and maximum of one instruction.
    int64_t left = lanes;
    for (; left > 1 && left % 2 == 0; left /= 2) {
      const int64_t width = std::max<int64_t>(left / 2, std::min<int64_t>(lanes, 4));
      llvm::SmallVector<int> low, high;
      for (int64_t i = 0; i < width; ++i) {
        low.push_back(static_cast<int>(i));
        high.push_back(static_cast<int>(i % (left / 2) + left / 2));
      }
      Value* x = width == lanes_ ? v : b_.CreateShuffleVector(v, low);
      Value* y = b_.CreateShuffleVector(v, high);
      lanes_ = width;  // what operations on such vectors are chosen by
      v = ApplyBinary(*s.value, x, y);
    }
    const int64_t width = lanes_;
    lanes_ = 1;
    for (int64_t i = 1; i < left; ++i) {
      Value* one = b_.CreateExtractElement(v, static_cast<uint64_t>(i));
      Value* first = b_.CreateExtractElement(v, uint64_t{0});
      v = b_.CreateInsertElement(v, ApplyBinary(*s.value, first, one), uint64_t{0});
    }
    // The element itself is no lane's: as in a scalar statement.
    const Address a = AddressOf(*s.out, s.indices);
    Value* element = EmitExpr(s.value->args[side]);
    if (!status_.ok()) return true;
    lanes_ = width;
    Value* r =
        ApplyBinary(*s.value, b_.CreateVectorSplat(static_cast<unsigned>(width), element), v);
    r = b_.CreateExtractElement(r, uint64_t{0});
    lanes_ = 1;
    if (status_.ok() && s.out->scope == expr::Scope::kRegister) {
      if (llvm::AllocaInst* slot = RegisterSlot(*s.out, a, r->getType())) b_.CreateStore(r, slot);
      std::erase_if(turned_, [&](const auto& t) { return std::get<0>(t.first) == s.out.get(); });
    } else if (status_.ok()) {
      r = ToMemory(r);
      Mark(b_.CreateAlignedStore(r, Pointer(*s.out, a), ElementAlign(*s.out)), *s.out);
      ForgetLoads(s.out.get());
    }
    lanes_ = lanes;
    return true;
  }

  // ---- addresses
  // ------------------------------------------------------------------------------------------------
  struct Address {
    int64_t constant = 0;                                    // elements
    std::vector<std::pair<const Variable*, int64_t>> terms;  // loop variables, deepest last
    std::vector<std::pair<Value*, int64_t>> computed;        // non-linear parts, scalar
    int64_t lane_stride = 0;      // elements from lane to lane; kGather when irregular
    Value* lane_index = nullptr;  // vector of element indices when irregular
    std::string key;              // of terms and computed
  };
  static constexpr int64_t kGather = INT64_MIN;

  Address AddressOf(const expr::BufferNode& buffer, const std::vector<Expr>& indices) {
    expr::Linear flat;
    int64_t stride = 1;
    for (size_t d = indices.size(); d-- > 0;) {
      flat = expr::Add(flat, expr::ToLinear(expr::Simplify(indices[d], bounds_)), stride);
      stride *= buffer.shape[d];
    }
    flat = expr::JoinDivMod(flat);
    Address a;
    a.constant = flat.constant;
    std::vector<std::pair<Value*, int64_t>> lane_parts;
    for (const auto& [atom, c] : flat.terms) {
      if (atom->kind == Kind::kVar) {
        auto it = vars_.find(atom.get());
        if (it == vars_.end()) {
          Fail(Internal("variable '{}' has no value", atom->name));
          return a;
        }
        const Variable& v = it->second;
        if (v.lanes) {
          a.lane_stride += c;
          a.constant += c * lane_begin_;
        } else if (!v.value) {
          a.constant += c * v.constant;
        } else {
          a.terms.emplace_back(&v, c);
        }
        continue;
      }
      if (const Variable* v = Derived(atom)) {
        a.terms.emplace_back(v, c);
        continue;
      }
      Value* v = EmitExpr(atom);
      if (!status_.ok()) return a;
      (v->getType()->isVectorTy() ? lane_parts : a.computed).emplace_back(v, c);
    }
    if (!lane_parts.empty()) {
      Value* index = b_.CreateMul(Iota(b_.getInt64Ty()), Splat(b_.getInt64(a.lane_stride)));
      for (auto& [v, c] : lane_parts)
        index = b_.CreateAdd(index, b_.CreateMul(v, Splat(b_.getInt64(c))));
      a.lane_index = index;
      a.lane_stride = kGather;
    }
    std::stable_sort(a.terms.begin(), a.terms.end(),
                     [](const auto& x, const auto& y) { return x.first->scope < y.first->scope; });
    for (const auto& [v, c] : a.terms)
      a.key += fmt::format("{}*{};", static_cast<const void*>(v->value), c);
    for (const auto& [v, c] : a.computed)
      a.key += fmt::format("!{}*{};", static_cast<const void*>(v), c);
    return a;
  }

  // What is computed from loop variables alone, as a tile's number in a fused loop is, is one more
  // variable of the innermost of their levels; null for anything else.
  const Variable* Derived(const Expr& atom) {
    size_t level = 0;
    bool known = atom->dtype == DType::kI64, varies = false;
    std::string key = expr::ToString(atom);
    expr::Visit(atom, [&](const expr::ExprNode& n) {
      known &= n.kind == Kind::kBinary || n.kind == Kind::kInt || n.kind == Kind::kVar;
      if (n.kind != Kind::kVar) return;
      const auto it = vars_.find(&n);
      known &= it != vars_.end() && it->second.value != nullptr;
      if (!known) return;
      varies = true;
      level = std::max(level, it->second.scope);
      key += fmt::format(";{}", static_cast<const void*>(it->second.value));
    });
    if (!known || !varies) return nullptr;
    auto& derived = scopes_[level].derived;
    if (auto it = derived.find(key); it != derived.end()) return &it->second;
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(scopes_[level].address_end);
    std::map<Expr, Value*> here;  // what has a value further down has none here
    std::swap(shared_, here);
    Value* v = EmitExpr(atom);
    std::swap(shared_, here);
    return &(derived[key] = Variable{v, 0, false, level});
  }

  // Buffer start plus the first `n` variable terms, cached at the loop level of the last of them.
  Value* Base(const expr::BufferNode& buffer, const Address& a, size_t n) {
    const size_t level = n == 0 ? 0 : a.terms[n - 1].first->scope;
    std::string key = buffer.name;
    for (size_t i = 0; i < n; ++i)
      key += fmt::format(";{}*{}", static_cast<const void*>(a.terms[i].first->value),
                         a.terms[i].second);
    Value*& slot = scopes_[level].cache[key];
    if (slot) return slot;
    // All terms of this level at once, on top of what is known one level up.
    size_t m = n;
    while (m > 0 && a.terms[m - 1].first->scope == level && level > 0) --m;
    if (n == 0) return slot = BufferStart(buffer);
    Value* below = Base(buffer, a, level == 0 ? 0 : m);
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(scopes_[level].address_end);
    Value* offset = nullptr;
    for (size_t i = m; i < n; ++i) {
      Value* t = b_.CreateNSWMul(a.terms[i].first->value, b_.getInt64(a.terms[i].second));
      offset = offset ? b_.CreateNSWAdd(offset, t) : t;
    }
    return scopes_[level].cache[key] = b_.CreateInBoundsGEP(ElementType(buffer), below, offset);
  }

  Value* BufferStart(const expr::BufferNode& buffer) {
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(entry_end_);
    for (size_t i = 0; i < program_.params.size(); ++i) {
      if (program_.params[i].buffer.get() != &buffer) continue;
      auto* load = b_.CreateLoad(b_.getPtrTy(),
                                 b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), fn_->getArg(0), i));
      auto* align = llvm::MDNode::get(ctx_, llvm::ConstantAsMetadata::get(b_.getInt64(64)));
      load->setMetadata(llvm::LLVMContext::MD_align, align);
      load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(ctx_, {}));
      load->setMetadata(llvm::LLVMContext::MD_nonnull, llvm::MDNode::get(ctx_, {}));
      return load;
    }
    auto it = scratch_.find(&buffer);
    if (it == scratch_.end()) {
      Fail(Internal("buffer '{}' has no place", buffer.name));
      return fn_->getArg(1);
    }
    return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), fn_->getArg(1), it->second);
  }

  Value* Pointer(const expr::BufferNode& buffer, const Address& a) {
    Value* p = Base(buffer, a, a.terms.size());
    for (const auto& [v, c] : a.computed) {
      p = b_.CreateInBoundsGEP(ElementType(buffer), p, b_.CreateNSWMul(v, b_.getInt64(c)));
    }
    return a.constant ? b_.CreateConstInBoundsGEP1_64(ElementType(buffer), p, a.constant) : p;
  }

  Value* LanePointers(const expr::BufferNode& buffer, const Address& a) {
    Value* index = a.lane_index
                       ? a.lane_index
                       : b_.CreateMul(Iota(b_.getInt64Ty()), Splat(b_.getInt64(a.lane_stride)));
    return b_.CreateGEP(ElementType(buffer), Pointer(buffer, a), index);
  }

  // Into L2: what the annotated loop around will read, this many bytes on. Beyond the buffer's end
  // it does nothing.
  void Prefetch(const expr::BufferNode& buffer, const Address& a) {
    const bool moves = !a.terms.empty() && a.terms.back().first->scope + 1 == scopes_.size();
    if (!moves) return;
    constexpr int kRead = 0, kIntoL2 = 2, kData = 1;
    Value* ahead = b_.CreateConstGEP1_64(b_.getInt8Ty(), Pointer(buffer, a), prefetch_);
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                       {ahead, b_.getInt32(kRead), b_.getInt32(kIntoL2), b_.getInt32(kData)});
  }

  // The value that holds one element (or one vector of elements) of a register buffer.
  llvm::AllocaInst* RegisterSlot(const expr::BufferNode& buffer, const Address& a,
                                 llvm::Type* type) {
    if (!a.terms.empty() || !a.computed.empty() || a.lane_index) {
      Fail(FailedPrecondition(
          "register buffer '{}' is indexed by a loop that is neither unrolled nor vectorized",
          buffer.name));
      return nullptr;
    }
    const int64_t lanes = lanes_ > 1 && a.lane_stride == 1 ? lanes_ : 1;
    if (lanes_ > 1 && a.lane_stride != 1 && a.lane_stride != 0) {
      Fail(FailedPrecondition("register buffer '{}' is read with lane stride {}", buffer.name,
                              a.lane_stride));
      return nullptr;
    }
    if (a.constant < 0 || a.constant + lanes > buffer.num_elements()) {
      Fail(Internal("register buffer '{}' of {} elements is indexed at {}", buffer.name,
                    buffer.num_elements(), a.constant));
      return nullptr;
    }
    auto& slots = registers_[&buffer];
    auto it = slots.upper_bound(a.constant);
    if (it != slots.begin()) {
      auto& [start, slot] = *std::prev(it);
      if (start == a.constant && slot.second == lanes) return slot.first;
      if (start + slot.second > a.constant) {
        Fail(FailedPrecondition(
            "register buffer '{}' is accessed in vectors of {} and of {} elements", buffer.name,
            slot.second, lanes));
        return nullptr;
      }
    }
    if (it != slots.end() && it->first < a.constant + lanes) {
      Fail(FailedPrecondition("register buffer '{}' is accessed in overlapping vectors",
                              buffer.name));
      return nullptr;
    }
    if (slots.size() > 512) {
      Fail(FailedPrecondition("register buffer '{}' has more than 512 values", buffer.name));
      return nullptr;
    }
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(&fn_->getEntryBlock(), fn_->getEntryBlock().begin());
    auto* slot = b_.CreateAlloca(type);
    slots[a.constant] = {slot, lanes};
    return slot;
  }

  // A vector across the vectors that a register buffer was written in: one of those that a square
  // block of them turned around consists of. The whole block is turned at the first of its vectors.
  Value* EmitTurned(const expr::BufferNode& buffer, const Address& a) {
    llvm::Value* none = llvm::PoisonValue::get(
        llvm::FixedVectorType::get(ElementType(buffer), static_cast<unsigned>(lanes_)));
    const auto& slots = registers_[&buffer];
    auto it = slots.upper_bound(a.constant);
    const bool known = a.terms.empty() && a.computed.empty() && it != slots.begin();
    if (known) --it;
    const int64_t start = known ? it->first : 0, place = a.constant - start;
    if (!known || it->second.second != lanes_ || place >= lanes_ || a.lane_stride < lanes_ ||
        (lanes_ & (lanes_ - 1)) != 0) {
      Fail(FailedPrecondition(
          "register buffer '{}' is read with lane stride {}, not across {} vectors of {} elements",
          buffer.name, a.lane_stride, lanes_, lanes_));
      return none;
    }
    std::vector<Value*>& turned = turned_[{&buffer, start, a.lane_stride}];
    if (turned.empty()) {
      std::vector<Value*> rows;
      for (int64_t i = 0; i < lanes_; ++i) {
        const auto row = slots.find(start + i * a.lane_stride);
        // What was never written lies beyond an operand's end, and its lanes are masked away.
        const bool written = row != slots.end() && row->second.second == lanes_;
        Value* v = written ? b_.CreateLoad(none->getType(), row->second.first) : none;
        // Dividing by what is not there is harmless only for floats.
        rows.push_back(IsFloat(buffer.dtype) ? v : b_.CreateFreeze(v));
      }
      turned = TurnBlock(std::move(rows), SizeOf(buffer.dtype));
    }
    return turned[static_cast<size_t>(place)];
  }

  // After a branch: what was there before it and was not written in it.
  void KeepTurned(const TurnedBlocks& before) {
    std::erase_if(turned_, [&](const auto& block) {
      const auto it = before.find(block.first);
      return it == before.end() || it->second != block.second;
    });
  }

  // n vectors of n elements, n a power of two, with rows and columns exchanged. First within the
  // 128 bits that an instruction mixes at no cost beyond its own, each step zipping two vectors;
  // then whole pieces of 128 bits change places. Each shuffle is one instruction of x86.
  std::vector<Value*> TurnBlock(std::vector<Value*> rows, int64_t element_bytes) {
    const auto n = static_cast<int>(rows.size());
    const int piece = std::min(n, static_cast<int>(16 / element_bytes)), pieces = n / piece;
    std::vector<Value*> next(rows.size());
    for (int done = 1; done < piece; done *= 2) {
      for (int i = 0; i < n; ++i) {
        // Row i = (group, k, high) of the next step from rows (group, k) and (group, k + piece /
        // 2).
        const int group = i / piece, k = i % piece / 2, high = i % 2;
        llvm::SmallVector<int> zip;
        for (int lane = 0; lane < n; ++lane) {
          const int at = lane / piece * piece + high * piece / 2 + lane % piece / 2;
          zip.push_back(lane % 2 * n + at);
        }
        Value* low_row = rows[static_cast<size_t>(group * piece + k)];
        Value* high_row = rows[static_cast<size_t>(group * piece + k + piece / 2)];
        next[static_cast<size_t>(i)] = b_.CreateShuffleVector(low_row, high_row, zip);
      }
      std::swap(rows, next);
    }
    for (int done = 1; done < pieces; done *= 2) {
      for (int i = 0; i < n; ++i) {
        // Row (odd, group, k) takes the pieces of that parity from rows (2 * group, k) and the
        // next.
        const int odd = i / piece / (pieces / 2), group = i / piece % (pieces / 2), k = i % piece;
        llvm::SmallVector<int> parity;
        for (int lane = 0; lane < n; ++lane) {
          const int at = lane / piece % (pieces / 2) * 2 + odd;
          parity.push_back(lane / (n / 2) * n + at * piece + lane % piece);
        }
        Value* even_row = rows[static_cast<size_t>(2 * group * piece + k)];
        Value* odd_row = rows[static_cast<size_t>((2 * group + 1) * piece + k)];
        next[static_cast<size_t>(i)] = b_.CreateShuffleVector(even_row, odd_row, parity);
      }
      std::swap(rows, next);
    }
    return rows;
  }

  // ---- expressions
  // ----------------------------------------------------------------------------------------------
  Value* EmitExpr(const Expr& e) {
    if (!status_.ok()) return llvm::PoisonValue::get(b_.getInt64Ty());
    if (e->args.empty() || e->kind == Kind::kLoad || !e->Shared()) return EmitNode(e);
    if (auto it = shared_.find(e); it != shared_.end()) return it->second;
    Value* v = EmitNode(e);
    shared_[e] = v;
    return v;
  }

  Value* EmitNode(const Expr& e) {
    switch (e->kind) {
      case Kind::kInt:
        return llvm::ConstantInt::get(TypeOf(e->dtype), static_cast<uint64_t>(e->int_value), true);
      case Kind::kFloat:
        if (IsHalf(e->dtype)) {
          const auto f = static_cast<float>(e->float_value);
          return b_.getInt16(e->dtype == DType::kF16 ? F32ToF16(f) : F32ToBF16(f));
        }
        return llvm::ConstantFP::get(TypeOf(e->dtype), e->float_value);
      case Kind::kVar: return EmitVar(*e);
      case Kind::kNot: return b_.CreateNot(EmitExpr(e->args[0]));
      case Kind::kSelect: return EmitSelect(*e);
      case Kind::kCast: return EmitCast(*e);
      case Kind::kCall: return EmitCall(*e);
      case Kind::kLoad: return EmitLoad(*e);
      case Kind::kBinary: return EmitBinary(*e);
    }
    return nullptr;
  }

  Value* EmitVar(const expr::ExprNode& e) {
    auto it = vars_.find(&e);
    if (it == vars_.end()) {
      Fail(Internal("variable '{}' has no value", e.name));
      return b_.getInt64(0);
    }
    const Variable& v = it->second;
    if (v.lanes) return b_.CreateAdd(Iota(b_.getInt64Ty()), Splat(b_.getInt64(v.constant)));
    return v.value ? v.value : b_.getInt64(static_cast<uint64_t>(v.constant));
  }

  Value* EmitSelect(const expr::ExprNode& e) {
    const Expr cond = expr::Simplify(e.args[0], bounds_);
    if (expr::IsTrue(cond)) return EmitExpr(e.args[1]);
    if (expr::IsFalse(cond)) return EmitExpr(e.args[2]);
    Value* c = EmitExpr(cond);
    if (LoadsAreIn(cond, {e.args[1], e.args[2]})) {
      Value* x = EmitExpr(e.args[1]);
      Value* y = EmitExpr(e.args[2]);
      Match(x, y);
      if (c->getType()->isVectorTy()) {
        x = Widen(x);
        y = Widen(y);
      }
      return b_.CreateSelect(c, x, y);
    }
    if (c->getType()->isVectorTy()) {
      Value* outer = mask_;
      mask_ = outer ? b_.CreateAnd(outer, c) : c;
      ForgetLoads();
      masked_load_ = nullptr;
      Value* x = Widen(EmitExpr(e.args[1]));
      mask_ = outer;
      ForgetLoads();
      Value* y = Widen(EmitExpr(e.args[2]));
      // What is loaded under a mask is 0 outside of it already.
      const auto* zero = llvm::dyn_cast<llvm::Constant>(y);
      if (x == masked_load_ && zero && zero->isNullValue()) return x;
      return b_.CreateSelect(c, x, y);
    }
    // A load may be out of bounds where its side is not taken: branch.
    auto* then = llvm::BasicBlock::Create(ctx_, "then", fn_);
    auto* other = llvm::BasicBlock::Create(ctx_, "else", fn_);
    auto* done = llvm::BasicBlock::Create(ctx_, "done", fn_);
    b_.CreateCondBr(c, then, other);
    ForgetLoads();
    b_.SetInsertPoint(then);
    const TurnedBlocks before = turned_;
    Value* x = EmitExpr(e.args[1]);
    if (lanes_ > 1) x = Widen(x);
    b_.CreateBr(done);
    auto* then_end = b_.GetInsertBlock();
    ForgetLoads();
    KeepTurned(before);
    b_.SetInsertPoint(other);
    Value* y = EmitExpr(e.args[2]);
    if (lanes_ > 1) y = Widen(y);
    b_.CreateBr(done);
    auto* else_end = b_.GetInsertBlock();
    ForgetLoads();
    KeepTurned(before);
    b_.SetInsertPoint(done);
    auto* phi = b_.CreatePHI(x->getType(), 2);
    phi->addIncoming(x, then_end);
    phi->addIncoming(y, else_end);
    return phi;
  }

  using Nodes = std::set<Expr>;
  static void LoadsOf(const Expr& e, Nodes& seen, Nodes& loads) {
    if (e->args.empty() || !seen.insert(e).second) return;
    if (e->kind == Kind::kLoad) loads.insert(e);
    for (const Expr& a : e->args) LoadsOf(a, seen, loads);
  }

  // Whether whatever the values load, the condition loads too: then it is there on both sides.
  bool LoadsAreIn(const Expr& cond, std::initializer_list<Expr> values) {
    Nodes seen, loads;
    for (const Expr& v : values) LoadsOf(v, seen, loads);
    if (loads.empty()) return true;
    Nodes seen_in_cond, known;
    LoadsOf(cond, seen_in_cond, known);
    if (known.empty()) return false;
    return std::all_of(loads.begin(), loads.end(), [&](const Expr& l) {
      if (known.count(l)) return true;
      const Expr simple = expr::Simplify(l, bounds_);
      return std::any_of(known.begin(), known.end(),
                         [&](const Expr& k) { return expr::Same(k, simple); });
    });
  }

  Value* EmitCast(const expr::ExprNode& e) {
    Value* v = EmitExpr(e.args[0]);
    if (!status_.ok()) return v;
    return Convert(v, e.args[0]->dtype, e.dtype);
  }

  Value* Convert(Value* v, DType from, DType to) {
    if (from == to) return v;
    if (IsHalf(from)) return Convert(FromHalf(v, from), DType::kF32, to);
    if (IsHalf(to)) {
      // By way of the f32 that rounds to the same; integers of up to 16 bits are exact in it.
      if (!IsFloat(from) && SizeOf(from) > 2) {
        v = Convert(v, from, DType::kF64);
        from = DType::kF64;
      }
      return ToHalf(from == DType::kF64 ? RoundToOdd(v) : Convert(v, from, DType::kF32), to);
    }
    llvm::Type* type = v->getType()->getWithNewType(TypeOf(to));
    if (IsFloat(from) && IsFloat(to)) return b_.CreateFPCast(v, type);
    if (to == DType::kBool) {
      llvm::Constant* zero = llvm::Constant::getNullValue(v->getType());
      return IsFloat(from) ? b_.CreateFCmpUNE(v, zero) : b_.CreateICmpNE(v, zero);
    }
    if (IsFloat(from)) {
      if (v->getType()->isVectorTy()) return ToInts(v, from, to);
      const auto id = IsUnsigned(to) ? llvm::Intrinsic::fptoui_sat : llvm::Intrinsic::fptosi_sat;
      return b_.CreateIntrinsic(id, {type, v->getType()}, {v});
    }
    if (IsFloat(to)) return IsUnsigned(from) ? b_.CreateUIToFP(v, type) : b_.CreateSIToFP(v, type);
    return b_.CreateIntCast(v, type, !IsUnsigned(from));
  }

  // Vectors of floats towards zero, the nearest value of the type for what it does not hold, 0 for
  // NaN: by comparisons, since LLVM takes its own conversion of that kind apart into lanes.
  Value* ToInts(Value* v, DType from, DType to) {
    const int bits = static_cast<int>(8 * SizeOf(to)) - (IsUnsigned(to) ? 0 : 1);
    const double end = std::ldexp(1.0, bits), least = IsUnsigned(to) ? 0 : -end;
    // The last float below `end`; where that is below `end` - 1, larger ones are told apart.
    const bool exact = bits <= (from == DType::kF32 ? 24 : 53);
    const double below = from == DType::kF32
                             ? static_cast<double>(std::nextafterf(static_cast<float>(end), 0.0f))
                             : std::nextafter(end, 0.0);
    auto number = [&](double x) { return llvm::ConstantFP::get(v->getType(), x); };
    // Operands in the order that makes each a minimum or maximum, NaN the least.
    Value* is_more = b_.CreateFCmpOGT(v, number(least));
    Value* x = b_.CreateSelect(is_more, v, number(least));
    const double most = exact ? end - 1 : below;
    Value* is_less = b_.CreateFCmpOLT(x, number(most));
    x = b_.CreateSelect(is_less, x, number(most));
    const bool narrow = SizeOf(to) < 4;
    llvm::Type* type = v->getType()->getWithNewType(TypeOf(to));
    llvm::Type* wide = narrow ? v->getType()->getWithNewType(b_.getInt32Ty()) : type;
    Value* i = IsUnsigned(to) && !narrow ? b_.CreateFPToUI(x, wide) : b_.CreateFPToSI(x, wide);
    if (!exact) {
      Value* too_large = b_.CreateFCmpOGE(v, number(end));
      const llvm::APInt highest = IsUnsigned(to)
                                      ? llvm::APInt::getMaxValue(type->getScalarSizeInBits())
                                      : llvm::APInt::getSignedMaxValue(type->getScalarSizeInBits());
      i = b_.CreateSelect(too_large, llvm::ConstantInt::get(type, highest), i);
    }
    if (!IsUnsigned(to)) {
      Value* is_number = b_.CreateFCmpORD(v, v);
      i = b_.CreateSelect(is_number, i, llvm::Constant::getNullValue(wide));
    }
    return narrow ? b_.CreateTrunc(i, type) : i;
  }

  // ---- half precisions: 16-bit integers in code, because what LLVM makes of its own types calls
  // functions of a compiler's support library where the machine lacks an instruction. Arithmetic
  // is done in f32 and rounded once.
  Value* FromHalf(Value* h, DType from) {
    llvm::Type* bits = h->getType()->getWithNewType(b_.getInt32Ty());
    llvm::Type* f32 = h->getType()->getWithNewType(b_.getFloatTy());
    auto constant = [&](uint32_t x) { return llvm::ConstantInt::get(bits, x); };
    if (from == DType::kF16 && NativeHalf())
      return b_.CreateFPExt(b_.CreateBitCast(h, h->getType()->getWithNewType(b_.getHalfTy())), f32);
    Value* x = b_.CreateZExt(h, bits);
    if (from == DType::kBF16) return b_.CreateBitCast(b_.CreateShl(x, constant(16)), f32);
    Value* sign = b_.CreateShl(b_.CreateAnd(x, constant(0x8000)), constant(16));
    Value* m = b_.CreateAnd(x, constant(0x7fff));
    Value* normal = b_.CreateAdd(b_.CreateShl(m, constant(13)), constant(112u << 23));
    Value* special = b_.CreateOr(b_.CreateShl(m, constant(13)), constant(0x7f800000));
    Value* tiny = b_.CreateBitCast(
        b_.CreateFMul(b_.CreateUIToFP(m, f32), llvm::ConstantFP::get(f32, 0x1.0p-24)), bits);
    Value* r = b_.CreateSelect(b_.CreateICmpULT(m, constant(0x0400)), tiny, normal);
    r = b_.CreateSelect(b_.CreateICmpUGE(m, constant(0x7c00)), special, r);
    return b_.CreateBitCast(b_.CreateOr(r, sign), f32);
  }

  // The algorithms of support/half.h.
  Value* ToHalf(Value* f, DType to) {
    llvm::Type* bits = f->getType()->getWithNewType(b_.getInt32Ty());
    llvm::Type* half = f->getType()->getWithNewType(b_.getInt16Ty());
    auto constant = [&](uint32_t x) { return llvm::ConstantInt::get(bits, x); };
    if (to == DType::kF16 && NativeHalf())
      return b_.CreateBitCast(b_.CreateFPTrunc(f, f->getType()->getWithNewType(b_.getHalfTy())),
                              half);
    Value* x = b_.CreateBitCast(f, bits);
    Value* is_nan = b_.CreateFCmpUNO(f, f);
    auto rounded = [&](Value* v, uint32_t shift) {
      Value* odd = b_.CreateAnd(b_.CreateLShr(v, constant(shift)), constant(1));
      return b_.CreateAdd(b_.CreateAdd(v, constant((1u << (shift - 1)) - 1)), odd);
    };
    if (to == DType::kBF16) {
      Value* nan = b_.CreateOr(b_.CreateLShr(x, constant(16)), constant(0x40));
      Value* r = b_.CreateLShr(rounded(x, 16), constant(16));
      return b_.CreateTrunc(b_.CreateSelect(is_nan, nan, r), half);
    }
    Value* sign = b_.CreateAnd(b_.CreateLShr(x, constant(16)), constant(0x8000));
    Value* m = b_.CreateAnd(x, constant(0x7fffffff));
    Value* normal = b_.CreateLShr(b_.CreateSub(rounded(m, 13), constant(112u << 23)), constant(13));
    // Adding 0.5 leaves multiples of 2^-24 in the low bits.
    Value* offset = llvm::ConstantFP::get(f->getType(), 0.5);
    Value* tiny = b_.CreateSub(
        b_.CreateBitCast(b_.CreateFAdd(b_.CreateBitCast(m, f->getType()), offset), bits),
        constant(0x3f000000));
    Value* r = b_.CreateSelect(b_.CreateICmpULT(m, constant(0x38800000)), tiny, normal);
    r = b_.CreateSelect(b_.CreateICmpUGE(m, constant(0x477ff000)), constant(0x7c00), r);
    r = b_.CreateSelect(is_nan, constant(0x7e00), r);
    return b_.CreateTrunc(b_.CreateOr(r, sign), half);
  }

  bool NativeHalf() const { return target_.arch == "aarch64" || target_.Has("f16c"); }

  // An f64 to the f32 that support/half.h's F64ToF32Odd gives.
  Value* RoundToOdd(Value* v) {
    llvm::Type* f32 = v->getType()->getWithNewType(b_.getFloatTy());
    llvm::Type* bits = v->getType()->getWithNewType(b_.getInt32Ty());
    Value* f = b_.CreateFPTrunc(v, f32);
    Value* back = b_.CreateFPExt(f, v->getType());
    Value* inexact = b_.CreateZExt(b_.CreateFCmpONE(back, v), bits);
    Value* size = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v);
    Value* size_back = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back);
    Value* beyond = b_.CreateZExt(b_.CreateFCmpOGT(size_back, size), bits);
    Value* x = b_.CreateSub(b_.CreateBitCast(f, bits), beyond);
    return b_.CreateBitCast(b_.CreateOr(x, inexact), f32);
  }

  Value* EmitCall(const expr::ExprNode& e) {
    Value* v = EmitExpr(e.args[0]);
    if (!status_.ok()) return v;
    return IsHalf(e.dtype) ? ToHalf(EmitCallOf(e, FromHalf(v, e.dtype)), e.dtype)
                           : EmitCallOf(e, v);
  }

  Value* EmitCallOf(const expr::ExprNode& e, Value* v) {
    switch (e.call) {
      case expr::Intrinsic::kSqrt: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, v);
      case expr::Intrinsic::kAbs: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v);
      case expr::Intrinsic::kFloor:
      case expr::Intrinsic::kCeil:
      case expr::Intrinsic::kRound: return EmitRounding(e.call, v);
      case expr::Intrinsic::kPow2:
      case expr::Intrinsic::kMantissa:
      case expr::Intrinsic::kExponent: return EmitFloatBits(e.call, v);
      default: break;
    }
    Fail(Internal("'{}' was not expanded before code generation", expr::ToString(e.call)));
    return v;
  }

  // To an integral value. Before SSE4.1 there is no instruction, and LLVM would call the C library:
  // there, adding 2^(bits of the fraction) with the sign of v rounds, half to even.
  Value* EmitRounding(expr::Intrinsic f, Value* v) {
    if (target_.arch != "x86_64" || target_.Has("sse4.1")) {
      return b_.CreateUnaryIntrinsic(f == expr::Intrinsic::kFloor  ? llvm::Intrinsic::floor
                                     : f == expr::Intrinsic::kCeil ? llvm::Intrinsic::ceil
                                                                   : llvm::Intrinsic::roundeven,
                                     v);
    }
    llvm::Type* t = v->getType();
    const double ulp_is_one = t->getScalarType()->isDoubleTy() ? 0x1.0p52 : 0x1.0p23;
    auto with_sign = [&](Value* x) {
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, v);
    };
    Value* limit = llvm::ConstantFP::get(t, ulp_is_one);
    Value* magic = with_sign(limit);
    Value* r = b_.CreateFSub(b_.CreateFAdd(v, magic), magic);
    Value* one = llvm::ConstantFP::get(t, 1);
    if (f == expr::Intrinsic::kFloor) {
      Value* above = b_.CreateFCmpOGT(r, v);
      r = b_.CreateSelect(above, b_.CreateFSub(r, one), r);
    }
    if (f == expr::Intrinsic::kCeil) {
      Value* below = b_.CreateFCmpOLT(r, v);
      r = b_.CreateSelect(below, b_.CreateFAdd(r, one), r);
    }
    Value* has_fraction =
        b_.CreateFCmpOLT(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v), limit);
    return b_.CreateSelect(has_fraction, with_sign(r), v);
  }

  // The bit fields of an f32 or f64. Total on every input, NaN and infinity too: the expansions
  // select those results away.
  Value* EmitFloatBits(expr::Intrinsic f, Value* v) {
    const bool wide = v->getType()->getScalarType()->isDoubleTy();
    llvm::Type* bits = v->getType()->getWithNewType(wide ? b_.getInt64Ty() : b_.getInt32Ty());
    const uint64_t fraction = wide ? 52 : 23, bias = wide ? 1023 : 127;
    auto constant = [&](uint64_t x) { return llvm::ConstantInt::get(bits, x); };
    if (f == expr::Intrinsic::kPow2) {
      // Adding 1.5 * 2^fraction leaves the integer in the low bits; shifted into the exponent field
      // over the bias it is 2^n.
      Value* shifter =
          llvm::ConstantFP::get(v->getType(), std::ldexp(1.5, static_cast<int>(fraction)));
      auto* rounded = llvm::dyn_cast<llvm::BinaryOperator>(v);
      // v itself may come from such a sum: (x + shifter) - shifter rounds x to an integer.
      const bool is_sum = rounded && rounded->getOpcode() == llvm::Instruction::FSub &&
                          rounded->getOperand(1) == shifter;
      Value* n =
          b_.CreateBitCast(is_sum ? rounded->getOperand(0) : b_.CreateFAdd(v, shifter), bits);
      return b_.CreateBitCast(
          b_.CreateAdd(b_.CreateShl(n, constant(fraction)), constant(bias << fraction)),
          v->getType());
    }
    Value* x = b_.CreateBitCast(v, bits);
    if (f == expr::Intrinsic::kMantissa) {
      return b_.CreateBitCast(b_.CreateOr(b_.CreateAnd(x, constant((uint64_t{1} << fraction) - 1)),
                                          constant(bias << fraction)),
                              v->getType());
    }
    return b_.CreateSIToFP(b_.CreateSub(b_.CreateLShr(x, constant(fraction)), constant(bias)),
                           v->getType());
  }

  Value* EmitBinary(const expr::ExprNode& e) {
    using expr::BinaryOp;
    const bool is_float = IsFloat(e.args[0]->dtype);
    const bool is_half = IsHalf(e.args[0]->dtype);
    if (is_float && !is_half && (e.binary == BinaryOp::kAdd || e.binary == BinaryOp::kSub)) {
      if (Value* v = EmitFma(e)) return v;
    }
    Value* x = EmitExpr(e.args[0]);
    Value* y = EmitExpr(e.args[1]);
    if (!status_.ok()) return x;
    Match(x, y);
    if (is_half) {
      x = FromHalf(x, e.args[0]->dtype);
      y = FromHalf(y, e.args[0]->dtype);
      Value* v = EmitFloatBinary(e, x, y);
      return status_.ok() && e.dtype != DType::kBool ? ToHalf(v, e.dtype) : v;
    }
    return ApplyBinary(e, x, y);
  }

  // Of values of full types: halves are computed with in f32.
  Value* ApplyBinary(const expr::ExprNode& e, Value* x, Value* y) {
    using expr::BinaryOp;
    const bool is_unsigned = IsUnsigned(e.args[0]->dtype);
    if (IsFloat(e.args[0]->dtype)) return EmitFloatBinary(e, x, y);
    switch (e.binary) {
      case BinaryOp::kAdd: return b_.CreateAdd(x, y);
      case BinaryOp::kSub: return b_.CreateSub(x, y);
      case BinaryOp::kMul: return b_.CreateMul(x, y);
      case BinaryOp::kFloorDiv:
      case BinaryOp::kFloorMod: return EmitDivMod(e, x, y);
      case BinaryOp::kMin:
        return b_.CreateBinaryIntrinsic(is_unsigned ? llvm::Intrinsic::umin : llvm::Intrinsic::smin,
                                        x, y);
      case BinaryOp::kMax:
        return b_.CreateBinaryIntrinsic(is_unsigned ? llvm::Intrinsic::umax : llvm::Intrinsic::smax,
                                        x, y);
      case BinaryOp::kEq: return b_.CreateICmpEQ(x, y);
      case BinaryOp::kNe: return b_.CreateICmpNE(x, y);
      case BinaryOp::kLt: return is_unsigned ? b_.CreateICmpULT(x, y) : b_.CreateICmpSLT(x, y);
      case BinaryOp::kLe: return is_unsigned ? b_.CreateICmpULE(x, y) : b_.CreateICmpSLE(x, y);
      case BinaryOp::kAnd:
      case BinaryOp::kBitAnd: return b_.CreateAnd(x, y);
      case BinaryOp::kOr:
      case BinaryOp::kBitOr: return b_.CreateOr(x, y);
      case BinaryOp::kBitXor: return b_.CreateXor(x, y);
      case BinaryOp::kShl:
      case BinaryOp::kShr: return EmitShift(e, x, y);
      case BinaryOp::kPow: return EmitIntPow(x, y, e.dtype);
      case BinaryOp::kDiv: break;
    }
    Fail(Internal("operator '{}' on integers", expr::ToString(e.binary)));
    return x;
  }

  Value* EmitFloatBinary(const expr::ExprNode& e, Value* x, Value* y) {
    using expr::BinaryOp;
    switch (e.binary) {
      case BinaryOp::kAdd: return b_.CreateFAdd(x, y);
      case BinaryOp::kSub: return b_.CreateFSub(x, y);
      case BinaryOp::kMul: return b_.CreateFMul(x, y);
      case BinaryOp::kDiv: return b_.CreateFDiv(x, y);
      case BinaryOp::kMax:
      case BinaryOp::kMin: return EmitMinMax(e.binary == BinaryOp::kMax, x, y);
      case BinaryOp::kEq: return b_.CreateFCmpOEQ(x, y);
      case BinaryOp::kNe: return b_.CreateFCmpUNE(x, y);
      case BinaryOp::kLt: return b_.CreateFCmpOLT(x, y);
      case BinaryOp::kLe: return b_.CreateFCmpOLE(x, y);
      default: break;
    }
    Fail(Internal("'{}' was not expanded before code generation", expr::ToString(e.binary)));
    return x;
  }

  // By squaring, all bits of the exponent.
  Value* EmitIntPow(Value* x, Value* y, DType t) {
    Value* zero = llvm::Constant::getNullValue(x->getType());
    Value* one = llvm::ConstantInt::get(x->getType(), 1);
    Value* negative = b_.CreateICmpSLT(y, zero);
    Value* n = IsUnsigned(t) ? y : b_.CreateSelect(negative, b_.CreateNeg(y), y);
    Value *power = one, *square = x;
    for (int64_t bit = 0; bit < 8 * SizeOf(t); ++bit) {
      Value* on = b_.CreateAnd(n, llvm::ConstantInt::get(n->getType(), uint64_t{1} << bit));
      Value* next = b_.CreateMul(power, square);
      power = b_.CreateSelect(b_.CreateICmpNE(on, zero), next, power);
      square = b_.CreateMul(square, square);
    }
    if (IsUnsigned(t)) return power;
    Value* is_one = b_.CreateICmpEQ(x, one);
    Value* unit = b_.CreateOr(is_one, b_.CreateICmpEQ(x, b_.CreateNeg(one)));
    return b_.CreateSelect(b_.CreateAnd(negative, b_.CreateNot(unit)), zero, power);
  }

  // A shift by the type's width or more has no defined result in LLVM.
  Value* EmitShift(const expr::ExprNode& e, Value* x, Value* y) {
    const auto bits = static_cast<uint64_t>(8 * SizeOf(e.dtype));
    Value* last = llvm::ConstantInt::get(y->getType(), bits - 1);
    Value* by = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, y, last);
    if (e.binary == expr::BinaryOp::kShr && !IsUnsigned(e.dtype)) return b_.CreateAShr(x, by);
    Value* r = e.binary == expr::BinaryOp::kShl ? b_.CreateShl(x, by) : b_.CreateLShr(x, by);
    return b_.CreateSelect(b_.CreateICmpUGT(y, last), llvm::Constant::getNullValue(x->getType()),
                           r);
  }

  // Total: by 0 it gives 0, and the least integer divided by -1 wraps around.
  Value* EmitDivMod(const expr::ExprNode& e, Value* x, Value* y) {
    auto range = bounds_.Of(e.args[0]), by = bounds_.Of(e.args[1]);
    const bool mod = e.binary == expr::BinaryOp::kFloorMod;
    Value* zero = llvm::Constant::getNullValue(x->getType());
    Value* by_zero = nullptr;
    if (!by || (by->lo <= 0 && by->hi >= 0)) {
      by_zero = b_.CreateICmpEQ(y, zero);
      y = b_.CreateSelect(by_zero, llvm::ConstantInt::get(y->getType(), 1), y);
    }
    auto finish = [&](Value* v) { return by_zero ? b_.CreateSelect(by_zero, zero, v) : v; };
    const bool positive = range && range->lo >= 0 && by && by->lo >= 0;
    if (positive || IsUnsigned(e.dtype))
      return finish(mod ? b_.CreateURem(x, y) : b_.CreateUDiv(x, y));
    Value* by_minus_one = nullptr;
    if (!by || (by->lo <= -1 && by->hi >= -1)) {
      by_minus_one = b_.CreateICmpEQ(y, llvm::Constant::getAllOnesValue(y->getType()));
      y = b_.CreateSelect(by_minus_one, llvm::ConstantInt::get(y->getType(), 1), y);
    }
    // floor: correct the truncated result when the signs differ and there is a rest
    Value* q = b_.CreateSDiv(x, y);
    Value* r = b_.CreateSRem(x, y);
    Value* rest = b_.CreateICmpNE(r, zero);
    Value* fix = b_.CreateAnd(rest, b_.CreateICmpSLT(b_.CreateXor(x, y), zero));
    Value* v = mod ? b_.CreateSelect(fix, b_.CreateAdd(r, y), r)
                   : b_.CreateSub(q, b_.CreateZExt(fix, x->getType()));
    if (by_minus_one && !mod) v = b_.CreateSelect(by_minus_one, b_.CreateNeg(x), v);
    return finish(v);
  }

  // a*b + c as one operation where the target has it (contraction is the only freedom taken with
  // floats).
  Value* EmitFma(const expr::ExprNode& e) {
    const bool has_fma = target_.arch == "aarch64" || target_.Has("fma");
    if (!has_fma) return nullptr;
    for (int side : {1, 0}) {
      const Expr& mul = e.args[side];
      if (mul->kind != Kind::kBinary || mul->binary != expr::BinaryOp::kMul) continue;
      if (e.binary == expr::BinaryOp::kSub && side == 0) continue;
      Value* x = EmitExpr(mul->args[0]);
      Value* y = EmitExpr(mul->args[1]);
      Value* z = EmitExpr(e.args[1 - side]);
      if (!status_.ok()) return z;
      if (e.binary == expr::BinaryOp::kSub) x = b_.CreateFNeg(x);
      Match(x, y);
      Match(x, z);
      Match(y, z);
      return b_.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
    }
    return nullptr;
  }

  // max as select(x > y or unordered, x, y): a NaN in x stays. When y is a number that is all; else
  // y's NaN too. Whether y is one is a comparison that windows with the same y share. Then AVX-512
  // has the maximum leave those lanes alone, and elsewhere all bits set are a NaN: two operations,
  // where a choice between y and the maximum would be three.
  Value* EmitMinMax(bool max, Value* x, Value* y) {
    if (llvm::isa<llvm::Constant>(x)) std::swap(x, y);
    Value* native = NativeMinMax(max, y, x);
    Value* r = native
                   ? native
                   : b_.CreateSelect(max ? b_.CreateFCmpUGT(x, y) : b_.CreateFCmpULT(x, y), x, y);
    if (llvm::isa<llvm::Constant>(y)) return r;
    if (!native || target_.Has("avx512f")) return b_.CreateSelect(b_.CreateFCmpORD(y, y), r, y);
    llvm::Type* bits = r->getType()->getWithNewType(b_.getInt32Ty());
    Value* nan = b_.CreateSExt(b_.CreateFCmpUNO(y, y), bits);
    return b_.CreateBitCast(b_.CreateOr(b_.CreateBitCast(r, bits), nan), r->getType());
  }

  // select(x > y, x, y), the second operand where one is NaN, as one instruction; null where the
  // target has none. LLVM does not find it in the select: the two may differ in the sign of a zero.
  Value* NativeMinMax(bool max, Value* x, Value* y) {
    if (target_.arch != "x86_64" || !x->getType()->isVectorTy() ||
        !x->getType()->getScalarType()->isFloatTy())
      return nullptr;
    const bool wide = lanes_ == 16 && target_.Has("avx512f");
    llvm::Intrinsic::ID id = llvm::Intrinsic::not_intrinsic;
    if (wide) {
      id = max ? llvm::Intrinsic::x86_avx512_max_ps_512 : llvm::Intrinsic::x86_avx512_min_ps_512;
    } else if (lanes_ == 8 && target_.Has("avx")) {
      id = max ? llvm::Intrinsic::x86_avx_max_ps_256 : llvm::Intrinsic::x86_avx_min_ps_256;
    } else if (lanes_ == 4) {
      id = max ? llvm::Intrinsic::x86_sse_max_ps : llvm::Intrinsic::x86_sse_min_ps;
    } else {
      return nullptr;
    }
    llvm::SmallVector<Value*> args = {Widen(x), Widen(y)};
    if (wide) args.push_back(b_.getInt32(4));  // the current rounding mode
    return b_.CreateIntrinsic(id, {}, args);
  }

  static constexpr int64_t kShortStride = 4;

  Value* EmitLoad(const expr::ExprNode& e) {
    const expr::BufferNode& buffer = *e.buffer;
    const Address a = AddressOf(buffer, e.args);
    if (!status_.ok()) return llvm::PoisonValue::get(b_.getInt64Ty());
    llvm::Type* element = ElementType(buffer);
    if (buffer.scope == expr::Scope::kRegister) {
      if (lanes_ > 1 && a.lane_stride > 1) return EmitTurned(buffer, a);
      const bool wide = lanes_ > 1 && a.lane_stride == 1;
      llvm::Type* type = wide ? llvm::FixedVectorType::get(element, lanes_) : element;
      llvm::AllocaInst* slot = RegisterSlot(buffer, a, type);
      return slot ? static_cast<Value*>(b_.CreateLoad(type, slot)) : llvm::PoisonValue::get(type);
    }
    const std::string key = fmt::format("{}|{}|{}|{}|{}", a.key, a.constant, lanes_, a.lane_stride,
                                        static_cast<const void*>(a.lane_index));
    Value*& known = loads_[&buffer][key];
    if (known) return known;
    Value* v = nullptr;
    if (lanes_ == 1 || a.lane_stride == 0) {
      v = Mark(b_.CreateAlignedLoad(element, Pointer(buffer, a), ElementAlign(buffer)), buffer);
    } else if (a.lane_stride == 1) {
      auto* type = llvm::FixedVectorType::get(element, lanes_);
      if (const unsigned first = LeadingLanes()) {
        auto* narrow = llvm::FixedVectorType::get(element, first);
        v = Mark(b_.CreateAlignedLoad(narrow, Pointer(buffer, a), ElementAlign(buffer)), buffer);
        // The other lanes are 0, as a masked load leaves them.
        v = b_.CreateShuffleVector(v, llvm::Constant::getNullValue(narrow),
                                   FirstLanes(first, static_cast<unsigned>(lanes_)));
      } else if (mask_) {
        v = Mark(b_.CreateMaskedLoad(type, Pointer(buffer, a), ElementAlign(buffer), mask_,
                                     llvm::Constant::getNullValue(type)),
                 buffer);
      } else {
        v = Mark(b_.CreateAlignedLoad(type, Pointer(buffer, a), ElementAlign(buffer)), buffer);
      }
      if (prefetch_ > 0 && buffer.constant) Prefetch(buffer, a);
    } else if (!mask_ && a.lane_stride >= 2 && a.lane_stride <= kShortStride &&
               lanes_ >= kShortStride && buffer.dtype != DType::kBool) {
      v = EmitStrided(buffer, a);
    } else {
      auto* type = llvm::FixedVectorType::get(element, lanes_);
      v = Mark(b_.CreateMaskedGather(type, LanePointers(buffer, a), ElementAlign(buffer),
                                     MaskOrAll(), llvm::Constant::getNullValue(type)),
               buffer);
    }
    masked_load_ = mask_ && v->getType()->isVectorTy() ? v : nullptr;
    if (buffer.dtype == DType::kBool) {
      v = b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType()));
    }
    return loads_[&buffer][key] = v;
  }

  // Every second, third or fourth element: all that lie between the first and the last are loaded,
  // vector by vector, and each shuffle adds what the next vector has. A gather loads lane by lane.
  Value* EmitStrided(const expr::BufferNode& buffer, const Address& a) {
    auto* type = llvm::FixedVectorType::get(ElementType(buffer), static_cast<unsigned>(lanes_));
    const int64_t stride = a.lane_stride;
    Value* v = nullptr;
    for (int64_t part = 0; part < stride; ++part) {
      const int64_t start = std::min(part * lanes_, (lanes_ - 1) * stride + 1 - lanes_);
      Address at = a;
      at.constant += start;
      Value* next =
          Mark(b_.CreateAlignedLoad(type, Pointer(buffer, at), ElementAlign(buffer)), buffer);
      llvm::SmallVector<int> lanes;
      for (int64_t i = 0; i < lanes_; ++i) {
        const int64_t element = i * stride, from = element / lanes_;
        lanes.push_back(static_cast<int>(from == part  ? lanes_ + element - start
                                         : from > part ? -1
                                         : part == 1   ? element
                                                       : i));
      }
      v = part == 0 ? next : b_.CreateShuffleVector(v, next, lanes);
    }
    return v;
  }

  // ---- small helpers
  // --------------------------------------------------------------------------------------------
  llvm::Type* TypeOf(DType t) {
    switch (t) {
      case DType::kBool: return b_.getInt1Ty();
      case DType::kI8:
      case DType::kU8: return b_.getInt8Ty();
      case DType::kF16:  // see FromHalf
      case DType::kBF16:
      case DType::kI16:
      case DType::kU16: return b_.getInt16Ty();
      case DType::kI32:
      case DType::kU32: return b_.getInt32Ty();
      case DType::kI64:
      case DType::kU64: return b_.getInt64Ty();
      case DType::kF32: return b_.getFloatTy();
      case DType::kF64: return b_.getDoubleTy();
    }
    return nullptr;
  }
  llvm::Type* ElementType(const expr::BufferNode& b) {
    return b.dtype == DType::kBool && b.scope != expr::Scope::kRegister ? b_.getInt8Ty()
                                                                        : TypeOf(b.dtype);
  }
  Value* ToMemory(Value* v) {
    return v->getType()->getScalarType()->isIntegerTy(1)
               ? b_.CreateZExt(v, v->getType()->getWithNewType(b_.getInt8Ty()))
               : v;
  }
  llvm::Align ElementAlign(const expr::BufferNode& b) { return llvm::Align(SizeOf(b.dtype)); }

  Value* Splat(Value* v) {
    if (llvm::isa<llvm::Constant>(v)) return b_.CreateVectorSplat(static_cast<unsigned>(lanes_), v);
    Value*& known = splats_[{v, lanes_}];
    return known ? known : known = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), v);
  }
  Value* Widen(Value* v) { return lanes_ > 1 && !v->getType()->isVectorTy() ? Splat(v) : v; }
  void Match(Value*& x, Value*& y) {
    if (x->getType()->isVectorTy() != y->getType()->isVectorTy()) {
      x = Widen(x);
      y = Widen(y);
    }
  }
  Value* Iota(llvm::Type* t) {
    llvm::SmallVector<llvm::Constant*> v;
    for (int64_t i = 0; i < lanes_; ++i) v.push_back(llvm::ConstantInt::get(t, i));
    return llvm::ConstantVector::get(v);
  }
  // n > 0: exactly the first n lanes are on, n a power of two below the vector's length, so that a
  // shorter vector does. Masked loads cost an operation beyond the load, and masked accesses that
  // span two cache lines the price of both.
  unsigned LeadingLanes() const {
    auto* mask = llvm::dyn_cast_or_null<llvm::Constant>(mask_);
    if (!mask) return 0;
    unsigned n = 0;
    const auto lanes = static_cast<unsigned>(lanes_);
    while (n < lanes && mask->getAggregateElement(n)->isOneValue()) ++n;
    for (unsigned i = n; i < lanes; ++i) {
      if (!mask->getAggregateElement(i)->isNullValue()) return 0;
    }
    return n < lanes && (n & (n - 1)) == 0 ? n : 0;
  }
  // The first `n` lanes of a shuffle's first operand, then lanes of its second, `length` in all.
  static llvm::SmallVector<int> FirstLanes(unsigned n, unsigned length) {
    llvm::SmallVector<int> lanes;
    for (unsigned i = 0; i < length; ++i) lanes.push_back(static_cast<int>(i < n ? i : n));
    return lanes;
  }
  Value* MaskOrAll() {
    return mask_ ? mask_
                 : llvm::Constant::getAllOnesValue(
                       llvm::FixedVectorType::get(b_.getInt1Ty(), lanes_));
  }

  // Buffers do not overlap: tell LLVM, so that loads move over stores to others.
  template <typename I>
  I* Mark(I* instruction, const expr::BufferNode& buffer) {
    llvm::MDNode* own = ScopeOf(buffer);
    llvm::SmallVector<llvm::Metadata*> others;
    for (auto& [b, scope] : alias_scopes_) {
      if (b != &buffer) others.push_back(scope);
    }
    instruction->setMetadata(llvm::LLVMContext::MD_alias_scope, llvm::MDNode::get(ctx_, {own}));
    if (!others.empty())
      instruction->setMetadata(llvm::LLVMContext::MD_noalias, llvm::MDNode::get(ctx_, others));
    return instruction;
  }
  llvm::MDNode* ScopeOf(const expr::BufferNode& buffer) {
    if (alias_scopes_.empty()) {
      for (const loop::Param& p : program_.params)
        alias_scopes_.emplace_back(p.buffer.get(),
                                   llvm::MDBuilder(ctx_).createAnonymousAliasScope(domain_));
      for (const expr::Buffer& b : program_.intermediates)
        alias_scopes_.emplace_back(b.get(),
                                   llvm::MDBuilder(ctx_).createAnonymousAliasScope(domain_));
    }
    for (auto& [b, scope] : alias_scopes_) {
      if (b == &buffer) return scope;
    }
    return nullptr;
  }

  // Loads and splats seen since the last control flow; forgotten where they might not dominate or
  // be stale.
  void ForgetLoads() {
    loads_.clear();
    splats_.clear();
    shared_.clear();
  }
  void ForgetLoads(const expr::BufferNode* b) { loads_.erase(b); }

  llvm::Module& m_;
  llvm::LLVMContext& ctx_;
  llvm::IRBuilder<> b_;
  const loop::Program& program_;
  const std::map<const expr::BufferNode*, int64_t>& scratch_;
  const Target& target_;

  llvm::Function* fn_ = nullptr;
  llvm::Instruction* entry_end_ = nullptr;
  llvm::MDNode* domain_ = nullptr;
  std::vector<std::pair<const expr::BufferNode*, llvm::MDNode*>> alias_scopes_;
  std::vector<Scope> scopes_;
  std::map<const expr::ExprNode*, Variable> vars_;
  expr::Bounds bounds_;
  expr::Var lane_var_;
  int64_t lanes_ = 1;
  int64_t lane_begin_ = 0;
  int64_t prefetch_ = 0;  // of the innermost loop
  Value* mask_ = nullptr;
  Value* masked_load_ = nullptr;  // the latest vector load, when it was made under the mask
  std::map<const expr::BufferNode*, std::map<int64_t, std::pair<llvm::AllocaInst*, int64_t>>>
      registers_;
  std::map<const expr::BufferNode*, std::map<std::string, Value*>> loads_;
  std::map<std::pair<Value*, int64_t>, Value*> splats_;
  TurnedBlocks turned_;
  // Values of nodes with several parents, within one statement.
  std::map<Expr, Value*> shared_;
  Status status_ = OkStatus();
};

}  // namespace

StatusOr<KernelCode> EmitProgram(llvm::Module& m, const loop::Program& p, const std::string& prefix,
                                 const Target& target) {
  KernelCode code;
  code.params = p.params;
  std::map<const expr::BufferNode*, int64_t> scratch;
  for (const expr::Buffer& b : p.intermediates) {
    if (b->scope == expr::Scope::kRegister) continue;
    scratch[b.get()] = code.scratch_bytes;
    code.scratch_bytes += (b->num_elements() * SizeOf(b->dtype) + 63) / 64 * 64;
  }
  std::vector<Stmt> nests = {p.body};
  if (const auto* seq = As<loop::SeqNode>(p.body)) nests = seq->items;
  for (size_t i = 0; i < nests.size(); ++i) {
    const std::string symbol = fmt::format("{}_p{}", prefix, i);
    WHET_ASSIGN_OR_RETURN(int64_t extent,
                          PhaseEmitter(m, p, scratch, target).Emit(nests[i], symbol));
    code.phases.push_back({symbol, extent});
  }
  return code;
}

}  // namespace whet::codegen
