// Networks of the shapes that people deploy, with weights from a seed: no file is fetched, and the
// same name always gives the same bytes. Activations keep about unit scale through all layers, so
// the numbers are like those of a trained network. For tests and benchmarks.
#pragma once
#include <string>
#include <vector>

#include "compiler/support/status.h"
#include "tests/support/test_model.h"

namespace whet::testing_support {

// resnet18, resnet50, mobilenetv2            convolution + BatchNormalization, 224x224
// ssd_300                                    a detector: six pictures of mobilenetv2 at 300x300, 24
//                                            classes
// resnet50_qdq, mobilenetv2_qdq              QuantizeLinear/DequantizeLinear around float operators
// resnet50_qop                               QLinearConv
// bert_layer, bert_layer_ln17                one encoder layer (12 heads, hidden 768, sequence
// 128),
//                                            LayerNormalization decomposed and as an operator
// bert_base, bert_tiny                       12 and 2 layers with embeddings and pooler
// bert_layer_dynq                            DynamicQuantizeLinear + MatMulInteger
// tiny_NAME                                  few channels, small pictures, short sequences: of
//                                            resnet18, resnet50, mobilenetv2, their quantized
//                                            forms, the detector (ssd) and the bert layers
std::vector<std::string> GeneratedNames();
StatusOr<TestModel> Generate(const std::string& name, int64_t batch = 1);

}  // namespace whet::testing_support
