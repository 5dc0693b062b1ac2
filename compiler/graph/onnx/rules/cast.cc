// Conversion of the element type.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/tensor_proto.h"

namespace diapason::onnx_rules {
namespace {

absl::Status ImportCast(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  node.Ignore({"saturate", "round_mode"});  // of floats of 8 bits, which NodeImporter rounds
  absl::StatusOr<DType> to = StorageOfOnnx(static_cast<int>(node.Int("to", 0)));
  if (!to.ok()) return absl::InvalidArgumentError(absl::StrCat("its result ", to.status().message()));
  return node.Emit("cast", {x}, {{"to", NameOf(*to)}});
}

}  // namespace

std::vector<OnnxRule> Cast() { return {{"Cast", ImportCast}}; }

}  // namespace diapason::onnx_rules
