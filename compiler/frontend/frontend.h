// What reads one kind of model file: a frontend. Each is a folder of its own beside this one with a
// frontend.cc that defines `const frontend::Frontend& whet::FOLDER::GetFrontend()`; the build finds
// such folders by that file and generates the list (frontends.inc), so adding one edits nothing
// here. The rest of the compiler knows graphs only, and the driver picks a frontend by content.
//
// Frontends are immutable and may be used from several threads. A model file is untrusted:
// importing ends with a graph that verifies or with an error, whatever the bytes are.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"

namespace whet::frontend {

struct ImportOptions {
  std::map<std::string, std::vector<int64_t>> shapes;  // --shape NAME=D,D,... by input name
  // --bind NAME=VALUE: an input becomes a constant of its element type ("16000", "1,2,3", "true");
  // a name that is no input is a symbolic dimension.
  std::map<std::string, std::string> bind;
  std::vector<std::string> outputs;  // --output NAME: values to give out besides the model's own
  int64_t max_nodes = 1'000'000;     // once loops are unrolled and functions inlined
  // Files that the caller is going to write: the model's weights may be in none of them.
  std::vector<std::string> writes;
  // The artifact that shapes and bound values are of, which may be another model's; empty: they are
  // the user's flags. For messages.
  std::string artifact;
};

// How sure a frontend is that a file is one of its own; the surest one reads it. A format without a
// signature claims what nobody else does, and says in its error what is wrong with the file.
enum class Claim : uint8_t { kNone, kPossible, kByName, kByContent };
inline constexpr size_t kHeadBytes = 64;

// An operator of a format, for people.
struct OperatorInfo {
  std::string name;
  std::string note;  // limits; often empty
};

struct Frontend {
  std::string_view name;  // of the format, for people: "ONNX"
  // `head`: the first kHeadBytes of the file, or fewer where it is shorter or cannot be read.
  Claim (*claim)(std::string_view head, std::string_view path);
  // Errors name the file.
  StatusOr<graph::Graph> (*import)(const std::string& path, const ImportOptions& options);
  std::vector<OperatorInfo> (*operators)();  // all that it reads, by name
};

std::span<const Frontend* const> Frontends();

// Through the frontend that claims the file.
StatusOr<graph::Graph> ImportFile(const std::string& path, const ImportOptions& options = {});

// What can be imported, as the section of README.md that a test compares with it. `types`: which
// element types an operator's data may have, in words, by its name. It is found out by trying and
// not kept in records: what an operator becomes at import takes more types than its canonical form,
// or fewer.
std::string OperatorTable(const std::map<std::string, std::string>& types);

}  // namespace whet::frontend
