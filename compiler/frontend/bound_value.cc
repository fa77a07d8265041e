#include "compiler/frontend/bound_value.h"

#include <algorithm>

namespace whet::frontend {
namespace {

constexpr int64_t kMaxBoundElements = 65536;

// Elements that a double does not hold.
bool IsWord(DType t) { return t == DType::kI64 || t == DType::kU64; }

class Reader {
 public:
  Reader(DType dtype, std::string_view text) : dtype_(dtype), text_(text) {}

  StatusOr<graph::ConstantPtr> Make(std::optional<std::vector<int64_t>> shape) {
    WHET_RETURN_IF_ERROR(Read());
    const auto n = static_cast<int64_t>(ints_.size());
    if (!shape) shape = n == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{n};
    int open = 0;
    for (int64_t d : *shape) open += d < 0;
    if (open == 1 && shape->size() == 1) shape->front() = n, open = 0;
    if (open > 0)
      return InvalidArgument("its shape has symbolic dimensions; give them with --shape");
    WHET_RETURN_IF_ERROR(graph::CheckShape(dtype_, *shape));
    const int64_t elements = graph::TensorType::Of(dtype_, *shape).num_elements();
    if (elements > kMaxBoundElements)
      return ResourceExhausted("{} elements exceed the limit of {}", elements, kMaxBoundElements);
    if (n != elements && n != 1)
      return InvalidArgument("{} values, the input has {} elements", n, elements);
    if (n == 1) {
      ints_.assign(static_cast<size_t>(elements), ints_[0]);
      doubles_.assign(static_cast<size_t>(elements), doubles_[0]);
    }
    if (IsWord(dtype_)) return graph::Constant::OfWords(dtype_, *shape, ints_);
    return graph::Constant::OfDoubles(dtype_, *shape, doubles_);
  }

 private:
  Status Read() {
    std::string_view rest = text_;
    if (rest.size() >= 2 && rest.front() == '[' && rest.back() == ']')
      rest = rest.substr(1, rest.size() - 2);
    while (true) {
      const size_t comma = std::min(rest.find(','), rest.size());
      WHET_RETURN_IF_ERROR(One(rest.substr(0, comma)));
      if (comma == rest.size()) return OkStatus();
      rest.remove_prefix(comma + 1);
    }
  }

  Status One(std::string_view word) {
    int64_t i = 0;
    double d = 0;
    if (dtype_ == DType::kBool && (word == "true" || word == "false")) {
      i = word == "true";
      d = static_cast<double>(i);
    } else if (IsFloat(dtype_)) {
      if (!ReadNumber(word, &d))
        return InvalidArgument("'{}' is not a number ({} is wanted)", word, ToString(dtype_));
    } else if (uint64_t u = 0; dtype_ == DType::kU64 && ReadNumber(word, &u)) {
      i = static_cast<int64_t>(u);  // its bits
    } else {
      if (!ReadNumber(word, &i))
        return InvalidArgument("'{}' is not an integer within {}", word, ToString(dtype_));
      d = static_cast<double>(i);
      if (dtype_ != DType::kI64 && graph::RoundTo(dtype_, d) != d)
        return InvalidArgument("{} does not fit {}", i, ToString(dtype_));
    }
    ints_.push_back(i);
    doubles_.push_back(d);
    return OkStatus();
  }

  const DType dtype_;
  const std::string_view text_;
  std::vector<int64_t> ints_;
  std::vector<double> doubles_;
};

}  // namespace

StatusOr<graph::ConstantPtr> BoundValue(DType dtype, std::string_view text,
                                        std::optional<std::vector<int64_t>> shape) {
  return Reader(dtype, text).Make(std::move(shape));
}

}  // namespace whet::frontend
