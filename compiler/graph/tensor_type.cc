#include "compiler/graph/tensor_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace whet::graph {

TensorType TensorType::Of(DType dtype, std::vector<int64_t> shape) {
  TensorType t;
  t.dtype = dtype;
  t.layout = expr::IndexMap::Identity(static_cast<int>(shape.size()));
  t.shape = std::move(shape);
  return t;
}

int64_t TensorType::num_elements() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

int64_t TensorType::bytes() const { return num_elements() * SizeOf(dtype); }

std::vector<int> SignificantOrder(const TensorType& t) {
  std::vector<int> order;
  for (int d : t.Order()) {
    if (t.shape[d] != 1) order.push_back(d);
  }
  return order;
}

std::vector<int64_t> WithoutUnits(const std::vector<int64_t>& shape) {
  std::vector<int64_t> extents;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(extents),
               [](int64_t d) { return d != 1; });
  return extents;
}

bool TensorType::IsRowMajor() const {
  int last = -1;
  for (int d : SignificantOrder(*this)) {
    if (d < last) return false;
    last = d;
  }
  return true;
}

std::string TensorType::ToString() const {
  std::string s = fmt::format("{}[{}]", whet::ToString(dtype), fmt::join(shape, ","));
  if (!layout.IsIdentity()) s += "<" + layout.ToString() + ">";
  return s;
}

bool operator==(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.Order() == b.Order();
}

Status CheckShape(DType dtype, const std::vector<int64_t>& shape) {
  if (shape.size() > static_cast<size_t>(kMaxRank)) {
    return InvalidArgument("rank {} exceeds the limit of {}", shape.size(), kMaxRank);
  }
  int64_t bytes = SizeOf(dtype);
  for (int64_t d : shape) {
    if (d < 0) return InvalidArgument("negative extent in shape [{}]", fmt::join(shape, ","));
    // A zero extent makes the product zero, yet the other extents must not be able to overflow.
    if (__builtin_mul_overflow(bytes, d == 0 ? 1 : d, &bytes) || bytes > kMaxTensorBytes) {
      return InvalidArgument("shape [{}] of {} exceeds the limit of 2^40 bytes",
                             fmt::join(shape, ","), whet::ToString(dtype));
    }
  }
  return OkStatus();
}

StatusOr<TensorType> ParseTensorType(Scanner& in) {
  WHET_ASSIGN_OR_RETURN(std::string name, in.Word());
  WHET_ASSIGN_OR_RETURN(DType dtype, ParseDType(name));
  WHET_RETURN_IF_ERROR(in.Expect("["));
  std::vector<int64_t> shape;
  while (!in.Accept("]")) {
    if (!shape.empty()) WHET_RETURN_IF_ERROR(in.Expect(","));
    WHET_ASSIGN_OR_RETURN(int64_t d, in.Integer());
    shape.push_back(d);
  }
  WHET_RETURN_IF_ERROR(CheckShape(dtype, shape));
  TensorType t = TensorType::Of(dtype, std::move(shape));
  if (!in.Accept("<")) return t;
  WHET_ASSIGN_OR_RETURN(std::string_view map, in.Until(")>"));
  WHET_ASSIGN_OR_RETURN(t.layout, expr::IndexMap::Parse(std::string(map) + ")"));
  if (t.layout.vars.size() != t.shape.size() || (t.rank() > 0 && t.Order().empty())) {
    return in.Error(
        fmt::format("layout '{})' is not a permutation of {} dimensions", map, t.rank()));
  }
  return t;
}

expr::IndexMap ChannelsLast() { return expr::IndexMap::Permutation({0, 2, 3, 1}); }

}  // namespace whet::graph
