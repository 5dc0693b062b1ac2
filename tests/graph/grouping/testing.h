// A network whose nodes are grouped step by step, for the tests of compiler/graph/grouping.
#pragma once

#include <utility>
#include <vector>

#include "../testing.h"
#include "compiler/graph/grouping.h"
#include "compiler/graph/grouping/group_table.h"

namespace diapason {

struct GroupedNetwork {
  // Choices are by the tensor that a node makes.
  explicit GroupedNetwork(Network n, const std::vector<std::pair<int, FusionMode>>& choices = {})
      : network(std::move(n)), facts(network) {
    for (const auto& [tensor, mode] : choices) modes[NodeOf(tensor)] = mode;
  }

  int NodeOf(int tensor) const { return facts.producer[tensor]; }
  std::vector<int> NodesOf(const std::vector<int>& tensors) const {
    std::vector<int> nodes;
    for (int tensor : tensors) nodes.push_back(NodeOf(tensor));
    return nodes;
  }
  int GroupOf(int tensor) const { return table.group_of(NodeOf(tensor)); }
  // A group of the node that makes a tensor.
  int Open(int tensor) { return table.Open(NodeOf(tensor)); }
  // The options found, as the tensor that the node makes and its other mode.
  std::vector<std::pair<int, FusionMode>> Finish() {
    grouping = table.Finish();
    std::vector<std::pair<int, FusionMode>> options;
    for (const FusionOption& option : grouping.options)
      options.emplace_back(network.nodes[option.node].output, option.other);
    return options;
  }

  const Network network;
  const GroupingFacts facts;
  FusionModes modes;
  GroupTable table{facts, modes};
  Grouping grouping;  // after Finish
};

using FusionOptions = std::vector<std::pair<int, FusionMode>>;

}  // namespace diapason
