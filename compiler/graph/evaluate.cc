#include "compiler/graph/evaluate.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/operator.h"
#include "compiler/tensor/interpret.h"

namespace diapason {
namespace {

// REQUIRES: args.output is what the operator infers.
absl::StatusOr<Array> EvaluateArgs(const Operator& op, const OperatorArgs& args,
                                   const std::vector<const Array*>& inputs) {
  DagBuilder builder;
  std::vector<int> stages;
  std::map<int, const Array*> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    stages.push_back(builder.Placeholder("x", inputs[i]->shape, inputs[i]->dtype));
    values[stages.back()] = inputs[i];
  }
  int result = op.emit(builder, args, stages);
  if (builder.stage(result).dtype != args.output.dtype) {
    result = builder.Compute("cast", args.output.shape,
                             [&](const auto& i) { return Cast(args.output.dtype, builder.At(result, i)); });
  }
  ASSIGN_OR_RETURN(ComputeDag dag, builder.Build({result}));
  ASSIGN_OR_RETURN(std::vector<Array> outputs, Interpret(dag, values));
  return std::move(outputs[0]);
}

absl::Status CheckInputs(const Network& network, const std::vector<Array>& inputs) {
  if (inputs.size() != network.inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the network has ", network.inputs.size(), " inputs, not ", inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = network.tensors[network.inputs[i]];
    TensorType got{inputs[i].dtype, inputs[i].shape};
    if (got == t.type) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input '", t.name, "' is ", t.type.ToString(), ", not ", got.ToString()));
  }
  return absl::OkStatus();
}

// Values of tensors by id while a network is evaluated.
class Values {
 public:
  Values(const Network& network, const std::vector<Array>& inputs) : network_(network) {
    for (size_t i = 0; i < inputs.size(); ++i) computed_[network.inputs[i]] = inputs[i];
  }
  const Array& at(int tensor) const {
    const Tensor& t = network_.tensors[tensor];
    return t.data ? *t.data : computed_.at(tensor);
  }
  void Set(int tensor, Array value) { computed_[tensor] = std::move(value); }
  void SetPart(int tensor, const OutputPlace& place, const Array& part) {
    const TensorType& type = network_.tensors[tensor].type;
    Array& whole = computed_.try_emplace(tensor, type.dtype, type.shape).first->second;
    const size_t bytes = BytesOf(type.dtype);
    for (int64_t i = 0, n = part.elements(); i < n; ++i)
      std::memcpy(whole.data.data() + place.At(i) * bytes, part.data.data() + i * bytes, bytes);
  }

 private:
  const Network& network_;
  std::map<int, Array> computed_;
};

}  // namespace

absl::StatusOr<Array> EvaluateOperator(const std::string& op, const std::vector<Array>& inputs,
                                       const Attributes& attributes) {
  Network network;
  Node node{op, op, attributes, {}, -1};
  std::vector<const Array*> values;
  for (const Array& input : inputs) {
    node.inputs.push_back(network.AddConstant("", input));
    values.push_back(&input);
  }
  OperatorArgs args = ArgsOf(network, node);
  ASSIGN_OR_RETURN(args.output, InferNode(network, node));
  return EvaluateArgs(*FindOperator(op), args, values);
}

absl::StatusOr<Array> EvaluateNode(const Network& network, const Node& node) {
  const OperatorArgs args = ArgsOf(network, node);
  return EvaluateArgs(*FindOperator(node.op), args, args.values);
}

absl::StatusOr<std::vector<Array>> EvaluateNetwork(const Network& network, const std::vector<Array>& inputs) {
  RETURN_IF_ERROR(CheckInputs(network, inputs));
  Values values(network, inputs);
  for (const Node& node : network.nodes) {
    std::vector<const Array*> arrays;
    for (int id : node.inputs) arrays.push_back(&values.at(id));
    ASSIGN_OR_RETURN(Array result, EvaluateArgs(*FindOperator(node.op), ArgsOf(network, node), arrays));
    values.Set(node.output, std::move(result));
  }
  std::vector<Array> outputs;
  for (int id : network.outputs) outputs.push_back(values.at(id));
  return outputs;
}

absl::StatusOr<std::vector<Array>> EvaluatePartition(const Network& network, const Partition& partition,
                                                     const std::vector<Array>& inputs) {
  RETURN_IF_ERROR(CheckInputs(network, inputs));
  Values values(network, inputs);
  auto view = [&](int tensor) {
    Array array = values.at(partition.Owner(tensor));
    array.shape = network.tensors[tensor].type.shape;
    return array;
  };
  for (const Subgraph& subgraph : partition.subgraphs) {
    std::map<int, Array> bound;
    std::vector<int> placeholders = subgraph.dag.inputs();
    for (size_t i = 0; i < placeholders.size(); ++i) bound[placeholders[i]] = view(subgraph.inputs[i]);
    ASSIGN_OR_RETURN(std::vector<Array> results, Interpret(subgraph.dag, bound));
    const OutputPlace& place = partition.programs[subgraph.program].place;
    for (size_t i = 0; i < results.size(); ++i) {
      if (place.whole()) {
        values.Set(subgraph.outputs[i], std::move(results[i]));
      } else {
        values.SetPart(subgraph.outputs[i], place, results[i]);
      }
    }
  }
  std::vector<Array> outputs;
  for (int id : network.outputs) outputs.push_back(view(id));
  return outputs;
}

}  // namespace diapason
