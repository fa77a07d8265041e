// Files that could be made again, in a folder of bounded size. An entry is written beside its final
// name and renamed, and says what it is and how its bytes add up: a reader finds it whole, or does
// not find it, and one that was damaged is removed. What was used longest ago goes first. Any
// number of processes may use one folder at the same time. Nothing fails for a cache: one that
// cannot be read is empty, one that cannot be written keeps nothing. Used by one thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/support/status.h"

namespace whet {

// Where compiled objects are kept: $XDG_CACHE_HOME/whet/objects, else ~/.cache/whet/objects; ""
// when there is neither. Nothing is made.
std::string ObjectCacheDir();
inline constexpr int64_t kObjectCacheBytes = int64_t{512} << 20;

class ContentCache {
 public:
  // The folder is made with the first entry. What is in it is believed, so it has to be the user's
  // alone: of another owner's, or one that others may write, PermissionDenied.
  static StatusOr<ContentCache> Open(const std::string& dir, int64_t limit_bytes);

  // `key` is any text that says everything the bytes depend on.
  std::optional<std::string> Get(std::string_view key);
  void Put(std::string_view key, std::string_view bytes);
  // Removes what was used longest ago until the limit is kept. After the last Put.
  void Trim();

  struct Usage {
    int64_t entries = 0, bytes = 0;
  };
  Usage Measure() const;
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  ContentCache(std::string dir, int64_t limit_bytes)
      : dir_(std::move(dir)), limit_bytes_(limit_bytes) {}
  std::string PathOf(std::string_view key) const;

  std::string dir_;
  int64_t limit_bytes_;
  int64_t hits_ = 0, misses_ = 0;
};

}  // namespace whet
