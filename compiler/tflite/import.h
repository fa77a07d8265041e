// From a TFLite file to a graph. Each operator of the file becomes nodes of the operator catalog,
// in the words of ONNX: through the same import functions, so that what is checked and normalised
// there is not written twice. All problems of a model are collected (up to
// frontend::Problems::kMost) and reported.
//
// TFLite tensors are channels-last, our operators channels-first with channels-last bytes. A value
// is kept in the order its operator computes it in and transposed only where somebody asks for the
// other, so that no transpose stands between a convolution and its activation.
//
// Quantized tensors become integers with QuantizeLinear and DequantizeLinear around each operator;
// graph passes make integer arithmetic of them.
//
// The file is untrusted: flatbuffers' verifier runs first, with caps on depth and tables; indices,
// extents and buffer sizes are checked where they are used. Pure functions of file and options.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/frontend/frontend.h"

namespace whet::tflite {

// Offsets of a flatbuffer are 32 bits, of which the library leaves one out.
inline constexpr int64_t kMaxFileBytes = (int64_t{1} << 31) - 1;
inline constexpr int kMaxTables = 4'000'000;  // about four per operator and two per tensor
inline constexpr int kMaxDepth = 16;          // the schema needs 5
inline constexpr int kMaxOperators = 1'000'000;
inline constexpr int kMaxTensors = 4'000'000;
inline constexpr int kMaxSubgraphDepth = 8;
inline constexpr int kMaxName = 65536;
inline constexpr int kMaxOperands = 4096;  // inputs and outputs of one operator
inline constexpr int64_t kMaxAllOperands = 16'000'000;
// What import may create in constants beyond the file, so that a small file cannot ask for all
// memory.
inline constexpr int64_t kMaxCreatedBytes = int64_t{1} << 30;
// And in names and scales beyond those of the file, which may refer to the same ones many times.
inline constexpr int64_t kMaxDescribedBytes = int64_t{1} << 28;

StatusOr<graph::Graph> ImportFile(const std::string& path,
                                  const frontend::ImportOptions& options = {});
StatusOr<graph::Graph> ImportBytes(std::string_view model,
                                   const frontend::ImportOptions& options = {});

}  // namespace whet::tflite
