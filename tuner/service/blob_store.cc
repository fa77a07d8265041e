#include "tuner/service/blob_store.h"

#include <algorithm>

#include "compiler/support/sha256.h"

namespace whet::tuner {

std::string BlobStore::Put(std::string bytes) {
  const std::string sha = Sha256Hex(bytes);
  const std::lock_guard lock(mu_);
  Blob& blob = blobs_[sha];
  if (!blob.bytes) {
    blob.bytes = std::make_shared<const std::string>(std::move(bytes));
  } else if (blob.count == 0) {
    unneeded_bytes_ -= blob.bytes->size();
    std::erase(unneeded_, sha);
  }
  ++blob.count;
  return sha;
}

void BlobStore::Keep(const std::string& sha) {
  const std::lock_guard lock(mu_);
  const auto it = blobs_.find(sha);
  if (it == blobs_.end()) return;
  if (it->second.count++ == 0) {
    unneeded_bytes_ -= it->second.bytes->size();
    std::erase(unneeded_, sha);
  }
}

void BlobStore::Drop(const std::string& sha) {
  const std::lock_guard lock(mu_);
  const auto it = blobs_.find(sha);
  if (it == blobs_.end() || it->second.count == 0) return;
  if (--it->second.count == 0) {
    unneeded_bytes_ += it->second.bytes->size();
    unneeded_.push_back(sha);
    Shrink();
  }
}

std::shared_ptr<const std::string> BlobStore::Get(const std::string& sha) {
  const std::lock_guard lock(mu_);
  const auto it = blobs_.find(sha);
  return it == blobs_.end() ? nullptr : it->second.bytes;
}

void BlobStore::Shrink() {
  while (unneeded_bytes_ > max_unneeded_bytes_ && !unneeded_.empty()) {
    const auto it = blobs_.find(unneeded_.front());
    unneeded_.pop_front();
    unneeded_bytes_ -= it->second.bytes->size();
    blobs_.erase(it);
  }
}

}  // namespace whet::tuner
