// An attention can read its heads from where they are, without a kernel that moves them, if nobody else needs what the
// moves make. Decoders give out the keys and values that their attentions read, with heads moved to the front; other
// models transpose queries, keys and values together. So here each product of an attention gets moves of its own: who
// waits for the moved heads besides does not hold it up.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/only_reader.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"

namespace diapason {
namespace {

class MoveRepeater {
 public:
  explicit MoveRepeater(Network& network)
      : network_(network), consumers_(network.Consumers()), producers_(network.Producers()) {}

  void Run() {
    std::set<std::pair<size_t, size_t>> own;  // nodes and their operands
    for (size_t n = 0; n < network_.nodes.size(); ++n) {
      const int values = ProductByItsSoftmax(network_.nodes[n]);
      if (values >= 0) own.insert({{n, 0}, {n, 1}, {values, 1}});
    }
    std::vector<Node> nodes;
    for (size_t n = 0; n < network_.nodes.size(); ++n) {
      Node node = network_.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (own.contains({n, i})) node.inputs[i] = OwnMovesOf(node.inputs[i], &nodes);
      nodes.push_back(std::move(node));
    }
    network_.nodes = std::move(nodes);
  }

 private:
  // Of a product of scores, the product by their softmax, with element-wise operators in between (scales, masks and
  // conversions); -1 if it is no such product.
  int ProductByItsSoftmax(const Node& scores) const {
    if (scores.op != "matmul") return -1;
    bool softmax = false;
    int tensor = scores.output;
    for (int n = OnlyReader(network_, consumers_, tensor); n >= 0; n = OnlyReader(network_, consumers_, tensor)) {
      const Node& node = network_.nodes[n];
      if (node.op == "matmul") return softmax && node.inputs[0] == tensor && node.inputs[1] != tensor ? n : -1;
      if (node.op != "softmax" && FindOperator(node.op)->kind != OperatorKind::kElementwise) return -1;
      softmax |= node.op == "softmax";
      tensor = node.output;
    }
    return -1;
  }

  // The tensor itself unless moves make it of another one and somebody else reads one of them; else the result of the
  // same moves again, which are added to `nodes`.
  int OwnMovesOf(int tensor, std::vector<Node>* nodes) {
    static const std::set<std::string>& moves = *new std::set<std::string>{"transpose", "slice", "reshape"};
    std::vector<int> chain;  // nodes, from the last one
    for (int n = producers_[tensor]; n >= 0 && moves.contains(network_.nodes[n].op);
         n = producers_[network_.nodes[n].inputs[0]])
      chain.push_back(n);
    // Others may read the view of heads that slices are taken of: it moves nothing.
    while (!chain.empty() && network_.nodes[chain.back()].op == "reshape") chain.pop_back();
    const bool shared = std::any_of(chain.begin(), chain.end(), [this](int n) {
      const int made = network_.nodes[n].output;
      return network_.is_output(made) || consumers_[made].size() > 1;
    });
    if (!shared) return tensor;
    int made = network_.nodes[chain.back()].inputs[0];
    for (size_t i = chain.size(); i-- > 0;) {
      Node node = network_.nodes[chain[i]];
      network_.tensors.push_back(
          {absl::StrCat(network_.tensors[node.output].name, "_again"), network_.tensors[node.output].type, nullptr});
      node.name += "_again";
      node.inputs[0] = made;
      node.output = made = static_cast<int>(network_.tensors.size()) - 1;
      nodes->push_back(std::move(node));
    }
    return made;
  }

  Network& network_;
  const std::vector<std::vector<int>> consumers_;
  const std::vector<int> producers_;
};

}  // namespace

void RepeatMoves(Network& network) { MoveRepeater(network).Run(); }

}  // namespace diapason
