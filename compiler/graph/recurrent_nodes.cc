#include "compiler/graph/recurrent_nodes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "compiler/graph/grouping.h"
#include "compiler/graph/network.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/partition.h"
#include "compiler/graph/subgraph_dag.h"
#include "compiler/tensor/recurrence.h"

namespace diapason {
namespace {

constexpr size_t kLeastProducts = kLeastSteps, kMostProducts = 512;

// Products by one constant, ascending. Each depends on the one before it.
using ProductChain = std::vector<int>;

int64_t MeanDistance(const ProductChain& chain) {
  return (chain.back() - chain.front()) / (static_cast<int64_t>(chain.size()) - 1);
}

class RecurrenceFinder {
 public:
  explicit RecurrenceFinder(const GroupingFacts& facts) : facts_(facts), network_(facts.network) {}

  std::vector<RecurrentNodes> Find() {
    const std::vector<ProductChain> chains = FindChains();
    for (const ProductChain& chain : chains) products_.insert(chain.begin(), chain.end());
    for (const ProductChain& chain : chains)
      if (!taken_.contains(chain.front())) FindOne(chain);
    std::sort(found_.begin(), found_.end(),
              [](const RecurrentNodes& a, const RecurrentNodes& b) { return a.nodes.back() < b.nodes.back(); });
    return std::move(found_);
  }

 private:
  std::vector<ProductChain> FindChains() const {
    std::map<int, std::vector<int>> by_weights;
    for (int n = 0; n < static_cast<int>(network_.nodes.size()); ++n)
      if (IsProductByConstant(n)) by_weights[network_.nodes[n].inputs[1]].push_back(n);
    std::vector<ProductChain> chains;
    for (const auto& [weights, products] : by_weights) {
      if (products.size() < kLeastProducts) continue;
      ProductChain chain;
      for (int n : products) {
        if (!chain.empty() && !DependsOn(n, chain.back())) AddChain(std::exchange(chain, {}), &chains);
        chain.push_back(n);
      }
      AddChain(std::move(chain), &chains);
    }
    std::sort(chains.begin(), chains.end());
    return chains;
  }

  static void AddChain(ProductChain chain, std::vector<ProductChain>* chains) {
    if (chain.size() >= kLeastProducts && chain.size() <= kMostProducts) chains->push_back(std::move(chain));
  }

  bool IsProductByConstant(int n) const {
    const Node& node = network_.nodes[n];
    if (node.op != "matmul" && (node.op != "gemm" || node.attributes.Int("trans_a", 0) != 0)) return false;
    const Tensor &left = network_.tensors[node.inputs[0]], &right = network_.tensors[node.inputs[1]];
    return right.constant() && left.type.shape.size() == 2 && right.type.shape.size() == 2;
  }

  // Looks at nodes between the two only.
  bool DependsOn(int n, int earlier) const {
    std::set<int> open{n};
    while (!open.empty()) {
      const int latest = *open.rbegin();
      if (latest <= earlier) return latest == earlier;
      open.erase(latest);
      for (int input : network_.nodes[latest].inputs)
        if (const int from = facts_.producer[input]; from >= earlier) open.insert(from);
    }
    return false;
  }

  int64_t WeightBytesOf(const std::vector<int>& nodes) const {
    std::set<int> weights;
    for (int n : nodes)
      if (facts_.IsAnchor(n)) weights.insert(network_.nodes[n].inputs[1]);
    int64_t bytes = 0;
    for (int weight : weights) {
      const TensorType& type = network_.tensors[weight].type;
      bytes += type.elements() * BytesOf(type.dtype);
    }
    return bytes;
  }

  void FindOne(const ProductChain& chain) {
    for (int result : ResultsOf(chain)) {
      RecurrentNodes recurrence{NodesBehind(result, chain), 0};
      if (!IsRecurrence(recurrence.nodes)) continue;
      taken_.insert(recurrence.nodes.begin(), recurrence.nodes.end());
      recurrence.weight_bytes = WeightBytesOf(recurrence.nodes);
      found_.push_back(std::move(recurrence));
      return;
    }
  }

  // Nodes whose result may be that of the recurrence, the most likely first: concatenations of the outputs of all steps
  // or of what the last step alone computes, then what is to the last product as the first operand of the last one is
  // to the one before it.
  std::vector<int> ResultsOf(const ProductChain& chain) const {
    const int last = chain.back(), distance = last - chain[chain.size() - 2];
    std::set<int> open(ReadersOf(last).begin(), ReadersOf(last).end()), of_last_step{last};
    std::vector<int> results;
    for (int count = 0; count < 2 * distance && !open.empty(); ++count) {
      const int n = *open.begin();
      open.erase(open.begin());
      if (network_.nodes[n].op == "concat" && Collects(n, chain.size(), of_last_step)) results.push_back(n);
      if (network_.nodes[n].op == "concat" || !IsSmall(n, last) || facts_.IsAnchor(n)) continue;
      of_last_step.insert(n);
      open.insert(ReadersOf(n).begin(), ReadersOf(n).end());
    }
    const int before = ProducerBehindViews(network_.nodes[last].inputs[0]), after = before + distance;
    const bool alike = before >= 0 && after < static_cast<int>(network_.nodes.size()) &&
                       network_.nodes[after].op == network_.nodes[before].op && of_last_step.contains(after);
    if (alike) results.push_back(after);
    return results;
  }

  bool Collects(int concat, size_t steps, const std::set<int>& of_last_step) const {
    const std::vector<int>& parts = network_.nodes[concat].inputs;
    return parts.size() >= steps || std::all_of(parts.begin(), parts.end(), [&](int part) {
             return of_last_step.contains(ProducerBehindViews(part));
           });
  }

  const std::vector<int>& ReadersOf(int n) const { return facts_.consumers[network_.nodes[n].output]; }

  int ProducerBehindViews(int tensor) const {
    int n = facts_.producer[tensor];
    while (n >= 0 && facts_.view[n]) n = facts_.producer[network_.nodes[n].inputs[0]];
    return n;
  }

  // Not much larger than what a product makes: the product with the inputs of all steps is.
  bool IsSmall(int n, int product) const {
    return facts_.ResultOf(n).type.elements() <= 2 * facts_.ResultOf(product).type.elements();
  }

  // `result` and what it alone reads, directly or through others, ascending; empty if that is less than all products.
  std::vector<int> NodesBehind(int result, const ProductChain& chain) const {
    const std::vector<bool> dependent = DependentNodes(chain.front(), result);
    std::set<int> open{result}, joined;
    while (!open.empty()) {
      const int n = *open.rbegin();
      open.erase(n);
      if (n != result) {
        if (taken_.contains(n) || !IsReadIn(n, joined) || !MayJoin(n, chain)) continue;
        const bool moves = n >= chain.front() && dependent[n - chain.front()];
        if (!moves && IsReadInSeveralSteps(n, result, chain)) continue;
      }
      joined.insert(n);
      for (int input : network_.nodes[n].inputs)
        if (facts_.producer[input] >= 0) open.insert(facts_.producer[input]);
    }
    if (!std::all_of(chain.begin(), chain.end(), [&](int n) { return joined.contains(n); })) return {};
    return WithoutFirstViews(joined);
  }

  // Of the nodes from `first` to `last`: which depend on the first.
  std::vector<bool> DependentNodes(int first, int last) const {
    std::vector<bool> dependent(last - first + 1, false);
    dependent[0] = true;
    for (int n = first + 1; n <= last; ++n) {
      const std::vector<int>& inputs = network_.nodes[n].inputs;
      dependent[n - first] = std::any_of(inputs.begin(), inputs.end(), [&](int input) {
        return facts_.producer[input] >= first && dependent[facts_.producer[input] - first];
      });
    }
    return dependent;
  }

  bool IsReadIn(int n, const std::set<int>& nodes) const {
    return !network_.is_output(network_.nodes[n].output) &&
           std::all_of(ReadersOf(n).begin(), ReadersOf(n).end(), [&](int reader) { return nodes.contains(reader); });
  }

  bool MayJoin(int n, const ProductChain& chain) const {
    return facts_.IsAnchor(n) ? products_.contains(n) : IsSmall(n, chain.front());
  }

  // What all steps read is not a part of one of them.
  bool IsReadInSeveralSteps(int n, int result, const ProductChain& chain) const {
    int first = result, last = -1;
    for (int reader : ReadersOf(n)) {
      if (reader == result) continue;
      first = std::min(first, reader);
      last = std::max(last, reader);
    }
    return last - first > 2 * MeanDistance(chain);
  }

  // Views of what comes from outside need no kernel there.
  std::vector<int> WithoutFirstViews(const std::set<int>& nodes) const {
    std::set<int> left;
    for (int n : nodes)
      if (!facts_.view[n] || left.contains(facts_.producer[network_.nodes[n].inputs[0]])) left.insert(n);
    return {left.begin(), left.end()};
  }

  bool IsRecurrence(const std::vector<int>& nodes) const {
    if (nodes.empty()) return false;
    const absl::StatusOr<Subgraph> subgraph = BuildSubgraph(network_, nodes);
    return subgraph.ok() && FindRecurrence(subgraph->dag).ok();
  }

  const GroupingFacts& facts_;
  const Network& network_;
  std::set<int> products_;  // of all chains
  std::set<int> taken_;     // by a recurrence that was found
  std::vector<RecurrentNodes> found_;
};

}  // namespace

std::vector<RecurrentNodes> FindRecurrentNodes(const GroupingFacts& facts) { return RecurrenceFinder(facts).Find(); }

}  // namespace diapason
