#include "compiler/graph/passes.h"

#include <gtest/gtest.h>

#include <ctime>
#include <limits>

#include "testing.h"

namespace diapason {
namespace {

constexpr int64_t kZero = 0;

// A network under construction: asserts that each node is valid.
struct Builder {
  Network n;
  uint64_t seed = 1;
  int In(Ints shape, const std::string& name = "x") { return n.AddInput(name, {DType::kFloat32, std::move(shape)}); }
  int Const(Ints shape) { return n.AddConstant("c", RandomArray({DType::kFloat32, std::move(shape)}, ++seed)); }
  int Op(const std::string& op, std::vector<int> inputs, Attributes attributes = {}) {
    auto id = n.AddNode(op, std::move(inputs), std::move(attributes));
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *id : 0;
  }
  int Norm(int x, int64_t channels, int64_t axis = 1) {
    Array variance = RandomArray({DType::kFloat32, {channels}}, ++seed);
    for (int64_t i = 0; i < channels; ++i) variance.set(i, 1.5 + variance.at(i));
    return Op("batch_norm", {x, Const({channels}), Const({channels}), Const({channels}), n.AddConstant("v", variance)},
              {{"axis", axis}});
  }
  Network Out(std::vector<int> outputs) {
    n.outputs = std::move(outputs);
    return n;
  }
};

Attributes Same3x3() { return {{"pads", Ints{1, 1, 1, 1}}}; }

// conv, norm, relu, two branches, residual addition, pool, flatten, gemm; NCHW as an importer makes it.
Network SmallResidual() {
  Builder b;
  int x = b.In({2, 3, 6, 6});
  x = b.Op("relu", {b.Norm(b.Op("conv2d", {x, b.Const({4, 3, 3, 3})}, Same3x3()), 4)});
  int y = b.Op("relu", {b.Norm(b.Op("conv2d", {x, b.Const({4, 4, 3, 3}), b.Const({4})}, Same3x3()), 4)});
  y = b.Norm(b.Op("conv2d", {y, b.Const({4, 1, 3, 3})}, {{"pads", Ints{1, 1, 1, 1}}, {"group", int64_t{4}}}), 4);
  x = b.Op("relu", {b.Op("add", {y, x})});
  x = b.Op("max_pool", {x}, {{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  x = b.Op("flatten", {x});
  x = b.Op("gemm", {x, b.Const({5, 36}), b.Const({5})}, {{"trans_b", int64_t{1}}, {"alpha", 0.5}, {"beta", 2.0}});
  return b.Out({b.Op("softmax", {x})});
}

TEST(Passes, OptimizeKeepsTheResultsOfAResidualNetworkInBothLayouts) {
  Network before = SmallResidual();
  for (Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
    ModelOptions options;
    options.layout = layout;
    auto after = Optimize(before, options);
    ASSERT_TRUE(after.ok()) << after.status();
    ExpectSameResults(before, *after);
    EXPECT_EQ(CountOps(*after, "batch_norm"), 0);
    // The image is transposed once at the entry; the flattened image goes into the rows of the matrix.
    EXPECT_EQ(CountOps(*after, "transpose"), layout == Layout::kNHWC ? 1 : 0) << after->ToString();
  }
}

TEST(FoldConstants, ReplacesComputedConstantsAndKeepsOutputs) {
  Builder b;
  int x = b.In({2, 2});
  int c = b.Op("transpose", {b.Op("exp", {b.Const({2, 2})})});
  int flat = b.Op("reshape", {c}, {{"shape", Ints{4}}});
  Network before = b.Out({b.Op("mul", {x, c}), flat});
  Network after = before;
  ASSERT_TRUE(FoldConstants(after).ok());
  EXPECT_EQ(after.nodes.size(), 1u);
  ExpectSameResults(before, after);
}

// Weights less their zero points, one for each output channel or one for all, are too many for the interpreter.
TEST(FoldConstants, TakesZeroPointsOffWeightsOfAnySize) {
  constexpr int64_t kChannels = 3, kInner = 1 << 20;
  for (const bool each : {false, true}) {
    Network n;
    Array weights(DType::kInt32, {kChannels, kInner}), zeros(DType::kInt32, each ? Ints{kChannels, 1} : Ints{});
    for (int64_t i = 0; i < weights.elements(); ++i) weights.set_int(i, i % 256);
    for (int64_t i = 0; i < zeros.elements(); ++i) zeros.set_int(i, 100 + i);
    const int w = n.AddConstant("w", weights), z = n.AddConstant("z", zeros);
    n.outputs = {n.AddNode("sub", {w, z}).value()};
    ASSERT_TRUE(FoldConstants(n).ok());
    ASSERT_TRUE(n.nodes.empty());
    const Array& folded = *n.tensors[n.outputs[0]].data;
    ASSERT_EQ(folded.shape, weights.shape);
    for (int64_t i = 0; i < folded.elements(); i += 4099)
      ASSERT_EQ(folded.int_at(i), i % 256 - 100 - (each ? i / kInner : 0)) << i;
  }
}

TEST(FoldBatchNorm, FoldsIntoConvolutionAndGemm) {
  Builder b;
  int x = b.Norm(b.Op("conv2d", {b.In({1, 2, 4, 4}), b.Const({3, 2, 3, 3}), b.Const({3})}), 3);
  int y = b.Norm(b.Op("gemm", {b.Op("flatten", {x}), b.Const({12, 5})}, {{"alpha", 2.0}}), 5);
  Network before = b.Out({y});
  Network after = before;
  ASSERT_TRUE(FoldBatchNorm(after).ok());
  EXPECT_EQ(after.nodes.size(), 3u);
  ExpectSameResults(before, after);
}

TEST(FoldBatchNorm, BecomesScaleAndShiftWhereItCannotFold) {
  Builder b;
  int conv = b.Op("conv2d", {b.In({1, 2, 4, 4}), b.Const({3, 2, 3, 3})});
  // Two readers: the convolution's own result is needed too.
  Network before = b.Out({b.Norm(conv, 3), b.Op("relu", {conv})});
  Network after = before;
  ASSERT_TRUE(FoldBatchNorm(after).ok());
  EXPECT_EQ(CountOps(after, "batch_norm"), 0);
  EXPECT_EQ(CountOps(after, "mul"), 1);
  EXPECT_EQ(CountOps(after, "add"), 1);
  ExpectSameResults(before, after);
}

TEST(DeadCode, DropsWhatNoOutputNeeds) {
  Builder b;
  int x = b.In({2});
  b.Op("exp", {b.Op("add", {x, b.Const({2})})});
  int unused = b.In({3}, "unused");
  Network after = b.Out({b.Op("relu", {x})});
  ASSERT_TRUE(EliminateDeadCode(after).ok());
  EXPECT_EQ(after.nodes.size(), 1u);
  EXPECT_EQ(after.tensors.size(), 3u);
  EXPECT_EQ(after.inputs.size(), 2u);
  EXPECT_EQ(after.tensors[after.inputs[1]].name, "unused");
  EXPECT_TRUE(after.Validate().ok());
  (void)unused;
}

TEST(Canonicalize, RemovesIdentitiesEvenBeforeOutputs) {
  Builder b;
  int x = b.Op("identity", {b.In({1, 4})});
  int y = b.Op("relu", {b.Op("reshape", {x}, {{"shape", Ints{1, 4}}})});
  Network before = b.Out({b.Op("identity", {y})});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(after.nodes.size(), 1u) << after.ToString();
  ExpectSameResults(before, after);
}

TEST(Canonicalize, KeepsAnIdentityBetweenInputAndOutput) {
  Builder b;
  Network before = b.Out({b.Op("identity", {b.In({4})})});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(after.nodes.size(), 1u);
  ExpectSameResults(before, after);
}

TEST(Canonicalize, CancelsTransposesAndMergesReshapes) {
  Builder b;
  int x =
      b.Op("transpose", {b.Op("transpose", {b.In({2, 3, 4})}, {{"perm", Ints{1, 2, 0}}})}, {{"perm", Ints{2, 0, 1}}});
  x = b.Op("relu", {x});
  x = b.Op("reshape", {b.Op("flatten", {x})}, {{"shape", Ints{4, 6}}});
  Network before = b.Out({b.Op("exp", {x})});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(CountOps(after, "transpose"), 0);
  EXPECT_EQ(after.nodes.size(), 3u) << after.ToString();
  ExpectSameResults(before, after);
}

// A global pool and a flatten, as models in files have them.
TEST(Canonicalize, ReductionsDropTheAxesThatAViewDrops) {
  Network before;
  int x = before.AddInput("x", {DType::kFloat32, {2, 3, 4, 4}});
  int pool = before.AddNode("reduce_mean", {x}, {{"axes", Ints{2, 3}}}).value();
  before.outputs = {before.AddNode("flatten", {pool}, {}, "flat").value(),
                    before.AddNode("reduce_max", {x}, {{"axes", Ints{2, 3}}}, "kept").value()};
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(after.nodes.size(), 2u);
  EXPECT_EQ(CountOps(after, "flatten"), 0);
  ExpectSameResults(before, after);
}

TEST(Canonicalize, MakesPlainGemmsOfProductsByConstants) {
  Builder b;
  int x = b.Op("gemm", {b.In({2, 3}), b.Const({4, 3}), b.Const({4})},
               {{"trans_b", int64_t{1}}, {"alpha", 3.0}, {"beta", 0.5}});
  Network before = b.Out({b.Op("matmul", {x, b.Const({4, 5})})});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(CountOps(after, "gemm"), 2);
  for (const Node& node : after.nodes) EXPECT_TRUE(node.attributes.values().empty()) << after.ToString();
  ExpectSameResults(before, after);
}

// As exporters write it: with a scale for each group or without, then one for each channel, and an activation.
Network GroupNorm(Ints shape, int64_t groups, bool scale_of_groups, const std::string& norm) {
  Builder b;
  const int x = b.Op("relu", {b.In(shape)});
  int y = b.Op("reshape", {x}, {{"shape", Ints{shape[0], groups, -1}}});
  y = b.Op(norm, {y}, {{"axis", int64_t{2}}});
  if (scale_of_groups) y = b.Op("mul", {y, b.Const({groups, 1})});
  y = b.Op("reshape", {y}, {{"shape", shape}});
  Ints per_channel(shape.size() - 1, 1);
  per_channel[0] = shape[1];
  y = b.Op("add", {b.Op("mul", {y, b.Const(per_channel)}), b.Const(per_channel)});
  y = b.Op("mul", {y, b.Op("sigmoid", {y})});
  return b.Out({b.Op("add", {y, x})});
}

TEST(SinkViews, PutsWhatFollowsAGroupNormIntoItsKernel) {
  for (const Ints& shape : {Ints{1, 12, 5, 3}, Ints{2, 8, 6}, Ints{3, 8}})
    for (int64_t groups : {1, 2, 4})
      for (bool scale_of_groups : {false, true}) {
        SCOPED_TRACE(::testing::PrintToString(shape) + " in groups of " + std::to_string(groups));
        const Network before = GroupNorm(shape, groups, scale_of_groups, groups == 2 ? "rms_norm" : "layer_norm");
        Network after = before;
        ASSERT_TRUE(SinkViews(after).ok());
        ASSERT_TRUE(EliminateDeadCode(after).ok());
        ExpectSameResults(before, after);
        const auto optimized = Optimize(before, {});
        ASSERT_TRUE(optimized.ok()) << optimized.status();
        ExpectSameResults(before, *optimized);
        // The activation in front is read by the residual addition as well.
        EXPECT_EQ(PartitionNetwork(*optimized)->subgraphs.size(), 2u) << optimized->ToString();
      }
}

TEST(SinkViews, LeavesViewsAloneThatDoNotFit) {
  Builder b;
  const int norm = b.Op("layer_norm", {b.In({2, 3, 4})});
  const int turned = b.Op(
      "relu", {b.Op("reshape", {norm}, {{"shape", Ints{4, 6}}})});  // no shape that splits 2x3x4 is one that splits 4x6
  const int across = b.Op("add", {b.Op("reshape", {norm}, {{"shape", Ints{6, 4}}}), b.In({6, 4})});
  Network before = b.Out({turned, across}), after = before;
  ASSERT_TRUE(SinkViews(after).ok());
  EXPECT_EQ(after.ToString(), before.ToString());
  ExpectSameResults(before, after);
  for (const Ints& shape : {Ints{4, 6}, Ints{24}, Ints{6, 2, 2}}) {  // one reader each
    Builder c;
    before = c.Out({c.Op(
        "mul", {c.Op("reshape", {c.Op("rms_norm", {c.In({2, 3, 4})})}, {{"shape", shape}}), c.Const({shape.back()})})});
    after = before;
    ASSERT_TRUE(SinkViews(after).ok());
    ExpectSameResults(before, after);
  }
}

// A projection of x into heads: the product, its bias where there is one, heads apart and in front.
int Heads(Builder& b, int x, int64_t heads, bool bias, bool gemm) {
  const Ints& shape = b.n.tensors[x].type.shape;
  std::vector<int> inputs{x, b.Const({shape.back(), heads * 4})};
  if (gemm && bias) inputs.push_back(b.Const({heads * 4}));
  int y = b.Op(gemm ? "gemm" : "matmul", inputs);
  if (!gemm && bias) y = b.Op("add", {b.Const({heads * 4}), y});
  y = b.Op("reshape", {y}, {{"shape", Ints{2, 5, heads, 4}}});
  return b.Op("transpose", {y}, {{"perm", Ints{0, 2, 1, 3}}});
}

TEST(MergeProjections, MakesOneProductOfQueriesKeysAndValues) {
  for (bool gemm : {false, true}) {
    for (bool bias : {false, true}) {
      SCOPED_TRACE(gemm);
      Builder b;
      const int x = b.In(gemm ? Ints{10, 6} : Ints{2, 5, 6});
      const int q = Heads(b, x, 3, true, gemm), k = Heads(b, x, 1, bias, gemm), v = Heads(b, x, 1, true, gemm);
      const Network before = b.Out({q, k, v});
      const auto after = Optimize(before, {});
      ASSERT_TRUE(after.ok()) << after.status();
      ExpectSameResults(before, *after);
      // The product, and each transposition with the slice that it reads.
      EXPECT_EQ(PartitionNetwork(*after)->subgraphs.size(), 4u) << after->ToString();
    }
  }
}

TEST(MergeProjections, LeavesOthersAlone) {
  Builder b;
  const int x = b.In({2, 5, 6}), other = b.In({2, 5, 6}, "y");
  const int q = Heads(b, x, 3, true, false), k = Heads(b, other, 3, true, false);
  const int read_twice = b.Op("matmul", {x, b.Const({6, 4})});
  Network before = b.Out({q, k, read_twice, b.Op("relu", {read_twice})}), after = before;
  ASSERT_TRUE(MergeProjections(after).ok());
  EXPECT_EQ(after.ToString(), before.ToString());
}

// Attention of a decoder: heads of one product, of which the keys and values are given out. `softmax`: or a function of
// single scores.
Network DecoderAttention(bool softmax, bool give_out) {
  Builder b;
  const int heads = b.Op("reshape", {b.In({1, 5, 24})}, {{"shape", Ints{1, 5, 6, 4}}});
  const auto moved = [&](int64_t begin, const Ints& perm) {
    const int part = b.Op("slice", {heads}, {{"starts", Ints{begin}}, {"ends", Ints{begin + 2}}, {"axes", Ints{2}}});
    return b.Op("transpose", {part}, {{"perm", perm}});
  };
  const int q = moved(0, {0, 2, 1, 3}), k = moved(2, {0, 2, 1, 3}), v = moved(4, {0, 2, 1, 3});
  int scores = b.Op("matmul", {q, b.Op("transpose", {k}, {{"perm", Ints{0, 1, 3, 2}}})});
  scores = b.Op("mul", {scores, b.n.AddConstant("scale", Array::FromFloats({}, {0.5}))});
  const int y = b.Op("matmul", {b.Op(softmax ? "softmax" : "sigmoid", {scores}), v});
  return give_out ? b.Out({y, k, v}) : b.Out({y});
}

TEST(RepeatMoves, AnAttentionMovesTheHeadsItselfThatOthersGet) {
  const Network before = DecoderAttention(true, true);
  Network after = before;
  RepeatMoves(after);
  ASSERT_TRUE(after.Validate().ok());
  ExpectSameResults(before, after);
  EXPECT_EQ(CountOps(after, "slice"), CountOps(before, "slice") + 2) << after.ToString();
  const std::string once = after.ToString();
  RepeatMoves(after);
  EXPECT_EQ(after.ToString(), once);
  // The attention with all it reads, and a kernel for each of its inputs that is given out.
  const auto whole = Optimize(before, {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  ExpectSameResults(before, *whole);
  EXPECT_EQ(PartitionNetwork(*whole)->subgraphs.size(), 3u) << whole->ToString();
}

TEST(RepeatMoves, AttentionsThatShareKeysAndValuesHaveMovesEach) {
  Builder b;
  const int k = b.Op("transpose", {b.In({1, 5, 2, 4}, "k")}, {{"perm", Ints{0, 2, 3, 1}}});
  const int v = b.Op("transpose", {b.In({1, 5, 2, 4}, "v")}, {{"perm", Ints{0, 2, 1, 3}}});
  const auto attend = [&](int q) { return b.Op("matmul", {b.Op("softmax", {b.Op("matmul", {q, k})}), v}); };
  const Network before = b.Out({attend(attend(b.In({1, 2, 5, 4}, "q")))});
  const auto after = Optimize(before, {});
  ASSERT_TRUE(after.ok()) << after.status();
  ExpectSameResults(before, *after);
  EXPECT_EQ(CountOps(*after, "transpose"), 4) << after->ToString();
  EXPECT_EQ(PartitionNetwork(*after)->subgraphs.size(), 2u) << after->ToString();
}

// Queries of new tokens by the keys and values of a cache and of these tokens, which are given out together.
Network AttentionWithCache(int64_t tokens) {
  Builder b;
  const int heads = b.Op("reshape", {b.Op("relu", {b.In({1, tokens, 24}, "x")})}, {{"shape", Ints{1, tokens, 6, 4}}});
  const auto moved = [&](int64_t begin) {
    const int part = b.Op("slice", {heads}, {{"starts", Ints{begin}}, {"ends", Ints{begin + 2}}, {"axes", Ints{2}}});
    return b.Op("transpose", {part}, {{"perm", Ints{0, 2, 1, 3}}});
  };
  const auto appended = [&](const char* past, int64_t begin) {
    return b.Op("concat", {b.In({1, 2, 5, 4}, past), moved(begin)}, {{"axis", int64_t{2}}});
  };
  const int k = appended("past_keys", 2), v = appended("past_values", 4);
  const int scores = b.Op("matmul", {moved(0), b.Op("transpose", {k}, {{"perm", Ints{0, 1, 3, 2}}})});
  return b.Out({b.Op("matmul", {b.Op("softmax", {scores}), v}), k, v});
}

TEST(RepeatMoves, OneQueryReadsACacheAndTheNewTokenWhereTheyAre) {
  const Network before = AttentionWithCache(1);
  Network after = before;
  RepeatMoves(after);
  ASSERT_TRUE(after.Validate().ok());
  ExpectSameResults(before, after);
  EXPECT_EQ(CountOps(after, "concat"), 4) << after.ToString();
  const auto whole = Optimize(before, {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  ExpectSameResults(before, *whole);
  // relu, the attention, and for each of keys and values a copy of the cache and of the new token.
  const Partition partition = *PartitionNetwork(*whole);
  EXPECT_EQ(partition.subgraphs.size(), 6u) << whole->ToString();
  // The attention reads what relu makes and the two caches, and nothing that was moved.
  const auto attention =
      std::max_element(partition.subgraphs.begin(), partition.subgraphs.end(),
                       [](const Subgraph& a, const Subgraph& b) { return a.nodes.size() < b.nodes.size(); });
  EXPECT_EQ(attention->inputs.size(), 3u);
}

// Keys as columns, of which a new token adds one: each row of them is of two tensors.
TEST(RepeatMoves, ColumnsThatAreAppendedStayTogether) {
  Builder b;
  const int fresh = b.Op("transpose", {b.In({1, 1, 2, 4}, "fresh")}, {{"perm", Ints{0, 2, 3, 1}}});
  const int k = b.Op("concat", {b.In({1, 2, 4, 5}, "past"), fresh}, {{"axis", int64_t{3}}});
  const int scores = b.Op("softmax", {b.Op("matmul", {b.In({1, 2, 1, 4}, "q"), k})});
  const Network before = b.Out({b.Op("matmul", {scores, b.In({1, 2, 6, 4}, "v")}), k});
  Network after = before;
  RepeatMoves(after);
  ExpectSameResults(before, after);
  EXPECT_EQ(CountOps(after, "concat"), 1) << after.ToString();
}

// Tiles of keys are copied into shared memory, where they are together.
TEST(RepeatMoves, SeveralQueriesReadWhatWasAppended) {
  const Network before = AttentionWithCache(3);
  Network after = before;
  RepeatMoves(after);
  ExpectSameResults(before, after);
  EXPECT_EQ(CountOps(after, "concat"), 2) << after.ToString();
}

// A head of a classifier that gives out its features.
TEST(RepeatMoves, ASoftmaxAloneIsNoAttention) {
  Builder b;
  const int t = b.Op("transpose", {b.Op("relu", {b.In({1, 6, 5})})}, {{"perm", Ints{0, 2, 1}}});
  const Network before = b.Out({t, b.Op("softmax", {b.Op("matmul", {t, b.Const({6, 4})})})});
  Network after = before;
  RepeatMoves(after);
  EXPECT_EQ(after.ToString(), before.ToString());
}

TEST(RepeatMoves, LeavesOthersAlone) {
  for (const auto& [softmax, give_out] : {std::pair(true, false), {false, true}, {false, false}}) {
    Network network = DecoderAttention(softmax, give_out);
    const std::string before = network.ToString();
    RepeatMoves(network);
    EXPECT_EQ(network.ToString(), before);
  }
}

TEST(Canonicalize, PutsZeroPaddingIntoConvolutions) {
  Builder b;
  int x = b.Op("pad", {b.In({1, 2, 4, 4})}, {{"pads", Ints{0, 0, 1, 0, 0, 0, 2, 1}}});
  Network before = b.Out({b.Op("conv2d", {x, b.Const({3, 2, 3, 3})}, Same3x3())});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(CountOps(after, "pad"), 0);
  ExpectSameResults(before, after);
}

// How exporters swap the last two axes of a batch of matrices: put the leading axes together, transpose, take them
// apart.
TEST(Canonicalize, ATransposeBetweenReshapesIsOneOfTheWholeAxes) {
  Builder b;
  int x = b.Op("transpose", {b.In({2, 5, 3, 4})}, {{"perm", Ints{0, 2, 1, 3}}});
  x = b.Op("reshape", {x}, {{"shape", Ints{6, 5, 4}}});
  x = b.Op("transpose", {x}, {{"perm", Ints{0, 2, 1}}});
  Network before = b.Out({b.Op("exp", {b.Op("reshape", {x}, {{"shape", Ints{2, 3, 4, 5}}})})});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  ASSERT_EQ(after.nodes.size(), 2u) << after.ToString();
  EXPECT_EQ(after.nodes[0].attributes.Ints("perm", {}), (Ints{0, 2, 3, 1}));
  ExpectSameResults(before, after);
}

TEST(Canonicalize, AxesOfOneElementDoNotHideAWholeTranspose) {
  Builder b;
  int x = b.Op("reshape", {b.In({1, 3, 1, 4})}, {{"shape", Ints{3, 4}}});
  x = b.Op("reshape", {b.Op("transpose", {x})}, {{"shape", Ints{1, 1, 4, 3}}});
  Network before = b.Out({b.Op("exp", {x})});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(after.nodes.size(), 2u) << after.ToString();
  ExpectSameResults(before, after);
}

// Queries, keys and values side by side, taken apart and then into heads.
TEST(Canonicalize, ViewsOfSlicesAreSlicesOfAView) {
  GraphBuilder b;
  const int x = b.In({1, 5, 24});
  std::vector<int> parts;
  for (int64_t i : {0, 1, 2}) {
    const int part =
        b.Op("slice", {x}, {{"starts", Ints{i == 2 ? -8 : 8 * i}}, {"ends", Ints{8 * (i + 1)}}, {"axes", Ints{-1}}});
    parts.push_back(
        b.Op("transpose", {b.Op("reshape", {part}, {{"shape", Ints{1, 5, 2, 4}}})}, {{"perm", Ints{0, 2, 1, 3}}}));
  }
  Network n = b.Out(parts);
  const Network before = n;
  ASSERT_TRUE(Canonicalize(n).ok());
  ASSERT_TRUE(MergeEqual(n).ok());
  ExpectSameResults(before, n);
  std::vector<std::string> ops;
  for (const Node& node : n.nodes) ops.push_back(node.op);
  EXPECT_EQ(ops,
            (std::vector<std::string>{"reshape", "slice", "transpose", "slice", "transpose", "slice", "transpose"}));
}

TEST(Canonicalize, ViewsOfSlicesThatCutAHeadStay) {
  for (int which = 0; which < 3; ++which) {
    SCOPED_TRACE(which);
    GraphBuilder b;
    const int x = b.In({2, 26});
    const Ints starts{which == 0 ? 2 : 0}, ends{which == 0 ? 10 : 8}, steps{which == 2 ? 3 : 1};
    const int part =
        b.Op("slice", {x},
             {{"starts", starts}, {"ends", which == 2 ? Ints{24} : ends}, {"axes", Ints{1}}, {"steps", steps}});
    Network n = b.Out({b.Op("exp", {b.Op("reshape", {part}, {{"shape", Ints{2, 2, 4}}})})});
    const Network before = n;
    ASSERT_TRUE(Canonicalize(n).ok());
    EXPECT_EQ(n.nodes[0].op, "slice");
    ExpectSameResults(before, n);
  }
}

// Groups of channels are shuffled by splitting an axis: no transpose of whole axes does that.
TEST(Canonicalize, AShuffleOfChannelsStays) {
  Builder b;
  int x = b.Op("reshape", {b.In({1, 6, 2, 3})}, {{"shape", Ints{1, 2, 3, 2, 3}}});
  x = b.Op("transpose", {x}, {{"perm", Ints{0, 2, 1, 3, 4}}});
  Network before = b.Out({b.Op("exp", {b.Op("reshape", {x}, {{"shape", Ints{1, 6, 2, 3}}})})});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(after.nodes.size(), 4u) << after.ToString();
  ExpectSameResults(before, after);
}

int Filled(Network& n, Ints shape, double value, DType dtype = DType::kFloat32) {
  Array array(dtype, std::move(shape));
  for (int64_t i = 0; i < array.elements(); ++i) array.set(i, value);
  return n.AddConstant("filled", std::move(array));
}

TEST(Canonicalize, DropsOperandsThatChangeNothing) {
  Builder b;
  const int x = b.In({2, 3});
  int y = b.Op("mul", {Filled(b.n, {}, 1), b.Op("add", {x, Filled(b.n, {1}, 0)})});
  y = b.Op("where", {Filled(b.n, {2, 3}, 1, DType::kBool), y, b.Const({3})});
  const int positive = b.Op("less", {Filled(b.n, {}, 0), x});
  const int both = b.Op("and", {Filled(b.n, {4, 1, 1}, 1, DType::kBool), positive});
  y = b.Op("where", {both, b.Op("div", {y, Filled(b.n, {}, 1)}), b.Const({3})});
  Network before = b.Out({y});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  ASSERT_EQ(after.nodes.size(), 3u) << after.ToString();  // less, expand, where
  EXPECT_EQ(CountOps(after, "expand"), 1) << "what is true everywhere gave the shape";
  ExpectSameResults(before, after);
}

// Else a network would be another one before and after training.
TEST(Canonicalize, WeightsThatHappenToChangeNothingStay) {
  Builder b;
  Network after = b.Out({b.Op("add", {b.Op("mul", {b.In({2, 3}), Filled(b.n, {3}, 1)}), Filled(b.n, {3}, 0)})});
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(after.nodes.size(), 2u);
}

TEST(Canonicalize, DropsSlicesOfAllButNotReversals) {
  Builder b;
  const int all = b.Op("slice", {b.In({3, 4})},
                       {{"starts", Ints{0, -4}}, {"ends", Ints{100, 4}}, {"axes", Ints{0, 1}}, {"steps", Ints{1, 1}}});
  const int reversed =
      b.Op("slice", {all}, {{"starts", Ints{-1}}, {"ends", Ints{-100}}, {"axes", Ints{1}}, {"steps", Ints{-1}}});
  Network before = b.Out({b.Op("exp", {reversed})});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(after.nodes.size(), 2u) << after.ToString();
  ExpectSameResults(before, after);
}

TEST(Canonicalize, OneElementConstantsAreScalars) {
  Builder b;
  const int x = b.In({2, 1, 1});
  // which adds an axis
  const int y = b.Op("add", {b.Op("mul", {x, Filled(b.n, {1}, 3)}), Filled(b.n, {1, 1, 1, 1}, 2)});
  Network before = b.Out({y});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(after.tensors[after.nodes[0].inputs[1]].type.shape, Ints{});
  EXPECT_EQ(after.tensors[after.nodes[1].inputs[1]].type.shape, (Ints{1, 1, 1, 1}));
  ExpectSameResults(before, after);
}

TEST(Canonicalize, OneDividedByXIsItsReciprocal) {
  Builder b;
  Network before = b.Out({b.Op("div", {Filled(b.n, {}, 1), b.Op("exp", {b.In({2, 3})})})});
  Network after = before;
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_EQ(CountOps(after, "reciprocal"), 1) << after.ToString();
  ExpectSameResults(before, after);
}

// A chain that is rewritten at each node; looked through anew after each rewrite it would take a minute.
TEST(Canonicalize, TakesTimeInProportionToTheNodes) {
  Builder b;
  int x = b.In({4, 6});
  for (int i = 0; i < 8000; ++i) {
    x = b.Op("reshape", {x}, {{"shape", i % 2 ? Ints{4, 6} : Ints{6, 4}}});
    if (i % 4 == 3) x = b.Op("identity", {b.Op("relu", {x})});
  }
  Network after = b.Out({x});
  const std::clock_t begin = std::clock();
  ASSERT_TRUE(Canonicalize(after).ok());
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10);
  EXPECT_EQ(after.nodes.size(), 2000u);
}

// What layers need alike is written once by one exporter, and for each layer by another.
TEST(MergeEqual, WhatIsWrittenForEachLayerIsComputedOnce) {
  const auto network = [](bool shared) {
    Builder b;
    int x = b.In({2, 3}), mask = b.In({2, 3}, "mask");
    int bias = -1;
    for (int layer = 0; layer < 3; ++layer) {
      if (bias < 0 || !shared) bias = b.Op("mul", {Filled(b.n, {}, -1e4), b.Op("sub", {Filled(b.n, {}, 1), mask})});
      x = b.Op("softmax", {b.Op("add", {x, bias})});
    }
    return b.Out({x});
  };
  Network shared = network(true), apart = network(false), merged = apart;
  ASSERT_TRUE(MergeEqual(merged).ok());
  EXPECT_EQ(merged.nodes.size(), shared.nodes.size()) << merged.ToString();
  ExpectSameResults(apart, merged);
}

TEST(MergeEqual, EqualOutputsStayTwo) {
  Builder b;
  const int x = b.In({2});
  const int first = b.Op("exp", {x});
  Network before = b.Out({first, b.Op("exp", {x})});
  Network after = before;
  ASSERT_TRUE(MergeEqual(after).ok());
  EXPECT_EQ(after.nodes.size(), 2u);
  ExpectSameResults(before, after);
}

TEST(MergeEqual, OperandsOfDifferencesHaveAnOrder) {
  Builder b;
  const int x = b.In({2}), y = b.In({2}, "y");
  Network before = b.Out({b.Op("mul", {b.Op("sub", {x, y}), b.Op("sub", {y, x})}),
                          b.Op("mul", {b.Op("add", {x, y}), b.Op("add", {y, x})})});
  Network after = before;
  ASSERT_TRUE(MergeEqual(after).ok());
  EXPECT_EQ(CountOps(after, "sub"), 2);
  EXPECT_EQ(CountOps(after, "add"), 1);
  ExpectSameResults(before, after);
}

// A position embedding that a convolution makes of constants: one exporter folds it.
TEST(FoldConstants, FoldsSmallConvolutionsByTheirProducts) {
  Builder b;
  int small = b.Op("conv2d", {b.Const({1, 64, 8, 8}), b.Const({48, 64, 1, 1})});
  int large = b.Op("conv2d", {b.Const({1, 512, 32, 32}), b.Const({256, 512, 1, 1})});
  Network before = b.Out({b.Op("add", {b.In({48, 8, 8}), small}), b.Op("add", {b.In({256, 32, 32}, "y"), large})});
  Network after = before;
  ASSERT_TRUE(FoldConstants(after).ok());
  EXPECT_EQ(CountOps(after, "conv2d"), 1);
  EXPECT_EQ(after.tensors[small].constant(), true);
  EXPECT_EQ(after.tensors[large].constant(), false);
}

// Weights that a network standardizes itself, as NFNet does, are standardized once, however many they are.
TEST(FoldConstants, FoldsWeightsOfAnySizeThatDoNotGrow) {
  Builder b;
  const Attributes rows = {{"axes", Ints{1}}};
  const int weights = b.Const({1030, 1030});
  const int apart = b.Op("sub", {weights, b.Op("reduce_mean", {weights}, rows)});
  const int scale = b.Op("rsqrt", {b.Op("reduce_mean", {b.Op("mul", {apart, apart})}, rows)});
  const int standardized = b.Op("mul", {apart, scale});
  const int spread = b.Op("add", {b.Const({1030, 1}), b.Const({1030})});
  Network after = b.Out({b.Op("matmul", {b.In({1, 1030}), standardized}), b.Op("add", {b.In({1030}, "y"), spread})});
  ASSERT_TRUE(FoldConstants(after).ok());
  ASSERT_TRUE(after.tensors[standardized].constant());
  EXPECT_FALSE(after.tensors[spread].constant());
  const Array& values = *after.tensors[standardized].data;
  double sum = 0, squares = 0;
  for (int i = 0; i < 1030; ++i) {
    sum += values.at(5 * 1030 + i);
    squares += values.at(5 * 1030 + i) * values.at(5 * 1030 + i);
  }
  EXPECT_NEAR(sum / 1030, 0, 1e-6);
  EXPECT_NEAR(squares / 1030, 1, 1e-5);
}

// Everything that follows the layout of its input, between two convolutions.
Network Followers() {
  Builder b;
  int x = b.Op("conv2d", {b.In({1, 3, 6, 6}), b.Const({4, 3, 3, 3})}, Same3x3());
  int y = b.Op("mul", {x, b.Const({4, 1, 1})});
  y = b.Op("add", {b.Const({1, 4, 1, 1}), y});
  y = b.Op("concat", {y, b.Op("sigmoid", {x})}, {{"axis", int64_t{1}}});
  y = b.Op("pad", {y}, {{"pads", Ints{0, 0, 1, 0, 0, 0, 0, 1}}, {"mode", std::string("edge")}});
  y = b.Op("slice", {y}, {{"starts", Ints{1, 1}}, {"ends", Ints{7, 100}}, {"axes", Ints{1, -1}}});
  y = b.Norm(y, 6);
  int mean = b.Op("reduce_mean", {y}, {{"axes", Ints{2, 3}}});
  y = b.Op("mul", {y, b.Op("hard_sigmoid", {mean})});
  y = b.Op("avg_pool", {y}, {{"kernel", Ints{2, 2}}, {"pads", Ints{1, 0, 0, 0}}});
  int pooled = b.Op("reduce_max", {y}, {{"axes", Ints{-1, -2}}, {"keepdims", kZero}});
  int soft = b.Op("softmax", {y}, {{"axis", int64_t{1}}});
  return b.Out({pooled, soft, b.Op("reduce_sum", {y}, {{"axes", Ints{1}}, {"keepdims", kZero}})});
}

TEST(ConvertLayout, KeepsTheResultsOfEveryOperatorThatFollows) {
  Network before = Followers();
  Network after = before;
  ASSERT_TRUE(ConvertLayout(after, Layout::kNHWC).ok());
  ExpectSameResults(before, after);
  // One at the entry, one for the softmax that the network gives out; what loses its channels keeps its order.
  EXPECT_EQ(CountOps(after, "transpose"), 2) << after.ToString();
  Network back = after;
  ASSERT_TRUE(ConvertLayout(back, Layout::kNCHW).ok());
  ExpectSameResults(before, back);
}

TEST(ConvertLayout, TransposesWhereTheOrderOfElementsMatters) {
  Builder b;
  int x = b.Op("conv2d", {b.In({1, 3, 4, 4}), b.Const({4, 3, 3, 3})}, Same3x3());
  Network before = b.Out({b.Op("reshape", {x}, {{"shape", Ints{8, 8}}})});
  Network after = before;
  ASSERT_TRUE(ConvertLayout(after, Layout::kNHWC).ok());
  EXPECT_EQ(CountOps(after, "transpose"), 2);
  ExpectSameResults(before, after);
}

TEST(ConvertLayout, LeavesANetworkOfTheWantedLayoutAlone) {
  Builder b;
  int x = b.Op("conv2d", {b.In({1, 4, 4, 3}), b.Const({3, 3, 3, 2})}, {{"layout", std::string("NHWC")}});
  Network before = b.Out({b.Op("flatten", {b.Op("relu", {x})})});
  Network after = before;
  ASSERT_TRUE(ConvertLayout(after, Layout::kNHWC).ok());
  EXPECT_EQ(CountOps(after, "transpose"), 0);
  ExpectSameResults(before, after);
}

TEST(ConvertToNarrow, HalvesInputsConstantsAndResults) {
  Network before = SmallResidual();
  Network after = before;
  ASSERT_TRUE(ConvertToNarrow(after, DType::kFloat16).ok());
  for (const Tensor& tensor : after.tensors) EXPECT_EQ(tensor.type.dtype, DType::kFloat16);
  ASSERT_TRUE(after.Validate().ok());
  std::vector<Array> wide = RandomInputs(before, 7), narrow = RandomInputs(after, 7);
  auto want = EvaluateNetwork(before, wide), got = EvaluateNetwork(after, narrow);
  ASSERT_TRUE(want.ok() && got.ok());
  for (int64_t i = 0; i < (*want)[0].elements(); ++i) EXPECT_NEAR((*want)[0].at(i), (*got)[0].at(i), 0.01);
}

TEST(ConvertToNarrow, LeavesFiniteConstantsFinite) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const double most = LargestOf(dtype);
    Network network;
    const std::vector<double> values = {std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max(),
                                        -std::numeric_limits<double>::infinity(), most, -0.5};
    Array constant(DType::kFloat32, {5});
    for (int64_t i = 0; i < 5; ++i) constant.set(i, values[i]);
    const int c = network.AddConstant("c", constant);
    ASSERT_TRUE(ConvertToNarrow(network, dtype).ok());
    const double infinite = dtype == DType::kFloat16 ? most / 2 : most;
    const std::vector<double> wanted = {-infinite, infinite, values[2], most, -0.5};
    for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(network.tensor(c).data->at(i), wanted[i]) << NameOf(dtype) << i;
  }
}

// What keeps divisors from being 0.
TEST(ConvertToNarrow, SingleSmallNumbersDoNotBecomeZero) {
  for (const auto& [dtype, least] :
       std::map<DType, double>{{DType::kFloat16, 0x1p-24}, {DType::kBfloat16, RoundTo(DType::kBfloat16, 1e-12)}}) {
    Network network;
    const int small = network.AddConstant("small", Array::FromFloats({1}, {1e-12F}));
    const int negative = network.AddConstant("negative", Array::FromFloats({}, {-1e-12F}));
    const int zero = network.AddConstant("zero", Array::FromFloats({}, {0}));
    const int weights = network.AddConstant("weights", Array::FromFloats({2}, {1e-30F, 1}));
    ASSERT_TRUE(ConvertToNarrow(network, dtype).ok());
    EXPECT_EQ(network.tensor(small).data->at(0), least);
    EXPECT_EQ(network.tensor(negative).data->at(0), -least);
    EXPECT_EQ(network.tensor(zero).data->at(0), 0);
    EXPECT_EQ(network.tensor(weights).data->at(0), RoundTo(dtype, 1e-30));
  }
  // x / max(sum(|x|), 1e-9) of zeros.
  Builder b;
  const int x = b.In({2, 3});
  const int sum = b.Op("reduce_sum", {b.Op("abs", {x})}, {{"axes", Ints{1}}, {"keepdims", int64_t{1}}});
  Network network = b.Out({b.Op("div", {x, b.Op("clip", {sum}, {{"min", 1e-9}, {"max", 3.4e38}})})});
  ASSERT_TRUE(ConvertToNarrow(network, DType::kFloat16).ok());
  const auto got = EvaluateNetwork(network, {Array(DType::kFloat16, {2, 3})});
  ASSERT_TRUE(got.ok()) << got.status();
  for (int i = 0; i < 6; ++i) EXPECT_EQ((*got)[0].at(i), 0);
  for (const Node& node : network.nodes) EXPECT_TRUE(node.op != "clip" || node.attributes.Float("max", 0) == 65504);
}

// What is not hidden is multiplied by 0, and a row of which everything is hidden has finite results.
TEST(ConvertToNarrow, MasksOfTheLowestFloat32HideWhatTheyHid) {
  Builder b;
  const int x = b.In({4, 4}), mask = b.In({4, 4});
  const int lowest = b.n.AddConstant("lowest", Array::FromFloats({1}, {std::numeric_limits<float>::lowest()}));
  const int hidden = b.Op("mul", {b.Op("sub", {b.n.AddConstant("one", Array::FromFloats({1}, {1})), mask}), lowest});
  Network before = b.Out({b.Op("softmax", {b.Op("add", {x, hidden})}, {{"axis", int64_t{1}}})});
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Network after = before;
    ASSERT_TRUE(ConvertToNarrow(after, dtype).ok());
    std::vector<Array> wide, narrow;
    for (DType type : {DType::kFloat32, dtype}) {
      Array scores(type, {4, 4}), shown(type, {4, 4});
      for (int64_t i = 0; i < 16; ++i) {
        scores.set(i, i / 4 == 2 ? -20 : 0.5 * static_cast<double>(i % 5) - 1);
        shown.set(i, i / 4 != 2 && i % 4 <= i / 4 ? 1 : 0);
      }
      (type == DType::kFloat32 ? wide : narrow) = {scores, shown};
    }
    const auto want = EvaluateNetwork(before, wide), got = EvaluateNetwork(after, narrow);
    ASSERT_TRUE(want.ok() && got.ok());
    for (int64_t i = 0; i < 16; ++i) {
      const double result = (*got)[0].at(i);
      EXPECT_TRUE(std::isfinite(result)) << NameOf(dtype) << i;
      EXPECT_NEAR(result, (*want)[0].at(i), i / 4 == 2 ? 1 : 0.01) << NameOf(dtype) << i;
    }
  }
}

// Sums of products of bytes are integers that narrow floats do not have, and often beyond what they reach.
TEST(ConvertToNarrow, SumsOfBytesAreScaledInFloat32) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Network n;
    const int sum = n.AddInput("sum", {DType::kInt32, {2, 2}}), x = n.AddInput("x", {DType::kFloat32, {2, 2}});
    const int scale = n.AddConstant("scale", Array::FromFloats({}, {1e-5F}));
    const auto add = [&](const char* op, std::vector<int> inputs, Attributes attributes = {}) {
      return n.AddNode(op, std::move(inputs), std::move(attributes)).value();
    };
    const int scaled = add("mul", {add("cast", {sum}), scale});
    const int bytes = add("cast", {add("clip", {add("round", {scaled})}, {{"min", 0.0}, {"max", 255.0}})},
                          {{"to", std::string("uint8")}});
    // Narrow: beside x, and as a product's operand, where transposed factors are narrow as well.
    const int product = add("matmul", {add("transpose", {scaled}), x});
    n.outputs = {scaled, bytes, add("add", {scaled, x}), product, add("mul", {x, scale})};
    ASSERT_TRUE(ConvertToNarrow(n, dtype).ok());
    ASSERT_TRUE(n.Validate().ok()) << n.Validate();
    for (int i : {0, 2, 3, 4}) EXPECT_EQ(n.tensor(n.outputs[i]).type.dtype, dtype) << i;
    EXPECT_EQ(n.tensor(n.outputs[0]).name, n.tensor(scaled).name);
    for (const Node& node : n.nodes) {
      if (node.op == "transpose" || node.op == "matmul") {
        EXPECT_EQ(n.tensor(node.inputs[0]).type.dtype, dtype);
      }
      if (node.op == "round") {
        EXPECT_EQ(n.tensor(node.output).type.dtype, DType::kFloat32);
      }
    }
    Array sums(DType::kInt32, {2, 2}), values(dtype, {2, 2});
    const std::vector<double> given = {20240001, -300, 12345678, 940000};
    for (int i = 0; i < 4; ++i) sums.set(i, given[i]);
    for (int i = 0; i < 4; ++i) values.set(i, i);
    const auto got = EvaluateNetwork(n, {sums, values});
    ASSERT_TRUE(got.ok()) << got.status();
    for (int i = 0; i < 4; ++i) {
      const double exact = given[i] * 1e-5F;
      EXPECT_EQ((*got)[0].at(i), RoundTo(dtype, exact)) << i;
      EXPECT_EQ((*got)[1].at(i), std::clamp(std::nearbyint(exact), 0.0, 255.0)) << i;
      EXPECT_NEAR((*got)[2].at(i), exact + i, 0.02 * (1 + std::abs(exact))) << i;
    }
  }
}

TEST(ConvertToNarrow, PositionsAreExact) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Builder b;
    const int positions = b.n.AddInput("positions", {DType::kInt64, {1, 3}}), x = b.In({3, 2});
    const int column = b.Op("reshape", {b.Op("cast", {positions})}, {{"shape", Ints{3, 1}}});
    const int frequencies = b.n.AddConstant("frequencies", Array::FromFloats({1, 2}, {1, 0.01F}));
    const int angles = b.Op("matmul", {column, frequencies});
    const int turned = b.Op("gemm", {b.Op("transpose", {column}), frequencies}, {{"trans_a", int64_t{1}}});
    Network after = b.Out({b.Op("mul", {x, b.Op("cos", {angles})}), b.Op("cos", {turned})});
    ASSERT_TRUE(ConvertToNarrow(after, dtype).ok());
    ASSERT_TRUE(after.Validate().ok()) << after.Validate();
    EXPECT_EQ(after.tensor(after.outputs[0]).type.dtype, dtype);
    Array at(DType::kInt64, {1, 3}), ones(dtype, {3, 2});
    for (int i = 0; i < 3; ++i) at.set(i, 5001 + i);
    for (int i = 0; i < 6; ++i) ones.set(i, 1);
    const auto got = EvaluateNetwork(after, {at, ones});
    ASSERT_TRUE(got.ok()) << got.status();
    for (int result : {0, 1})
      for (int i = 0; i < 6; ++i)
        EXPECT_NEAR((*got)[result].at(i), std::cos((5001 + i / 2) * (i % 2 == 0 ? 1 : 0.01)), 0.01) << result << i;
  }
}

TEST(ConvertToNarrow, MasksOfIntegersStayFinite) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Builder b;
    const int mask = b.n.AddInput("mask", {DType::kInt64, {4}}), x = b.In({2, 4});
    const int lowest = b.n.AddConstant("lowest", Array::FromFloats({}, {std::numeric_limits<float>::lowest()}));
    const int one = b.n.AddConstant("one", Array::FromFloats({}, {1}));
    const int hidden = b.Op("mul", {b.Op("sub", {one, b.Op("cast", {mask})}), lowest});
    Network after = b.Out({b.Op("add", {x, hidden})});
    ASSERT_TRUE(ConvertToNarrow(after, dtype).ok());
    ASSERT_TRUE(after.Validate().ok()) << after.Validate();
    Array shown(DType::kInt64, {4}), scores(dtype, {2, 4});
    for (int i = 0; i < 4; ++i) shown.set(i, i % 2);
    for (int i = 0; i < 8; ++i) scores.set(i, -20);
    const auto got = EvaluateNetwork(after, {shown, scores});
    ASSERT_TRUE(got.ok()) << got.status();
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(std::isfinite((*got)[0].at(i))) << NameOf(dtype) << i;
      EXPECT_EQ((*got)[0].at(i) == -20, i % 2 == 1) << NameOf(dtype) << i;
    }
  }
}

// Means over what a mask shows: of nothing it is 0, since the least number that keeps the divisor from 0 stays, and of
// more than float16 reaches it is right.
TEST(ConvertToNarrow, CountsDivideInFloat32) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Builder b;
    const int count = b.n.AddInput("count", {DType::kInt64, {3, 1}}), x = b.In({3, 2});
    const int wide = b.Op("clip", {b.Op("cast", {count})}, {{"min", 1e-9}});
    Network after = b.Out({b.Op("div", {x, wide})});
    ASSERT_TRUE(ConvertToNarrow(after, dtype).ok());
    ASSERT_TRUE(after.Validate().ok()) << after.Validate();
    EXPECT_EQ(after.tensor(after.outputs[0]).type.dtype, dtype);
    Array counts(DType::kInt64, {3, 1}), sums(dtype, {3, 2});
    for (int i = 0; i < 3; ++i) counts.set(i, i * 50000);
    for (int i = 2; i < 6; ++i) sums.set(i, 30000);
    const auto got = EvaluateNetwork(after, {counts, sums});
    ASSERT_TRUE(got.ok()) << got.status();
    for (int i = 0; i < 6; ++i)
      EXPECT_NEAR((*got)[0].at(i), i < 2 ? 0 : i < 4 ? 0.6 : 0.3, 0.003) << NameOf(dtype) << i;
  }
}

// As a divisor a large number is no mask.
TEST(ConvertToNarrow, LargeDivisorsStay) {
  Builder b;
  const int time = b.n.AddInput("time", {DType::kInt64, {2}});
  const int day = b.n.AddConstant("day", Array::FromFloats({}, {86400}));
  Network after = b.Out({b.Op("sin", {b.Op("div", {b.Op("cast", {time}), day})})});
  ASSERT_TRUE(ConvertToNarrow(after, DType::kFloat16).ok());
  Array times(DType::kInt64, {2});
  times.set(0, 30000);
  times.set(1, 200000);
  const auto got = EvaluateNetwork(after, {times});
  ASSERT_TRUE(got.ok()) << got.status();
  for (int i = 0; i < 2; ++i) EXPECT_NEAR((*got)[0].at(i), std::sin(times.at(i) / 86400), 1e-3);
}

TEST(ConvertToNarrow, LimitsOfMasksStayFinite) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Builder b;
    const int mask = b.n.AddInput("mask", {DType::kInt64, {2}}), x = b.In({2});
    const int log = b.Op("log", {b.Op("cast", {mask})});
    const double lowest = std::numeric_limits<float>::lowest();
    const int padded = b.Op("pad", {b.Op("cast", {mask})}, {{"pads", Ints{1, 0}}, {"value", lowest}});
    Network after = b.Out({b.Op("add", {b.Op("clip", {log}, {{"min", lowest}}), x}), padded});
    ASSERT_TRUE(ConvertToNarrow(after, dtype).ok());
    ASSERT_TRUE(after.Validate().ok()) << after.Validate();
    Array shown(DType::kInt64, {2}), scores(dtype, {2});
    shown.set(1, 1);
    const auto got = EvaluateNetwork(after, {shown, scores});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(std::isfinite((*got)[0].at(0)));
    EXPECT_LT((*got)[0].at(0), -60000);
    EXPECT_EQ((*got)[0].at(1), 0);
    EXPECT_TRUE(std::isfinite((*got)[1].at(0)));
  }
}

// Quotients by scales and limits of integer types: float16 has neither 1e-4 nor 32767, nor bfloat16 1023.
TEST(ConvertToNarrow, WhatBecomesIntegersIsComputedInFloat32) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Builder b;
    const int x = b.In({3});
    const int scale = b.n.AddConstant("scale", Array::FromFloats({}, {1e-4F}));
    const int steps = b.Op("clip", {b.Op("round", {b.Op("div", {x, scale})})}, {{"min", -32768.0}, {"max", 32767.0}});
    const int index = b.Op("clip", {x}, {{"min", 0.0}, {"max", 1023.0}});
    Network after = b.Out(
        {b.Op("cast", {steps}, {{"to", std::string("int32")}}), b.Op("cast", {index}, {{"to", std::string("int64")}})});
    ASSERT_TRUE(ConvertToNarrow(after, dtype).ok());
    ASSERT_TRUE(after.Validate().ok()) << after.Validate();
    Array values(dtype, {3});
    for (int i = 0; i < 3; ++i) values.set(i, 2000 * (i - 1));
    const auto got = EvaluateNetwork(after, {values});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ((*got)[0].at(0), -32768);
    EXPECT_EQ((*got)[0].at(2), 32767);
    EXPECT_EQ((*got)[1].at(2), 1023);
  }
}

// Where a limit has to be narrow it is one that the wider type's limit includes.
TEST(ConvertToNarrow, LimitsAreRoundedInwards) {
  for (const auto& [dtype, most] : std::map<DType, double>{{DType::kFloat16, 1023.5}, {DType::kBfloat16, 1020}}) {
    Builder b;
    Network after = b.Out({b.Op("clip", {b.In({1})}, {{"min", -1023.9}, {"max", 1023.9}})});
    ASSERT_TRUE(ConvertToNarrow(after, dtype).ok());
    EXPECT_EQ(after.nodes[0].attributes.Float("max", 0), most);
    EXPECT_EQ(after.nodes[0].attributes.Float("min", 0), -most);
  }
}

TEST(ConvertToNarrow, NormsOfIntegersReadFloat32) {
  Builder b;
  const int counts = b.n.AddInput("counts", {DType::kInt64, {1, 4}});
  Network after = b.Out({b.Op("layer_norm", {b.Op("cast", {counts})})});
  ASSERT_TRUE(ConvertToNarrow(after, DType::kFloat16).ok());
  ASSERT_TRUE(after.Validate().ok()) << after.Validate();
  EXPECT_EQ(after.tensor(after.outputs[0]).type.dtype, DType::kFloat16);
  Array values(DType::kInt64, {1, 4});
  for (int i = 0; i < 4; ++i) values.set(i, 100000 * i);
  const auto got = EvaluateNetwork(after, {values});
  ASSERT_TRUE(got.ok()) << got.status();
  for (int i = 0; i < 4; ++i) EXPECT_NEAR((*got)[0].at(i), (i - 1.5) / std::sqrt(1.25), 1e-3);
}

Array Doubles(Ints shape, const std::vector<double>& values) {
  Array array(DType::kFloat64, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) array.set(static_cast<int64_t>(i), values[i]);
  return array;
}

TEST(ConvertDoubles, MakesInputsConstantsCastsAndResultsFloat32) {
  Builder b;
  const int x = b.n.AddInput("x", {DType::kFloat64, {4}}), f = b.In({4});
  const int wide = b.Op("cast", {f}, {{"to", std::string("float64")}});
  const int sum = b.Op("add", {b.Op("mul", {x, b.n.AddConstant("c", Doubles({4}, {0.5, -1e300, 1e300, 2}))}), wide});
  Network network = b.Out({sum, b.Op("cast", {sum}, {{"to", std::string("float32")}})});
  const DoubleTensors found = FindDoubles(network);
  EXPECT_EQ(found.count, 5);  // the input, the constant, the cast, the product and the sum
  EXPECT_EQ(found.first + " " + found.inputs + " " + found.outputs, "'x' 'x' 'add_2'");
  ASSERT_TRUE(ConvertDoubles(network).ok());
  ASSERT_TRUE(network.Validate().ok()) << network.Validate();
  for (const Tensor& tensor : network.tensors) EXPECT_EQ(tensor.type.dtype, DType::kFloat32) << tensor.name;
  EXPECT_EQ(FindDoubles(network).count, 0);
  const auto got =
      EvaluateNetwork(network, {Array::FromFloats({4}, {2, 1, 1, 3}), Array::FromFloats({4}, {1, 1, 1, 1})});
  ASSERT_TRUE(got.ok()) << got.status();
  const float most = std::numeric_limits<float>::max();
  for (const Array& array : *got) {  // what no float32 holds is the largest that is one
    EXPECT_EQ(array.at(0), 2);
    EXPECT_EQ(array.at(1), -most);
    EXPECT_EQ(array.at(2), most);
    EXPECT_EQ(array.at(3), 7);
  }
}

TEST(ConvertDoubles, IntegersStayExactOnTheirWayThroughFloat64) {
  Builder b;
  const int x = b.n.AddInput("x", {DType::kInt64, {2}}), y = b.n.AddInput("y", {DType::kFloat64, {2}});
  const int three = b.n.AddConstant("three", Doubles({}, {3}));
  const int power = b.Op("pow", {b.Op("cast", {x}, {{"to", std::string("float64")}}), three});
  const int cubes = b.Op("cast", {power}, {{"to", std::string("int64")}});
  const int small = b.Op("less", {power, b.n.AddConstant("limit", Doubles({}, {1e12}))});
  Network network = b.Out({cubes, small, b.Op("mul", {y, three})});
  EXPECT_EQ(FindDoubles(network).count, 3);  // y, three where y reads it, and their product
  ASSERT_TRUE(ConvertDoubles(network).ok());
  ASSERT_TRUE(network.Validate().ok()) << network.Validate();
  Array ints(DType::kInt64, {2});
  ints.set_int(0, 200003);
  ints.set_int(1, 7);
  const auto got = EvaluateNetwork(network, {ints, Array::FromFloats({2}, {1, 2})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].int_at(0), 200003LL * 200003 * 200003);
  EXPECT_EQ((*got)[0].int_at(1), 343);
  EXPECT_EQ((*got)[1].int_at(0), 0);
  EXPECT_EQ((*got)[1].int_at(1), 1);
  EXPECT_EQ((*got)[2].dtype, DType::kFloat32);
  EXPECT_EQ((*got)[2].at(1), 6);
}

TEST(ConvertDoubles, IntegersThatMeetFloatsDoNotStay) {
  Builder b;
  const int x = b.n.AddInput("x", {DType::kInt64, {2}}), y = b.n.AddInput("y", {DType::kFloat64, {2}});
  const int wide = b.Op("cast", {x}, {{"to", std::string("float64")}});
  Network network =
      b.Out({b.Op("less", {wide, y}), b.Op("gather", {b.n.AddConstant("table", Doubles({2}, {1, 2})), x})});
  EXPECT_EQ(FindDoubles(network).count, 4);
  ASSERT_TRUE(ConvertDoubles(network).ok());
  ASSERT_TRUE(network.Validate().ok()) << network.Validate();
  for (const Tensor& tensor : network.tensors) EXPECT_NE(tensor.type.dtype, DType::kFloat64) << tensor.name;
}

TEST(Optimize, FoldsInDoublePrecisionAndSaysWhatBecameFloat32) {
  Builder b;
  const int x = b.n.AddInput("x", {DType::kFloat64, {2}});
  const int one = b.Op("sub", {b.n.AddConstant("a", Doubles({}, {1e9 + 1})), b.n.AddConstant("b", Doubles({}, {1e9}))});
  const int y = b.Op("add", {x, one});
  const Network network = b.Out(
      {y, b.Op("sub", {b.n.AddConstant("c", Doubles({2}, {1e9 + 2, 1})), b.n.AddConstant("d", Doubles({}, {1e9}))})});
  std::vector<std::string> warnings;
  const auto optimized = Optimize(network, {}, &warnings);
  ASSERT_TRUE(optimized.ok()) << optimized.status();
  EXPECT_EQ(warnings,
            std::vector<std::string>{
                "the model has 4 tensors of type float64 (the first is 'x'), computed in float32; float32 is also the "
                "type of its input 'x' and output 'add_1', 'sub_2'"});
  const auto got = EvaluateNetwork(*optimized, {Array::FromFloats({2}, {2, 3})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].at(0), 3);
  EXPECT_EQ((*got)[1].at(0), 2);

  ModelOptions narrow;
  narrow.dtype = DType::kBfloat16;
  warnings.clear();
  const auto narrowed = Optimize(network, narrow, &warnings);
  ASSERT_TRUE(narrowed.ok()) << narrowed.status();
  EXPECT_EQ(narrowed->tensor(narrowed->inputs[0]).type.dtype, DType::kBfloat16);
  EXPECT_EQ(
      warnings,
      std::vector<std::string>{
          "the model has 4 tensors of type float64 (the first is 'x'), computed in bfloat16; bfloat16 is also the "
          "type of its input 'x' and output 'add_1', 'sub_2'"});

  ModelOptions strict;
  strict.strict = true;
  EXPECT_EQ(Optimize(network, strict).status(),
            absl::InvalidArgumentError("the model has 4 tensors of type float64 (the first is 'x'), which --strict "
                                       "refuses: leave it out to compute in "
                                       "float32, or export the model in float32"));
  warnings.clear();
  EXPECT_TRUE(Optimize(SmallResidual(), strict, &warnings).ok());
  EXPECT_TRUE(warnings.empty());
}

}  // namespace
}  // namespace diapason
