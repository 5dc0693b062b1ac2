#include "compiler/graph/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/graph/builtin.h"
#include "compiler/graph/passes.h"
#include "compiler/tensor/serialize.h"
#include "testing.h"

namespace diapason {
namespace {

Partition PartitionOf(const Network& network) {
  auto partition = PartitionNetwork(network);
  EXPECT_TRUE(partition.ok()) << partition.status();
  return partition.ok() ? *std::move(partition) : Partition();
}

std::vector<std::string> TaskNames(const Partition& partition) {
  std::vector<std::string> names;
  for (const Subgraph& subgraph : partition.subgraphs) names.push_back(partition.tasks[subgraph.task].name);
  return names;
}

TEST(Partition, FusesEpiloguesIntoTheLargerOfTwoConvolutions) {
  GraphBuilder b;
  int x = b.In({1, 4, 4, 4});
  int first = b.Conv(x, 4, 4, 1);
  int second = b.Conv(x, 4, 4);
  Network n = b.Out({b.Op("relu", {b.Op("add", {first, second})})});
  EXPECT_EQ(TaskNames(PartitionOf(n)),
            (std::vector<std::string>{"conv2d_1x1_s1_4x4x4_4", "conv2d_3x3_s1_4x4x4_4_add_relu"}));
  ExpectSameResults(n, n);
}

TEST(Partition, KeepsAResultThatSeveralReadOrTheNetworkGivesOut) {
  GraphBuilder b;
  int conv = b.Conv(b.In({1, 2, 4, 4}), 2, 2);
  int relu = b.Op("relu", {conv});
  Network read_twice = b.Out({relu, b.Op("reduce_max", {conv})});
  Partition partition = PartitionOf(read_twice);
  ASSERT_EQ(partition.subgraphs.size(), 3u);
  EXPECT_EQ(partition.subgraphs[0].outputs, std::vector<int>{conv});
  ExpectSameResults(read_twice, read_twice);
  GraphBuilder c;
  conv = c.Conv(c.In({1, 2, 4, 4}), 2, 2);
  Network given_out = c.Out({c.Op("relu", {conv}), conv});
  EXPECT_EQ(PartitionOf(given_out).subgraphs.size(), 2u);
}

TEST(Partition, FusesBranchesThatMeetAgain) {
  GraphBuilder b;
  int conv = b.Conv(b.In({1, 2, 4, 4}), 2, 2);
  int hard = b.Op("clip", {b.Op("add", {conv, b.Const({})})}, {{"min", 0.0}, {"max", 6.0}});
  int swish = b.Op("mul", {conv, hard});
  Network n = b.Out({b.Op("div", {swish, b.Const({})})});
  EXPECT_EQ(TaskNames(PartitionOf(n)), (std::vector<std::string>{"conv2d_3x3_s1_2x4x4_2_add_clip_mul_div"}));
  ExpectSameResults(n, n);
}

TEST(Partition, DoesNotFuseBranchesThroughAnAnchor) {
  GraphBuilder b;
  int conv = b.Conv(b.In({1, 2, 4, 4}), 2, 2);
  int gate = b.Op("sigmoid", {b.Op("reduce_mean", {conv}, {{"axes", Ints{2, 3}}})});
  Network n = b.Out({b.Op("mul", {conv, gate})});
  EXPECT_EQ(TaskNames(PartitionOf(n)),
            (std::vector<std::string>{"conv2d_3x3_s1_2x4x4_2", "global_avg_pool_2x4x4_sigmoid_mul"}));
  ExpectSameResults(n, n);
}

TEST(Partition, FusesCheapProducersInFront) {
  GraphBuilder b;
  int x = b.In({1, 2, 4, 4});
  int relu = b.Op("relu", {b.Op("mul", {x, b.Const({2, 1, 1})})});
  int wide = b.Op("pad", {relu}, {{"pads", Ints{0, 0, 1, 1, 0, 0, 1, 1}}, {"mode", std::string("edge")}});
  Network n = b.Out({b.Op("conv2d", {wide, b.Const({3, 2, 3, 3})})});
  EXPECT_EQ(TaskNames(PartitionOf(n)), (std::vector<std::string>{"mul_relu_pad_conv2d_3x3_s1_2x6x6_3"}));
  ExpectSameResults(n, n);
}

TEST(Partition, DoesNotRepeatCostlyProducersInTheirReader) {
  GraphBuilder b;
  int x = b.Op("sigmoid", {b.In({1, 2, 4, 4})});
  Network n = b.Out({b.Conv(x, 2, 3)});
  EXPECT_EQ(TaskNames(PartitionOf(n)), (std::vector<std::string>{"sigmoid_2x4x4", "conv2d_3x3_s1_2x4x4_3"}));
}

TEST(Partition, ViewsShareMemoryAndMakeNoTask) {
  GraphBuilder b;
  int x = b.In({1, 2, 2, 2});
  int conv = b.Conv(x, 2, 2);
  int flat = b.Op("flatten", {conv});
  int shaped = b.Op("reshape", {flat}, {{"shape", Ints{2, 4}}});
  Network n = b.Out({b.Op("gemm", {flat, b.Const({8, 3})}), shaped, b.Op("reshape", {x}, {{"shape", Ints{8}}})});
  Partition partition = PartitionOf(n);
  EXPECT_EQ(partition.subgraphs.size(), 2u);
  EXPECT_EQ(partition.Owner(flat), conv);
  EXPECT_EQ(partition.Owner(shaped), conv);
  EXPECT_EQ(partition.Owner(n.outputs[2]), x);
  EXPECT_EQ(partition.Owner(conv), conv);
  ExpectSameResults(n, n);
}

TEST(Partition, EqualSubgraphsAreOneTaskWithBindingsByPosition) {
  GraphBuilder b;
  int x = b.In({1, 4, 4, 4});
  // The same block twice, with the operands of the addition exchanged.
  int y = b.Op("add", {b.Conv(x, 4, 4), x});
  Network n = b.Out({b.Op("add", {y, b.Conv(y, 4, 4)})});
  Partition partition = PartitionOf(n);
  ASSERT_EQ(partition.tasks.size(), 1u);
  EXPECT_EQ(partition.tasks[0].weight, 2);
  EXPECT_EQ(partition.subgraphs[0].inputs.size(), 2u);
  EXPECT_EQ(partition.subgraphs[0].inputs[0], x);
  EXPECT_EQ(partition.subgraphs[1].inputs[0], y);
  EXPECT_EQ(SerializeDag(partition.subgraphs[0].dag), SerializeDag(partition.subgraphs[1].dag));
  ExpectSameResults(n, n);
}

TEST(Partition, WorkloadsAreEqualWhateverOperatorsTheyAreMadeOf) {
  GraphBuilder b;
  int x = b.In({1, 2, 4, 4});
  int first = b.Op("relu", {b.Conv(x, 2, 2)});
  // The same with padding and relu by other operators.
  int wide = b.Op("pad", {first}, {{"pads", Ints{0, 0, 1, 1, 0, 0, 1, 1}}});
  int conv = b.Op("conv2d", {wide, b.Const({2, 2, 3, 3})});
  Network n = b.Out({b.Op("clip", {conv}, {{"min", 0.0}})});
  Partition partition = PartitionOf(n);
  ASSERT_EQ(partition.tasks.size(), 1u);
  EXPECT_EQ(partition.tasks[0].weight, 2);
  ExpectSameResults(n, n);
}

// Every node is in one subgraph, a view or a concatenation whose parts fill it; every input of a subgraph is there
// before it runs.
void ExpectComplete(const Network& network, const Partition& partition) {
  std::map<int, int64_t> filled;  // elements of concatenations in place
  std::set<int> covered, ready(network.inputs.begin(), network.inputs.end());
  for (size_t i = 0; i < network.tensors.size(); ++i) {
    if (network.tensors[i].constant()) ready.insert(static_cast<int>(i));
  }
  int occurrences = 0;
  for (const Task& task : partition.tasks) occurrences += task.weight;
  EXPECT_EQ(occurrences, static_cast<int>(partition.subgraphs.size()));
  for (const Subgraph& subgraph : partition.subgraphs) {
    EXPECT_EQ(subgraph.dag.inputs().size(), subgraph.inputs.size());
    EXPECT_EQ(subgraph.dag.outputs().size(), subgraph.outputs.size());
    for (size_t i = 0; i < subgraph.inputs.size(); ++i) {
      const Stage& stage = subgraph.dag.stage(subgraph.dag.inputs()[i]);
      const Tensor& tensor = network.tensors[subgraph.inputs[i]];
      EXPECT_EQ(stage.shape(), tensor.type.shape);
      EXPECT_EQ(stage.dtype, tensor.type.dtype);
      EXPECT_EQ(stage.constant, tensor.constant() && !subgraph.nodes.empty());
      EXPECT_TRUE(ready.count(partition.Owner(subgraph.inputs[i]))) << tensor.name;
    }
    for (int node : subgraph.nodes) EXPECT_TRUE(covered.insert(node).second) << network.nodes[node].name;
    ready.insert(subgraph.outputs.begin(), subgraph.outputs.end());
    const PlacedTask& placed = partition.programs[subgraph.program];
    EXPECT_EQ(placed.task, subgraph.task);
    if (!placed.place.whole()) filled[subgraph.outputs[0]] += subgraph.dag.stage(subgraph.dag.outputs()[0]).elements();
  }
  for (const auto& [tensor, elements] : filled) EXPECT_EQ(elements, network.tensors[tensor].type.elements());
  for (size_t n = 0; n < network.nodes.size(); ++n) {
    const int output = network.nodes[n].output;
    EXPECT_EQ(covered.count(static_cast<int>(n)) + partition.alias_of.count(output) + filled.count(output), 1u)
        << network.nodes[n].name;
  }
  for (int output : network.outputs) EXPECT_TRUE(ready.count(partition.Owner(output)));
}

double TotalGflop(const Partition& partition) {
  double total = 0;
  for (const Task& task : partition.tasks) total += task.weight * task.dag.flops();
  return total / 1e9;
}

Network Optimized(const std::string& name, ModelOptions options = {}) {
  auto network = LoadOptimized(name, options);
  EXPECT_TRUE(network.ok()) << network.status();
  return network.ok() ? *std::move(network) : Network();
}

TEST(Partition, Resnet18HasTheTasksItIsKnownFor) {
  Network n = Optimized("resnet-18");
  Partition partition = PartitionOf(n);
  ExpectComplete(n, partition);
  std::vector<std::string> table;
  for (const Task& task : partition.tasks) table.push_back(std::to_string(task.weight) + " " + task.name);
  EXPECT_EQ(table, (std::vector<std::string>{
                       "1 conv2d_7x7_s2_224x224x3_64_bias_relu",
                       "1 max_pool_3x3_s2_112x112x64",
                       "2 conv2d_3x3_s1_56x56x64_64_bias_relu",
                       "2 conv2d_3x3_s1_56x56x64_64_bias_add_relu",
                       "1 conv2d_3x3_s2_56x56x64_128_bias_relu",
                       "1 conv2d_1x1_s2_56x56x64_128_bias",
                       "2 conv2d_3x3_s1_28x28x128_128_bias_add_relu",
                       "1 conv2d_3x3_s1_28x28x128_128_bias_relu",
                       "1 conv2d_3x3_s2_28x28x128_256_bias_relu",
                       "1 conv2d_1x1_s2_28x28x128_256_bias",
                       "2 conv2d_3x3_s1_14x14x256_256_bias_add_relu",
                       "1 conv2d_3x3_s1_14x14x256_256_bias_relu",
                       "1 conv2d_3x3_s2_14x14x256_512_bias_relu",
                       "1 conv2d_1x1_s2_14x14x256_512_bias",
                       "2 conv2d_3x3_s1_7x7x512_512_bias_add_relu",
                       "1 conv2d_3x3_s1_7x7x512_512_bias_relu",
                       "1 global_avg_pool_7x7x512",
                       "1 gemm_1x1000x512_bias",
                   }));
  EXPECT_NEAR(TotalGflop(partition), 3.64, 0.03);
}

TEST(Partition, EveryBuiltInNetworkIsCoveredInBothLayouts) {
  struct Case {
    const char* name;
    double gflop;
  };
  const Case cases[] = {{"resnet-50", 8.2}, {"mobilenet", 1.15},   {"squeezenet_v1.1", 0.7},
                        {"conv2d", 0.23},   {"depthwise", 0.0036}, {"gemm", 0.268}};
  for (const Case& c : cases) {
    for (Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
      SCOPED_TRACE(std::string(c.name) + " " + NameOf(layout));
      ModelOptions options;
      options.layout = layout;
      Network n = Optimized(c.name, options);
      Partition partition = PartitionOf(n);
      ExpectComplete(n, partition);
      EXPECT_NEAR(TotalGflop(partition), c.gflop, 0.05 * c.gflop);
      EXPECT_EQ(CountOps(n, "transpose"), 0);
    }
  }
}

TEST(Partition, TheFirstConvolutionReadsItsImageInTheModelsLayout) {
  ModelOptions options;
  options.layout = Layout::kNCHW;
  options.extra = {{"h", "6"}, {"w", "5"}, {"ci", "3"}, {"co", "2"}};
  Network before = LoadModel("conv2d", options).value();
  options.layout = Layout::kNHWC;
  Network after = Optimize(before, options).value();
  EXPECT_EQ(TaskNames(PartitionOf(after)), (std::vector<std::string>{"nchw_conv2d_3x3_s1_6x5x3_2", "transpose_2x6x5"}));
  ExpectSameResults(before, after);
}

TEST(Partition, Float16StoresHalvesAndAccumulatesInFloat32) {
  ModelOptions options;
  options.dtype = DType::kFloat16;
  options.extra = {{"h", "4"}, {"w", "4"}, {"ci", "2"}, {"co", "2"}, {"bias", "1"}, {"relu", "1"}};
  Network n = Optimized("conv2d", options);
  Partition partition = PartitionOf(n);
  ASSERT_EQ(partition.tasks.size(), 1u);
  EXPECT_EQ(partition.tasks[0].name, "conv2d_3x3_s1_4x4x2_2_bias_relu_float16");
  const ComputeDag& dag = partition.tasks[0].dag;
  for (int id : dag.inputs()) EXPECT_EQ(dag.stage(id).dtype, DType::kFloat16);
  EXPECT_EQ(dag.stage(dag.outputs()[0]).dtype, DType::kFloat16);
  for (const Stage& stage : dag.stages()) {
    if (stage.reduces()) {
      EXPECT_EQ(stage.dtype, DType::kFloat32);
    }
  }
}

TEST(Partition, AChoiceBetweenAHalfAndWhatItsKernelComputesIsOfOneType) {
  GraphBuilder b;
  const int x = b.n.AddInput("x", {DType::kFloat16, {3, 8}});
  const int zero = b.n.AddConstant("zero", Array(DType::kFloat16, {}));
  const int softmax = b.Op("softmax", {x});
  Network n = b.Out({b.Op("where", {b.Op("is_nan", {softmax}), zero, softmax})});
  EXPECT_EQ(PartitionOf(n).subgraphs.size(), 1u);
  ExpectSameResults(n, n, 1e-3);
}

TEST(Partition, IsTheSameEachTime) {
  Partition a = PartitionOf(Optimized("squeezenet_v1.1")), b = PartitionOf(Optimized("squeezenet_v1.1"));
  ASSERT_EQ(a.tasks.size(), b.tasks.size());
  for (size_t i = 0; i < a.tasks.size(); ++i) {
    EXPECT_EQ(a.tasks[i].workload_key, b.tasks[i].workload_key);
    EXPECT_EQ(a.tasks[i].name, b.tasks[i].name);
    EXPECT_EQ(SerializeDag(a.tasks[i].dag), SerializeDag(b.tasks[i].dag));
  }
  for (size_t i = 0; i < a.subgraphs.size(); ++i) EXPECT_EQ(a.subgraphs[i].inputs, b.subgraphs[i].inputs);
}

// Two branches and their sum; names, the order of branches and the order of tensors as given.
Network TwoBranches(bool left_first, const std::string& prefix) {
  Network n;
  if (!left_first) n.AddConstant(prefix + "unused", Counting({3}));
  int x = n.AddInput(prefix + "x", {DType::kFloat32, {1, 4, 8, 8}});
  auto conv = [&](int64_t kernel) {
    int w = n.AddConstant(prefix + "w", Counting({4, 4, kernel, kernel}));
    int y = n.AddNode("conv2d", {x, w}, {{"pads", Ints(4, kernel / 2)}}, prefix + std::to_string(kernel)).value();
    return n.AddNode("relu", {y}, {}, prefix + "relu" + std::to_string(kernel)).value();
  };
  int a = conv(left_first ? 1 : 3), b = conv(left_first ? 3 : 1);
  int shared =
      n.AddNode("concat", {left_first ? a : b, left_first ? b : a}, {{"axis", int64_t{1}}}, prefix + "c").value();
  n.outputs = {shared};
  return n;
}

TEST(Partition, KeysDependNeitherOnNamesNorOnTheOrderOfImport) {
  auto keys = [](const Partition& partition) {
    std::multiset<std::string> out;
    for (const Task& task : partition.tasks) out.insert(task.workload_key);
    return out;
  };
  EXPECT_EQ(keys(PartitionOf(TwoBranches(true, "a"))), keys(PartitionOf(TwoBranches(false, "other_"))));
}

}  // namespace
}  // namespace diapason
