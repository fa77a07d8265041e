// Writes ONNX models for tests, so that no test needs a downloaded file or another program. Seeded:
// the same calls give the same bytes. Not for use outside of tests.
//
//   TestModel m(13);
//   m.Input("x", {1, 8, 8, 8}).Weights("w", {16, 8, 1, 1});
//   m.Node("Conv", {"x", "w"}, {"y"}).Ints("kernel_shape", {1, 1});
//   m.Output("y");
//   auto graph = onnx::ImportBytes(m.Serialize());
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/onnx_schema.pb.h"
#include "compiler/support/dtype.h"

namespace whet::testing_support {

class TestModel {
 public:
  // The node just added; attributes are chained onto it.
  class NodeWriter {
   public:
    explicit NodeWriter(onnx_schema::NodeProto* n) : n_(n) {}
    NodeWriter& Int(std::string_view name, int64_t v);
    NodeWriter& Float(std::string_view name, float v);
    NodeWriter& Str(std::string_view name, std::string_view v);
    NodeWriter& Ints(std::string_view name, const std::vector<int64_t>& v);
    NodeWriter& Tensor(std::string_view name, DType t, const std::vector<int64_t>& shape,
                       std::span<const double> values);
    NodeWriter& Graph(std::string_view name, const TestModel& body);
    NodeWriter& Domain(std::string_view domain);

   private:
    onnx_schema::AttributeProto* Add(std::string_view name);
    onnx_schema::NodeProto* n_;
  };

  explicit TestModel(int opset = 13, std::string_view name = "test");

  TestModel& Input(std::string_view name, const std::vector<int64_t>& shape, DType t = DType::kF32);
  // A dimension is a number or the name of a parameter; "" is unknown.
  TestModel& SymbolicInput(std::string_view name, const std::vector<std::string>& dims,
                           DType t = DType::kF32);
  TestModel& Output(std::string_view name);
  TestModel& Constant(std::string_view name, DType t, const std::vector<int64_t>& shape,
                      std::span<const double> values);
  TestModel& Ints(std::string_view name,
                  const std::vector<int64_t>& values);  // one-dimensional i64
  // Uniform in [-s, s) with s = sqrt(3 / terms) for shapes of two and more dimensions, where terms
  // is the product of all but the first; [-0.5, 0.5) for others. The values depend on the name
  // only.
  TestModel& Weights(std::string_view name, const std::vector<int64_t>& shape,
                     DType t = DType::kF32);
  // Named after the operator and its number, as "Conv_3".
  NodeWriter Node(std::string_view op, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& outputs);

  onnx_schema::ModelProto& proto() { return model_; }
  std::string Serialize() const { return model_.SerializeAsString(); }
  void WriteTo(const std::string& path) const;

 private:
  onnx_schema::ModelProto model_;
};

int32_t OnnxType(DType t);

// A network of the shape of BlazeFace, small: a 5x5 stem with stride 2 and uneven padding, residual
// blocks of depthwise and pointwise convolutions, some with stride 2 (max-pooled shortcut) and more
// channels (shortcut joined with zeros made by ConstantOfShape), and two heads that end in
// Transpose and Reshape. Input "input" is [1, size, size, 3] (channels last, as exporters write
// it), outputs "scores" [1, anchors, 1] and "boxes" [1, anchors, 4]. `size` is a multiple of 8.
TestModel BlazeFaceLike(int64_t size = 32);

// conv 3x3 + batch norm + relu, 2x2 max pool, depthwise 3x3, global average pool, fully connected,
// softmax; NCHW.
TestModel TinyClassifier(int64_t size = 16, int64_t classes = 10);

// conv 3x3 of 24 to 40 channels + relu, and conv 1x1 back to 24: weights of two sizes. Input "x" is
// [1, 24, 10, 10], output "y".
TestModel TwoConvolutions();

}  // namespace whet::testing_support
