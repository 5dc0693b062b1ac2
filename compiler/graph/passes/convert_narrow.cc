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
  }
  return InferShapes(network);
}

}  // namespace diapason
