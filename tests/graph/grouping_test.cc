#include "compiler/graph/grouping.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/graph/fusion_choices.h"
#include "testing.h"

namespace diapason {
namespace {

// Names of the tasks in order of execution, with their places.
std::vector<std::string> Kernels(const Network& network) {
  auto partition = PartitionNetwork(network);
  EXPECT_TRUE(partition.ok()) << partition.status();
  std::vector<std::string> names;
  if (!partition.ok()) return names;
  for (const Subgraph& subgraph : partition->subgraphs) {
    const OutputPlace& place = partition->programs[subgraph.program].place;
    names.push_back(partition->tasks[subgraph.task].name + (place.whole() ? "" : " " + place.ToString()));
  }
  return names;
}

TEST(Concatenation, IsWrittenByThoseThatMakeItsParts) {
  GraphBuilder b;
  int x = b.In({1, 2, 4, 4});
  int joined = b.Concat({b.Op("relu", {b.Conv(x, 2, 3)}), b.Conv(x, 2, 5, 1)}, 1);
  Network n = b.Out({b.Conv(joined, 8, 2)});
  EXPECT_EQ(Kernels(n),
            (std::vector<std::string>{"conv2d_3x3_s1_2x4x4_3_relu rows of 48 at 0 of every 128",
                                      "conv2d_1x1_s1_2x4x4_5 rows of 80 at 48 of every 128", "conv2d_3x3_s1_8x4x4_2"}));
  ExpectSameResults(n, n);
}

TEST(Concatenation, HasItsPartsInRowsOnEveryAxis) {
  for (int64_t axis : {-4, 0, 1, 2, 3, -1}) {
    SCOPED_TRACE(axis);
    GraphBuilder b;
    int x = b.In({2, 3, 4, 5});
    int parts[] = {b.Op("sigmoid", {x}), b.Op("exp", {b.In({2, 3, 4, 5})}),
                   b.Op("reduce_max", {b.In({2, 3, 4, 5, 6})}, {{"axes", Ints{4}}, {"keepdims", int64_t{0}}})};
    Network n = b.Out({b.Concat({parts[0], parts[1], parts[2]}, axis), b.Op("tanh", {x})});
    EXPECT_EQ(Kernels(n).size(), 4u);
    ExpectSameResults(n, n);
  }
}

TEST(Concatenation, CopiesOnePartThatIsReadElsewhere) {
  GraphBuilder b;
  int x = b.In({1, 2, 4, 4});
  int first = b.Conv(x, 2, 3), second = b.Conv(x, 2, 5, 1);
  Network read_twice = b.Out({b.Op("softmax", {b.Concat({first, second}, 1)}), b.Op("reduce_max", {first})});
  EXPECT_EQ(Kernels(read_twice),
            (std::vector<std::string>{"conv2d_3x3_s1_2x4x4_3", "conv2d_1x1_s1_2x4x4_5 rows of 80 at 48 of every 128",
                                      "copy_3x4x4 rows of 48 at 0 of every 128", "softmax_8x4x4", "reduce_max_3x4x4"}));
  ExpectSameResults(read_twice, read_twice);
}

TEST(Concatenation, CopiesAnInputOrAConstantOrWhatIsGivenOut) {
  for (int which = 0; which < 3; ++which) {
    SCOPED_TRACE(which);
    GraphBuilder b;
    int x = b.In({2, 2, 3, 3});
    int conv = b.Conv(x, 2, 2);
    int other = which == 0 ? x : which == 1 ? b.Const({2, 2, 3, 3}) : b.Op("sigmoid", {x});
    int joined = b.Concat({conv, other}, 1);
    std::vector<int> outputs{joined};
    if (which == 2) outputs.push_back(other);
    Network n = b.Out(outputs);
    std::vector<std::string> kernels = Kernels(n);
    ASSERT_EQ(kernels.size(), which == 2 ? 3u : 2u);
    EXPECT_EQ(kernels.back(), "copy_2x2x3x3 rows of 18 at 18 of every 36");
    ExpectSameResults(n, n);
  }
}

TEST(Concatenation, IsAKernelWhereSeveralPartsWouldBeCopied) {
  GraphBuilder b;
  int x = b.In({1, 2, 4, 4}), y = b.In({1, 2, 4, 4});
  Network inputs = b.Out({b.Concat({b.Conv(x, 2, 2), x, y}, 1)});
  EXPECT_EQ(Kernels(inputs), (std::vector<std::string>{"conv2d_3x3_s1_2x4x4_2", "concat_6x4x4"}));
  ExpectSameResults(inputs, inputs);
  GraphBuilder c;
  int conv = c.Conv(c.In({1, 2, 4, 4}), 2, 2);
  Network twice = c.Out({c.Concat({conv, conv}, 1)});
  EXPECT_EQ(Kernels(twice), (std::vector<std::string>{"conv2d_3x3_s1_2x4x4_2", "concat_4x4x4"}));
  ExpectSameResults(twice, twice);
}

TEST(Concatenation, IsAKernelWhereItsReaderNeedsOneAnyway) {
  GraphBuilder b;
  int x = b.In({1, 2, 4, 4});
  Network n = b.Out({b.Op("sigmoid", {b.Concat({b.Conv(x, 2, 2), b.Conv(x, 2, 2, 1)}, 1)})});
  EXPECT_EQ(Kernels(n),
            (std::vector<std::string>{"conv2d_3x3_s1_2x4x4_2", "conv2d_1x1_s1_2x4x4_2", "concat_sigmoid_4x4x4"}));
  ExpectSameResults(n, n);
}

TEST(Concatenation, LeavesCheapReadersToTheConvolutionBehind) {
  GraphBuilder b;
  int x = b.In({1, 2, 4, 4});
  int joined = b.Concat({b.Conv(x, 2, 2), b.Conv(x, 2, 2, 1)}, 1);
  Network n = b.Out({b.Conv(b.Op("relu", {joined}), 4, 2)});
  EXPECT_EQ(Kernels(n), (std::vector<std::string>{"conv2d_3x3_s1_2x4x4_2 rows of 32 at 0 of every 64",
                                                  "conv2d_1x1_s1_2x4x4_2 rows of 32 at 32 of every 64",
                                                  "relu_conv2d_3x3_s1_4x4x4_2"}));
  ExpectSameResults(n, n);
}

TEST(Concatenation, OfConcatenationsIsOne) {
  for (int64_t inner_axis : {1, 3}) {
    SCOPED_TRACE(inner_axis);
    GraphBuilder b;
    int x = b.In({2, 2, 4, 4});
    int inner = b.Concat({b.Conv(x, 2, 2), b.Op("sigmoid", {x})}, inner_axis);
    int beside = inner_axis == 1 ? b.Conv(x, 2, 3, 1) : b.Concat({b.Op("exp", {x}), b.Op("tanh", {x})}, 3);
    Network n = b.Out({b.Concat({inner, beside}, 1)});
    // On another axis the rows of the inner one are no rows of the outer one: a kernel that writes its part.
    ExpectSameResults(n, n);
    const std::vector<std::string> kernels = Kernels(n);
    if (inner_axis == 1) {
      EXPECT_EQ(kernels, (std::vector<std::string>{"conv2d_3x3_s1_2x2x4x4_2 rows of 32 at 0 of every 112",
                                                   "sigmoid_2x2x4x4 rows of 32 at 32 of every 112",
                                                   "conv2d_1x1_s1_2x2x4x4_3 rows of 48 at 64 of every 112"}));
    } else {
      EXPECT_LE(kernels.size(), 6u);
    }
  }
}

TEST(Concatenation, SeesThroughViews) {
  GraphBuilder b;
  int x = b.In({2, 2, 4, 4});
  int first = b.Op("reshape", {b.Conv(x, 2, 3)}, {{"shape", Ints{2, 48}}});
  int second = b.Op("flatten", {b.Op("sigmoid", {x})});
  int joined = b.Concat({first, second}, 1);
  Network n = b.Out({b.Op("reshape", {joined}, {{"shape", Ints{160}}}), b.Op("softmax", {joined})});
  EXPECT_EQ(Kernels(n), (std::vector<std::string>{"conv2d_3x3_s1_2x2x4x4_3 rows of 48 at 0 of every 80",
                                                  "sigmoid_2x2x4x4 rows of 32 at 48 of every 80", "softmax_2x80"}));
  ExpectSameResults(n, n);
}

TEST(Concatenation, EqualPartsShareATaskAndItsWorkload) {
  GraphBuilder b;
  int x = b.In({1, 2, 4, 4});
  Network n = b.Out({b.Concat({b.Conv(x, 2, 2), b.Conv(x, 2, 2)}, 1), b.Conv(x, 2, 2)});
  auto partition = PartitionNetwork(n).value();
  ASSERT_EQ(partition.tasks.size(), 1u);
  EXPECT_EQ(partition.tasks[0].weight, 3);
  ASSERT_EQ(partition.programs.size(), 3u);
  for (const PlacedTask& placed : partition.programs) EXPECT_EQ(placed.weight, 1);
  EXPECT_TRUE(partition.programs[2].place.whole());
  GraphBuilder alone;
  x = alone.In({1, 2, 4, 4});
  EXPECT_EQ(PartitionNetwork(alone.Out({alone.Conv(x, 2, 2)}))->tasks[0].workload_key, partition.tasks[0].workload_key);
}

// One kernel for all would be walked by recursion.
TEST(Groups, OfALongChainAreSeveral) {
  GraphBuilder b;
  int x = b.In({4});
  for (int n = 0; n < 1000; ++n) x = b.Op("neg", {b.Op("exp", {x})});
  const Network n = b.Out({x});
  const Grouping grouping = GroupNodes(GroupingFacts(n), {});
  EXPECT_EQ(grouping.groups.size(), 16u);
  for (const Group& group : grouping.groups) EXPECT_LE(group.nodes.size(), 128u);
}

// One kernel for all would have 2^60 products.
TEST(Groups, OfSquaresOfSquaresAreSeveral) {
  GraphBuilder b;
  int x = b.In({4});
  for (int n = 0; n < 60; ++n) x = b.Op("mul", {x, x});
  const Network n = b.Out({x});
  EXPECT_EQ(GroupNodes(GroupingFacts(n), {}).groups.size(), 7u);
  ExpectSameResults(n, n);
}

// Normalisations as exporters before opset 17 write them.
int CentredRows(GraphBuilder& b, int x, const Ints& axes) {
  const Attributes over{{"axes", axes}, {"keepdims", int64_t{1}}};
  const int centred = b.Op("sub", {x, b.Op("reduce_mean", {x}, over)});
  const int variance = b.Op("reduce_mean", {b.Op("mul", {centred, centred})}, over);
  return b.Op("div", {centred, b.Op("sqrt", {b.Op("exp", {variance})})});
}

TEST(RowGroups, HoldAWholeNormalisationWithItsScaleAndActivation) {
  for (const Ints& axes : {Ints{-1}, Ints{1, 2}, Ints{0}}) {
    GraphBuilder b;
    const int x = b.In({3, 4, 6});
    const int y = b.Op("add", {b.Op("mul", {CentredRows(b, x, axes), b.Const({6})}), b.Const({6})});
    const Network n = b.Out({b.Op("mul", {y, b.Op("sigmoid", {y})})});
    EXPECT_EQ(Kernels(n),
              std::vector<std::string>{"reduce_mean_3x4x6_sub_mul_reduce_mean_exp_sqrt_div_mul_add_sigmoid_mul"});
    ExpectSameResults(n, n);
  }
}

TEST(RowGroups, BeginWithWhatIsCheapInFront) {
  GraphBuilder b;
  const int residual = b.Op("add", {b.In({4, 6}), b.In({4, 6})});
  const Network n = b.Out({CentredRows(b, residual, {1})});
  EXPECT_EQ(Kernels(n), std::vector<std::string>{"add_reduce_mean_4x6_sub_mul_reduce_mean_exp_sqrt_div"});
  ExpectSameResults(n, n);
  GraphBuilder c;  // a square that nobody else reads, of whatever function
  const int x = c.In({4, 6});
  const int mean = c.Op("reduce_mean", {c.Op("exp", {x})}, {{"axes", Ints{1}}, {"keepdims", int64_t{1}}});
  const Network rms = c.Out({c.Op("mul", {c.Op("mul", {x, c.Op("rsqrt", {mean})}), c.Const({6})})});
  EXPECT_EQ(Kernels(rms), std::vector<std::string>{"exp_reduce_mean_4x6_rsqrt_mul_mul"});
  ExpectSameResults(rms, rms);
}

TEST(RowGroups, HoldASoftmaxOfItsParts) {
  GraphBuilder b;
  const int x = b.In({4, 6});
  const Attributes over{{"axes", Ints{1}}, {"keepdims", int64_t{1}}};
  const int power = b.Op("exp", {b.Op("sub", {x, b.Op("reduce_max", {x}, over)})});
  const Network n = b.Out({b.Op("div", {power, b.Op("reduce_sum", {power}, over)})});
  EXPECT_EQ(Kernels(n), std::vector<std::string>{"reduce_max_4x6_sub_exp_reduce_sum_div"});
  ExpectSameResults(n, n);
}

TEST(RowGroups, EndWhereAResultIsReadElsewhereOrRowsDiffer) {
  const Attributes over{{"axes", Ints{1}}, {"keepdims", int64_t{1}}},
      across{{"axes", Ints{0}}, {"keepdims", int64_t{1}}};
  GraphBuilder b;  // the mean is given out
  int x = b.In({4, 6});
  int mean = b.Op("reduce_mean", {x}, over);
  Network n = b.Out({b.Op("sub", {x, mean}), mean});
  EXPECT_EQ(Kernels(n), (std::vector<std::string>{"reduce_mean_4x6", "sub_4x6"}));
  ExpectSameResults(n, n);
  GraphBuilder c;  // rows, then columns
  x = c.In({4, 6});
  int left = c.Op("sub", {x, c.Op("reduce_mean", {x}, over)});
  n = c.Out({c.Op("mul", {left, c.Op("reduce_max", {left}, across)})});
  EXPECT_EQ(Kernels(n), (std::vector<std::string>{"reduce_mean_4x6_sub", "reduce_max_4x6_mul"}));
  ExpectSameResults(n, n);
  GraphBuilder d;  // a product between
  x = d.In({4, 6});
  mean = d.Op("reduce_mean", {x}, over);
  n = d.Out({d.Op("sub", {x, d.Op("matmul", {mean, d.Const({1, 6})})})});
  EXPECT_EQ(Kernels(n).size(), 2u);
  ExpectSameResults(n, n);
}

// What an attention is written with.
struct AttentionForm {
  bool masked = true, decomposed = false, mask_first = false;
  int64_t axis = -1;
};

// Queries, keys and values of two heads by tokens; the result by tokens again.
struct AttentionNodes {
  int scores, weights, y;
};

AttentionNodes AddAttention(GraphBuilder& b, const AttentionForm& form) {
  const auto heads = [&](int64_t tokens, const Ints& perm) {
    return b.Op("transpose", {b.In({1, tokens, 2, 4})}, {{"perm", perm}});
  };
  const int q = heads(5, {0, 2, 1, 3}), k = heads(6, {0, 2, 3, 1}), v = heads(6, {0, 2, 1, 3});
  AttentionNodes a;
  a.scores = b.Op("matmul", {q, k});
  const auto mask = [&] { a.scores = b.Op("add", {a.scores, b.In({1, 1, 5, 6})}); };
  if (form.masked && form.mask_first) mask();
  a.scores = b.Op("mul", {a.scores, b.Const({1})});
  if (form.masked && !form.mask_first) mask();
  if (form.decomposed) {
    const Attributes over{{"axes", Ints{form.axis}}, {"keepdims", int64_t{1}}};
    const int power = b.Op("exp", {b.Op("sub", {a.scores, b.Op("reduce_max", {a.scores}, over)})});
    a.weights = b.Op("div", {power, b.Op("reduce_sum", {power}, over)});
  } else {
    a.weights = b.Op("softmax", {a.scores}, {{"axis", form.axis}});
  }
  a.y = b.Op("transpose", {b.Op("matmul", {a.weights, v})}, {{"perm", Ints{0, 2, 1, 3}}});
  return a;
}

Network AttentionOf(const AttentionForm& form) {
  GraphBuilder b;
  return b.Out({AddAttention(b, form).y});
}

TEST(Attention, IsOneKernelHoweverItIsWritten) {
  const auto names = [](const AttentionForm& form) {
    const Network n = AttentionOf(form);
    ExpectSameResults(n, n);
    return Kernels(n);
  };
  EXPECT_EQ(names({}), std::vector<std::string>{"attention_2x5x6_4_mul_add"});
  EXPECT_EQ(names({.mask_first = true}), std::vector<std::string>{"attention_2x5x6_4_add_mul"});
  EXPECT_EQ(names({.masked = false}), std::vector<std::string>{"attention_2x5x6_4_mul"});
  EXPECT_EQ(names({.masked = false, .decomposed = true}),
            std::vector<std::string>{"attention_2x5x6_4_mul_sub_exp_div"});
}

TEST(Attention, HasWhatFollowsInIt) {
  GraphBuilder b;
  const int y = AddAttention(b, {.masked = false}).y;
  const Network n = b.Out({b.Op("relu", {b.Op("add", {y, b.In({1, 5, 2, 4})})})});
  EXPECT_EQ(Kernels(n), std::vector<std::string>{"attention_2x5x6_4_mul_add_relu"});
  ExpectSameResults(n, n);
}

TEST(Attention, IsNoneWhereScoresOrWeightsAreReadElsewhereOrColumnsAreNormalised) {
  for (int which = 0; which < 3; ++which) {
    SCOPED_TRACE(which);
    GraphBuilder b;
    const AttentionNodes a = AddAttention(b, {.axis = which == 2 ? -2 : -1});
    const Network n = which == 2 ? b.Out({a.y}) : b.Out({a.y, which == 0 ? a.scores : a.weights});
    for (const std::string& name : Kernels(n)) EXPECT_NE(name.rfind("attention", 0), 0u) << name;
    ExpectSameResults(n, n);
  }
}

// Each head of keys and values for two of queries, as exporters repeat them.
TEST(Attention, ReadsRepeatedHeadsWhereTheyAre) {
  GraphBuilder b;
  const auto repeated = [&] {
    const int one = b.Op("reshape", {b.In({1, 2, 6, 4})}, {{"shape", Ints{1, 2, 1, 6, 4}}});
    return b.Op("reshape", {b.Op("expand", {one}, {{"shape", Ints{1, 2, 2, 6, 4}}})}, {{"shape", Ints{1, 4, 6, 4}}});
  };
  const int k = b.Op("transpose", {repeated()}, {{"perm", Ints{0, 1, 3, 2}}});
  const int weights = b.Op("softmax", {b.Op("matmul", {b.In({1, 4, 5, 4}), k})}, {{"axis", int64_t{-1}}});
  const Network n = b.Out({b.Op("matmul", {weights, repeated()})});
  EXPECT_EQ(Kernels(n), std::vector<std::string>{"attention_4x5x6_4"});
  ExpectSameResults(n, n);
}

TEST(Attention, CompetesWithItsThreeKernels) {
  const Network n = AttentionOf({});
  const FusionChoices fusion = FindFusionChoices(n).value();
  ASSERT_EQ(fusion.choice_points.size(), 1u);
  ASSERT_EQ(fusion.choice_points[0].alternatives.size(), 2u);
  EXPECT_EQ(fusion.choice_points[0].alternatives[1].name, "matmul apart");
  const Partition apart = PartitionAs(n, fusion, {1}).value();
  std::vector<std::string> names;
  for (const Subgraph& subgraph : apart.subgraphs) names.push_back(apart.tasks[subgraph.task].name);
  EXPECT_EQ(std::count(names.begin(), names.end(), "softmax_2x5x6"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "matmul_2x5x6_4_mul_add"), 1);
}

}  // namespace
}  // namespace diapason
