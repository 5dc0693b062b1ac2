// Nodes that compute the same become one: exporters differ in what they write once and what again at each place.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"

namespace diapason {
namespace {

constexpr int64_t kMaxCompared = 4096;  // elements of constants that are compared

// Whether a constant says what the network does, as indices, masks and factors do. Weights that happen to be equal stay
// apart: what a network is shall not depend on them.
bool IsStructure(const Array& array) {
  const int64_t elements = array.elements();
  return elements == 1 || (!IsFloat(array.dtype) && elements <= kMaxCompared);
}

// For each tensor the one that stands for it: the first equal constant.
std::vector<int> EqualConstants(const Network& network) {
  std::map<std::tuple<DType, std::vector<int64_t>, std::vector<uint8_t>>, int> first;
  std::vector<int> same(network.tensors.size());
  for (size_t t = 0; t < same.size(); ++t) {
    same[t] = static_cast<int>(t);
    const Array* array = network.tensors[t].data.get();
    if (!array || !IsStructure(*array) || network.is_output(same[t])) continue;
    same[t] = first.emplace(std::tuple(array->dtype, array->shape, array->data), same[t]).first->second;
  }
  return same;
}

}  // namespace

absl::Status MergeEqual(Network& network) {
  using Key = std::tuple<std::string, std::map<std::string, AttributeValue>, std::vector<int>>;
  std::vector<int> same = EqualConstants(network);
  std::map<Key, int> first;
  std::vector<Node> rest;
  for (Node& node : network.nodes) {
    for (int& input : node.inputs) input = same[input];
    std::vector<int> operands = node.inputs;
    if (FindOperator(node.op)->commutative) std::sort(operands.begin(), operands.end());
    const auto [it, fresh] = first.emplace(Key(node.op, node.attributes.values(), std::move(operands)), node.output);
    const bool equal = !fresh && !network.is_output(node.output) &&
                       network.tensors[it->second].type == network.tensors[node.output].type;
    if (equal) {
      same[node.output] = it->second;
    } else {
      rest.push_back(std::move(node));
    }
  }
  network.nodes = std::move(rest);
  return EliminateDeadCode(network);
}

}  // namespace diapason
