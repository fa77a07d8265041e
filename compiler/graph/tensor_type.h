// The type of a value: element type, logical shape, and the physical layout as an index map of the
// logical indices. Shapes are static; everything above asks for logical indices and only the layout
// says where the bytes are. Values are plain and copyable. Text: `f32[1,24,64,64]`, with a layout
// `f32[1,24,64,64]<(a, b, c, d) -> (a, c, d, b)>`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/expr/index_map.h"
#include "compiler/graph/scanner.h"
#include "compiler/support/dtype.h"

namespace whet::graph {

// Caps on what a model may ask for. Rank: ONNX models in use stay below 7. Bytes: no device we
// target holds a tensor of 2^40 bytes, and below it no product of extents and element size
// overflows.
inline constexpr int kMaxRank = 8;
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 40;

struct TensorType {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  expr::IndexMap layout;  // a permutation for now; row-major unless assigned

  static TensorType Of(DType dtype, std::vector<int64_t> shape);  // row-major
  int rank() const { return static_cast<int>(shape.size()); }
  int64_t num_elements() const;
  int64_t bytes() const;
  std::vector<int64_t> PhysicalShape() const { return layout.ApplyToShape(shape); }
  // out[i] = logical dimension at physical position i.
  std::vector<int> Order() const { return layout.AsPermutation(); }
  // The physical bytes are the row-major ones of the logical shape (unit extents may have moved).
  bool IsRowMajor() const;
  std::string ToString() const;
};
bool operator==(const TensorType& a, const TensorType& b);

// Extents non-negative, rank and bytes within the caps (checked arithmetic).
Status CheckShape(DType dtype, const std::vector<int64_t>& shape);

// Physical order without unit extents: two tensors of equal element type hold equal bytes for equal
// elements when these agree (see IsPhysicalView in layout terms).
std::vector<int> SignificantOrder(const TensorType& t);

// A shape's extents other than 1, in order.
std::vector<int64_t> WithoutUnits(const std::vector<int64_t>& shape);

StatusOr<TensorType> ParseTensorType(Scanner& in);

// (n, c, h, w) -> (n, h, w, c), the layout of activations around convolutions and pools.
expr::IndexMap ChannelsLast();

}  // namespace whet::graph
