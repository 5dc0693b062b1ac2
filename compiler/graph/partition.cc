#include "compiler/graph/partition.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/subgraph_dag.h"
#include "compiler/graph/task_name.h"
#include "compiler/tensor/check.h"
#include "compiler/tensor/serialize.h"

namespace diapason {
namespace {

// Nodes that become one kernel. Only the result of the last one is seen outside, so that groups in the order of their
// last nodes are in an order of execution.
struct Group {
  std::vector<int> nodes;  // ascending
  int anchor = -1;         // node, or -1
  int last() const { return nodes.back(); }
};

// Producers that cost nothing to compute again at each place where they are read.
bool IsCheap(const std::string& op) {
  static const std::set<std::string>& cheap =
      *new std::set<std::string>{"relu", "clip", "add",        "sub", "mul",   "maximum", "minimum", "neg",
                                 "abs",  "cast", "leaky_relu", "pad", "slice", "expand",  "reshape", "where"};
  return cheap.count(op) != 0;
}

class Grouping {
 public:
  explicit Grouping(const Network& network)
      : network_(network),
        consumers_(network.Consumers()),
        producer_(network.Producers()),
        depth_(network.nodes.size(), 0),
        group_of_(network.nodes.size(), -1) {
    for (size_t n = 0; n < network.nodes.size(); ++n) {
      for (int input : network.nodes[n].inputs) {
        if (producer_[input] >= 0) depth_[n] = std::max(depth_[n], depth_[producer_[input]]);
      }
      depth_[n] += FindOperator(network.nodes[n].op)->kind == OperatorKind::kAnchor;
    }
  }

  std::vector<Group> Run(std::map<int, int>& alias_of) {
    for (int n = 0; n < static_cast<int>(network_.nodes.size()); ++n) {
      const Node& node = network_.nodes[n];
      const Operator& op = *FindOperator(node.op);
      if (op.is_view && op.is_view(ArgsOf(network_, node))) {
        auto owner = alias_of.find(node.inputs[0]);
        alias_of[node.output] = owner == alias_of.end() ? node.inputs[0] : owner->second;
        continue;
      }
      if (group_of_[n] >= 0) continue;  // inside a diamond
      bool elementwise = op.kind == OperatorKind::kElementwise;
      if (elementwise && JoinDiamond(node)) continue;
      int group = elementwise ? GroupToJoin(node) : -1;
      if (group < 0) {
        group = static_cast<int>(groups_.size());
        groups_.push_back({});
        if (op.kind == OperatorKind::kAnchor) groups_[group].anchor = n;
      }
      groups_[group].nodes.push_back(n);
      group_of_[n] = group;
    }
    AbsorbProducers();
    return InOrder();
  }

 private:
  const Tensor& ResultOf(int node) const { return network_.tensors[network_.nodes[node].output]; }

  // The one node that reads the result of a node, or -1 if there are several or the network gives it out.
  int OnlyReader(int node) const {
    int tensor = network_.nodes[node].output;
    if (network_.is_output(tensor) || consumers_[tensor].size() != 1) return -1;
    return consumers_[tensor][0];
  }

  // What a group is worth as the place of an epilogue: the anchor that is deepest in the network, so that a residual
  // addition joins the main path and not its shortcut; then the one with the larger weights. Node numbers decide last:
  // the rest does not depend on the order of import.
  auto Rank(const Group& group) const {
    int anchor = group.anchor;
    int64_t weights = 0;
    if (anchor >= 0 && network_.nodes[anchor].inputs.size() > 1) {
      weights = network_.tensors[network_.nodes[anchor].inputs[1]].type.elements();
    }
    return std::make_tuple(anchor >= 0 ? depth_[anchor] : -1, weights, group.last());
  }

  // The group whose epilogue an elementwise node becomes, or -1.
  int GroupToJoin(const Node& node) const {
    int best = -1;
    for (int input : node.inputs) {
      int from = producer_[input];
      if (from < 0 || group_of_[from] < 0 || OnlyReader(from) < 0) continue;
      if (network_.tensors[input].type.shape != network_.tensors[node.output].type.shape) continue;
      int group = group_of_[from];
      if (best < 0 || Rank(groups_[group]) > Rank(groups_[best])) best = group;
    }
    return best;
  }

  // x * sigmoid(x) and its like: where all ways from a group's result meet again in one elementwise node, over
  // elementwise nodes of the same shape only, those nodes join the group. True if the given node, the first of them,
  // did.
  bool JoinDiamond(const Node& node) {
    for (int input : node.inputs) {
      int from = producer_[input];
      if (from < 0 || group_of_[from] < 0 || groups_[group_of_[from]].last() != from || consumers_[input].size() < 2)
        continue;
      std::vector<int> diamond = DiamondBehind(input);
      Group& group = groups_[group_of_[from]];
      for (int n : diamond) group_of_[n] = group_of_[from];
      group.nodes.insert(group.nodes.end(), diamond.begin(), diamond.end());
      if (!diamond.empty()) return true;
    }
    return false;
  }

  // The nodes between a tensor and the node in which all its readers meet, that one included and last; empty if there
  // is no such node near.
  std::vector<int> DiamondBehind(int tensor) const {
    constexpr size_t kNear = 8;
    if (network_.is_output(tensor)) return {};
    std::set<int> open(consumers_[tensor].begin(), consumers_[tensor].end());  // readers to come, ascending
    std::vector<int> diamond;
    while (diamond.size() < kNear) {
      int n = *open.begin();
      open.erase(open.begin());
      const Node& node = network_.nodes[n];
      const Operator& op = *FindOperator(node.op);
      bool view = op.is_view && op.is_view(ArgsOf(network_, node));
      if (group_of_[n] >= 0 || op.kind != OperatorKind::kElementwise || view) return {};
      if (network_.tensors[node.output].type.shape != network_.tensors[tensor].type.shape) return {};
      diamond.push_back(n);
      if (open.empty()) return diamond;
      if (network_.is_output(node.output)) return {};
      open.insert(consumers_[node.output].begin(), consumers_[node.output].end());
    }
    return {};
  }

  // Whether an anchorless group may be computed inside the only node that reads it.
  bool MayAbsorb(const Group& producer, int reader) const {
    const Node& node = network_.nodes[reader];
    bool elementwise = FindOperator(node.op)->kind == OperatorKind::kElementwise;
    bool same_shape = ResultOf(producer.last()).type.shape == ResultOf(reader).type.shape;
    for (int n : producer.nodes) {
      const std::string& op = network_.nodes[n].op;
      if (IsCheap(op)) continue;
      // Read once at each point: any elementwise function or transpose will do.
      bool pointwise = FindOperator(op)->kind == OperatorKind::kElementwise || op == "transpose";
      if (elementwise && same_shape && pointwise) continue;
      if (op == "transpose" && ReadsFewChannels(node)) continue;
      return false;
    }
    // Data handed to a weight or parameter position of an anchor is read too often to be computed again.
    return elementwise || node.inputs[0] == network_.nodes[producer.last()].output;
  }

  // The first convolution of a network: its image (3 channels) is small, and in any layout read as single elements.
  bool ReadsFewChannels(const Node& node) const {
    if (node.op != "conv2d") return false;
    const std::vector<int64_t>& weight = network_.tensors[node.inputs[1]].type.shape;
    bool nhwc = node.attributes.String("layout", "NCHW") == "NHWC";
    return node.attributes.Int("group", 1) == 1 && weight[nhwc ? 2 : 1] <= 4;
  }

  // Backwards, so that chains are absorbed whole.
  void AbsorbProducers() {
    for (int g = static_cast<int>(groups_.size()) - 1; g >= 0; --g) {
      Group& producer = groups_[g];
      if (producer.anchor >= 0) continue;
      int reader = OnlyReader(producer.last());
      if (reader < 0 || group_of_[reader] < 0 || !MayAbsorb(producer, reader)) continue;
      Group& into = groups_[group_of_[reader]];
      for (int n : producer.nodes) group_of_[n] = group_of_[reader];
      into.nodes.insert(into.nodes.end(), producer.nodes.begin(), producer.nodes.end());
      std::sort(into.nodes.begin(), into.nodes.end());
      producer.nodes.clear();
    }
  }

  std::vector<Group> InOrder() {
    std::vector<Group> out;
    for (Group& group : groups_) {
      if (!group.nodes.empty()) out.push_back(std::move(group));
    }
    std::sort(out.begin(), out.end(), [](const Group& a, const Group& b) { return a.last() < b.last(); });
    return out;
  }

  const Network& network_;
  std::vector<std::vector<int>> consumers_;
  std::vector<int> producer_;
  std::vector<int> depth_;  // of a node: anchors on the longest way to it
  std::vector<int> group_of_;
  std::vector<Group> groups_;
};

// The bytes of a dag but for the names of its stages: those say which operators it was made of (a clip at 0 is a relu).
std::string BytesWithoutNames(const ComputeDag& dag) {
  std::vector<Stage> stages = dag.stages();
  for (size_t i = 0; i < stages.size(); ++i) stages[i].name = absl::StrCat("s", i);
  return SerializeDag(ComputeDag::Create(std::move(stages), dag.outputs()).value());
}

// Finds or makes the task of a subgraph. Equal keys with other numbers of stages would bind wrong buffers.
void AssignTask(Partition& partition, Subgraph& subgraph, const std::string& name, std::map<std::string, int>& by_key,
                std::map<std::string, int>& names) {
  std::string key = subgraph.dag.workload_key();
  auto [it, fresh] = by_key.emplace(key, static_cast<int>(partition.tasks.size()));
  if (fresh) {
    int count = ++names[name];
    std::string unique = count == 1 ? name : absl::StrCat(name, "_v", count);
    partition.tasks.push_back({unique, subgraph.dag, 0, key});
  }
  subgraph.task = it->second;
  Task& task = partition.tasks[subgraph.task];
  DIAPASON_CHECK_MSG(fresh || BytesWithoutNames(task.dag) == BytesWithoutNames(subgraph.dag),
                     "equal workloads with different stages: " + key);
  subgraph.dag = task.dag;
  ++task.weight;
}

}  // namespace

absl::StatusOr<Partition> PartitionNetwork(const Network& network) {
  Partition partition;
  std::map<std::string, int> by_key, names;
  for (const Group& group : Grouping(network).Run(partition.alias_of)) {
    ASSIGN_OR_RETURN(Subgraph subgraph, BuildSubgraph(network, group.nodes));
    AssignTask(partition, subgraph, TaskName(network, group.nodes, group.anchor), by_key, names);
    partition.subgraphs.push_back(std::move(subgraph));
  }
  return partition;
}

}  // namespace diapason
