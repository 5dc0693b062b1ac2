#include "compiler/graph/onnx/node_importer.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/onnx/import_nodes.h"
#include "compiler/graph/onnx/input_shapes.h"
#include "compiler/graph/onnx/tensor_proto.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/rank.h"

namespace diapason {
namespace {

// Constants of at most this size are computed while importing: shapes and their like. Larger ones are left to
// FoldConstants, which knows which of them are worth it.
constexpr int64_t kSmallElements = 4096;
constexpr int64_t kMostWork = int64_t{1} << 20;  // elements that are looked at for a constant

absl::Status CheckSize(const TensorType& type) {
  if (type.shape.size() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("the result would have ", type.shape.size(), " dimensions, and ", kMaxRank, " are supported"));
  }
  int64_t elements = 1;
  for (int64_t extent : type.shape) {
    if (extent < 0) return absl::InvalidArgumentError(absl::StrCat("the result would have an extent of ", extent));
    if (extent > kMostElements || elements > kMostElements / std::max<int64_t>(extent, 1))
      return absl::InvalidArgumentError(absl::StrCat("the result would be too large (", type.ToString(), ")"));
    elements *= extent;
  }
  return absl::OkStatus();
}

// Whether a node on constants is computed at once. Not products and convolutions of numbers, which do far more work
// than they have elements; those of few integers, as positions are found with, are.
bool ComputedAtOnce(const std::string& op, const std::vector<ImportValue>& inputs, const TensorType& result) {
  if (op == "dequantize" && !result.shape.empty()) return false;  // weights, which FuseQuantized wants as they are
  int64_t largest = 1;
  bool whole = !IsFloat(result.dtype);
  for (const ImportValue& input : inputs) {
    largest = std::max(largest, input->type.elements());
    whole = whole && !IsFloat(input->type.dtype);
  }
  bool cheap = FindOperator(op)->kind != OperatorKind::kAnchor || op.rfind("reduce_", 0) == 0 ||
               (whole && result.elements() <= kMostWork / largest);
  // What ONNX does not define (sums of truth values) is not computed: its own check of types comes last.
  static const auto& of_truths = *new std::set<std::string>{
      "cast", "where", "and", "or", "xor", "not", "equal", "identity", "scatter_elements", "scatter_nd"};
  bool moves = FindOperator(op)->kind == OperatorKind::kInjective || of_truths.count(op) != 0;
  return cheap && result.elements() <= kSmallElements &&
         std::all_of(inputs.begin(), inputs.end(), [&](const ImportValue& input) {
           return input->type.elements() > 0 && input->type.elements() <= kSmallElements &&
                  (moves || input->type.dtype != DType::kBool);
         });
}

}  // namespace

ImportValue KnownValue(Array value, std::string name) {
  auto tensor = std::make_shared<ImportedTensor>();
  tensor->type = {value.dtype, value.shape};
  tensor->value = std::make_shared<const Array>(std::move(value));
  tensor->name = std::move(name);
  return tensor;
}

absl::StatusOr<ImportValue> NodeImporter::Input(int i) const {
  ASSIGN_OR_RETURN(ImportValue value, AnyInput(i));
  if (value->is_tensor()) return value;
  return absl::InvalidArgumentError(absl::StrCat("input ", i, " ('", Printable(node_.inputs[i]), "') is ",
                                                 value->absent ? "an optional value without an element" : "a sequence",
                                                 ", and a tensor is supported"));
}

absl::StatusOr<ImportValue> NodeImporter::AnyInput(int i) const {
  used_.insert(i);
  if (!HasInput(i)) return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
  if (const auto replaced = replaced_.find(i); replaced != replaced_.end()) return replaced->second;
  auto it = state_.values.find(node_.inputs[i]);
  if (it == state_.values.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " ('", Printable(node_.inputs[i]), "') is a result that no node gives at inference"));
  }
  return it->second;
}

ImportValue NodeImporter::Peek(int i) const {
  if (!HasInput(i)) return nullptr;
  const auto it = state_.values.find(node_.inputs[i]);
  return it == state_.values.end() ? nullptr : it->second;
}

absl::StatusOr<std::vector<ImportValue>> NodeImporter::Inputs() const {
  std::vector<ImportValue> values;
  for (int i = 0; i < inputs(); ++i) {
    ASSIGN_OR_RETURN(ImportValue value, Input(i));
    values.push_back(std::move(value));
  }
  if (values.empty()) return absl::InvalidArgumentError("input 0 is missing");
  return values;
}

absl::StatusOr<std::vector<int64_t>> NodeImporter::KnownInts(int i, const std::string& what) const {
  ASSIGN_OR_RETURN(ImportValue input, Input(i));
  if (!input->value) {
    return absl::InvalidArgumentError(absl::StrCat("input ", i, " (", what, ") must be a constant, but '",
                                                   Printable(node_.inputs[i]),
                                                   "' is known only when the network runs"));
  }
  if (IsFloat(input->type.dtype) || input->type.shape.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " (", what, ") must be a list of integers, not ", input->type.ToString()));
  }
  std::vector<int64_t> values;
  for (int64_t k = 0, n = input->value->elements(); k < n; ++k) values.push_back(input->value->int_at(k));
  return values;
}

absl::StatusOr<NodeImporter::OptionalInts> NodeImporter::IntsByOpset(const std::string& name, int64_t first_opset,
                                                                     int input) {
  OptionalInts result;
  if (opset() < first_opset) {
    result.present = Has(name);
    result.values = Ints(name, {});
  } else if (HasInput(input)) {
    result.present = true;
    ASSIGN_OR_RETURN(result.values, KnownInts(input, name));
  }
  return result;
}

bool NodeImporter::SpendConstantBytes(int64_t bytes) {
  if (bytes > state_.constant_bytes_left) return false;
  state_.constant_bytes_left -= bytes;
  return true;
}

std::vector<ImportValue> NodeImporter::Results() const {
  std::vector<ImportValue> results;
  for (const std::string& name : node_.outputs) {
    const auto it = name.empty() ? state_.values.end() : state_.values.find(name);
    results.push_back(it == state_.values.end() ? nullptr : it->second);
  }
  return results;
}

bool NodeImporter::IsRead(int i) const {
  return i < static_cast<int>(node_.outputs.size()) && !node_.outputs[i].empty() &&
         state_.read.count(node_.outputs[i]) != 0;
}

absl::StatusOr<int> NodeImporter::IdOf(const ImportValue& value) {
  if (value->id >= 0) return value->id;
  if (value->type.elements() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("it reads the empty tensor '", Printable(value->name), "', which is not supported"));
  }
  value->id = static_cast<int>(state_.network.tensors.size());
  state_.network.tensors.push_back({value->name, value->type, value->value});
  return value->id;
}

absl::StatusOr<ImportValue> NodeImporter::Add(const std::string& op, const std::vector<ImportValue>& inputs,
                                              Attributes attributes) {
  // Looked at on its own first: a constant that is computed at once shall not enter the network.
  OperatorArgs args;
  for (const ImportValue& input : inputs) {
    args.inputs.push_back(input->type);
    args.values.push_back(input->value.get());
  }
  args.attributes = &attributes;
  ASSIGN_OR_RETURN(TensorType type, FindOperator(op)->infer(args));
  RETURN_IF_ERROR(CheckSize(type));
  auto result = std::make_shared<ImportedTensor>();
  result->name = node_.name;
  result->type = type;
  bool known = std::all_of(inputs.begin(), inputs.end(), [](const ImportValue& input) { return input->value; });
  if (type.elements() == 0) {  // part of a chain that computes a shape, or what a roll by nothing puts in front
    result->value = std::make_shared<const Array>(type.dtype, type.shape);
    return result;
  }
  if (known && ComputedAtOnce(op, inputs, type)) {
    std::vector<Array> arrays;
    for (const ImportValue& input : inputs) arrays.push_back(*input->value);
    ASSIGN_OR_RETURN(Array value, EvaluateOperator(op, arrays, attributes));
    result->value = std::make_shared<const Array>(std::move(value));
    return result;
  }
  std::vector<int> ids;
  for (const ImportValue& input : inputs) {
    ASSIGN_OR_RETURN(int id, IdOf(input));
    ids.push_back(id);
  }
  absl::StatusOr<int> id = state_.network.AddNode(op, ids, std::move(attributes), node_.name);
  if (!id.ok()) {
    std::string text(id.status().message());
    std::string prefix = absl::StrCat("node '", node_.name, "' (", op, "): ");
    return absl::InvalidArgumentError(text.rfind(prefix, 0) == 0 ? text.substr(prefix.size()) : text);
  }
  result->id = *id;
  return result;
}

void NodeImporter::Set(int i, ImportValue value) {
  if (i >= static_cast<int>(node_.outputs.size()) || node_.outputs[i].empty()) return;
  const std::string& name = node_.outputs[i];
  if (value->id >= 0 && !value->value) state_.network.tensors[value->id].name = name;
  value->name = name;
  state_.values[name] = std::move(value);
}

absl::StatusOr<std::vector<ImportValue>> NodeImporter::ImportBody(const OnnxGraph& body,
                                                                  const std::vector<ImportValue>& inputs) {
  if (inputs.size() != body.inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("its body has ", body.inputs.size(), " inputs, but ", inputs.size(), " are given"));
  }
  state_.unrolled_nodes_left -= std::max<int64_t>(static_cast<int64_t>(body.nodes.size()), 1);
  if (state_.unrolled_nodes_left < 0) {
    return absl::InvalidArgumentError(
        "loops of more than 20000 nodes in all are not unrolled: make its number of steps smaller");
  }
  // Names of the body hide those around it, and are gone after it.
  std::vector<std::pair<std::string, ImportValue>> hidden;
  auto hide = [&](const std::string& name) {
    auto it = state_.values.find(name);
    hidden.emplace_back(name, it == state_.values.end() ? nullptr : it->second);
  };
  for (const OnnxNode& node : body.nodes)
    for (const std::string& name : node.outputs) hide(name);
  for (const std::string& name : body.inputs) hide(name);
  for (const auto& [name, array] : body.initializers) {
    hide(name);
    auto value = std::make_shared<ImportedTensor>();
    value->type = {array->dtype, array->shape};
    value->value = array;
    value->name = name;
    if (auto narrow = body.narrow.find(name); narrow != body.narrow.end()) value->narrow = narrow->second;
    state_.values[name] = std::move(value);
  }
  for (size_t i = 0; i < inputs.size(); ++i) state_.values[body.inputs[i]] = inputs[i];
  RETURN_IF_ERROR(ImportOnnxNodes(body.nodes, state_));
  std::vector<ImportValue> results;
  for (const std::string& name : body.outputs) {
    auto it = state_.values.find(name);
    if (it == state_.values.end())
      return absl::InvalidArgumentError(absl::StrCat("no node of its body computes ", Quoted(name)));
    results.push_back(it->second);
  }
  for (auto it = hidden.rbegin(); it != hidden.rend(); ++it) {
    if (it->second) {
      state_.values[it->first] = it->second;
    } else {
      state_.values.erase(it->first);
    }
  }
  return results;
}

absl::Status NodeImporter::Emit(const std::string& op, const std::vector<ImportValue>& inputs, Attributes attributes) {
  ASSIGN_OR_RETURN(ImportValue value, Add(op, inputs, std::move(attributes)));
  Set(0, std::move(value));
  return absl::OkStatus();
}

absl::Status NodeImporter::Finish(const absl::Status& rule) const {
  RETURN_IF_ERROR(Check());
  RETURN_IF_ERROR(rule);
  RETURN_IF_ERROR(CheckAllRead());
  for (int i = 0; i < inputs(); ++i) {
    if (!HasInput(i) || used_.count(i) != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("input ", i, " is not supported in this opset"));
  }
  for (int i = 0; i < static_cast<int>(node_.outputs.size()); ++i) {
    if (!IsRead(i) || state_.values.count(node_.outputs[i]) != 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("its result ", i, " ('", Printable(node_.outputs[i]), "') is used, but is not supported"));
  }
  return absl::OkStatus();
}

}  // namespace diapason
