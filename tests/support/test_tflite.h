// Writes TFLite models for tests. Tensors are numbered in the order they are added; the same calls
// give the same bytes. Not for use outside of tests.
//
//   TestTflite m;
//   const int x = m.Tensor("x", {1, 4, 4, 3}), w = m.Weights("w", {8, 3, 3, 3});
//   const int y = m.Tensor("y", {1, 4, 4, 8});
//   m.Op(BuiltinOperator::CONV_2D, {x, w}, {y}, Options::Conv2D,
//        fb::CreateConv2DOptions(m.builder(), Padding::SAME, 1, 1).Union());
//   m.Inputs({x}).Outputs({y});
//   auto graph = tflite::ImportBytes(m.Finish());
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/tflite/schema_generated.h"

namespace whet::testing_support {

class TestTflite {
 public:
  // The main subgraph comes first; those of branches follow.
  TestTflite() : subgraphs_(1) {}

  int Tensor(std::string_view name, const std::vector<int>& shape,
             tflite_schema::TensorType type = tflite_schema::TensorType::FLOAT32);
  // Quantized, per axis where there are several scales. `data` may be empty.
  int Quantized(std::string_view name, const std::vector<int>& shape,
                tflite_schema::TensorType type, const std::vector<float>& scales,
                const std::vector<int64_t>& zero_points, int axis = 0, std::string data = {});
  // As many more tensors, all in the same place of the file: it is little larger for them. The
  // number of the first.
  int SamePlace(int tensor, int times);
  int Floats(std::string_view name, const std::vector<int>& shape, const std::vector<float>& data);
  int Ints(std::string_view name, const std::vector<int>& shape, const std::vector<int32_t>& data);
  int Bytes(std::string_view name, const std::vector<int>& shape, tflite_schema::TensorType type,
            std::string data);
  // Values in [-0.5, 0.5) that depend on the name only.
  int Weights(std::string_view name, const std::vector<int>& shape);

  TestTflite& Op(tflite_schema::BuiltinOperator code, const std::vector<int>& inputs,
                 const std::vector<int>& outputs,
                 tflite_schema::Options type = tflite_schema::Options::NONE,
                 flatbuffers::Offset<void> options = 0);
  // One operator's table (of operator code `code`, the first), as many times over.
  TestTflite& OpsAt(tflite_schema::BuiltinOperator code,
                    flatbuffers::Offset<tflite_schema::Operator> table, int times);
  TestTflite& Inputs(const std::vector<int>& tensors);
  TestTflite& Outputs(const std::vector<int>& tensors);
  int NextSubgraph();  // what follows belongs to it; its number

  flatbuffers::FlatBufferBuilder& builder() { return builder_; }
  std::string Finish();  // the file; once

 private:
  struct Subgraph {
    std::vector<flatbuffers::Offset<tflite_schema::Tensor>> tensors;
    std::vector<flatbuffers::Offset<tflite_schema::Operator>> operators;
    std::vector<int> inputs, outputs;
  };
  int Add(std::string_view name, const std::vector<int>& shape, tflite_schema::TensorType type,
          const std::string& data, flatbuffers::Offset<tflite_schema::Quantization> q = 0);

  flatbuffers::FlatBufferBuilder builder_;
  std::vector<Subgraph> subgraphs_;
  std::vector<std::string> buffers_ = {""};  // the first one is the empty one
  std::vector<tflite_schema::BuiltinOperator> codes_;
};

}  // namespace whet::testing_support
