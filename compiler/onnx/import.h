// From an ONNX file to a graph, through the operator catalog. Shapes are made static here: symbolic
// dimensions of inputs get values from `shapes`, shape arithmetic folds away, and constants end up
// as shared bytes. All problems of a model are collected (up to frontend::Problems::kMost) and
// reported at once.
//
// Graphs within nodes and functions of the model are inlined: If by its condition (or as a choice
// between both results), loops by unrolling; sequences and optionals are lists of values meanwhile.
//
// The file is untrusted: sizes, counts, nesting, ranks and products have caps, cycles and duplicate
// names are found, external data is read from beneath the model's folder only (external_data.h).
// Pure functions of files and options.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/frontend/frontend.h"
#include "compiler/graph/graph.h"

namespace whet::onnx {

inline constexpr int64_t kMaxFileBytes =
    (int64_t{1} << 31) - 1;                  // a protobuf message cannot be larger
inline constexpr int kMaxNodes = 1'000'000;  // of the file; ImportOptions has that of the graph
inline constexpr int kMaxNesting = 32;       // of graphs within nodes, and of functions
inline constexpr int kMaxOpset = 20;
// What folding at import may create in all, so that a small file cannot ask for all memory.
inline constexpr int64_t kMaxFoldedBytes = int64_t{1} << 30;

using frontend::ImportOptions;

StatusOr<graph::Graph> ImportFile(const std::string& path, const ImportOptions& options = {});
StatusOr<graph::Graph> ImportBytes(std::string_view model, const ImportOptions& options = {});

}  // namespace whet::onnx
