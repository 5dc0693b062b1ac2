#include "compiler/graph/passes/network_editor.h"

#include "../testing.h"

namespace diapason {
namespace {

// The nodes that are left, by their operators.
std::vector<std::string> OpsOf(const Network& network) {
  std::vector<std::string> ops;
  for (const Node& node : network.nodes) ops.push_back(node.op);
  return ops;
}

// Empties the list of nodes to look at and returns it.
std::vector<int> TakeOpen(NetworkEditor& editor) {
  std::vector<int> open;
  for (int n = editor.Next(); n >= 0; n = editor.Next()) {
    open.push_back(n);
    editor.Done(n);
  }
  return open;
}

TEST(NetworkEditor, LooksAtEachNodeOnceInOrder) {
  GraphBuilder b;
  const int x = b.In({2});
  Network network = b.Out({b.Op("exp", {b.Op("neg", {x})}), b.Op("abs", {x})});
  NetworkEditor editor(network);
  EXPECT_EQ(TakeOpen(editor), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(editor.Next(), -1);
}

TEST(NetworkEditor, KnowsWhoComputesAndReadsATensor) {
  GraphBuilder b;
  const int x = b.In({2}), c = b.Const({2});
  const int sum = b.Op("add", {x, c}), out = b.Op("mul", {sum, sum});
  Network network = b.Out({out});
  NetworkEditor editor(network);
  EXPECT_EQ(editor.producer(sum), 0);
  EXPECT_EQ(editor.producer(x), -1);
  EXPECT_EQ(editor.ProducerOf(x), nullptr);
  EXPECT_EQ(editor.ProducerOf(sum), &network.nodes[0]);
  EXPECT_EQ(editor.ProducerOf(sum, "add"), &network.nodes[0]);
  EXPECT_EQ(editor.ProducerOf(sum, "mul"), nullptr);
  EXPECT_EQ(editor.constant(x), nullptr);
  ASSERT_NE(editor.constant(c), nullptr);
  EXPECT_TRUE(editor.IsReadOnce(sum));   // by one node, twice
  EXPECT_FALSE(editor.IsReadOnce(out));  // an output
}

TEST(NetworkEditor, NewInputsRemoveWhatNobodyReadsAndLookAgainAtNeighbours) {
  GraphBuilder b;
  const int x = b.In({2}), y = b.Op("exp", {b.Op("neg", {x})}), z = b.Op("abs", {y});
  Network network = b.Out({b.Op("relu", {z}), b.Op("sqrt", {x})});
  NetworkEditor editor(network);
  TakeOpen(editor);
  editor.SetInputs(2, {x});
  // neg and exp are gone; abs, relu behind it and sqrt, the other reader of x, see other neighbours now.
  EXPECT_EQ(TakeOpen(editor), (std::vector<int>{2, 3, 4}));
  editor.Compact();
  EXPECT_EQ(OpsOf(network), (std::vector<std::string>{"abs", "relu", "sqrt"}));
  EXPECT_EQ(network.nodes[0].inputs, std::vector<int>{x});
  EXPECT_TRUE(network.Validate().ok()) << network.Validate();
}

TEST(NetworkEditor, ReplacesANodeBehindAnOutputAndKeepsTheOutputsName) {
  GraphBuilder b;
  const int x = b.In({2}), y = b.Op("neg", {x}), same = b.Op("identity", {y});
  Network network = b.Out({same, b.Op("exp", {y})});
  NetworkEditor editor(network);
  EXPECT_TRUE(editor.ReplaceBy(1, y));
  editor.Compact();
  EXPECT_EQ(OpsOf(network), (std::vector<std::string>{"neg", "exp"}));
  EXPECT_EQ(network.nodes[0].output, same);
  EXPECT_EQ(network.nodes[1].inputs, std::vector<int>{same});
  EXPECT_TRUE(network.Validate().ok()) << network.Validate();
}

TEST(NetworkEditor, AnOutputKeepsANodeOfItsOwn) {
  GraphBuilder b;
  const int x = b.In({2}), y = b.Op("neg", {x});
  Network network = b.Out({b.Op("identity", {x}), y, b.Op("identity", {y})});
  const std::string before = network.ToString();
  NetworkEditor editor(network);
  EXPECT_FALSE(editor.ReplaceBy(1, x));  // an output would be an input
  EXPECT_FALSE(editor.ReplaceBy(2, y));  // two outputs would be one
  EXPECT_EQ(network.ToString(), before);
}

TEST(NetworkEditor, AConstantIsReadFromTheNodesThatGetIt) {
  GraphBuilder b;
  const int x = b.In({2}), y = b.Op("neg", {x});
  Network network = b.Out({b.Op("add", {x, y})});
  NetworkEditor editor(network);
  const int c = editor.AddConstant("two", Counting({2}));
  EXPECT_FALSE(editor.IsReadOnce(c));
  editor.SetInputs(1, {x, c});
  EXPECT_TRUE(editor.IsReadOnce(c));
  editor.Compact();
  EXPECT_EQ(OpsOf(network), std::vector<std::string>{"add"});
  EXPECT_EQ(network.tensors[c].name, "two");
}

}  // namespace
}  // namespace diapason
