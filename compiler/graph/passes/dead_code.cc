#include "compiler/graph/passes.h"

namespace diapason {
namespace {

// Nodes that an output needs, found from the last to the first.
std::vector<bool> NeededNodes(const Network& network) {
  std::vector<bool> tensor(network.tensors.size(), false), needed(network.nodes.size(), false);
  for (int output : network.outputs) tensor[output] = true;
  for (size_t n = network.nodes.size(); n-- > 0;) {
    needed[n] = tensor[network.nodes[n].output];
    if (!needed[n]) continue;
    for (int input : network.nodes[n].inputs) tensor[input] = true;
  }
  return needed;
}

}  // namespace

absl::Status EliminateDeadCode(Network& network) {
  std::vector<bool> needed = NeededNodes(network);
  Network out;
  out.name = network.name;
  std::vector<int> id(network.tensors.size(), -1);
  auto move = [&](int old) {
    if (id[old] < 0) {
      id[old] = static_cast<int>(out.tensors.size());
      out.tensors.push_back(std::move(network.tensors[old]));
    }
    return id[old];
  };
  for (int input : network.inputs) out.inputs.push_back(move(input));
  for (size_t n = 0; n < network.nodes.size(); ++n) {
    if (!needed[n]) continue;
    Node node = std::move(network.nodes[n]);
    for (int& input : node.inputs) input = move(input);
    node.output = move(node.output);
    out.nodes.push_back(std::move(node));
  }
  for (int output : network.outputs) out.outputs.push_back(move(output));
  network = std::move(out);
  return absl::OkStatus();
}

}  // namespace diapason
