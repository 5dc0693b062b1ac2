#include <cmath>

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
      for (const char* limit : {"min", "max"}) {
        const double value = node.attributes.Float(limit, 0);
        // Neither one that is not given nor one beyond the type's numbers is a limit.
        if (value != 0 && std::abs(value) < LargestOf(dtype)) node.attributes.Set(limit, RoundNumber(value, dtype));
      }
    }
  }
  return InferShapes(network);
}

}  // namespace diapason
