// Broadcasts a tensor to a shape (both ways, as in ONNX).
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferExpand(const OperatorArgs& args) {
  ASSIGN_OR_RETURN(std::vector<int64_t> shape,
                   BroadcastShapes(args.inputs[0].shape, args.attributes->Ints("shape", {})));
  return TensorType{args.inputs[0].dtype, shape};
}

int EmitExpand(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  return b.Compute("expand", args.output.shape,
                   [&](const Vars& i) { return Raw(b, stages[0], BroadcastIndex(i, args.inputs[0].shape)); });
}

bool ExpandIsView(const OperatorArgs& args) { return args.inputs[0].elements() == args.output.elements(); }

}  // namespace

std::vector<Operator> Expand() {
  return {{"expand", OperatorKind::kInjective, 1, 1, InferExpand, EmitExpand, ExpandIsView}};
}

}  // namespace diapason::ops
