#include "tests/support/test_tflite.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "compiler/support/rng.h"

namespace whet::testing_support {

namespace fb = tflite_schema;

int TestTflite::Add(std::string_view name, const std::vector<int>& shape, fb::TensorType type,
                    const std::string& data, flatbuffers::Offset<fb::Quantization> q) {
  uint32_t buffer = 0;
  if (!data.empty()) {
    buffer = static_cast<uint32_t>(buffers_.size());
    buffers_.push_back(data);
  }
  const auto shape_offset = builder_.CreateVector(shape);
  const auto name_offset = builder_.CreateString(name.data(), name.size());
  Subgraph& g = subgraphs_.back();
  g.tensors.push_back(fb::CreateTensor(builder_, shape_offset, type, buffer, name_offset, q));
  return static_cast<int>(g.tensors.size()) - 1;
}

int TestTflite::Tensor(std::string_view name, const std::vector<int>& shape, fb::TensorType type) {
  return Add(name, shape, type, "");
}

int TestTflite::Quantized(std::string_view name, const std::vector<int>& shape, fb::TensorType type,
                          const std::vector<float>& scales, const std::vector<int64_t>& zero_points,
                          int axis, std::string data) {
  const auto scale = builder_.CreateVector(scales);
  const auto zero = builder_.CreateVector(zero_points);
  fb::QuantizationBuilder q(builder_);
  q.add_scale(scale);
  q.add_zero_point(zero);
  q.add_quantized_dimension(axis);
  return Add(name, shape, type, data, q.Finish());
}

int TestTflite::SamePlace(int tensor, int times) {
  auto& all = subgraphs_.back().tensors;
  const auto first = static_cast<int>(all.size());
  const auto place = all[static_cast<size_t>(tensor)];
  all.insert(all.end(), static_cast<size_t>(times), place);
  return first;
}

int TestTflite::Bytes(std::string_view name, const std::vector<int>& shape, fb::TensorType type,
                      std::string data) {
  return Add(name, shape, type, data);
}

int TestTflite::Floats(std::string_view name, const std::vector<int>& shape,
                       const std::vector<float>& data) {
  std::string bytes(data.size() * sizeof(float), '\0');
  if (!data.empty()) std::memcpy(bytes.data(), data.data(), bytes.size());
  return Add(name, shape, fb::TensorType::FLOAT32, bytes);
}

int TestTflite::Ints(std::string_view name, const std::vector<int>& shape,
                     const std::vector<int32_t>& data) {
  std::string bytes(data.size() * sizeof(int32_t), '\0');
  if (!data.empty()) std::memcpy(bytes.data(), data.data(), bytes.size());
  return Add(name, shape, fb::TensorType::INT32, bytes);
}

int TestTflite::Weights(std::string_view name, const std::vector<int>& shape) {
  uint64_t seed = 0;
  for (char c : name) seed = seed * 131 + static_cast<unsigned char>(c);
  size_t n = 1;
  for (int d : shape) n *= static_cast<size_t>(d);
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(0.5 * CounterUniform(seed, 0, i));
  return Floats(name, shape, values);
}

TestTflite& TestTflite::Op(fb::BuiltinOperator code, const std::vector<int>& inputs,
                           const std::vector<int>& outputs, fb::Options type,
                           flatbuffers::Offset<void> options) {
  auto it = std::find(codes_.begin(), codes_.end(), code);
  const auto index = static_cast<uint32_t>(it - codes_.begin());
  if (it == codes_.end()) codes_.push_back(code);
  const auto in = builder_.CreateVector(inputs), out = builder_.CreateVector(outputs);
  subgraphs_.back().operators.push_back(
      fb::CreateOperator(builder_, index, in, out, type, options));
  return *this;
}

TestTflite& TestTflite::OpsAt(fb::BuiltinOperator code, flatbuffers::Offset<fb::Operator> table,
                              int times) {
  codes_.insert(codes_.begin(), code);
  auto& all = subgraphs_.back().operators;
  all.insert(all.end(), static_cast<size_t>(times), table);
  return *this;
}

TestTflite& TestTflite::Inputs(const std::vector<int>& tensors) {
  subgraphs_.back().inputs = tensors;
  return *this;
}

TestTflite& TestTflite::Outputs(const std::vector<int>& tensors) {
  subgraphs_.back().outputs = tensors;
  return *this;
}

int TestTflite::NextSubgraph() {
  subgraphs_.emplace_back();
  return static_cast<int>(subgraphs_.size()) - 1;
}

std::string TestTflite::Finish() {
  std::vector<flatbuffers::Offset<fb::OperatorCode>> codes;
  for (fb::BuiltinOperator c : codes_) {
    // As the format's own writers do: the narrow field holds what fits.
    const auto narrow = static_cast<int8_t>(std::min<int32_t>(static_cast<int32_t>(c), 127));
    codes.push_back(fb::CreateOperatorCode(builder_, narrow, 0, 1, c));
  }
  std::vector<flatbuffers::Offset<fb::SubGraph>> subgraphs;
  for (const Subgraph& g : subgraphs_) {
    const auto tensors = builder_.CreateVector(g.tensors);
    const auto in = builder_.CreateVector(g.inputs), out = builder_.CreateVector(g.outputs);
    const auto operators = builder_.CreateVector(g.operators);
    subgraphs.push_back(fb::CreateSubGraph(builder_, tensors, in, out, operators));
  }
  std::vector<flatbuffers::Offset<fb::Buffer>> buffers;
  for (const std::string& b : buffers_) {
    builder_.ForceVectorAlignment(b.size(), 1, 16);
    const auto data = builder_.CreateVector(reinterpret_cast<const uint8_t*>(b.data()), b.size());
    buffers.push_back(fb::CreateBuffer(builder_, data));
  }
  const auto all_codes = builder_.CreateVector(codes);
  const auto all_subgraphs = builder_.CreateVector(subgraphs);
  const auto all_buffers = builder_.CreateVector(buffers);
  fb::FinishModelBuffer(builder_,
                        fb::CreateModel(builder_, 3, all_codes, all_subgraphs, 0, all_buffers));
  return std::string(reinterpret_cast<const char*>(builder_.GetBufferPointer()),
                     builder_.GetSize());
}

}  // namespace whet::testing_support
