// Weights that lie in files beside the model. A model is untrusted: it may name files beneath its
// own folder only, by a relative path without "..", through no link; they have to be regular, and
// what it wants of them has to be there. Internal to compiler/onnx; one thread.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/onnx_schema.pb.h"
#include "compiler/support/status.h"

namespace whet::onnx {

// What all tensors of a model may read together: many may name the same bytes of a file, which is
// read for each. Four times the files that are named, and some more where they are small.
inline constexpr int64_t kMaxExternalBytes = int64_t{1} << 34;
inline constexpr int64_t kMaxSharedBytes = int64_t{16} << 20;

class ExternalData {
 public:
  // Without a folder (a model in memory) every read is refused.
  ExternalData() = default;
  // None of the files `writes` is read: the caller is going to write them.
  explicit ExternalData(std::string folder, std::vector<std::string> writes = {})
      : folder_(std::move(folder)), writes_(std::move(writes)) {}

  // The bytes of a tensor that takes `wanted` of them.
  StatusOr<std::string> Read(const onnx_schema::TensorProto& t, int64_t wanted);

 private:
  std::string folder_;
  std::vector<std::string> writes_;
  std::set<std::pair<uint64_t, uint64_t>> files_;  // device and inode
  int64_t bytes_read_ = 0, file_bytes_ = 0;
};

}  // namespace whet::onnx
