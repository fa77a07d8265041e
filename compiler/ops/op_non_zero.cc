#include "compiler/graph/bind_hint.h"
#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

Status ImportNonZero(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  if (!c.IsConst(0))
    return Unimplemented(
        "the output's shape depends on data, which is not supported; the input must be a constant "
        "once shapes are known{}",
        graph::BindHint(c.builder.graph(), c.inputs[0]));
  const graph::Constant& x = *c.builder.graph().constant(c.inputs[0]);
  const std::vector<double> values = x.Doubles();
  const Shape strides = Strides(x.shape());
  std::vector<int64_t> hits;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0) hits.push_back(static_cast<int64_t>(i));
  }
  std::vector<int64_t> indices;
  for (size_t d = 0; d < strides.size(); ++d) {
    for (int64_t at : hits) indices.push_back(at / strides[d] % x.shape()[d]);
  }
  c.outputs = {c.builder.Constant(
      "", graph::Constant::OfInts(
              {static_cast<int64_t>(strides.size()), static_cast<int64_t>(hits.size())}, indices))};
  return OkStatus();
}

}  // namespace

const OpRecord& OpNonZero() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "NonZero";
    r.note = "of constants";
    r.import = ImportNonZero;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
