#include <algorithm>
#include <map>

#include "base/check.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"
#include "compiler/graph/passes/quantized.h"

namespace diapason {
namespace {

// int8 or uint8 where it holds all values, else int32.
DType NarrowestOf(const Array& values) {
  int64_t low = 0, high = 0;
  for (int64_t i = 0, n = values.elements(); i < n; ++i) {
    low = std::min(low, values.int_at(i));
    high = std::max(high, values.int_at(i));
  }
  if (low >= -128 && high <= 127) return DType::kInt8;
  return low >= 0 && high <= 255 ? DType::kUint8 : DType::kInt32;
}

}  // namespace

absl::Status NarrowFactors(Network& network) {
  const std::vector<int> producers = network.Producers();
  std::map<int, int> narrowed;  // constants
  for (Node& node : network.nodes) {
    if (node.op != "conv2d" && node.op != "matmul" && node.op != "gemm") continue;
    for (int f = 0; f < 2; ++f) {
      const int id = node.inputs[f];
      const Tensor factor = network.tensors[id];
      if (factor.type.dtype != DType::kInt32) continue;
      if (factor.constant()) {
        const auto [known, fresh] = narrowed.emplace(id, id);
        const DType type = fresh ? NarrowestOf(*factor.data) : DType::kInt32;
        if (type != DType::kInt32) known->second = network.AddConstant(factor.name, CastArray(*factor.data, type));
        node.inputs[f] = known->second;
      } else if (producers[id] >= 0 && network.nodes[producers[id]].op == "cast") {
        const int source = network.nodes[producers[id]].inputs[0];
        const DType type = network.tensors[source].type.dtype;
        if (type == DType::kInt8 || type == DType::kUint8) node.inputs[f] = source;
      }
    }
  }
  return EliminateDeadCode(network);
}

}  // namespace diapason
