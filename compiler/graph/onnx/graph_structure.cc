#include "compiler/graph/onnx/graph_structure.h"

#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"

namespace diapason {
namespace {

constexpr int kOutside = -1;  // an input or initializer

using Origins = std::unordered_map<std::string, int>;  // index of the node that computes a name, or kOutside

std::string NodeText(const OnnxNode& node) {
  return absl::StrCat("node ", Quoted(node.name), " (", Printable(node.op), ")");
}

using Body = std::shared_ptr<const OnnxGraph>;

// What the bodies of a node read of the graph around it.
void AddFreeNames(const OnnxGraph& body, std::vector<std::string>& names);

// What a node reads, its bodies included.
std::vector<std::string> ReadNames(const OnnxNode& node) {
  std::vector<std::string> names = node.inputs;
  for (const auto& [name, value] : node.attributes) {
    if (const Body* body = std::get_if<Body>(&value)) AddFreeNames(**body, names);
  }
  return names;
}

void AddFreeNames(const OnnxGraph& body, std::vector<std::string>& names) {
  std::set<std::string> own(body.inputs.begin(), body.inputs.end());
  for (const auto& [name, value] : body.initializers) own.insert(name);
  auto read = [&](const std::string& name) {
    if (own.count(name) == 0) names.push_back(name);
  };
  for (const OnnxNode& node : body.nodes) {
    for (const std::string& name : ReadNames(node)) read(name);
    own.insert(node.outputs.begin(), node.outputs.end());
  }
  for (const std::string& name : body.outputs) read(name);
}

// Names of a body are of its own, computed once, and text.
absl::Status CheckBodies(const OnnxNode& node) {
  for (const auto& [attribute, value] : node.attributes) {
    const Body* body = std::get_if<Body>(&value);
    if (!body) continue;
    std::set<std::string> own;
    auto add = [&](const std::string& name) {
      if (name.empty() || (IsUtf8(name) && own.insert(name).second)) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(NodeText(node), " has a body that computes ", Quoted(name),
                                                     IsUtf8(name) ? " twice" : ", which is no UTF-8 text"));
    };
    for (const std::string& name : (*body)->inputs) RETURN_IF_ERROR(add(name));
    for (const OnnxNode& inner : (*body)->nodes) {
      if (!IsUtf8(inner.name)) return add(inner.name);
      for (const std::string& name : inner.outputs) RETURN_IF_ERROR(add(name));
      RETURN_IF_ERROR(CheckBodies(inner));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Origins> OriginsOf(const OnnxModel& model) {
  Origins origins;
  for (const auto& [name, value] : model.initializers) origins[name] = kOutside;
  for (const OnnxInput& input : model.inputs) {
    if (input.name.empty()) return absl::InvalidArgumentError("it has an input without a name");
    if (!origins.emplace(input.name, kOutside).second)
      return absl::InvalidArgumentError(absl::StrCat("it has two inputs ", Quoted(input.name)));
  }
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    for (const std::string& name : model.nodes[i].outputs) {
      if (name.empty() || origins.emplace(name, static_cast<int>(i)).second) continue;
      int other = origins[name];
      return absl::InvalidArgumentError(absl::StrCat(
          NodeText(model.nodes[i]), " computes ", Quoted(name), ", which ",
          other == kOutside ? "is an input or initializer" : absl::StrCat(NodeText(model.nodes[other]), " computes"),
          " already"));
    }
  }
  return origins;
}

// True if the node can reach itself through what it reads.
bool InCycle(const OnnxModel& model, const Origins& origins, int start) {
  std::vector<int> pending = {start};
  std::set<int> seen;
  while (!pending.empty()) {
    const OnnxNode& node = model.nodes[pending.back()];
    pending.pop_back();
    for (const std::string& input : ReadNames(node)) {
      int from = input.empty() ? kOutside : origins.at(input);
      if (from == start) return true;
      if (from != kOutside && seen.insert(from).second) pending.push_back(from);
    }
  }
  return false;
}

// The node that computes each name; of two the first.
Origins FirstOrigins(const OnnxModel& model) {
  Origins origins;
  for (size_t i = 0; i < model.nodes.size(); ++i)
    for (const std::string& name : model.nodes[i].outputs) origins.emplace(name, static_cast<int>(i));
  return origins;
}

// Names reach reports in JSON, so must be text.
absl::Status CheckNames(const OnnxModel& model) {
  std::vector<std::string> names = model.outputs;
  for (const OnnxInput& input : model.inputs) names.push_back(input.name);
  for (const auto& [name, value] : model.initializers) names.push_back(name);
  for (const OnnxNode& node : model.nodes) {
    names.push_back(node.name);
    names.insert(names.end(), node.outputs.begin(), node.outputs.end());
  }
  for (const std::string& name : names) {
    if (!IsUtf8(name)) return absl::InvalidArgumentError(absl::StrCat("the name ", Quoted(name), " is no UTF-8 text"));
  }
  return absl::OkStatus();
}

}  // namespace

void SortOnnxNodes(OnnxModel& model) {
  const Origins origins = FirstOrigins(model);
  const int count = static_cast<int>(model.nodes.size());
  std::vector<int> waits(count);                 // for so many other nodes
  std::vector<std::vector<int>> readers(count);  // once for each time they read
  bool sorted = true;
  for (int i = 0; i < count; ++i) {
    for (const std::string& name : ReadNames(model.nodes[i])) {
      const auto from = name.empty() ? origins.end() : origins.find(name);
      if (from == origins.end()) continue;
      sorted = sorted && from->second < i;
      ++waits[i];
      readers[from->second].push_back(i);
    }
  }
  if (sorted) return;
  std::set<int> ready;
  for (int i = 0; i < count; ++i)
    if (waits[i] == 0) ready.insert(i);
  std::vector<OnnxNode> order;
  while (!ready.empty()) {
    const int first = *ready.begin();
    ready.erase(ready.begin());
    order.push_back(std::move(model.nodes[first]));
    for (const int reader : readers[first])
      if (--waits[reader] == 0) ready.insert(reader);
  }
  for (int i = 0; i < count; ++i)
    if (waits[i] > 0) order.push_back(std::move(model.nodes[i]));
  model.nodes = std::move(order);
}

absl::Status CheckOnnxStructure(const OnnxModel& model) {
  RETURN_IF_ERROR(CheckNames(model));
  ASSIGN_OR_RETURN(Origins origins, OriginsOf(model));
  for (const OnnxNode& node : model.nodes) {
    RETURN_IF_ERROR(CheckBodies(node));
    for (const std::string& input : ReadNames(node)) {
      if (input.empty() || origins.count(input) != 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(NodeText(node), " reads ", Quoted(input),
                                                     ", which is no input, no initializer and no result of a node"));
    }
  }
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    for (const std::string& input : ReadNames(model.nodes[i])) {
      if (input.empty() || origins[input] < static_cast<int>(i)) continue;
      if (!InCycle(model, origins, static_cast<int>(i))) continue;  // it only follows one
      return absl::InvalidArgumentError(absl::StrCat(NodeText(model.nodes[i]), " reads ", Quoted(input),
                                                     " before it is computed: the graph has a cycle"));
    }
  }
  if (model.outputs.empty()) return absl::InvalidArgumentError("it has no output, or it was cut off");
  std::set<std::string> outputs;
  for (const std::string& output : model.outputs) {
    if (origins.count(output) == 0)
      return absl::InvalidArgumentError(absl::StrCat("no node computes its output ", Quoted(output)));
    if (!outputs.insert(output).second)
      return absl::InvalidArgumentError(absl::StrCat("it has two outputs ", Quoted(output)));
  }
  return absl::OkStatus();
}

}  // namespace diapason
