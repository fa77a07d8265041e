// Trained <-> bytes. See trainer.h for the layout.
#include <bit>
#include <cmath>
#include <cstring>

#include "compiler/support/crc32c.h"
#include "tuner/model/trainer.h"

namespace whet::model {
namespace {

static_assert(std::endian::native == std::endian::little, "the layout is written in host order");

constexpr std::string_view kMagic = "WHTM";
constexpr uint32_t kVersion = 1;
// Caps, so that a damaged length cannot ask for memory: far above what a fit of max_rows rows
// produces.
constexpr uint32_t kMaxMembers = 64;
constexpr uint32_t kMaxGroups = 1u << 20;

template <typename T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void PutBytes(std::string& out, std::string_view bytes) {
  Put(out, static_cast<uint32_t>(bytes.size()));
  out.append(bytes);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  template <typename T>
  Status Read(T& value) {
    if (left_.size() < sizeof(T))
      return DataLoss("cost model: truncated, {} bytes left", left_.size());
    std::memcpy(&value, left_.data(), sizeof(T));
    left_.remove_prefix(sizeof(T));
    return OkStatus();
  }

  StatusOr<std::string_view> ReadBytes() {
    uint32_t size = 0;
    WHET_RETURN_IF_ERROR(Read(size));
    if (size > left_.size())
      return DataLoss("cost model: a field of {} bytes, {} are left", size, left_.size());
    const std::string_view bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return bytes;
  }

  StatusOr<uint32_t> ReadCount(uint32_t limit) {
    uint32_t count = 0;
    WHET_RETURN_IF_ERROR(Read(count));
    if (count > limit)
      return DataLoss("cost model: {} entries, at most {} are possible", count, limit);
    return count;
  }

  bool empty() const { return left_.empty(); }

 private:
  std::string_view left_;
};

// The envelope: magic, version and check; returns what lies between.
StatusOr<std::string_view> Unwrap(std::string_view bytes) {
  constexpr size_t kHead = 8, kTail = 4;
  if (bytes.size() < kHead + kTail || bytes.substr(0, 4) != kMagic) {
    return InvalidArgument("cost model: {} bytes that do not start with '{}'", bytes.size(),
                           kMagic);
  }
  uint32_t version = 0, crc = 0;
  std::memcpy(&version, bytes.data() + 4, 4);
  std::memcpy(&crc, bytes.data() + bytes.size() - kTail, 4);
  if (version != kVersion)
    return InvalidArgument("cost model: version {}, this program reads {}", version, kVersion);
  if (crc != Crc32c(bytes.substr(0, bytes.size() - kTail)))
    return DataLoss("cost model: its check sum differs");
  return bytes.substr(kHead, bytes.size() - kHead - kTail);
}

}  // namespace

StatusOr<std::string> Trained::Save() const {
  std::string out(kMagic);
  Put(out, kVersion);
  Put(out, static_cast<uint32_t>(feature_count_));
  Put(out, static_cast<uint32_t>(rows_));
  Put(out, static_cast<uint8_t>(usable_));
  for (double v : {mean_residual_, residual_sigma_, holdout_.model.accuracy,
                   holdout_.prior.accuracy, holdout_.rmse, holdout_.sigma_scale}) {
    Put(out, v);
  }
  Put(out, static_cast<uint32_t>(holdout_.model.pairs));
  Put(out, static_cast<uint32_t>(holdout_.prior.pairs));
  Put(out, static_cast<uint32_t>(group_offset_.size()));
  for (const auto& [name, offset] : group_offset_) {
    PutBytes(out, name);
    Put(out, offset);
  }
  Put(out, static_cast<uint32_t>(members_.size()));
  for (const Member& m : members_) {
    Put(out, m.slope);
    Put(out, m.weight);
    WHET_ASSIGN_OR_RETURN(std::string bytes, m.booster.Save());
    PutBytes(out, bytes);
  }
  Put(out, Crc32c(out));
  return out;
}

StatusOr<Trained> Trained::Load(std::string_view bytes) {
  WHET_ASSIGN_OR_RETURN(std::string_view body, Unwrap(bytes));
  Reader in(body);
  Trained t;
  uint32_t feature_count = 0, rows = 0, model_pairs = 0, prior_pairs = 0;
  uint8_t usable = 0;
  WHET_RETURN_IF_ERROR(in.Read(feature_count));
  WHET_RETURN_IF_ERROR(in.Read(rows));
  WHET_RETURN_IF_ERROR(in.Read(usable));
  Holdout& h = t.holdout_;
  for (double* v : {&t.mean_residual_, &t.residual_sigma_, &h.model.accuracy, &h.prior.accuracy,
                    &h.rmse, &h.sigma_scale}) {
    WHET_RETURN_IF_ERROR(in.Read(*v));
    if (!std::isfinite(*v)) return DataLoss("cost model: a value is not finite");
  }
  WHET_RETURN_IF_ERROR(in.Read(model_pairs));
  WHET_RETURN_IF_ERROR(in.Read(prior_pairs));
  t.feature_count_ = static_cast<int>(feature_count);
  t.rows_ = static_cast<int>(rows);
  t.usable_ = usable != 0;
  h.model.pairs = static_cast<int>(model_pairs);
  h.prior.pairs = static_cast<int>(prior_pairs);
  WHET_ASSIGN_OR_RETURN(const uint32_t groups, in.ReadCount(kMaxGroups));
  for (uint32_t i = 0; i < groups; ++i) {
    WHET_ASSIGN_OR_RETURN(std::string_view name, in.ReadBytes());
    WHET_RETURN_IF_ERROR(in.Read(t.group_offset_[std::string(name)]));
  }
  WHET_ASSIGN_OR_RETURN(const uint32_t members, in.ReadCount(kMaxMembers));
  for (uint32_t i = 0; i < members; ++i) {
    double slope = 0, weight = 0;
    WHET_RETURN_IF_ERROR(in.Read(slope));
    WHET_RETURN_IF_ERROR(in.Read(weight));
    WHET_ASSIGN_OR_RETURN(std::string_view booster_bytes, in.ReadBytes());
    WHET_ASSIGN_OR_RETURN(Booster booster, Booster::Load(booster_bytes));
    t.members_.push_back({std::move(booster), slope, weight});
  }
  if (!in.empty()) return DataLoss("cost model: bytes after its end");
  return t;
}

}  // namespace whet::model
