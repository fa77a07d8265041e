// The alternatives to a selection of layouts: one for all images.
#include "compiler/graph/layout_cost.h"

namespace whet::graph {
namespace {

// Far above any estimate, so that another layout is stored only where an operator can write no
// other; finite, so that there always is an answer.
constexpr double kUnwanted = 1e12;

class UniformLayoutCost : public LayoutCost {
 public:
  explicit UniformLayoutCost(expr::IndexMap layout) : layout_(std::move(layout)) {}

  double Compute(const OpView& v, const TensorType& out) const override {
    TensorType wanted = out;
    wanted.layout = layout_;
    const bool other = out.rank() == 4 && SignificantOrder(wanted) != SignificantOrder(out);
    return RooflineLayoutCost().Compute(v, out) + (other ? kUnwanted : 0);
  }
  double Read(const OpView& v, int input, const TensorType& in,
              const TensorType& out) const override {
    return RooflineLayoutCost().Read(v, input, in, out);
  }
  double Copy(const TensorType& from, const TensorType& to) const override {
    return RooflineLayoutCost().Copy(from, to);
  }

 private:
  const expr::IndexMap layout_;
};

}  // namespace

const LayoutCost& RowMajorLayoutCost() {
  static const UniformLayoutCost cost(expr::IndexMap::Identity(4));
  return cost;
}

const LayoutCost& ChannelsLastLayoutCost() {
  static const UniformLayoutCost cost(ChannelsLast());
  return cost;
}

}  // namespace whet::graph
