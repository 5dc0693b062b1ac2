// Decoders give out the keys and values that their attentions read, with heads moved to the front. An attention can
// read its heads from where they are, without a kernel that moves them, if nobody else needs what the moves make. So
// here it gets moves of its own: whoever waits for the moved heads besides does not hold it up.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"

namespace diapason {
namespace {

class MoveRepeater {
 public:
  explicit MoveRepeater(Network& network)
      : network_(network), consumers_(network.Consumers()), producers_(network.Producers()) {}

  void Run() {
    std::vector<Node> nodes;
    const std::vector<Node> old = network_.nodes;
    for (size_t n = 0; n < old.size(); ++n) {
      Node node = old[n];
      if (node.op == "matmul" && IsScores(node)) {
        for (int& operand : node.inputs) operand = OwnMovesOf(operand, &nodes);
      } else if (node.op == "matmul" && ReadsSoftmax(node.inputs[0])) {
        node.inputs[1] = OwnMovesOf(node.inputs[1], &nodes);
      }
      nodes.push_back(std::move(node));
    }
    network_.nodes = std::move(nodes);
  }

 private:
  // Element-wise operators between a product and a softmax: scales, masks and conversions.
  static constexpr int kMostBetween = 6;

  static bool IsElementwise(const Node& node) { return FindOperator(node.op)->kind == OperatorKind::kElementwise; }

  // Whether a softmax reads the product, or element-wise operators of one reader each in between.
  bool IsScores(const Node& product) const {
    int tensor = product.output;
    for (int step = 0; step <= kMostBetween; ++step) {
      if (network_.is_output(tensor) || consumers_[tensor].size() != 1) return false;
      const Node& reader = network_.nodes[consumers_[tensor][0]];
      if (reader.op == "softmax") return true;
      if (!IsElementwise(reader)) return false;
      tensor = reader.output;
    }
    return false;
  }

  bool ReadsSoftmax(int tensor) const {
    for (int step = 0; step <= kMostBetween && producers_[tensor] >= 0; ++step) {
      const Node& node = network_.nodes[producers_[tensor]];
      if (node.op == "softmax") return true;
      if (!IsElementwise(node)) return false;
      tensor = node.inputs[0];
    }
    return false;
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
    const auto known = repeated_.find(tensor);
    if (known != repeated_.end()) return known->second;
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
    return repeated_[tensor] = made;
  }

  Network& network_;
  const std::vector<std::vector<int>> consumers_;
  const std::vector<int> producers_;
  std::map<int, int> repeated_;
};

}  // namespace

void RepeatMoves(Network& network) { MoveRepeater(network).Run(); }

}  // namespace diapason
