#include "compiler/graph/network.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/rank.h"

namespace diapason {

int64_t TensorType::elements() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

std::string TensorType::ToString() const {
  return absl::StrCat(NameOf(dtype), " ", shape.empty() ? "scalar" : absl::StrJoin(shape, "x"));
}

int64_t Attributes::Int(const std::string& name, int64_t fallback) const {
  auto it = values_.find(name);
  if (it == values_.end()) return fallback;
  DIAPASON_CHECK_MSG(std::holds_alternative<int64_t>(it->second), "attribute " + name + " is no integer");
  return std::get<int64_t>(it->second);
}

double Attributes::Float(const std::string& name, double fallback) const {
  auto it = values_.find(name);
  if (it == values_.end()) return fallback;
  if (const int64_t* value = std::get_if<int64_t>(&it->second)) return static_cast<double>(*value);
  DIAPASON_CHECK_MSG(std::holds_alternative<double>(it->second), "attribute " + name + " is no number");
  return std::get<double>(it->second);
}

std::string Attributes::String(const std::string& name, const std::string& fallback) const {
  auto it = values_.find(name);
  if (it == values_.end()) return fallback;
  DIAPASON_CHECK_MSG(std::holds_alternative<std::string>(it->second), "attribute " + name + " is no text");
  return std::get<std::string>(it->second);
}

std::vector<int64_t> Attributes::Ints(const std::string& name, const std::vector<int64_t>& fallback) const {
  auto it = values_.find(name);
  if (it == values_.end()) return fallback;
  DIAPASON_CHECK_MSG(std::holds_alternative<std::vector<int64_t>>(it->second), "attribute " + name + " is no list");
  return std::get<std::vector<int64_t>>(it->second);
}

int Network::AddInput(std::string name, TensorType type) {
  inputs.push_back(AddTensor(std::move(name), std::move(type)));
  return inputs.back();
}

int Network::AddTensor(std::string name, TensorType type) {
  tensors.push_back({std::move(name), std::move(type), nullptr});
  return static_cast<int>(tensors.size()) - 1;
}

int Network::AddConstant(std::string name, Array value) {
  TensorType type{value.dtype, value.shape};
  tensors.push_back({std::move(name), std::move(type), std::make_shared<const Array>(std::move(value))});
  return static_cast<int>(tensors.size()) - 1;
}

absl::StatusOr<int> Network::AddNode(const std::string& op, std::vector<int> node_inputs, Attributes attributes,
                                     std::string node_name) {
  Node node{op, std::move(node_name), std::move(attributes), std::move(node_inputs), -1};
  if (node.name.empty()) node.name = absl::StrCat(op, "_", nodes.size());
  ASSIGN_OR_RETURN(TensorType type, InferNode(*this, node));
  node.output = static_cast<int>(tensors.size());
  tensors.push_back({node.name, std::move(type), nullptr});
  nodes.push_back(std::move(node));
  return nodes.back().output;
}

std::vector<int> Network::Producers() const {
  std::vector<int> producer(tensors.size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i) producer[nodes[i].output] = static_cast<int>(i);
  return producer;
}

std::vector<std::vector<int>> Network::Consumers() const {
  std::vector<std::vector<int>> consumers(tensors.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (int input : nodes[i].inputs) {
      std::vector<int>& list = consumers[input];
      if (list.empty() || list.back() != static_cast<int>(i)) list.push_back(static_cast<int>(i));
    }
  }
  return consumers;
}

bool Network::is_output(int tensor) const { return std::find(outputs.begin(), outputs.end(), tensor) != outputs.end(); }

namespace {

// Checks one node given the tensors that are computed before it.
// Constant indices choose elements that exist: kernels do not limit those.
absl::Status ValidateIndices(const Network& network, const Node& node) {
  if (node.op != "gather" && node.op != "gather_elements" && node.op != "gather_nd") return absl::OkStatus();
  const Tensor& indices = network.tensors[node.inputs[1]];
  if (!indices.constant()) return absl::OkStatus();
  const std::vector<int64_t>& shape = network.tensors[node.inputs[0]].type.shape;
  const auto rank = static_cast<int64_t>(shape.size());
  const bool tuples = node.op == "gather_nd";  // the last axis has an index for each of several axes
  const int64_t axis = node.attributes.Int(tuples ? "batch_dims" : "axis", 0),
                width = tuples ? indices.type.shape.back() : 1;
  const auto first = shape.begin() + (axis < 0 ? axis + rank : axis);
  const absl::Status inside = CheckIndices(*indices.data, {first, first + width});
  if (inside.ok()) return inside;
  return absl::InvalidArgumentError(absl::StrCat("node '", node.name, "': ", inside.message()));
}

absl::Status ValidateNode(const Network& network, const Node& node, const std::vector<bool>& known) {
  int size = static_cast<int>(network.tensors.size());
  for (int input : node.inputs) {
    if (input < 0 || input >= size) {
      return absl::InvalidArgumentError(
          absl::StrCat("node '", node.name, "' reads tensor ", input, ", which is not there"));
    }
    if (!known[input]) {
      return absl::InvalidArgumentError(
          absl::StrCat("node '", node.name, "' reads '", network.tensors[input].name,
                       "' before it is computed: the graph has a cycle or a missing node"));
    }
  }
  if (node.output < 0 || node.output >= size || known[node.output]) {
    return absl::InvalidArgumentError(absl::StrCat("node '", node.name, "' writes a tensor that is not its own"));
  }
  ASSIGN_OR_RETURN(TensorType type, InferNode(network, node));
  const Tensor& output = network.tensors[node.output];
  if (!(type == output.type)) {
    return absl::InvalidArgumentError(absl::StrCat("node '", node.name, "' (", node.op, ") gives ", type.ToString(),
                                                   " but '", output.name, "' is ", output.type.ToString()));
  }
  return ValidateIndices(network, node);
}

}  // namespace

absl::Status CheckIndices(const Array& indices, const std::vector<int64_t>& extents) {
  for (int64_t i = 0, n = indices.elements(); i < n; ++i) {
    const int64_t index = indices.int_at(i), extent = extents[i % static_cast<int64_t>(extents.size())];
    if (index >= -extent && index < extent) continue;
    return absl::InvalidArgumentError(absl::StrCat("index ", index, " is outside of an axis of ", extent));
  }
  return absl::OkStatus();
}

absl::Status Network::Validate() const {
  std::vector<bool> known(tensors.size(), false);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    if (t.type.shape.size() > kMaxRank) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", t.name, "' has ", t.type.shape.size(),
                                                     " dimensions, and ", kMaxRank, " are supported"));
    }
    for (int64_t extent : t.type.shape) {
      if (extent > 0) continue;
      return absl::InvalidArgumentError(absl::StrCat("tensor '", t.name, "' has an extent of ", extent));
    }
    if (!t.data) continue;
    known[i] = true;
    if (t.data->dtype == t.type.dtype && t.data->shape == t.type.shape) continue;
    return absl::InvalidArgumentError(absl::StrCat("constant '", t.name, "' has other data than its type says"));
  }
  for (int input : inputs) {
    if (input < 0 || input >= static_cast<int>(tensors.size()) || known[input]) {
      return absl::InvalidArgumentError(absl::StrCat("input ", input, " of the network is no free tensor"));
    }
    known[input] = true;
  }
  for (const Node& node : nodes) {
    RETURN_IF_ERROR(ValidateNode(*this, node, known));
    known[node.output] = true;
  }
  if (outputs.empty()) return absl::InvalidArgumentError("the network has no output");
  for (int output : outputs) {
    if (output >= 0 && output < static_cast<int>(tensors.size()) && known[output]) continue;
    return absl::InvalidArgumentError(absl::StrCat("output ", output, " of the network is not computed by any node"));
  }
  return absl::OkStatus();
}

namespace {

std::string AttributeText(const AttributeValue& value) {
  if (const int64_t* i = std::get_if<int64_t>(&value)) return absl::StrCat(*i);
  if (const double* d = std::get_if<double>(&value)) return absl::StrCat(*d);
  if (const std::string* s = std::get_if<std::string>(&value)) return *s;
  return absl::StrJoin(std::get<std::vector<int64_t>>(value), ",");
}

}  // namespace

std::string Network::ToString() const {
  auto name = [&](int id) { return absl::StrCat("%", id, tensors[id].constant() ? "c" : ""); };
  std::string text = absl::StrCat("network ", this->name, "\n");
  for (int id : inputs)
    absl::StrAppend(&text, "  ", name(id), " = input ", tensors[id].name, " : ", tensors[id].type.ToString(), "\n");
  for (const Node& node : nodes) {
    std::vector<std::string> args;
    for (int id : node.inputs) args.push_back(name(id));
    for (const auto& [key, value] : node.attributes.values())
      args.push_back(absl::StrCat(key, "=", AttributeText(value)));
    absl::StrAppend(&text, "  ", name(node.output), " = ", node.op, "(", absl::StrJoin(args, ", "),
                    ") : ", tensors[node.output].type.ToString(), "  # ", node.name, "\n");
  }
  for (int id : outputs) absl::StrAppend(&text, "  output ", name(id), "\n");
  return text;
}

}  // namespace diapason
