#include "compiler/support/content_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <tuple>
#include <vector>

#include "compiler/support/env.h"
#include "compiler/support/sha256.h"

namespace whet {
namespace {

constexpr std::string_view kCacheMagic = "whet-cache 1\n";
constexpr size_t kHash = 64;
constexpr size_t kMaxEntry = size_t{256} << 20;
// What a process that was killed left behind.
constexpr time_t kStaleSeconds = 3600;
constexpr std::string_view kSuffix = ".entry";

// What precedes the bytes: the format, the key's hash and the bytes'.
std::string HeadOf(std::string_view key, std::string_view bytes) {
  return std::string(kCacheMagic) + Sha256Hex(key) + "\n" + Sha256Hex(bytes) + "\n";
}

struct Entry {
  std::string path;
  int64_t bytes = 0;
  timespec used = {};
};

// Those that are whole; and in `others` what else there is, if wanted.
std::vector<Entry> List(const std::string& dir, std::vector<Entry>* others = nullptr) {
  std::vector<Entry> entries;
  const StatusOr<std::vector<std::string>> names = ListDir(dir);
  if (!names.ok()) return entries;
  for (const std::string& name : *names) {
    Entry e{dir + "/" + name};
    struct stat s = {};
    if (lstat(e.path.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) continue;
    e.bytes = s.st_size;
    e.used = s.st_mtim;
    const bool whole = name.size() == kHash + kSuffix.size() && name.ends_with(kSuffix);
    if (whole) entries.push_back(std::move(e));
    if (!whole && others != nullptr && name != "lock") others->push_back(std::move(e));
  }
  return entries;
}

}  // namespace

std::string ObjectCacheDir() {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg && xdg[0] == '/') return std::string(xdg) + "/whet/objects";
  const char* home = std::getenv("HOME");
  return home && home[0] == '/' ? std::string(home) + "/.cache/whet/objects" : "";
}

StatusOr<ContentCache> ContentCache::Open(const std::string& dir, int64_t limit_bytes) {
  struct stat s = {};
  if (stat(dir.c_str(), &s) == 0) {
    if (!S_ISDIR(s.st_mode)) return InvalidArgument("the cache '{}' is not a folder", dir);
    if (s.st_uid != geteuid() || (s.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
      return Status(absl::StatusCode::kPermissionDenied,
                    fmt::format("the cache '{}' belongs to another user, or others may write it; "
                                "what is in it would be run",
                                dir));
    }
  }
  return ContentCache(dir, limit_bytes);
}

std::string ContentCache::PathOf(std::string_view key) const {
  return dir_ + "/" + Sha256Hex(key) + std::string(kSuffix);
}

std::optional<std::string> ContentCache::Get(std::string_view key) {
  const std::string path = PathOf(key);
  StatusOr<std::string> file = ReadFile(path, kMaxEntry);
  if (file.ok()) {
    constexpr size_t kHead = kCacheMagic.size() + 2 * (kHash + 1);
    const std::string_view bytes = std::string_view(*file).substr(std::min(kHead, file->size()));
    if (file->size() >= kHead && file->compare(0, kHead, HeadOf(key, bytes)) == 0) {
      utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used just now
      ++hits_;
      return std::string(bytes);
    }
    unlink(path.c_str());
  }
  ++misses_;
  return std::nullopt;
}

void ContentCache::Put(std::string_view key, std::string_view bytes) {
  if (bytes.size() > kMaxEntry / 2 || !MakeDirs(dir_).ok()) return;
  std::string file = HeadOf(key, bytes);
  file += bytes;
  WriteFile(PathOf(key), file).IgnoreError();
}

void ContentCache::Trim() {
  const int fd = open((dir_ + "/lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return;
  // Another process that trims does this one's work.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
    std::vector<Entry> others, entries = List(dir_, &others);
    for (const Entry& e : others) {
      if (e.used.tv_sec + kStaleSeconds < time(nullptr)) unlink(e.path.c_str());
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.used.tv_sec, a.used.tv_nsec, a.path) <
             std::tie(b.used.tv_sec, b.used.tv_nsec, b.path);
    });
    int64_t total = 0;
    for (const Entry& e : entries) total += e.bytes;
    for (const Entry& e : entries) {
      if (total <= limit_bytes_) break;
      if (unlink(e.path.c_str()) == 0) total -= e.bytes;
    }
  }
  close(fd);
}

ContentCache::Usage ContentCache::Measure() const {
  Usage usage;
  for (const Entry& e : List(dir_)) {
    ++usage.entries;
    usage.bytes += e.bytes;
  }
  return usage;
}

}  // namespace whet
