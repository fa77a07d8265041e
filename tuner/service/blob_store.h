// Candidates and expected outputs that workers may fetch, by SHA-256, in memory, with a count of
// who needs each. A blob stays while its count is positive, and for a while after (a worker may be
// about to ask): the least recently dropped go first beyond a bound. Thread-safe.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace whet::tuner {

class BlobStore {
 public:
  explicit BlobStore(size_t max_unneeded_bytes = 64u << 20)
      : max_unneeded_bytes_(max_unneeded_bytes) {}

  std::string Put(std::string bytes);  // its SHA-256; counted once, for the caller to drop
  void Keep(const std::string& sha256);
  void Drop(const std::string& sha256);
  std::shared_ptr<const std::string> Get(
      const std::string& sha256);  // shared with readers that outlast a Drop; null: not here

 private:
  struct Blob {
    std::shared_ptr<const std::string> bytes;
    int count = 0;
  };
  void Shrink();

  const size_t max_unneeded_bytes_;
  std::mutex mu_;
  std::map<std::string, Blob> blobs_;
  std::deque<std::string> unneeded_;  // oldest first; may name blobs that are needed again
  size_t unneeded_bytes_ = 0;
};

}  // namespace whet::tuner
