// A worker's blobs on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "compiler/support/env.h"
#include "worker/service/blob_store.h"

namespace whet::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Store : public ::testing::Test {
 protected:
  Store() {
    std::string name = "/tmp/whet-store-XXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~Store() override { std::filesystem::remove_all(dir_); }
  BlobStore Open() {
    StatusOr<BlobStore> s = BlobStore::Open(dir_ + "/cache");
    EXPECT_TRUE(s.ok()) << s.status();
    return std::move(*s);
  }
  std::string dir_;
};

TEST_F(Store, BlobsAndPartsSurviveARestart) {
  const std::string whole = "the whole of it", sha = Sha256Hex(whole), other = Sha256Hex("other");
  {
    BlobStore s = Open();
    ASSERT_TRUE(s.Append({sha, 0, whole.substr(0, 4), false}).ok());
    ASSERT_TRUE(s.Append({sha, 4, whole.substr(4), true}).ok());
    ASSERT_TRUE(s.Append({other, 0, "oth", false}).ok());
    EXPECT_TRUE(s.Verify(sha).ok());
    EXPECT_EQ(*s.Head(sha, 3), "the");
    EXPECT_EQ(*s.Head(sha, 300), whole);
  }
  BlobStore s = Open();
  BlobStore::Left left = s.Load();
  EXPECT_EQ(left.whole, (std::map<std::string, uint64_t>{{sha, whole.size()}}));
  ASSERT_EQ(left.partial.size(), 1u);
  EXPECT_EQ(left.partial[other].bytes, 3u);
  left.partial[other].hash.Update("er");
  EXPECT_EQ(left.partial[other].hash.Hex(), other);
  ASSERT_TRUE(s.Append({other, 3, "er", true}).ok());
  EXPECT_TRUE(s.Verify(other).ok());
  s.Drop(sha);
  s.Drop(other);
  EXPECT_THAT(*ListDir(dir_ + "/cache"), IsEmpty());
}

TEST_F(Store, WhatIsNotWhatItsNameSaysIsRemoved) {
  BlobStore s = Open();
  const std::string sha = Sha256Hex("right");
  ASSERT_TRUE(WriteFile(s.Path(sha), "wrong").ok());
  ASSERT_TRUE(WriteFile(s.Path("passwd"), "x").ok());
  ASSERT_TRUE(WriteFile(s.Path(sha) + ".part", "").ok());
  ASSERT_TRUE(WriteFile(s.Path(sha) + ".12.0.tmp", "ri").ok());
  std::filesystem::create_symlink("/etc/hostname", s.Path(Sha256Hex("link")));
  const BlobStore::Left left = s.Load();
  EXPECT_THAT(left.whole, IsEmpty());
  EXPECT_THAT(left.partial, IsEmpty());
  EXPECT_THAT(*ListDir(dir_ + "/cache"), IsEmpty());
  EXPECT_TRUE(ReadFile("/etc/hostname", 1 << 16).ok());
}

TEST_F(Store, FileThatChangesAfterItWasFoundRightIsFoundWrong) {
  BlobStore s = Open();
  const std::string sha = Sha256Hex("right");
  ASSERT_TRUE(s.Append({sha, 0, "right", true}).ok());
  EXPECT_TRUE(s.Verify(sha).ok());
  EXPECT_TRUE(s.Verify(sha).ok());
  ASSERT_TRUE(WriteFile(s.Path(sha), "wrong").ok());  // of the same size
  EXPECT_EQ(s.Verify(sha).code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(WriteFile(s.Path(sha), "right").ok());
  EXPECT_TRUE(s.Verify(sha).ok());
  s.Drop(sha);
  EXPECT_THAT(Message(s.Verify(sha)), HasSubstr("gone"));
}

TEST_F(Store, PiecesGoWhereTheLastOneEndedOrNowhere) {
  BlobStore s = Open();
  const std::string sha = Sha256Hex("abcdef");
  EXPECT_FALSE(s.Append({sha, 3, "def", true}).ok());  // nothing is there
  ASSERT_TRUE(s.Append({sha, 0, "abc", false}).ok());
  EXPECT_EQ(s.Append({sha, 2, "def", false}).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(*ListDir(dir_ + "/cache"), IsEmpty());
  ASSERT_TRUE(s.Append({sha, 0, "xyzxyz", false}).ok());
  ASSERT_TRUE(s.Append({sha, 0, "abcdef", true}).ok());  // anew
  EXPECT_TRUE(s.Verify(sha).ok());
}

TEST_F(Store, FolderThatCannotBeMadeIsSaid) {
  ASSERT_TRUE(WriteFile(dir_ + "/file", "").ok());
  const StatusOr<BlobStore> s = BlobStore::Open(dir_ + "/file/cache");
  EXPECT_THAT(Message(s.status()), HasSubstr("cannot make the folder"));
}

}  // namespace
}  // namespace whet::worker
