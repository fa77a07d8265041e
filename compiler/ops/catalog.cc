#include "compiler/ops/catalog.h"

#include <map>

namespace whet::ops {

using graph::OpRecord;

// One per file op_*.cc.
const OpRecord& OpAbs();
const OpRecord& OpAdd();
const OpRecord& OpAnd();
const OpRecord& OpAveragePool();
const OpRecord& OpBatchNormalization();
const OpRecord& OpCast();
const OpRecord& OpCeil();
const OpRecord& OpClip();
const OpRecord& OpConcat();
const OpRecord& OpConstant();
const OpRecord& OpConstantOfShape();
const OpRecord& OpConv();
const OpRecord& OpDiv();
const OpRecord& OpDropout();
const OpRecord& OpElu();
const OpRecord& OpEqual();
const OpRecord& OpErf();
const OpRecord& OpExp();
const OpRecord& OpExpand();
const OpRecord& OpFlatten();
const OpRecord& OpFloor();
const OpRecord& OpGather();
const OpRecord& OpGemm();
const OpRecord& OpGlobalAveragePool();
const OpRecord& OpGlobalMaxPool();
const OpRecord& OpGreater();
const OpRecord& OpGreaterOrEqual();
const OpRecord& OpHardSigmoid();
const OpRecord& OpHardSwish();
const OpRecord& OpIdentity();
const OpRecord& OpLeakyRelu();
const OpRecord& OpLess();
const OpRecord& OpLessOrEqual();
const OpRecord& OpLog();
const OpRecord& OpMatMul();
const OpRecord& OpMax();
const OpRecord& OpMaxPool();
const OpRecord& OpMean();
const OpRecord& OpMin();
const OpRecord& OpMul();
const OpRecord& OpNeg();
const OpRecord& OpNot();
const OpRecord& OpOr();
const OpRecord& OpPRelu();
const OpRecord& OpPad();
const OpRecord& OpPow();
const OpRecord& OpRange();
const OpRecord& OpReciprocal();
const OpRecord& OpReduceMax();
const OpRecord& OpReduceMean();
const OpRecord& OpReduceMin();
const OpRecord& OpReduceProd();
const OpRecord& OpReduceSum();
const OpRecord& OpRelu();
const OpRecord& OpReshape();
const OpRecord& OpRound();
const OpRecord& OpShape();
const OpRecord& OpSigmoid();
const OpRecord& OpSign();
const OpRecord& OpSize();
const OpRecord& OpSlice();
const OpRecord& OpSoftmax();
const OpRecord& OpSoftplus();
const OpRecord& OpSplit();
const OpRecord& OpSqrt();
const OpRecord& OpSqueeze();
const OpRecord& OpSub();
const OpRecord& OpSum();
const OpRecord& OpTanh();
const OpRecord& OpTranspose();
const OpRecord& OpUnsqueeze();
const OpRecord& OpWhere();

namespace {

class AllOps : public graph::OpCatalog {
 public:
  AllOps() {
    for (const OpRecord* op : List()) by_name_.emplace(op->name, op);
  }
  const OpRecord* Find(std::string_view name) const override {
    auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }
  std::vector<const OpRecord*> All() const override {
    std::vector<const OpRecord*> all;
    for (const auto& [name, op] : by_name_) all.push_back(op);
    return all;
  }

 private:
  static std::vector<const OpRecord*> List();
  std::map<std::string, const OpRecord*, std::less<>> by_name_;
};

std::vector<const OpRecord*> AllOps::List() {
  return {
      &OpAbs(),
      &OpAdd(),
      &OpAnd(),
      &OpAveragePool(),
      &OpBatchNormalization(),
      &OpCast(),
      &OpCeil(),
      &OpClip(),
      &OpConcat(),
      &OpConstant(),
      &OpConstantOfShape(),
      &OpConv(),
      &OpDiv(),
      &OpDropout(),
      &OpElu(),
      &OpEqual(),
      &OpErf(),
      &OpExp(),
      &OpExpand(),
      &OpFlatten(),
      &OpFloor(),
      &OpGather(),
      &OpGemm(),
      &OpGlobalAveragePool(),
      &OpGlobalMaxPool(),
      &OpGreater(),
      &OpGreaterOrEqual(),
      &OpHardSigmoid(),
      &OpHardSwish(),
      &OpIdentity(),
      &OpLeakyRelu(),
      &OpLess(),
      &OpLessOrEqual(),
      &OpLog(),
      &OpMatMul(),
      &OpMax(),
      &OpMaxPool(),
      &OpMean(),
      &OpMin(),
      &OpMul(),
      &OpNeg(),
      &OpNot(),
      &OpOr(),
      &OpPRelu(),
      &OpPad(),
      &OpPow(),
      &OpRange(),
      &OpReciprocal(),
      &OpReduceMax(),
      &OpReduceMean(),
      &OpReduceMin(),
      &OpReduceProd(),
      &OpReduceSum(),
      &OpRelu(),
      &OpReshape(),
      &OpRound(),
      &OpShape(),
      &OpSigmoid(),
      &OpSign(),
      &OpSize(),
      &OpSlice(),
      &OpSoftmax(),
      &OpSoftplus(),
      &OpSplit(),
      &OpSqrt(),
      &OpSqueeze(),
      &OpSub(),
      &OpSum(),
      &OpTanh(),
      &OpTranspose(),
      &OpUnsqueeze(),
      &OpWhere(),
  };
}

}  // namespace

const graph::OpCatalog& Catalog() {
  static const AllOps catalog;
  return catalog;
}

}  // namespace whet::ops
