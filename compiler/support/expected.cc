#include "compiler/support/expected.h"

#include <cmath>
#include <cstring>

#include "compiler/support/inputs.h"

namespace whet {
namespace {

constexpr uint32_t kVersion = 1;
constexpr uint32_t kMaxSeeds = 8;
constexpr uint32_t kMaxOutputs = 256;

template <typename T>
void Put(std::string* out, T v) {
  out->append(reinterpret_cast<const char*>(&v), sizeof v);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  bool Get(T* v) {
    if (bytes_.size() - at_ < sizeof(T)) return false;
    std::memcpy(v, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  template <typename T>
  bool View(uint64_t count, std::span<const T>* out) {
    if (count > (bytes_.size() - at_) / sizeof(T)) return false;
    *out = {reinterpret_cast<const T*>(bytes_.data() + at_), static_cast<size_t>(count)};
    at_ += count * sizeof(T);
    return true;
  }
  bool Align() {
    const size_t next = (at_ + 7) / 8 * 8;
    if (next > bytes_.size()) return false;
    at_ = next;
    return true;
  }
  bool done() const { return at_ == bytes_.size(); }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

// Whether floats are right without a look at special values: infinities and NaN make it false.
bool PlainlyRight(const ExpectedView::Output& expected, const char* data) {
  size_t wrong = 0;
  for (size_t i = 0; i < expected.expected.size(); ++i) {
    float got;
    std::memcpy(&got, data + i * sizeof got, sizeof got);
    const bool good = std::abs(static_cast<double>(got) - expected.expected[i]) <=
                      static_cast<double>(expected.tolerance[i]);
    wrong += good ? 0 : 1;
  }
  return wrong == 0;
}

}  // namespace

std::string EncodeExpected(const std::vector<ExpectedForSeed>& seeds) {
  std::string out = "WHEX";
  Put(&out, kVersion);
  Put(&out, static_cast<uint32_t>(seeds.size()));
  Put(&out, static_cast<uint32_t>(seeds.empty() ? 0 : seeds[0].outputs.size()));
  for (const ExpectedForSeed& s : seeds) {
    Put(&out, s.seed);
    for (const ExpectedOutput& o : s.outputs) {
      WHET_CHECK(o.expected.size() == o.tolerance.size(), "one tolerance per element");
      Put(&out, static_cast<uint64_t>(o.expected.size()));
      out.append(reinterpret_cast<const char*>(o.expected.data()),
                 o.expected.size() * sizeof(double));
      out.append(reinterpret_cast<const char*>(o.tolerance.data()),
                 o.tolerance.size() * sizeof(float));
      out.resize((out.size() + 7) / 8 * 8, '\0');
    }
  }
  return out;
}

StatusOr<ExpectedView> ExpectedView::Parse(std::string_view bytes) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % 8 != 0)
    return Internal("expected outputs are not aligned");
  if (bytes.substr(0, 4) != "WHEX")
    return DataLoss("expected outputs do not begin with their magic");
  Reader reader(bytes.substr(4));
  uint32_t version = 0, seeds = 0, outputs = 0;
  if (!reader.Get(&version) || !reader.Get(&seeds) || !reader.Get(&outputs))
    return DataLoss("expected outputs are truncated");
  if (version != kVersion)
    return DataLoss("expected outputs have version {}, this program knows {}", version, kVersion);
  if (seeds == 0 || seeds > kMaxSeeds || outputs == 0 || outputs > kMaxOutputs) {
    return DataLoss(
        "expected outputs name {} seeds and {} outputs; the limits are 1 to {} and 1 to {}", seeds,
        outputs, kMaxSeeds, kMaxOutputs);
  }
  ExpectedView view;
  // The header is 16 bytes, the reader starts after 4: positions within it are 4 off a multiple
  // of 8.
  Reader body(bytes.substr(16));
  for (uint32_t s = 0; s < seeds; ++s) {
    Seed& seed = view.seeds_.emplace_back();
    if (!body.Get(&seed.seed)) return DataLoss("expected outputs are truncated");
    for (uint32_t o = 0; o < outputs; ++o) {
      Output& output = seed.outputs.emplace_back();
      uint64_t count = 0;
      if (!body.Get(&count) || !body.View(count, &output.expected) ||
          !body.View(count, &output.tolerance) || !body.Align()) {
        return DataLoss("expected outputs are truncated");
      }
    }
  }
  if (!body.done()) return DataLoss("expected outputs have bytes after their end");
  return view;
}

Status CompareOutput(const ExpectedView::Output& expected, DType dtype, const void* data,
                     std::string_view name) {
  if (dtype == DType::kF32 && PlainlyRight(expected, static_cast<const char*>(data)))
    return OkStatus();
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < expected.expected.size(); ++i) {
    const double want = expected.expected[i];
    const double got = ElementAsDouble(dtype, data, i);
    const auto tolerance = static_cast<double>(expected.tolerance[i]);
    // A NaN on either side counts as wrong, infinities equal themselves only; with an infinite
    // tolerance anything is right.
    const bool good = tolerance == HUGE_VAL || (std::isnan(want) ? std::isnan(got) : got == want) ||
                      std::abs(got - want) <= tolerance;
    if (good) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return OkStatus();
  return InvalidArgument(
      "{}: {} of {} elements are wrong, first element {}: got {:.9g}, expected {:.9g}, tolerance "
      "{:.3g}",
      name, wrong, expected.expected.size(), first, ElementAsDouble(dtype, data, first),
      expected.expected[first], static_cast<double>(expected.tolerance[first]));
}

}  // namespace whet
