// float64 becomes float32. Values that come from integers and become integers again stay: powers, roots and quotients
// of integers are exact that way.
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/printable.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"

namespace diapason {
namespace {

// Tensors of type float64 that nodes compute from each other.
class DoubleGroups {
 public:
  explicit DoubleGroups(const Network& network)
      : network_(network), parent_(network.tensors.size()), kept_(network.tensors.size(), true) {
    std::iota(parent_.begin(), parent_.end(), 0);
    for (const Node& node : network.nodes) Unite(node);
    for (int id : network.inputs) Convert(id);
    for (int id : network.outputs) Convert(id);
    for (const Node& node : network.nodes) Look(node);
  }

  // Whether the tensor, computed or an input, stays float64.
  bool Stays(int tensor) { return IsGrouped(tensor) && kept_[Root(tensor)]; }

 private:
  bool IsGrouped(int tensor) const {
    return network_.tensor(tensor).type.dtype == DType::kFloat64 && !network_.tensor(tensor).constant();
  }
  int Root(int tensor) {
    while (parent_[tensor] != tensor) tensor = parent_[tensor] = parent_[parent_[tensor]];
    return tensor;
  }
  void Convert(int tensor) { kept_[Root(tensor)] = false; }

  // What one node reads and computes has one type.
  void Unite(const Node& node) {
    int first = IsGrouped(node.output) ? node.output : -1;
    for (int input : node.inputs) {
      if (!IsGrouped(input)) continue;
      if (first >= 0) parent_[Root(input)] = Root(first);
      first = input;
    }
  }

  void Look(const Node& node) {
    const auto is_float = [&](int id) { return IsFloat(network_.tensor(id).type.dtype); };
    const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(), [&](int id) { return IsGrouped(id); });
    if (IsGrouped(node.output)) {
      const bool from_integers = node.op == "cast" && !is_float(node.inputs[0]);
      if (!reads && !from_integers) Convert(node.output);
    } else if (reads && is_float(node.output)) {
      for (int input : node.inputs)
        if (IsGrouped(input)) Convert(input);
    }
  }

  const Network& network_;
  std::vector<int> parent_;
  std::vector<bool> kept_;  // by root
};

std::string NamesOf(const Network& network, const std::vector<int>& tensors) {
  std::vector<std::string> names;
  for (int id : tensors)
    if (network.tensor(id).type.dtype == DType::kFloat64) names.push_back(Quoted(network.tensor(id).name));
  return absl::StrJoin(names, ", ");
}

}  // namespace

DoubleTensors FindDoubles(const Network& network) {
  DoubleGroups groups(network);
  std::vector<bool> counted(network.tensors.size(), false);
  for (int id : network.inputs) counted[id] = true;
  for (int id : network.outputs) counted[id] = true;
  for (const Node& node : network.nodes) {
    const bool stays = groups.Stays(node.output) || std::any_of(node.inputs.begin(), node.inputs.end(),
                                                                [&](int input) { return groups.Stays(input); });
    if (stays) continue;
    counted[node.output] = true;
    for (int input : node.inputs) counted[input] = true;
  }
  DoubleTensors found;
  for (size_t id = 0; id < counted.size(); ++id) {
    if (!counted[id] || network.tensors[id].type.dtype != DType::kFloat64) continue;
    if (found.count++ == 0) found.first = Quoted(network.tensors[id].name);
  }
  found.inputs = NamesOf(network, network.inputs);
  found.outputs = NamesOf(network, network.outputs);
  return found;
}

absl::Status ConvertDoubles(Network& network) {
  DoubleGroups groups(network);
  std::vector<bool> stays(network.tensors.size());
  for (size_t id = 0; id < stays.size(); ++id) stays[id] = groups.Stays(static_cast<int>(id));
  std::map<int, int> rounded;  // constants; one that a group reads which stays is needed as it was, too
  const auto round = [&](int& id) {
    const Tensor tensor = network.tensors[id];
    if (!tensor.constant() || tensor.type.dtype != DType::kFloat64) return;
    const auto [known, fresh] = rounded.emplace(id, -1);
    if (fresh) known->second = network.AddConstant(tensor.name, RoundConstant(*tensor.data, DType::kFloat32));
    id = known->second;
  };
  for (Node& node : network.nodes) {
    if (stays[node.output] ||
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) { return stays[input]; }))
      continue;
    for (int& input : node.inputs) round(input);
    if (node.op == "cast" && node.attributes.String("to", "") == NameOf(DType::kFloat64))
      node.attributes.Set("to", std::string(NameOf(DType::kFloat32)));
  }
  for (int& output : network.outputs) round(output);
  for (int id : network.inputs)
    if (network.tensors[id].type.dtype == DType::kFloat64) network.tensors[id].type.dtype = DType::kFloat32;
  RETURN_IF_ERROR(InferShapes(network));
  return EliminateDeadCode(network);
}

}  // namespace diapason
