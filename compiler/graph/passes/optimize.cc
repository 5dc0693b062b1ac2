#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/quantized.h"

namespace diapason {

namespace {

// Behind the folding, so that constants are computed in double precision and rounded once.
absl::Status NarrowDoubles(Network& network, const ModelOptions& options, std::vector<std::string>* warnings) {
  const DoubleTensors doubles = FindDoubles(network);
  if (doubles.count == 0) return absl::OkStatus();
  const std::string has =
      absl::StrCat("the model has ", doubles.count, doubles.count == 1 ? " tensor" : " tensors", " of type float64 (",
                   doubles.count == 1 ? "" : "the first is ", doubles.first, ")");
  // ConvertToNarrow comes after this.
  const char* const to = NameOf(IsNarrowFloat(options.dtype) ? options.dtype : DType::kFloat32);
  if (options.strict) {
    return absl::InvalidArgumentError(absl::StrCat(has, ", which --strict refuses: leave it out to compute in ", to,
                                                   ", or export the model in float32"));
  }
  std::string ports;
  if (!doubles.inputs.empty()) absl::StrAppend(&ports, "; ", to, " is also the type of its input ", doubles.inputs);
  if (!doubles.outputs.empty())
    absl::StrAppend(&ports, ports.empty() ? absl::StrCat("; ", to, " is also the type of its") : " and", " output ",
                    doubles.outputs);
  if (warnings != nullptr) warnings->push_back(absl::StrCat(has, ", computed in ", to, ports));
  return ConvertDoubles(network);
}

}  // namespace

absl::StatusOr<Network> Optimize(Network network, const ModelOptions& options, std::vector<std::string>* warnings) {
  RETURN_IF_ERROR(network.Validate());
  RETURN_IF_ERROR(FuseQuantized(network));
  RETURN_IF_ERROR(FoldConstants(network));
  RETURN_IF_ERROR(Canonicalize(network));
  RETURN_IF_ERROR(MergeEqual(network));
  RecognizeNorms(network);
  RETURN_IF_ERROR(EliminateDeadCode(network));
  RETURN_IF_ERROR(FoldBatchNorm(network));
  if (DropUnreadRows(network)) {
    RETURN_IF_ERROR(FoldConstants(network));
    RETURN_IF_ERROR(Canonicalize(network));
  }
  RETURN_IF_ERROR(SinkViews(network));
  RETURN_IF_ERROR(MergeProjections(network));
  RETURN_IF_ERROR(NarrowFactors(network));
  RETURN_IF_ERROR(NarrowDoubles(network, options, warnings));
  // Behind the folding, so that weights are rounded once.
  if (IsNarrowFloat(options.dtype)) RETURN_IF_ERROR(ConvertToNarrow(network, options.dtype));
  RETURN_IF_ERROR(EliminateDeadCode(network));
  RETURN_IF_ERROR(ConvertLayout(network, options.layout));
  // Transposes of weights that were computed, and those that cancel.
  RETURN_IF_ERROR(FoldConstants(network));
  RETURN_IF_ERROR(Canonicalize(network));
  RepeatMoves(network);
  RETURN_IF_ERROR(EliminateDeadCode(network));
  RETURN_IF_ERROR(network.Validate());
  return network;
}

}  // namespace diapason
