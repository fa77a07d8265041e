// One task of a model, scheduled and compiled: what is assembled into an artifact, and what is kept
// in a cache of objects. Values; the cache belongs to the caller.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/model_builder.h"
#include "compiler/schedule/space.h"
#include "compiler/support/content_cache.h"

namespace whet::codegen {

struct BuiltTask {
  bool writes_output_once = false;
  std::vector<expr::Buffer> packed;  // what the prepack kernel writes
  loop::Program prepack;             // to interpret; no body when it came out of a cache
  std::string packing;               // digest of how weights are packed; "": they are not
  ObjectCode code;
  ObjectStats stats;    // of code that was generated now
  bool cached = false;  // it came out of a cache
};

// `prefix` starts the object's symbols; `conditions` are what the estimates of a task without a
// trace are for. A task whose prepack kernel cannot run on this machine is built even if the cache
// has it.
StatusOr<BuiltTask> BuildTask(const ModelTask& task, const std::string& prefix,
                              const Target& target, const schedule::Conditions& conditions,
                              const std::set<std::string>& packings, ContentCache* cache);

// The start of the symbols of a task's object: the same wherever the task occurs, so that a cached
// object fits.
std::string SymbolPrefix(const ModelTask& task, const Target& target);

// Whether code for the target runs on this machine.
bool RunsHere(const Target& target);

std::string SerializeTask(const BuiltTask& task);
// Nothing when the bytes are not what SerializeTask wrote.
std::optional<BuiltTask> ParseTask(std::string_view bytes);

}  // namespace whet::codegen
