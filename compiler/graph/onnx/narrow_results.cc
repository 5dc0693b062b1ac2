#include "compiler/graph/onnx/narrow_results.h"

#include <set>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"
#include "compiler/graph/onnx/tensor_proto.h"

namespace diapason {
namespace {

// Operators whose results are elements of their inputs, or were rounded by the bodies that they hold.
bool MovesData(const std::string& op) {
  static const auto& names = *new std::set<std::string>{"CenterCropPad",
                                                        "Compress",
                                                        "Concat",
                                                        "Constant",
                                                        "ConstantOfShape",
                                                        "DepthToSpace",
                                                        "Dropout",
                                                        "Expand",
                                                        "EyeLike",
                                                        "Flatten",
                                                        "Gather",
                                                        "GatherElements",
                                                        "GatherND",
                                                        "Identity",
                                                        "If",
                                                        "Loop",
                                                        "Max",
                                                        "MaxPool",
                                                        "Min",
                                                        "Pad",
                                                        "ReduceMax",
                                                        "ReduceMin",
                                                        "Relu",
                                                        "Reshape",
                                                        "ReverseSequence",
                                                        "Scan",
                                                        "ScatterElements",
                                                        "ScatterND",
                                                        "Slice",
                                                        "SpaceToDepth",
                                                        "Split",
                                                        "Squeeze",
                                                        "Tile",
                                                        "TopK",
                                                        "Transpose",
                                                        "Trilu",
                                                        "Unique",
                                                        "Unsqueeze",
                                                        "Where"};
  return names.count(op) != 0;
}

// ONNX's rules of types, as far as they meet narrow types: a result has the type of the first input unless said
// otherwise.
std::string NarrowOf(const ImportState& state, const OnnxNode& node, int result, DType storage) {
  const int inputs = static_cast<int>(node.inputs.size());
  auto of_input = [&](int i) {
    auto it = i < inputs ? state.values.find(node.inputs[i]) : state.values.end();
    return it == state.values.end() ? std::string() : it->second->narrow;
  };
  auto of_attribute = [&](const char* name) {
    auto it = node.attributes.find(name);
    const int64_t* type = it == node.attributes.end() ? nullptr : std::get_if<int64_t>(&it->second);
    return type ? NarrowNameOfOnnx(static_cast<int>(*type)) : std::string();
  };
  const std::string& op = node.op;
  if (op == "Constant" || op == "ConstantOfShape") return node.narrow;
  if (op == "Cast" || op == "BitCast") return of_attribute("to");
  if (node.attributes.count("output_datatype") != 0) return of_attribute("output_datatype");
  if (op == "EyeLike" && node.attributes.count("dtype") != 0) return of_attribute("dtype");
  if (op == "CastLike") return of_input(1);
  if (op == "QuantizeLinear") return inputs > 2 ? of_input(2) : of_attribute("output_dtype");
  if (op == "DequantizeLinear")
    return node.attributes.count("output_dtype") != 0 ? of_attribute("output_dtype") : of_input(1);
  if (op == "OneHot") return of_input(2);
  if (op == "If" || op == "Loop" || op == "Scan" || op == "Shape" || op == "Size" || op == "ArgMax" || op == "ArgMin" ||
      op == "NonZero" || op == "NonMaxSuppression") {
    return "";
  }
  if ((op == "TopK" || op == "MaxPool") && result == 1) return "";
  if (op == "Unique" && result > 0) return "";
  for (int i = 0; i < inputs; ++i) {
    auto it = state.values.find(node.inputs[i]);
    if (it != state.values.end() && it->second->type.dtype == storage) return it->second->narrow;
  }
  return "";
}

}  // namespace

absl::Status NarrowResults(ImportState& state, NodeImporter& importer) {
  const OnnxNode& node = importer.node();
  const bool body = node.op == "If" || node.op == "Loop" || node.op == "Scan";
  for (int i = 0; i < static_cast<int>(node.outputs.size()) && !body; ++i) {
    auto it = node.outputs[i].empty() ? state.values.end() : state.values.find(node.outputs[i]);
    if (it == state.values.end() || !it->second->is_tensor()) continue;
    const std::string narrow = NarrowOf(state, node, i, it->second->type.dtype);
    if (narrow.empty()) continue;
    if (!MovesData(node.op)) {
      const auto saturate = node.attributes.find("saturate");
      const int64_t* value = saturate == node.attributes.end() ? nullptr : std::get_if<int64_t>(&saturate->second);
      ASSIGN_OR_RETURN(ImportValue rounded,
                       importer.Add("narrow", {it->second}, {{"to", narrow}, {"saturate", value ? *value : 1}}));
      importer.Set(i, std::move(rounded));
    }
    state.values.at(node.outputs[i])->narrow = narrow;
  }
  return absl::OkStatus();
}

}  // namespace diapason
