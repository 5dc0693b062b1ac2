#include "base/check.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"

namespace diapason {

absl::Status InferShapes(Network& network) {
  for (const Node& node : network.nodes) {
    ASSIGN_OR_RETURN(network.tensors[node.output].type, InferNode(network, node));
  }
  return absl::OkStatus();
}

}  // namespace diapason
