#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"

namespace diapason {

absl::Status ConvertToHalf(Network& network) {
  for (Tensor& tensor : network.tensors) {
    if (tensor.type.dtype != DType::kFloat32) continue;
    tensor.type.dtype = DType::kFloat16;
    if (tensor.data) tensor.data = std::make_shared<const Array>(CastArray(*tensor.data, DType::kFloat16));
  }
  for (Node& node : network.nodes) {
    if (node.op == "cast" && node.attributes.String("to", "float32") == "float32")
      node.attributes.Set("to", std::string("float16"));
  }
  return InferShapes(network);
}

}  // namespace diapason
