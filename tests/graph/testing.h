// Small networks and comparisons for the tests of compiler/graph.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "compiler/graph/evaluate.h"
#include "compiler/graph/network.h"
#include "compiler/graph/network_builder.h"
#include "compiler/graph/partition.h"
#include "compiler/tensor/accesses.h"
#include "compiler/tensor/serialize.h"

namespace diapason {

using Ints = std::vector<int64_t>;

inline Array RandomArray(const TensorType& type, uint64_t seed) {
  WeightRandom random(seed);
  Array array(type.dtype, type.shape);
  for (int64_t i = 0, n = array.elements(); i < n; ++i) array.set(i, random.Uniform(-1, 1));
  return array;
}

// A network, operator by operator; weights are random.
struct GraphBuilder {
  Network n;
  int In(Ints shape, DType dtype = DType::kFloat32) {
    return n.AddInput("x" + std::to_string(n.inputs.size()), {dtype, std::move(shape)});
  }
  int Const(Ints shape) {
    return n.AddConstant("c", RandomArray({DType::kFloat32, std::move(shape)}, n.tensors.size()));
  }
  int Op(const std::string& op, std::vector<int> inputs, Attributes attributes = {}) {
    auto id = n.AddNode(op, std::move(inputs), std::move(attributes));
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *id : 0;
  }
  int Conv(int x, int64_t in, int64_t out, int64_t kernel = 3) {
    return Op("conv2d", {x, Const({out, in, kernel, kernel})}, {{"pads", Ints(4, kernel / 2)}});
  }
  int Concat(std::vector<int> parts, int64_t axis) { return Op("concat", std::move(parts), {{"axis", axis}}); }
  Network Out(std::vector<int> outputs) {
    n.outputs = std::move(outputs);
    return n;
  }
};

// 1, 2, 3, ... in row-major order.
inline Array Counting(std::vector<int64_t> shape, DType dtype = DType::kFloat32) {
  Array array(dtype, std::move(shape));
  for (int64_t i = 0, n = array.elements(); i < n; ++i) IsFloat(dtype) ? array.set(i, i + 1) : array.set_int(i, i + 1);
  return array;
}

inline std::vector<Array> RandomInputs(const Network& network, uint64_t seed) {
  std::vector<Array> inputs;
  for (int id : network.inputs) inputs.push_back(RandomArray(network.tensors[id].type, seed++));
  return inputs;
}

inline void ExpectNear(const Array& got, const Array& want, double tolerance) {
  ASSERT_EQ(got.shape, want.shape);
  ASSERT_EQ(got.dtype, want.dtype);
  for (int64_t i = 0, n = want.elements(); i < n; ++i) {
    if (std::isnan(want.at(i)) && std::isnan(got.at(i))) continue;
    ASSERT_NEAR(got.at(i), want.at(i), tolerance * (1 + std::abs(want.at(i)))) << "element " << i;
  }
}

// The network computes the same as `before`, and so do the subgraphs of its partition.
inline void ExpectSameResults(const Network& before, const Network& after, double tolerance = 1e-5) {
  ASSERT_TRUE(after.Validate().ok()) << after.Validate();
  ASSERT_EQ(before.inputs.size(), after.inputs.size());
  std::vector<Array> inputs = RandomInputs(before, 7);
  auto want = EvaluateNetwork(before, inputs);
  auto got = EvaluateNetwork(after, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_TRUE(got.ok()) << got.status();
  auto partition = PartitionNetwork(after);
  ASSERT_TRUE(partition.ok()) << partition.status();
  auto cut = EvaluatePartition(after, *partition, inputs);
  ASSERT_TRUE(cut.ok()) << cut.status();
  // A worker would take them.
  for (const Task& task : partition->tasks) {
    const auto sent = ParseDag(SerializeDag(task.dag));
    ASSERT_TRUE(sent.ok()) << sent.status();
    EXPECT_EQ(CheckAccesses(*sent), absl::OkStatus()) << task.dag.ToString();
  }
  ASSERT_EQ(got->size(), want->size());
  for (size_t i = 0; i < want->size(); ++i) {
    EXPECT_EQ(before.tensors[before.outputs[i]].name, after.tensors[after.outputs[i]].name);
    ExpectNear((*got)[i], (*want)[i], tolerance);
    ExpectNear((*cut)[i], (*want)[i], tolerance);
  }
}

inline int CountOps(const Network& network, const std::string& op) {
  int count = 0;
  for (const Node& node : network.nodes) count += node.op == op;
  return count;
}

// Those with a result of that type.
inline int CountOps(const Network& network, const std::string& op, DType result) {
  int count = 0;
  for (const Node& node : network.nodes) count += node.op == op && network.tensor(node.output).type.dtype == result;
  return count;
}

}  // namespace diapason
