#include "compiler/graph/onnx/rules/rules.h"

namespace diapason {

const std::map<std::string, OnnxRule>& OnnxRules() {
  static const std::map<std::string, OnnxRule>& rules = *[] {
    auto* all = new std::map<std::string, OnnxRule>;
    for (auto* list : {onnx_rules::Attentions,
                       onnx_rules::ControlFlow,
                       onnx_rules::Geometry,
                       onnx_rules::LinearAttentions,
                       onnx_rules::Loss,
                       onnx_rules::Signal,
                       onnx_rules::BatchNormalization,
                       onnx_rules::Cast,
                       onnx_rules::Clip,
                       onnx_rules::Concat,
                       onnx_rules::Constant,
                       onnx_rules::Conv,
                       onnx_rules::Dropout,
                       onnx_rules::Einsum,
                       onnx_rules::Elementwise,
                       onnx_rules::Found,
                       onnx_rules::Fused,
                       onnx_rules::Gather,
                       onnx_rules::Gemm,
                       onnx_rules::Indexing,
                       onnx_rules::Normalization,
                       onnx_rules::Pad,
                       onnx_rules::Pool,
                       onnx_rules::Quantize,
                       onnx_rules::Random,
                       onnx_rules::Recurrent,
                       onnx_rules::Reduce,
                       onnx_rules::Reshape,
                       onnx_rules::Resize,
                       onnx_rules::Sequences,
                       onnx_rules::Shape,
                       onnx_rules::Slice,
                       onnx_rules::Softmax,
                       onnx_rules::Unique}) {
      for (const OnnxRule& rule : list()) all->emplace(rule.op, rule);
    }
    return all;
  }();
  return rules;
}

const OnnxRule* FindOnnxRule(const std::string& domain, const std::string& op) {
  auto it = OnnxRules().find(domain.empty() ? op : domain + "." + op);
  return it == OnnxRules().end() ? nullptr : &it->second;
}

}  // namespace diapason
