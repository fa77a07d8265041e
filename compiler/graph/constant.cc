#include "compiler/graph/constant.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace whet::graph {
namespace {

// A double rounded to `mantissa` fraction bits and the exponent range of a small IEEE type, as its
// bits.
uint16_t ToSmallFloat(double v, int mantissa, int exponent_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto sign = static_cast<uint16_t>(std::signbit(v) ? 0x8000 : 0);
  const auto inf = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa);
  if (std::isnan(v)) return static_cast<uint16_t>(sign | inf | (1 << (mantissa - 1)));
  double a = std::fabs(v);
  if (a == 0) return sign;  // has no exponent
  if (std::isinf(a)) return static_cast<uint16_t>(sign | inf);
  int e = 0;
  std::frexp(a, &e);  // a = f * 2^e, 0.5 <= f < 1
  e = std::max(e - 1, 1 - bias);
  // In units of the last place; nearbyint rounds half to even in the default mode.
  const double units = std::nearbyint(std::ldexp(a, mantissa - e));
  const auto bits = static_cast<int64_t>(units) + (static_cast<int64_t>(e + bias - 1) << mantissa);
  return static_cast<uint16_t>(sign | std::min<int64_t>(bits, inf));
}

double FromSmallFloat(uint16_t bits, int mantissa, int exponent_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> mantissa;
  const int fraction = bits & ((1 << mantissa) - 1);
  double v;
  if (exponent == (1 << exponent_bits) - 1) {
    v = fraction ? std::nan("") : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    v = std::ldexp(fraction, 1 - bias - mantissa);
  } else {
    v = std::ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
  }
  return bits & 0x8000 ? -v : v;
}

template <typename T>
T Saturate(double v) {
  if (std::isnan(v)) return 0;
  // The type's maximum may round up to a power of two as a double, so compare with >=.
  if (v >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  if (v <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(v);
}

template <typename T>
void ReadAs(std::string_view bytes, std::vector<double>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T x;
    std::memcpy(&x, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<double>(x);
  }
}

template <typename T, typename F>
void WriteAs(std::span<const double> values, std::string& out, F convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T x = convert(values[i]);
    std::memcpy(out.data() + i * sizeof(T), &x, sizeof(T));
  }
}

}  // namespace

std::vector<double> ReadDoubles(DType dtype, std::string_view bytes) {
  std::vector<double> out(bytes.size() / static_cast<size_t>(SizeOf(dtype)));
  switch (dtype) {
    case DType::kBool:
      for (size_t i = 0; i < out.size(); ++i) out[i] = bytes[i] != 0;
      break;
    case DType::kI8: ReadAs<int8_t>(bytes, out); break;
    case DType::kU8: ReadAs<uint8_t>(bytes, out); break;
    case DType::kI16: ReadAs<int16_t>(bytes, out); break;
    case DType::kU16: ReadAs<uint16_t>(bytes, out); break;
    case DType::kI32: ReadAs<int32_t>(bytes, out); break;
    case DType::kU32: ReadAs<uint32_t>(bytes, out); break;
    case DType::kU64: ReadAs<uint64_t>(bytes, out); break;
    case DType::kI64: ReadAs<int64_t>(bytes, out); break;
    case DType::kF32: ReadAs<float>(bytes, out); break;
    case DType::kF64: ReadAs<double>(bytes, out); break;
    case DType::kF16:
    case DType::kBF16: {
      const bool half = dtype == DType::kF16;
      ReadAs<uint16_t>(bytes, out);
      for (double& v : out)
        v = FromSmallFloat(static_cast<uint16_t>(v), half ? 10 : 7, half ? 5 : 8);
      break;
    }
  }
  return out;
}

std::string WriteDoubles(DType dtype, std::span<const double> values) {
  std::string out(values.size() * static_cast<size_t>(SizeOf(dtype)), '\0');
  switch (dtype) {
    case DType::kBool:
      WriteAs<uint8_t>(values, out, [](double v) -> uint8_t { return v != 0; });
      break;
    case DType::kI8: WriteAs<int8_t>(values, out, Saturate<int8_t>); break;
    case DType::kU8: WriteAs<uint8_t>(values, out, Saturate<uint8_t>); break;
    case DType::kI16: WriteAs<int16_t>(values, out, Saturate<int16_t>); break;
    case DType::kU16: WriteAs<uint16_t>(values, out, Saturate<uint16_t>); break;
    case DType::kI32: WriteAs<int32_t>(values, out, Saturate<int32_t>); break;
    case DType::kU32: WriteAs<uint32_t>(values, out, Saturate<uint32_t>); break;
    case DType::kU64: WriteAs<uint64_t>(values, out, Saturate<uint64_t>); break;
    case DType::kI64: WriteAs<int64_t>(values, out, Saturate<int64_t>); break;
    case DType::kF32:
      WriteAs<float>(values, out, [](double v) { return static_cast<float>(v); });
      break;
    case DType::kF64: WriteAs<double>(values, out, [](double v) { return v; }); break;
    case DType::kF16:
      WriteAs<uint16_t>(values, out, [](double v) { return ToSmallFloat(v, 10, 5); });
      break;
    case DType::kBF16:
      WriteAs<uint16_t>(values, out, [](double v) { return ToSmallFloat(v, 7, 8); });
      break;
  }
  return out;
}

double RoundTo(DType dtype, double v) {
  switch (dtype) {
    case DType::kBool: return v != 0;
    case DType::kI8: return Saturate<int8_t>(v);
    case DType::kU8: return Saturate<uint8_t>(v);
    case DType::kI16: return Saturate<int16_t>(v);
    case DType::kU16: return Saturate<uint16_t>(v);
    case DType::kI32: return Saturate<int32_t>(v);
    case DType::kU32: return Saturate<uint32_t>(v);
    case DType::kU64: return static_cast<double>(Saturate<uint64_t>(v));
    case DType::kI64: return static_cast<double>(Saturate<int64_t>(v));
    case DType::kF32: return static_cast<float>(v);
    case DType::kF64: return v;
    case DType::kF16: return FromSmallFloat(ToSmallFloat(v, 10, 5), 10, 5);
    case DType::kBF16: return FromSmallFloat(ToSmallFloat(v, 7, 8), 7, 8);
  }
  return v;
}

Constant::Constant(DType dtype, std::vector<int64_t> shape, std::string bytes)
    : dtype_(dtype), shape_(std::move(shape)), bytes_(std::move(bytes)) {}

StatusOr<ConstantPtr> Constant::Make(DType dtype, std::vector<int64_t> shape, std::string bytes) {
  WHET_RETURN_IF_ERROR(CheckShape(dtype, shape));
  const TensorType type = TensorType::Of(dtype, shape);
  if (type.bytes() != static_cast<int64_t>(bytes.size())) {
    return InvalidArgument("{} holds {} bytes, not {}", type.ToString(), type.bytes(),
                           bytes.size());
  }
  return std::make_shared<const Constant>(dtype, std::move(shape), std::move(bytes));
}

ConstantPtr Constant::OfInts(std::vector<int64_t> shape, std::span<const int64_t> values) {
  return OfWords(DType::kI64, std::move(shape), values);
}

ConstantPtr Constant::OfWords(DType dtype, std::vector<int64_t> shape,
                              std::span<const int64_t> values) {
  WHET_CHECK(dtype == DType::kI64 || dtype == DType::kU64);
  std::string bytes(values.size_bytes(), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  auto c = Make(dtype, std::move(shape), std::move(bytes));
  WHET_CHECK(c.ok(), "{}", Message(c.status()));
  return *c;
}

ConstantPtr Constant::OfDoubles(DType dtype, std::vector<int64_t> shape,
                                std::span<const double> values) {
  auto c = Make(dtype, std::move(shape), WriteDoubles(dtype, values));
  WHET_CHECK(c.ok(), "{}", Message(c.status()));
  return *c;
}

const Fingerprint& Constant::hash() const {
  std::call_once(hashed_, [this] {
    const Fingerprint data = FingerprintOf(bytes_);
    hash_ = FingerprintOf(type().ToString() + " " + data.Hex());
  });
  return hash_;
}

std::vector<double> Constant::Doubles() const { return ReadDoubles(dtype_, bytes_); }

std::vector<int64_t> Constant::Words() const {
  WHET_CHECK(dtype_ == DType::kI64 || dtype_ == DType::kU64);
  std::vector<int64_t> out(bytes_.size() / sizeof(int64_t));
  if (!out.empty()) std::memcpy(out.data(), bytes_.data(), bytes_.size());
  return out;
}

std::vector<int64_t> Constant::Ints() const {
  if (dtype_ == DType::kI64) return Words();
  if (dtype_ == DType::kU64) {
    std::vector<int64_t> out = Words();
    for (int64_t& v : out) v = v < 0 ? std::numeric_limits<int64_t>::max() : v;
    return out;
  }
  std::vector<int64_t> out;
  for (double v : Doubles()) out.push_back(Saturate<int64_t>(v));
  return out;
}

bool Constant::AllEqual(double v) const {
  if (bytes_.empty()) return false;
  const auto size = static_cast<size_t>(SizeOf(dtype_));
  // Only the first element is converted; the others must have its bytes.
  if (ReadDoubles(dtype_, std::string_view(bytes_).substr(0, size))[0] != v) return false;
  return bytes_.size() == size ||
         std::memcmp(bytes_.data(), bytes_.data() + size, bytes_.size() - size) == 0;
}

}  // namespace whet::graph
