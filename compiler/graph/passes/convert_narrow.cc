#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"

namespace diapason {

absl::Status ConvertToNarrow(Network& network, DType dtype) {
  for (Tensor& tensor : network.tensors) {
    if (tensor.type.dtype != DType::kFloat32) continue;
    tensor.type.dtype = dtype;
    if (tensor.data) tensor.data = std::make_shared<const Array>(RoundConstant(*tensor.data, dtype));
  }
  for (Node& node : network.nodes) {
    if (node.op == "cast" && node.attributes.String("to", "float32") == "float32")
      node.attributes.Set("to", std::string(NameOf(dtype)));
    if (node.op == "clip" && network.tensor(node.output).type.dtype == dtype) {
      for (const char* limit : {"min", "max"})
        if (node.attributes.has(limit)) node.attributes.Set(limit, RoundNumber(node.attributes.Float(limit, 0), dtype));
    }
    if (node.op == "pad" && network.tensor(node.output).type.dtype == dtype && node.attributes.has("value")) {
      Array value(DType::kFloat32, {});
      value.set(0, node.attributes.Float("value", 0));
      node.attributes.Set("value", RoundConstant(value, dtype).at(0));
    }
  }
  return InferShapes(network);
}

}  // namespace diapason
