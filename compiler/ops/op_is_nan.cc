// Tests of a float's kind.
#include <limits>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

OpRecord Test(UnarySpec spec) {
  OpRecord r = Unary(std::move(spec));
  r.infer = [](const OpView& v, std::vector<TensorType>* out) {
    out->push_back(TensorType::Of(DType::kBool, v.in[0]->shape));
    return OkStatus();
  };
  return r;
}

}  // namespace

const OpRecord& OpIsNaN() {
  static const OpRecord op = Test({
      .name = "IsNaN",
      .types = Floats(),
      .te = [](const OpView& v, const Expr& x) -> Expr { return expr::Not(expr::Eq(x, x)); },
      .value = [](const OpView& v, double x) -> double { return std::isnan(x); },
      .slope = [](const OpView&, double, double) -> double { return 0; },
  });
  return op;
}

const OpRecord& OpIsInf() {
  static const OpRecord op = Test({
      .name = "IsInf",
      .types = Floats(),
      .attrs = {{"detect_negative", AttrType::kInt, AttrValue(int64_t{1})},
                {"detect_positive", AttrType::kInt, AttrValue(int64_t{1})}},
      .te = [](const OpView& v, const Expr& x) -> Expr {
        Expr found = expr::Bool(false);
        for (const auto& [attr, value] :
             {std::pair{"detect_negative", -kInfinite}, std::pair{"detect_positive", kInfinite}}) {
          if (v.attrs->Int(attr) != 0) found = expr::Or(found, expr::Eq(x, Const(x->dtype, value)));
        }
        return found;
      },
      .value = [](const OpView& v, double x) -> double {
        return (x == kInfinite && v.attrs->Int("detect_positive") != 0) ||
               (x == -kInfinite && v.attrs->Int("detect_negative") != 0);
      },
      .slope = [](const OpView&, double, double) -> double { return 0; },
  });
  return op;
}

}  // namespace whet::ops
