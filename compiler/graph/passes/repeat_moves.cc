// An attention can read its heads from where they are, without a kernel that moves them, if nobody else needs what the
// moves make. Decoders give out the keys and values that their attentions read, with heads moved to the front; other
// models transpose queries, keys and values together. So here each product of an attention gets moves of its own: who
// waits for the moved heads besides does not hold it up. A product of one query reads each element of its other factor
// once, so that it may read a cache and what is appended to it where they are: it gets a concatenation of its own, too.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/only_reader.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/row_nodes.h"

namespace diapason {
namespace {

class MoveRepeater {
 public:
  explicit MoveRepeater(Network& network)
      : network_(network), consumers_(network.Consumers()), producers_(network.Producers()) {}

  void Run() {
    std::set<std::pair<size_t, size_t>> own, of_one_row;  // nodes and their operands
    for (size_t n = 0; n < network_.nodes.size(); ++n) {
      const int values = ProductByItsSoftmax(network_.nodes[n]);
      if (values < 0) continue;
      own.insert({{n, 0}, {n, 1}, {values, 1}});
      for (size_t product : {n, static_cast<size_t>(values)})
        if (IsProductOfOwnMatrix(network_, network_.nodes[product])) of_one_row.insert({product, 1});
    }
    std::vector<Node> nodes;
    for (size_t n = 0; n < network_.nodes.size(); ++n) {
      Node node = network_.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (own.contains({n, i})) node.inputs[i] = OwnMovesOf(node.inputs[i], of_one_row.contains({n, i}), &nodes);
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

  // The tensor itself unless moves make it of other tensors and somebody else reads one of them; else the result of the
  // same moves again, which are added to `nodes`. `appends`: also where they append one tensor to another.
  int OwnMovesOf(int tensor, bool appends, std::vector<Node>* nodes) {
    std::vector<int> moves;
    FindMoves(tensor, appends, &moves);
    const bool shared = std::any_of(moves.begin(), moves.end(), [this](int n) {
      const int made = network_.nodes[n].output;
      return network_.is_output(made) || consumers_[made].size() > 1;
    });
    if (!shared) return tensor;
    std::map<int, int> again;  // by tensor
    for (int n : moves) {
      Node node = network_.nodes[n];
      network_.tensors.push_back(
          {absl::StrCat(network_.tensors[node.output].name, "_again"), network_.tensors[node.output].type, nullptr});
      again[node.output] = static_cast<int>(network_.tensors.size()) - 1;
      node.name += "_again";
      node.output = again[node.output];
      for (int& input : node.inputs)
        if (again.contains(input)) input = again[input];
      nodes->push_back(std::move(node));
    }
    return again.at(tensor);
  }

  // The nodes that make the tensor by moving elements, producers first; false: none does. Others may read the view of
  // heads that slices are taken of: it moves nothing. `appends`: as for OwnMovesOf, in front of a reshape not.
  bool FindMoves(int tensor, bool appends, std::vector<int>* moves) const {
    const int n = producers_[tensor];
    if (n < 0) return false;
    const Node& node = network_.nodes[n];
    bool moved = false;
    if (appends && AppendsRows(network_, node)) {
      for (int input : node.inputs) FindMoves(input, false, moves);
      moved = true;
    } else if (node.op == "reshape") {
      moved = FindMoves(node.inputs[0], false, moves);
    } else if (node.op == "transpose" || node.op == "slice") {
      FindMoves(node.inputs[0], appends, moves);
      moved = true;
    }
    if (moved && std::count(moves->begin(), moves->end(), n) == 0) moves->push_back(n);
    return moved;
  }

  Network& network_;
  const std::vector<std::vector<int>> consumers_;
  const std::vector<int> producers_;
};

}  // namespace

void RepeatMoves(Network& network) { MoveRepeater(network).Run(); }

}  // namespace diapason
