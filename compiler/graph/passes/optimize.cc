#include "compiler/graph/passes.h"
#include "compiler/tensor/check.h"

namespace diapason {

absl::StatusOr<Network> Optimize(Network network, const ModelOptions& options) {
  RETURN_IF_ERROR(network.Validate());
  RETURN_IF_ERROR(FoldConstants(network));
  RETURN_IF_ERROR(Canonicalize(network));
  RETURN_IF_ERROR(MergeEqual(network));
  RETURN_IF_ERROR(FoldBatchNorm(network));
  RETURN_IF_ERROR(SinkViews(network));
  RETURN_IF_ERROR(MergeProjections(network));
  // Behind the folding, so that weights are rounded once.
  if (options.dtype == DType::kFloat16) RETURN_IF_ERROR(ConvertToHalf(network));
  RETURN_IF_ERROR(EliminateDeadCode(network));
  RETURN_IF_ERROR(ConvertLayout(network, options.layout));
  // Transposes of weights that were computed, and those that cancel.
  RETURN_IF_ERROR(FoldConstants(network));
  RETURN_IF_ERROR(Canonicalize(network));
  RETURN_IF_ERROR(EliminateDeadCode(network));
  RETURN_IF_ERROR(network.Validate());
  return network;
}

}  // namespace diapason
