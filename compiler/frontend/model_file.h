// What importers of all formats do alike: reading a model file, and reporting its problems. Pure
// functions; a path is untrusted (it may be a folder, or a pipe that nobody writes to).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/frontend/frontend.h"
#include "compiler/graph/graph.h"
#include "compiler/support/status.h"

namespace whet::frontend {

// The first bytes of a regular file, at most `bytes`; empty where there is none.
std::string ReadHead(const std::string& path, size_t bytes);
// All of a regular file of at most `most` bytes.
StatusOr<std::string> ReadModelFile(const std::string& path, int64_t most);

// Whether an output is called so already: --output may name it too, or say the same twice.
bool HasOutput(const graph::Graph& g, std::string_view name);

// That `flag` ("--shape", "--bind") names what is neither an input nor, where the model has some
// and the flag takes them, a symbolic dimension.
enum class Named { kInput, kInputOrDimension };
Status UnknownName(const ImportOptions& options, std::string_view flag, std::string_view name,
                   Named what, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& dimensions = {});

// The problems of one model, all reported at once: the first kMost in words, the others by number.
class Problems {
 public:
  static constexpr size_t kMost = 20;

  void Add(Status s);
  int64_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  // One error with the code of the first. `supported`, unless empty: what the format's operators
  // may be, appended where one was not supported.
  Status Report(std::string_view supported) const;

 private:
  std::vector<Status> first_;
  int64_t count_ = 0;
};

}  // namespace whet::frontend
