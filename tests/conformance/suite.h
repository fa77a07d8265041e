// The vectors of ONNX's backend tests as Debian's libonnx-testdata installs them: folders
// SUITE/test_NAME with model.onnx and test_data_set_0/{input,output}_k.pb; and vectors of our own,
// each in two files (see vectors/make_vectors.py). Single-threaded, for the conformance test only.
#pragma once
#include <string>
#include <vector>

#include "compiler/onnx/onnx_schema.pb.h"
#include "compiler/support/status.h"

namespace whet::conformance {

struct TestCase {
  std::string name;  // "node/test_abs"
  std::string path;  // its folder; of our own vectors, the model
};

// All tests beneath `data`, by name. NotFound when there are none.
StatusOr<std::vector<TestCase>> FindTests(const std::string& data);
// Pairs NAME.onnx and NAME.data in `folder`, as tests "vectors/NAME".
StatusOr<std::vector<TestCase>> FindOwnVectors(const std::string& folder);

struct Vectors {
  onnx_schema::ModelProto model;
  // Those inputs of the graph that no initializer gives a value, in order; the file's bytes.
  std::vector<onnx_schema::ValueInfoProto> input_infos;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};
StatusOr<Vectors> ReadVectors(const TestCase& test);

// Why a test is outside of what the compiler is for, as far as the model alone says: "string",
// "sequence" (optionals too), "training", "type" (an element type that it does not have), or "".
std::string OutOfScope(const onnx_schema::ModelProto& model);

}  // namespace whet::conformance
