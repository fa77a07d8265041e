#include "compiler/graph/layout_cost.h"

#include <algorithm>
#include <limits>

namespace whet::graph {
namespace {

// Of one core of the processors at hand, in orders of magnitude.
constexpr double kFlopsPerNs = 60;
constexpr double kBytesPerNs = 10;
constexpr double kLaunchNs = 1000;
// Elements that are read across their order: a cache line for each of them, partly reused.
constexpr double kStrided = 3;
// A window operator that writes rows of pixels has weights in no vector and rows that end.
constexpr double kRowMajorWindow = 4;
// Of a product that one pass over its left operand makes.
constexpr int64_t kTileColumns = 64;
// An image of few channels is read as well in either layout.
constexpr int64_t kFewChannels = 4;

constexpr double kNever = std::numeric_limits<double>::infinity();

double BytesNs(const TensorType& t) { return static_cast<double>(t.bytes()) / kBytesPerNs; }

class Roofline : public LayoutCost {
 public:
  double Compute(const OpView& v, const TensorType& out) const override {
    double flops_ns = static_cast<double>(FlopsOf(v)) / kFlopsPerNs, bytes_ns = BytesNs(out);
    for (const TensorType* t : v.in) bytes_ns += t ? BytesNs(*t) : 0;
    if (v.op->layout == LayoutRole::kChannelsLast && !IsChannelsLast(out))
      flops_ns *= kRowMajorWindow;
    return std::max(flops_ns, bytes_ns);
  }

  double Read(const OpView& v, int input, const TensorType& in,
              const TensorType& out) const override {
    if (v.op->layout == LayoutRole::kChannelsLast) {
      const bool few = in.rank() == 4 && in.shape[1] <= kFewChannels && in.IsRowMajor();
      return input > 0 || IsChannelsLast(in) || few ? 0 : kNever;
    }
    if (v.op->kind == FusionKind::kOutFusable) {
      // A matrix product reads vectors along the last dimension of the right operand, and turns one
      // that lies otherwise, once per matrix of the result. Of the left one it reads single
      // numbers, best those of a row one by one; where neither rows nor columns are dense, a cache
      // line for each of them, again for every tile of columns.
      const std::vector<int> order = SignificantOrder(in);
      if (order.empty() || order.back() == *std::max_element(order.begin(), order.end())) return 0;
      if (input == 0) {
        if (order.back() >= in.rank() - 2) return BytesNs(in);
        const int64_t tiles = (out.shape.back() + kTileColumns - 1) / kTileColumns;
        return kStrided * BytesNs(in) * static_cast<double>(tiles);
      }
      return input == 1 ? kStrided * BytesNs(in) * Matrices(out) / Matrices(in) : kNever;
    }
    // An operand that is repeated into the result, or a scalar, has little say.
    if (in.rank() != out.rank() || 2 * in.num_elements() < out.num_elements())
      return in.IsRowMajor() ? 0 : BytesNs(in);
    return SameOrder(in, out) ? 0 : kStrided * BytesNs(in);
  }

  double Copy(const TensorType& from, const TensorType&) const override {
    return kLaunchNs + (1 + kStrided) * BytesNs(from);
  }

 private:
  static double Matrices(const TensorType& t) {
    double n = 1;
    for (int d = 0; d + 2 < t.rank(); ++d)
      n *= static_cast<double>(t.shape[static_cast<size_t>(d)]);
    return n;
  }

  static bool IsChannelsLast(const TensorType& t) {
    if (t.rank() != 4) return true;
    TensorType wanted = t;
    wanted.layout = ChannelsLast();
    return SignificantOrder(wanted) == SignificantOrder(t);
  }
};

}  // namespace

const LayoutCost& RooflineLayoutCost() {
  static const Roofline cost;
  return cost;
}

bool SameOrder(const TensorType& a, const TensorType& b) {
  if (a.rank() != b.rank()) return false;
  auto order = [&](const TensorType& t) {
    std::vector<int> o;
    for (int d : t.Order()) {
      if (a.shape[static_cast<size_t>(d)] != 1 && b.shape[static_cast<size_t>(d)] != 1)
        o.push_back(d);
    }
    return o;
  };
  return order(a) == order(b);
}

}  // namespace whet::graph
