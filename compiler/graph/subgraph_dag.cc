#include "compiler/graph/subgraph_dag.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/long_reductions.h"
#include "compiler/graph/operator.h"

namespace diapason {
namespace {

class SubgraphBuilder {
 public:
  SubgraphBuilder(const Network& network, const std::vector<int>& nodes) : network_(network), nodes_(nodes) {
    for (int n : nodes) {
      const Node& node = network.nodes[n];
      producer_[node.output] = n;
      // An anchor weighs more than any chain without one: it stands first in commutative operators.
      int64_t depth = FindOperator(node.op)->kind == OperatorKind::kAnchor ? 1000000 : 1;
      for (int input : node.inputs) depth = std::max(depth, Depth(input) + 1);
      depth_[node.output] = depth;
    }
  }

  absl::StatusOr<Subgraph> Build(int follower) {
    Subgraph subgraph;
    int output = network_.nodes[nodes_.back()].output;
    int result = Emit(output);
    const TensorType& type = network_.tensors[output].type;
    if (builder_.stage(result).dtype != type.dtype) {
      result =
          builder_.Compute("cast", type.shape, [&](const auto& i) { return Cast(type.dtype, builder_.At(result, i)); });
    }
    std::vector<int> results = {result};
    if (follower >= 0) {
      const Node& node = network_.nodes[follower];
      results.push_back(FindOperator(node.op)->emit(builder_, ArgsOf(network_, node), {result}));
    }
    absl::StatusOr<ComputeDag> dag = builder_.Build(std::move(results));
    if (dag.ok()) dag = Renumbered(*dag, subgraph.inputs);
    if (dag.ok()) dag = SplitLongReductions(*dag);
    if (!dag.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("node '", network_.nodes[nodes_.back()].name,
                       "' has no valid expression: ", std::string(dag.status().message())));
    }
    subgraph.dag = *std::move(dag);
    subgraph.outputs = {output};
    subgraph.nodes = nodes_;
    if (follower >= 0) {
      subgraph.outputs.push_back(network_.nodes[follower].output);
      subgraph.nodes.push_back(follower);
    }
    return subgraph;
  }

 private:
  // Stages behind those that they read, depth first from the outputs on; not by recursion, since recurrences are
  // thousands of stages deep.
  static std::vector<int> OrderOf(const ComputeDag& dag) {
    struct OpenStage {
      int stage;
      std::vector<int> producers;
      size_t next = 0;  // of the producers
    };
    std::vector<bool> met(dag.size(), false);
    std::vector<int> order;
    std::vector<OpenStage> open;
    const auto meet = [&](int stage) {
      if (!met[stage]) open.push_back({stage, dag.producers(stage)});
      met[stage] = true;
    };
    for (int output : dag.outputs()) {
      meet(output);
      while (!open.empty()) {
        OpenStage& last = open.back();
        if (last.next < last.producers.size()) {
          meet(last.producers[last.next++]);
          continue;
        }
        order.push_back(last.stage);
        open.pop_back();
      }
    }
    return order;
  }

  // The stages that the output needs, in the order in which their expressions meet them; the inputs alike. Which
  // operators the expressions came from does not show: a pad in front of a convolution and a padded convolution are the
  // same.
  absl::StatusOr<ComputeDag> Renumbered(const ComputeDag& dag, std::vector<int>& inputs) const {
    std::vector<int> number(dag.size(), -1);
    const std::vector<int> order = OrderOf(dag);
    for (size_t i = 0; i < order.size(); ++i) number[order[i]] = static_cast<int>(i);
    std::vector<Stage> stages;
    for (int old : order) {
      stages.push_back(dag.stage(old));
      Stage& stage = stages.back();
      if (stage.placeholder) inputs.push_back(tensor_of_.at(old));
      if (!stage.body) continue;
      stage.body = Rewrite(stage.body, [&](const Expr& e) {
        return e->kind == ExprKind::kLoad ? Load(number[e->buffer], e->dtype, e->args) : e;
      });
    }
    std::vector<int> outputs;
    for (int output : dag.outputs()) outputs.push_back(number[output]);
    return ComputeDag::Create(std::move(stages), std::move(outputs));
  }

  int64_t Depth(int tensor) const {
    auto it = depth_.find(tensor);
    return it == depth_.end() ? 0 : it->second;
  }

  // Inputs in the order in which they are emitted: for commutative operators the deepest first, then activations before
  // constants, then the larger.
  std::vector<int> CanonicalInputs(const Node& node, const Operator& op) const {
    std::vector<int> inputs = node.inputs;
    if (!op.commutative) return inputs;
    auto key = [&](int t) {
      const Tensor& tensor = network_.tensors[t];
      return std::make_tuple(-Depth(t), tensor.constant(), -tensor.type.elements());
    };
    std::stable_sort(inputs.begin(), inputs.end(), [&](int a, int b) { return key(a) < key(b); });
    return inputs;
  }

  int EmitInput(int tensor, const Node& reader, size_t position) {
    const Tensor& t = network_.tensors[tensor];
    bool anchor = FindOperator(reader.op)->kind == OperatorKind::kAnchor;
    const char* name = "x";
    if (t.constant()) name = anchor && position == 1 ? "weight" : anchor && position == 2 ? "offset" : "param";
    int stage = t.constant() ? builder_.Constant(name, t.type.shape, t.type.dtype)
                             : builder_.Placeholder(name, t.type.shape, t.type.dtype);
    tensor_of_[stage] = tensor;
    return stage;
  }

  // A node whose inputs are emitted one after the other.
  struct Open {
    Node node;  // with its inputs in order
    std::vector<int> stages{};
  };

  Open OpenNodeOf(int tensor) const {
    Node node = network_.nodes[producer_.at(tensor)];
    node.inputs = CanonicalInputs(node, *FindOperator(node.op));
    return {std::move(node)};
  }

  // The stage of a tensor. What it is computed from is emitted once, depth first; not by recursion, since recurrences
  // are thousands of nodes deep.
  int Emit(int tensor) {
    std::vector<Open> open;
    open.push_back(OpenNodeOf(tensor));
    for (;;) {
      auto& [node, stages] = open.back();
      if (stages.size() == node.inputs.size()) {
        const int output = node.output, stage = FindOperator(node.op)->emit(builder_, ArgsOf(network_, node), stages);
        stage_.emplace(output, stage);
        open.pop_back();
        if (open.empty()) return stage;
        continue;
      }
      const int input = node.inputs[stages.size()];
      auto known = stage_.find(input);
      if (known == stage_.end() && producer_.count(input) > 0) {
        open.push_back(OpenNodeOf(input));
        continue;
      }
      if (known == stage_.end()) known = stage_.emplace(input, EmitInput(input, node, stages.size())).first;
      stages.push_back(known->second);
    }
  }

  const Network& network_;
  const std::vector<int>& nodes_;
  DagBuilder builder_;
  std::map<int, int> producer_;   // tensor computed in the group -> node
  std::map<int, int64_t> depth_;  // of those tensors
  std::map<int, int> stage_;      // tensor -> stage
  std::map<int, int> tensor_of_;  // placeholder -> tensor
};

}  // namespace

absl::StatusOr<Subgraph> BuildSubgraph(const Network& network, const std::vector<int>& nodes, int follower) {
  return SubgraphBuilder(network, nodes).Build(follower);
}

absl::StatusOr<Subgraph> CopySubgraph(const Network& network, int tensor) {
  const TensorType& type = network.tensors[tensor].type;
  DagBuilder builder;
  // No constant, whatever it is: a copy of one would be made once, when the package is loaded.
  const int x = builder.Placeholder("x", type.shape, type.dtype);
  const int copy = builder.Compute("copy", type.shape, [&](const auto& i) { return builder.At(x, i); });
  Subgraph subgraph;
  ASSIGN_OR_RETURN(subgraph.dag, builder.Build({copy}));
  subgraph.inputs = {tensor};
  return subgraph;
}

}  // namespace diapason
