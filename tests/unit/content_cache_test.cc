// The bounded folder of files that could be made again.
#include "compiler/support/content_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace whet {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ContentCacheTest : public testing::Test {
 protected:
  ContentCacheTest() {
    std::string pattern = fs::temp_directory_path() / "whet-cache-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    dir_ = root_ + "/objects";
  }
  ~ContentCacheTest() override { fs::remove_all(root_); }

  ContentCache Open(int64_t limit = 1 << 20) {
    auto cache = ContentCache::Open(dir_, limit);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *cache;
  }
  // Entries, oldest first, are told apart by a second each: the clock of a file system is coarse.
  void SetUsed(const fs::path& path, int64_t second) {
    const timespec times[2] = {{second, 0}, {second, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  std::vector<fs::path> Entries() const {
    std::vector<fs::path> paths;
    for (const auto& e : fs::directory_iterator(dir_)) {
      if (e.path().extension() == ".entry") paths.push_back(e.path());
    }
    return paths;
  }

  std::string root_, dir_;
};

TEST_F(ContentCacheTest, WhatWasPutComesBack) {
  ContentCache cache = Open();
  EXPECT_EQ(cache.Get("a"), std::nullopt);
  EXPECT_FALSE(fs::exists(dir_)) << "reading makes nothing";
  const std::string bytes("x\0y\n", 4);
  cache.Put("a", bytes);
  cache.Put("b", "");
  EXPECT_EQ(cache.Get("a"), bytes);
  EXPECT_EQ(Open().Get("b"), "");
  EXPECT_EQ(cache.Get("c"), std::nullopt);
  cache.Put("a", "other");
  EXPECT_EQ(cache.Get("a"), "other");
  EXPECT_EQ(cache.hits(), 2);
  EXPECT_EQ(cache.misses(), 2);
  EXPECT_EQ(cache.Measure().entries, 2);
}

TEST_F(ContentCacheTest, DamagedEntriesAreRemovedWhateverTheDamage) {
  ContentCache cache = Open();
  cache.Put("a", "some bytes");
  const fs::path path = Entries().at(0);
  const auto size = fs::file_size(path);
  for (uintmax_t at = 0; at < size; ++at) {
    cache.Put("a", "some bytes");
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char c = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(c);
    file.close();
    EXPECT_EQ(cache.Get("a"), std::nullopt) << "byte " << at;
    EXPECT_FALSE(fs::exists(path));
  }
  for (uintmax_t left = 0; left < size; left += 7) {
    cache.Put("a", "some bytes");
    fs::resize_file(path, left);
    EXPECT_EQ(cache.Get("a"), std::nullopt) << left << " bytes left";
  }
  // The entry of another key under this one's name.
  cache.Put("a", "of a");
  cache.Put("b", "of b");
  for (const fs::path& p : Entries()) {
    if (p != path) fs::rename(p, path);
  }
  EXPECT_EQ(cache.Get("a"), std::nullopt);
}

TEST_F(ContentCacheTest, WhatWasUsedLongestAgoGoesFirst) {
  ContentCache cache = Open();
  std::string keys;
  for (int i = 0; i < 8; ++i) {
    const std::string key(1, static_cast<char>('a' + i));
    cache.Put(key, std::string(1000, 'x'));
  }
  for (const fs::path& p : Entries()) SetUsed(p, 1000);
  EXPECT_TRUE(cache.Get("c") && cache.Get("f"));  // used now
  const int64_t each = cache.Measure().bytes / 8;
  ContentCache small = Open(3 * each);
  small.Trim();
  EXPECT_EQ(small.Measure().entries, 3);
  EXPECT_TRUE(small.Get("c") && small.Get("f"));
  Open(0).Trim();
  EXPECT_EQ(small.Measure().entries, 0);
}

TEST_F(ContentCacheTest, WhatKilledProcessesLeftIsRemoved) {
  ContentCache cache = Open();
  cache.Put("a", "bytes");
  std::ofstream(dir_ + "/old.tmp") << "half";
  std::ofstream(dir_ + "/new.tmp") << "half";
  SetUsed(dir_ + "/old.tmp", 1000);
  cache.Trim();
  EXPECT_FALSE(fs::exists(dir_ + "/old.tmp"));
  EXPECT_TRUE(fs::exists(dir_ + "/new.tmp")) << "somebody may be writing it";
  EXPECT_EQ(cache.Get("a"), "bytes");
}

TEST_F(ContentCacheTest, AFolderThatOthersMayWriteIsNotBelieved) {
  fs::create_directory(dir_);
  ASSERT_EQ(chmod(dir_.c_str(), 0777), 0);
  EXPECT_THAT(ContentCache::Open(dir_, 1).status().message(), HasSubstr("others may write it"));
  fs::remove(dir_);
  std::ofstream(dir_) << "a file";
  EXPECT_THAT(ContentCache::Open(dir_, 1).status().message(), HasSubstr("is not a folder"));
}

TEST_F(ContentCacheTest, ProcessesMayUseOneFolderAtTheSameTime) {
  std::vector<pid_t> children;
  for (int c = 0; c < 4; ++c) {
    const pid_t pid = fork();
    if (pid == 0) {
      bool right = true;
      for (int i = 0; i < 200; ++i) {
        ContentCache cache = *ContentCache::Open(dir_, 4000);
        const std::string key = std::to_string(i % 10);
        const auto found = cache.Get(key);
        right &= !found || *found == std::string(500, key[0]);
        cache.Put(key, std::string(500, key[0]));
        cache.Trim();
      }
      _exit(right ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  ContentCache cache = Open(4000);
  cache.Trim();
  EXPECT_LE(cache.Measure().bytes, 4000);
  EXPECT_GT(cache.Measure().entries, 0);
}

TEST_F(ContentCacheTest, OneThatCannotBeWrittenKeepsNothing) {
  std::ofstream(root_ + "/file") << "in the way";
  auto cache = ContentCache::Open(root_ + "/file/objects", 1000);
  ASSERT_TRUE(cache.ok());
  cache->Put("a", "b");
  cache->Trim();
  EXPECT_EQ(cache->Get("a"), std::nullopt);
}

}  // namespace
}  // namespace whet
