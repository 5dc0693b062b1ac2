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
    if (network.tensor(node.output).type.dtype != dtype) continue;
    Attributes& attributes = node.attributes;
    if (node.op == "pad" && attributes.has("value"))
      attributes.Set("value", RoundNumber(attributes.Float("value", 0), dtype));
    if (node.op != "clip") continue;
    for (const char* limit : {"min", "max"}) {
      if (!attributes.has(limit)) continue;
      const double value = attributes.Float(limit, 0), most = LargestOf(dtype);
      const bool beyond = std::isfinite(value) && std::abs(value) > most;
      attributes.Set(limit, beyond ? std::copysign(most, value) : RoundNumber(value, dtype));
    }
  }
  return InferShapes(network);
}

}  // namespace diapason
