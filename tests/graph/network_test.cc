#include "compiler/graph/network.h"

#include <gtest/gtest.h>

#include "testing.h"

namespace diapason {
namespace {

Network Chain() {
  Network n;
  n.name = "chain";
  int x = n.AddInput("x", {DType::kFloat32, {1, 2}});
  int y = n.AddNode("relu", {x}, {}, "first").value();
  n.outputs = {n.AddNode("add", {y, n.AddConstant("c", Counting({2}))}, {}, "second").value()};
  return n;
}

TEST(Network, InfersTypesWhileItIsBuilt) {
  Network n = Chain();
  EXPECT_TRUE(n.Validate().ok()) << n.Validate();
  EXPECT_EQ(n.tensors[n.outputs[0]].type.ToString(), "float32 1x2");
  EXPECT_EQ(n.ToString(),
            "network chain\n"
            "  %0 = input x : float32 1x2\n"
            "  %1 = relu(%0) : float32 1x2  # first\n"
            "  %3 = add(%1, %2c) : float32 1x2  # second\n"
            "  output %3\n");
}

TEST(Network, KnowsProducersAndConsumers) {
  Network n = Chain();
  EXPECT_EQ(n.Producers(), (std::vector<int>{-1, 0, -1, 1}));
  EXPECT_EQ(n.Consumers(), (std::vector<std::vector<int>>{{0}, {1}, {1}, {}}));
}

TEST(Network, RefusesACycle) {
  Network n = Chain();
  n.nodes[0].inputs[0] = n.nodes[1].output;
  EXPECT_EQ(std::string(n.Validate().message()),
            "node 'first' reads 'second' before it is computed: the graph has a cycle or a missing node");
}

TEST(Network, RefusesATypeThatItsOperatorDoesNotGive) {
  Network n = Chain();
  n.tensors[n.nodes[1].output].type.shape = {2};
  EXPECT_EQ(std::string(n.Validate().message()), "node 'second' (add) gives float32 1x2 but 'second' is float32 2");
}

TEST(Network, RefusesTwoWritersAndUnknownOutputs) {
  Network two = Chain();
  two.nodes[1].output = two.nodes[0].output;
  EXPECT_EQ(std::string(two.Validate().message()), "node 'second' writes a tensor that is not its own");
  Network none = Chain();
  none.outputs.clear();
  EXPECT_EQ(std::string(none.Validate().message()), "the network has no output");
  none.outputs = {99};
  EXPECT_EQ(std::string(none.Validate().message()), "output 99 of the network is not computed by any node");
}

}  // namespace
}  // namespace diapason
