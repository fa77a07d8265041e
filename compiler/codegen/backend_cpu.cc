// Loop program -> LLVM IR for CPUs. One function per root-level nest (a phase). Loops that the
// schedule unrolled are emitted as many times, vectorized ones once with a vector per expression;
// register buffers become one value per element. Addresses are split into a part that changes with
// the loops, computed once per loop level, and a constant displacement, so that nothing is left for
// strength reduction to find in unrolled bodies.
//
// Over the usual file length: the emitter is one class over one state (builder, scopes, masks,
// bounds), and cutting it would spread that state over files.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

#include <cmath>
#include <map>

#include "compiler/codegen/llvm_common.h"
#include "compiler/expr/simplify.h"

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
  struct Scope {
    llvm::Instruction* address_end;  // derived addresses of this level are inserted before it
    std::map<std::string, Value*> cache;
  };
  struct Variable {
    Value* value = nullptr;  // null: a constant, or the lanes of the vectorized loop
    int64_t constant = 0;
    bool lanes = false;
    size_t scope = 0;
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
    EmitStmt(f.body);
    Value* next = b_.CreateNSWAdd(i, b_.getInt64(1));
    i->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(next, end), head, done);
    b_.SetInsertPoint(done);
    scopes_.pop_back();
    ForgetLoads();
  }

  void EmitIf(const loop::IfNode& s) {
    const Expr cond = expr::Simplify(s.cond, bounds_);
    if (expr::IsTrue(cond)) return EmitStmt(s.body);
    if (expr::IsFalse(cond)) return;
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
    EmitStmt(s.body);
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
    ForgetLoads();
  }

  void EmitStore(const loop::StoreNode& s) {
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
      return;
    }
    if (!wide) {
      Mark(b_.CreateAlignedStore(ToMemory(v), Pointer(*s.out, a), ElementAlign(*s.out)), *s.out);
    } else if (a.lane_stride == 1) {
      v = ToMemory(Widen(v));
      if (const unsigned first = LeadingLanes()) {
        Mark(b_.CreateAlignedStore(b_.CreateShuffleVector(v, FirstLanes(first, first)),
                                   Pointer(*s.out, a), ElementAlign(*s.out)),
             *s.out);
      } else if (mask_) {
        Mark(b_.CreateMaskedStore(v, Pointer(*s.out, a), ElementAlign(*s.out), mask_), *s.out);
      } else {
        Mark(b_.CreateAlignedStore(v, Pointer(*s.out, a), ElementAlign(*s.out)), *s.out);
      }
    } else if (a.lane_stride == 0) {
      return Fail(FailedPrecondition("all lanes of '{}' store to one element of '{}'",
                                     lane_var_->name, s.out->name));
    } else {
      Mark(b_.CreateMaskedScatter(ToMemory(Widen(v)), LanePointers(*s.out, a), ElementAlign(*s.out),
                                  MaskOrAll()),
           *s.out);
    }
    ForgetLoads(s.out.get());
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

  // ---- expressions
  // ----------------------------------------------------------------------------------------------
  Value* EmitExpr(const Expr& e) {
    if (!status_.ok()) return llvm::PoisonValue::get(b_.getInt64Ty());
    switch (e->kind) {
      case Kind::kInt:
        return llvm::ConstantInt::get(TypeOf(e->dtype), static_cast<uint64_t>(e->int_value), true);
      case Kind::kFloat: return llvm::ConstantFP::get(TypeOf(e->dtype), e->float_value);
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
    bool loads = false;
    for (int i : {1, 2}) loads |= !loop::Loads(e.args[i]).empty();
    if (!loads) {
      Value* x = EmitExpr(e.args[1]);
      Value* y = EmitExpr(e.args[2]);
      Match(x, y);
      return b_.CreateSelect(c, x, y);
    }
    // A load may be out of bounds where its side is not taken: branch.
    auto* then = llvm::BasicBlock::Create(ctx_, "then", fn_);
    auto* other = llvm::BasicBlock::Create(ctx_, "else", fn_);
    auto* done = llvm::BasicBlock::Create(ctx_, "done", fn_);
    b_.CreateCondBr(c, then, other);
    ForgetLoads();
    b_.SetInsertPoint(then);
    Value* x = EmitExpr(e.args[1]);
    if (lanes_ > 1) x = Widen(x);
    b_.CreateBr(done);
    auto* then_end = b_.GetInsertBlock();
    ForgetLoads();
    b_.SetInsertPoint(other);
    Value* y = EmitExpr(e.args[2]);
    if (lanes_ > 1) y = Widen(y);
    b_.CreateBr(done);
    auto* else_end = b_.GetInsertBlock();
    ForgetLoads();
    b_.SetInsertPoint(done);
    auto* phi = b_.CreatePHI(x->getType(), 2);
    phi->addIncoming(x, then_end);
    phi->addIncoming(y, else_end);
    return phi;
  }

  Value* EmitCast(const expr::ExprNode& e) {
    Value* v = EmitExpr(e.args[0]);
    llvm::Type* to = TypeOf(e.dtype);
    if (auto* vt = llvm::dyn_cast<llvm::VectorType>(v->getType()))
      to = llvm::VectorType::get(to, vt);
    const DType from = e.args[0]->dtype;
    if (IsFloat(from) && IsFloat(e.dtype)) return b_.CreateFPCast(v, to);
    if (IsFloat(from)) {
      return e.dtype == DType::kBool
                 ? b_.CreateFCmpUNE(v, llvm::Constant::getNullValue(v->getType()))
                 : b_.CreateFPToSI(v, to);
    }
    const bool is_unsigned = from == DType::kU8 || from == DType::kBool;
    if (IsFloat(e.dtype)) return is_unsigned ? b_.CreateUIToFP(v, to) : b_.CreateSIToFP(v, to);
    if (e.dtype == DType::kBool)
      return b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType()));
    return b_.CreateIntCast(v, to, !is_unsigned);
  }

  Value* EmitCall(const expr::ExprNode& e) {
    Value* v = EmitExpr(e.args[0]);
    switch (e.call) {
      case expr::Intrinsic::kSqrt: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, v);
      case expr::Intrinsic::kAbs: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v);
      case expr::Intrinsic::kFloor: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, v);
      case expr::Intrinsic::kCeil: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, v);
      case expr::Intrinsic::kRound: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, v);
      case expr::Intrinsic::kPow2:
      case expr::Intrinsic::kMantissa:
      case expr::Intrinsic::kExponent:
        if (e.dtype == DType::kF32) return EmitFloatBits(e.call, v);
        break;
      case expr::Intrinsic::kExp:
      case expr::Intrinsic::kLog:
      case expr::Intrinsic::kTanh:
      case expr::Intrinsic::kErf: break;
    }
    Fail(Internal("'{}' was not expanded before code generation", expr::ToString(e.call)));
    return v;
  }

  // The bit fields of an f32. Total on every input, NaN and infinity too: the expansions select
  // those results away.
  Value* EmitFloatBits(expr::Intrinsic f, Value* v) {
    llvm::Type* bits = v->getType()->getWithNewType(b_.getInt32Ty());
    auto constant = [&](uint32_t x) { return llvm::ConstantInt::get(bits, x); };
    if (f == expr::Intrinsic::kPow2) {
      // Adding 1.5 * 2^23 leaves the integer in the low bits; shifted into the exponent field over
      // the bias it is 2^n.
      Value* n =
          b_.CreateBitCast(b_.CreateFAdd(v, llvm::ConstantFP::get(v->getType(), 12582912.0)), bits);
      return b_.CreateBitCast(b_.CreateAdd(b_.CreateShl(n, constant(23)), constant(0x3f800000)),
                              v->getType());
    }
    Value* x = b_.CreateBitCast(v, bits);
    if (f == expr::Intrinsic::kMantissa) {
      return b_.CreateBitCast(
          b_.CreateOr(b_.CreateAnd(x, constant(0x007fffff)), constant(0x3f800000)), v->getType());
    }
    return b_.CreateSIToFP(b_.CreateSub(b_.CreateLShr(x, constant(23)), constant(127)),
                           v->getType());
  }

  Value* EmitBinary(const expr::ExprNode& e) {
    using expr::BinaryOp;
    const bool is_float = IsFloat(e.args[0]->dtype);
    if (is_float && (e.binary == BinaryOp::kAdd || e.binary == BinaryOp::kSub)) {
      if (Value* v = EmitFma(e)) return v;
    }
    Value* x = EmitExpr(e.args[0]);
    Value* y = EmitExpr(e.args[1]);
    if (!status_.ok()) return x;
    Match(x, y);
    if (is_float) {
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
    switch (e.binary) {
      case BinaryOp::kAdd: return b_.CreateAdd(x, y);
      case BinaryOp::kSub: return b_.CreateSub(x, y);
      case BinaryOp::kMul: return b_.CreateMul(x, y);
      case BinaryOp::kFloorDiv:
      case BinaryOp::kFloorMod: return EmitDivMod(e, x, y);
      case BinaryOp::kMin: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y);
      case BinaryOp::kMax: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y);
      case BinaryOp::kEq: return b_.CreateICmpEQ(x, y);
      case BinaryOp::kNe: return b_.CreateICmpNE(x, y);
      case BinaryOp::kLt: return b_.CreateICmpSLT(x, y);
      case BinaryOp::kLe: return b_.CreateICmpSLE(x, y);
      case BinaryOp::kAnd: return b_.CreateAnd(x, y);
      case BinaryOp::kOr: return b_.CreateOr(x, y);
      case BinaryOp::kDiv:
      case BinaryOp::kPow: break;
    }
    Fail(Internal("operator '{}' on integers", expr::ToString(e.binary)));
    return x;
  }

  Value* EmitDivMod(const expr::ExprNode& e, Value* x, Value* y) {
    auto range = bounds_.Of(e.args[0]);
    const bool mod = e.binary == expr::BinaryOp::kFloorMod;
    if (range && range->lo >= 0) return mod ? b_.CreateURem(x, y) : b_.CreateUDiv(x, y);
    // floor: correct the truncated result when the signs differ and there is a rest
    Value* q = b_.CreateSDiv(x, y);
    Value* r = b_.CreateSRem(x, y);
    Value* zero = llvm::Constant::getNullValue(x->getType());
    Value* fix = b_.CreateAnd(b_.CreateICmpNE(r, zero), b_.CreateICmpSLT(b_.CreateXor(x, y), zero));
    return mod ? b_.CreateSelect(fix, b_.CreateAdd(r, y), r)
               : b_.CreateSub(q, b_.CreateZExt(fix, x->getType()));
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
  // y's NaN too.
  Value* EmitMinMax(bool max, Value* x, Value* y) {
    if (llvm::isa<llvm::Constant>(x)) std::swap(x, y);
    Value* r = NativeMinMax(max, y, x);
    if (!r) r = b_.CreateSelect(max ? b_.CreateFCmpUGT(x, y) : b_.CreateFCmpULT(x, y), x, y);
    return llvm::isa<llvm::Constant>(y) ? r : b_.CreateSelect(b_.CreateFCmpUNO(y, y), y, r);
  }

  // select(x > y, x, y), the second operand where one is NaN, as one instruction; null where the
  // target has none. LLVM does not find it in the select: the two may differ in the sign of a zero.
  Value* NativeMinMax(bool max, Value* x, Value* y) {
    if (target_.arch != "x86_64" || !x->getType()->getScalarType()->isFloatTy()) return nullptr;
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

  Value* EmitLoad(const expr::ExprNode& e) {
    const expr::BufferNode& buffer = *e.buffer;
    const Address a = AddressOf(buffer, e.args);
    if (!status_.ok()) return llvm::PoisonValue::get(b_.getInt64Ty());
    llvm::Type* element = ElementType(buffer);
    if (buffer.scope == expr::Scope::kRegister) {
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

  // ---- small helpers
  // --------------------------------------------------------------------------------------------
  llvm::Type* TypeOf(DType t) {
    switch (t) {
      case DType::kBool: return b_.getInt1Ty();
      case DType::kI8:
      case DType::kU8: return b_.getInt8Ty();
      case DType::kI32: return b_.getInt32Ty();
      case DType::kI64: return b_.getInt64Ty();
      case DType::kF16: return b_.getHalfTy();
      case DType::kBF16: return b_.getBFloatTy();
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
  Value* mask_ = nullptr;
  Value* masked_load_ = nullptr;  // the latest vector load, when it was made under the mask
  std::map<const expr::BufferNode*, std::map<int64_t, std::pair<llvm::AllocaInst*, int64_t>>>
      registers_;
  std::map<const expr::BufferNode*, std::map<std::string, Value*>> loads_;
  std::map<std::pair<Value*, int64_t>, Value*> splats_;
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
