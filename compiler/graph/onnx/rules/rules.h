// Where the operators of ONNX are listed: each file of this folder defines one function below, and registry.cc calls
// it.
//
// A rule turns one node of opset 7 to 28 into nodes of ours (compiler/graph/operator.h), which check the types and
// shapes of their inputs. A rule reads every attribute and every input that the operator knows, also those that change
// nothing at inference: what a node has beyond that is refused, and not silently ignored. It sets the results it gives;
// one that is read but was not set is an error of the caller.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/graph/onnx/node_importer.h"

namespace diapason {

struct OnnxRule {
  const char* op;  // with the domain in front where that is not ONNX's own: "com.microsoft.Gelu"
  absl::Status (*import)(NodeImporter& node);
};

// By the operator's name.
const std::map<std::string, OnnxRule>& OnnxRules();
// The rule for an operator, or null.
const OnnxRule* FindOnnxRule(const std::string& domain, const std::string& op);

namespace onnx_rules {

std::vector<OnnxRule> Attentions();  // Attention RotaryEmbedding MultiHeadAttention ...
std::vector<OnnxRule> BatchNormalization();
std::vector<OnnxRule> Cast();
std::vector<OnnxRule> Clip();
std::vector<OnnxRule> Concat();
std::vector<OnnxRule> Constant();     // Constant ConstantOfShape
std::vector<OnnxRule> ControlFlow();  // If Loop Scan
std::vector<OnnxRule> Conv();         // Conv ConvTranspose
std::vector<OnnxRule> Dropout();
std::vector<OnnxRule> Einsum();
std::vector<OnnxRule> Elementwise();  // Relu Add Max ...: those that need only a name and attributes
std::vector<OnnxRule> Found();        // NonMaxSuppression NonZero Compress
std::vector<OnnxRule> Fused();        // of ONNX Runtime: FusedConv FusedMatMul Gelu ...
std::vector<OnnxRule> Gather();
std::vector<OnnxRule> Gemm();              // Gemm MatMul
std::vector<OnnxRule> Indexing();          // GatherElements ScatterND TopK OneHot Range Tile Trilu ...
std::vector<OnnxRule> Geometry();          // GridSample AffineGrid RoiAlign DeformConv Col2Im Det ...
std::vector<OnnxRule> LinearAttentions();  // LinearAttention CausalConvWithState
std::vector<OnnxRule> Loss();              // NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
std::vector<OnnxRule> Normalization();     // LayerNormalization InstanceNormalization LRN ...
std::vector<OnnxRule> Pad();
std::vector<OnnxRule> Pool();       // MaxPool AveragePool GlobalMaxPool GlobalAveragePool
std::vector<OnnxRule> Quantize();   // QuantizeLinear QLinearConv MatMulInteger ...
std::vector<OnnxRule> Random();     // RandomNormal RandomUniform Bernoulli Multinomial ...
std::vector<OnnxRule> Recurrent();  // RNN GRU LSTM
std::vector<OnnxRule> Reduce();     // ReduceMean ReduceSum ...
std::vector<OnnxRule> Reshape();    // Reshape Flatten Squeeze Unsqueeze Transpose Expand
std::vector<OnnxRule> Resize();     // Resize Upsample
std::vector<OnnxRule> Sequences();  // SequenceConstruct SplitToSequence Optional ...
std::vector<OnnxRule> Shape();      // Shape Size
std::vector<OnnxRule> Signal();     // DFT STFT HannWindow MelWeightMatrix ...
std::vector<OnnxRule> Slice();      // Slice Split
std::vector<OnnxRule> Softmax();    // Softmax LogSoftmax
std::vector<OnnxRule> Unique();

}  // namespace onnx_rules
}  // namespace diapason
