#include "compiler/graph/fusion_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "compiler/graph/model.h"
#include "compiler/graph/passes.h"
#include "testing.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A residual block with a convolution in the shortcut, one without, and a concatenation behind them.
Network Blocks() {
  Network n;
  const auto constant = [&](Ints shape) {
    return n.AddConstant("c", RandomArray({DType::kFloat32, std::move(shape)}, n.tensors.size()));
  };
  const auto conv = [&](int x, int64_t in, int64_t out, int64_t kernel) {
    return n.AddNode("conv2d", {x, constant({out, in, kernel, kernel})}, {{"pads", Ints(4, kernel / 2)}}).value();
  };
  const int x = n.AddInput("x", {DType::kFloat32, {1, 2, 4, 4}});
  const int first = n.AddNode("add", {conv(x, 2, 4, 3), conv(x, 2, 4, 1)}, {}, "first").value();
  const int second = n.AddNode("add", {conv(first, 4, 4, 3), first}, {}, "second").value();
  const int relu = n.AddNode("relu", {second}).value();
  n.outputs = {
      n.AddNode("concat", {conv(relu, 4, 2, 1), conv(relu, 4, 3, 1)}, {{"axis", int64_t{1}}}, "joined").value()};
  return n;
}

std::vector<std::string> AlternativeNames(const ChoicePoint& point) {
  std::vector<std::string> names;
  for (const FusionAlternative& alternative : point.alternatives) names.push_back(alternative.name);
  return names;
}

std::multiset<std::string> TaskNamesOf(const FusionChoices& fusion, const FusionAlternative& alternative) {
  std::multiset<std::string> names;
  for (const auto& [task, count] : alternative.tasks)
    for (int i = 0; i < count; ++i) names.insert(fusion.partition.tasks[task].name);
  return names;
}

TEST(FusionChoices, OfferResidualsInEitherBranchOrApartAndConcatenationsByAKernel) {
  const FusionChoices fusion = FindFusionChoices(Blocks()).value();
  ASSERT_EQ(fusion.choice_points.size(), 3u);
  EXPECT_EQ(fusion.choice_points[0].name, "first");
  EXPECT_THAT(AlternativeNames(fusion.choice_points[0]),
              ElementsAre("default", "add apart", "add in the shorter branch"));
  EXPECT_THAT(TaskNamesOf(fusion, fusion.choice_points[0].alternatives[0]),
              ElementsAre("conv2d_1x1_s1_2x4x4_4", "conv2d_3x3_s1_2x4x4_4_add"));
  EXPECT_THAT(TaskNamesOf(fusion, fusion.choice_points[0].alternatives[1]),
              ElementsAre("add_4x4x4", "conv2d_1x1_s1_2x4x4_4", "conv2d_3x3_s1_2x4x4_4"));
  EXPECT_THAT(TaskNamesOf(fusion, fusion.choice_points[0].alternatives[2]),
              ElementsAre("conv2d_1x1_s1_2x4x4_4_add", "conv2d_3x3_s1_2x4x4_4"));
  EXPECT_THAT(AlternativeNames(fusion.choice_points[1]), ElementsAre("default", "add apart"));
  EXPECT_THAT(TaskNamesOf(fusion, fusion.choice_points[1].alternatives[1]),
              ElementsAre("add_relu_4x4x4", "conv2d_3x3_s1_4x4x4_4"));
  EXPECT_THAT(AlternativeNames(fusion.choice_points[2]), ElementsAre("default", "concat by a kernel"));
  EXPECT_TRUE(fusion.choice_points[2].alternatives[0].writes_in_place);
  EXPECT_FALSE(fusion.choice_points[2].alternatives[1].writes_in_place);
  EXPECT_THAT(AlternativesThatMayWin(fusion.choice_points[0]), ElementsAre(0, 1, 2));
  EXPECT_THAT(AlternativesThatMayWin(fusion.choice_points[2]), ElementsAre(0)) << "the kernel comes on top";
}

TEST(FusionChoices, TheTasksOfTheDefaultKeepTheirNumbersAndOthersFollow) {
  const Network n = Blocks();
  const FusionChoices fusion = FindFusionChoices(n).value();
  const Partition usual = PartitionNetwork(n).value();
  ASSERT_EQ(fusion.default_tasks, usual.tasks.size());
  ASSERT_EQ(fusion.fixed.size(), fusion.partition.tasks.size());
  for (size_t t = 0; t < fusion.partition.tasks.size(); ++t) {
    const Task& task = fusion.partition.tasks[t];
    if (t < usual.tasks.size()) {
      EXPECT_EQ(task.workload_key, usual.tasks[t].workload_key);
    }
    EXPECT_EQ(task.weight, t < usual.tasks.size() ? usual.tasks[t].weight : 0);
    int in_default_alternatives = 0;
    for (const ChoicePoint& point : fusion.choice_points)
      for (const auto& [member, count] : point.alternatives[0].tasks)
        in_default_alternatives += member == static_cast<int>(t) ? count : 0;
    EXPECT_EQ(fusion.fixed[t] + in_default_alternatives, task.weight);
  }
  EXPECT_EQ(fusion.partition.tasks.back().name, "concat_5x4x4") << "of no alternative that may win";
  EXPECT_EQ(fusion.worthwhile_tasks, fusion.partition.tasks.size() - 1);
}

// Each combination computes the network, and has the tasks that its alternatives say.
TEST(FusionChoices, AllCombinationsComputeTheSame) {
  const Network n = Blocks();
  const FusionChoices fusion = FindFusionChoices(n).value();
  const std::vector<Array> inputs = RandomInputs(n, 3);
  const Array want = EvaluateNetwork(n, inputs).value()[0];
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < 2; ++b) {
      for (int c = 0; c < 2; ++c) {
        const Partition partition = PartitionAs(n, fusion, {a, b, c}).value();
        ExpectNear(EvaluatePartition(n, partition, inputs).value()[0], want, 1e-5);
        std::map<std::string, int> expected, got;
        for (size_t t = 0; t < fusion.fixed.size(); ++t)
          if (fusion.fixed[t] > 0) expected[fusion.partition.tasks[t].workload_key] += fusion.fixed[t];
        const int chosen[] = {a, b, c};
        for (int i = 0; i < 3; ++i)
          for (const auto& [task, count] : fusion.choice_points[i].alternatives[chosen[i]].tasks)
            expected[fusion.partition.tasks[task].workload_key] += count;
        for (const Task& task : partition.tasks) got[task.workload_key] += task.weight;
        EXPECT_EQ(got, expected) << a << b << c;
      }
    }
  }
}

TEST(FusionChoices, ElementwiseOperatorsInFrontOfAConvolutionMayStandApart) {
  Network n;
  const int x = n.AddInput("x", {DType::kFloat32, {1, 2, 4, 4}});
  const int relu =
      n.AddNode("relu",
                {n.AddNode("mul", {x, n.AddConstant("c", RandomArray({DType::kFloat32, {2, 1, 1}}, 1))}).value()}, {},
                "r")
          .value();
  const int w = n.AddConstant("w", RandomArray({DType::kFloat32, {3, 2, 3, 3}}, 2));
  n.outputs = {n.AddNode("conv2d", {relu, w}).value()};
  const FusionChoices fusion = FindFusionChoices(n).value();
  ASSERT_EQ(fusion.choice_points.size(), 1u);
  EXPECT_THAT(AlternativeNames(fusion.choice_points[0]), ElementsAre("default", "relu apart"));
  EXPECT_THAT(TaskNamesOf(fusion, fusion.choice_points[0].alternatives[1]),
              ElementsAre("conv2d_3x3_s1_2x4x4_3", "mul_relu_2x4x4"));
}

// A residual addition behind a product that a normalization alone reads may be computed in either; where others read it
// too, it may only stand apart.
TEST(FusionChoices, AResidualThatANormalizationReadsMayGoThere) {
  for (const bool others_read : {false, true}) {
    SCOPED_TRACE(others_read);
    GraphBuilder b;
    const int x = b.In({3, 8}), sum = b.Op("add", {b.Op("matmul", {x, b.Const({8, 8})}), x});
    const int norm = b.Op("layer_norm", {sum}, {{"axis", int64_t{1}}});
    const Network n = b.Out(others_read ? std::vector<int>{norm, sum} : std::vector<int>{norm});
    const FusionChoices fusion = FindFusionChoices(n).value();
    ASSERT_EQ(fusion.choice_points.size(), 1u);
    const ChoicePoint& point = fusion.choice_points[0];
    EXPECT_THAT(AlternativeNames(point),
                ElementsAre("default", others_read ? "add apart" : "add in the kernel that reads it"));
    if (!others_read) {
      EXPECT_THAT(TaskNamesOf(fusion, point.alternatives[1]), ElementsAre("add_layer_norm_3x8", "matmul_3x8_8"));
    }
    const std::vector<Array> inputs = RandomInputs(n, 1);
    const std::vector<Array> got = EvaluatePartition(n, PartitionAs(n, fusion, {1}).value(), inputs).value();
    ExpectNear(got[0], EvaluateNetwork(n, inputs).value()[0], 1e-5);
  }
}

// Apart, a kernel would read the sum once more for the sums of its rows.
TEST(FusionChoices, AResidualWhoseRowsAreSummedStaysInItsProduct) {
  for (const bool deferred : {false, true}) {
    GraphBuilder b;
    const int x = b.In({40, 128}), sum = b.Op("add", {b.Op("matmul", {x, b.Const({128, 128})}), x});
    const int norm = b.Op("layer_norm", {sum}, {{"axis", int64_t{1}}, {"epsilon", 1e-5}});
    Network n = b.Out({b.Op("matmul", {norm, b.Const({128, 64})})});
    ASSERT_TRUE(ConvertToNarrow(n, DType::kFloat16).ok());
    if (deferred) {
      ASSERT_EQ(DeferNorms(n, 40), 1);
      ASSERT_TRUE(EliminateDeadCode(n).ok());
    }
    const FusionChoices fusion = FindFusionChoices(n).value();
    EXPECT_EQ(fusion.choice_points.empty(), deferred);
  }
}

// A normalised row, of one token or several, in front of a projection.
Network NormalisedProjection(int64_t tokens) {
  Network n;
  const int x = n.AddInput("x", {DType::kFloat32, {1, tokens, 12}});
  const int w = n.AddConstant("w", RandomArray({DType::kFloat32, {12, 20}}, 1));
  const int normal = n.AddNode("layer_norm", {x}, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}}, "normal").value();
  n.outputs = {n.AddNode("matmul", {normal, w}, {}, "projection").value()};
  return n;
}

TEST(FusionChoices, ANormalisedRowMayBeMadeInTheProductThatReadsIt) {
  const FusionChoices fusion = FindFusionChoices(NormalisedProjection(1)).value();
  ASSERT_EQ(fusion.choice_points.size(), 1u);
  EXPECT_THAT(AlternativeNames(fusion.choice_points[0]), ElementsAre("default", "layer_norm in the product"));
  EXPECT_EQ(fusion.choice_points[0].alternatives[0].tasks.size(), 2u);
  EXPECT_EQ(fusion.choice_points[0].alternatives[1].tasks.size(), 1u);
  const Network n = NormalisedProjection(1);
  const std::vector<Array> inputs = RandomInputs(n, 3);
  const Partition other = PartitionAs(n, fusion, {1}).value();
  EXPECT_EQ(other.subgraphs.size(), 1u);
  ExpectNear(EvaluatePartition(n, other, inputs).value()[0], EvaluateNetwork(n, inputs).value()[0], 1e-5);
  EXPECT_TRUE(FindFusionChoices(NormalisedProjection(2)).value().choice_points.empty()) << "two rows";
}

// Of one query the product by the values makes the weights itself, and that of the keys reads them as they lie.
TEST(FusionChoices, AttentionOfOneQueryTakenApartIsTwoKernels) {
  for (const auto& [queries, kernels] : {std::pair<const char*, size_t>{"1", 2}, {"3", 4}}) {
    ModelOptions options;
    options.extra = {{"heads", "2"}, {"queries", queries}, {"keys", "24"}, {"size", "16"}};
    const Network n = LoadOptimized("attention", options).value();
    const FusionChoices fusion = FindFusionChoices(n).value();
    ASSERT_EQ(fusion.choice_points.size(), 1u) << queries;
    ASSERT_EQ(fusion.choice_points[0].alternatives.size(), 2u) << queries;
    EXPECT_EQ(fusion.choice_points[0].alternatives[0].tasks.size(), 1u) << queries;
    EXPECT_EQ(fusion.choice_points[0].alternatives[1].tasks.size(), kernels) << queries;
  }
}

// Where that is preferred, of many keys, unless heads share them.
TEST(FusionChoices, AttentionOfOneQueryIsApartByDefaultWhereThatIsPreferred) {
  const auto kernels = [](const char* queries, const char* keys, const char* kv_heads) {
    ModelOptions options;
    options.extra = {{"heads", "4"}, {"queries", queries}, {"keys", keys}, {"size", "16"}, {"kv_heads", kv_heads}};
    const Network n = LoadOptimized("attention", options).value();
    const FusionChoices fusion = FindFusionChoices(n, {.one_query_apart = true}).value();
    EXPECT_EQ(fusion.choice_points.size(), 1u);
    const FusionAlternative& other = fusion.choice_points.at(0).alternatives.at(1);
    const size_t apart = fusion.partition.subgraphs.size();
    EXPECT_EQ(other.name, apart > 1 ? "attention in one kernel" : "matmul apart");
    EXPECT_EQ(other.tasks.size() > 1, apart == 1);
    const std::vector<Array> inputs = RandomInputs(n, 3);
    for (int chosen : {0, 1})
      ExpectNear(EvaluatePartition(n, PartitionAs(n, fusion, {chosen}).value(), inputs).value()[0],
                 EvaluateNetwork(n, inputs).value()[0], 1e-5);
    return apart;
  };
  EXPECT_EQ(kernels("1", "300", "4"), 2u);
  EXPECT_EQ(kernels("1", "100", "4"), 1u);
  EXPECT_EQ(kernels("3", "300", "4"), 1u);
  EXPECT_EQ(kernels("1", "300", "2"), 1u);
}

// Residual blocks in a row, with what comes in front of a convolution apart from the one before: more options than are
// tried at once.
Network ManyBlocks(int blocks) {
  GraphBuilder b;
  int x = b.In({1, 4, 4, 4});
  for (int i = 0; i < blocks; ++i) {
    const int y = b.Conv(b.Op("relu", {b.Op("mul", {x, b.Const({4, 1, 1})})}), 4, 4);
    x = b.Op("add", {y, x});
  }
  return b.Out({x});
}

TEST(FusionChoices, OptionsThatAreTriedTogetherOfferWhatTheyOfferAlone) {
  const FusionChoices one = FindFusionChoices(ManyBlocks(5)).value(), many = FindFusionChoices(ManyBlocks(60)).value();
  ASSERT_EQ(many.choice_points.size() - one.choice_points.size(), one.choice_points.size() / 5 * 55)
      << one.choice_points.size();
  // But for the first blocks and the last ones, which have other neighbours, all offer the same.
  const auto offered = [](const FusionChoices& fusion, const ChoicePoint& point) {
    std::vector<std::multiset<std::string>> tasks;
    for (const FusionAlternative& alternative : point.alternatives) tasks.push_back(TaskNamesOf(fusion, alternative));
    return tasks;
  };
  for (size_t b = 4; b + 4 < many.choice_points.size(); ++b) {
    EXPECT_EQ(AlternativeNames(many.choice_points[b]), AlternativeNames(many.choice_points[b - 2])) << b;
    EXPECT_EQ(offered(many, many.choice_points[b]), offered(many, many.choice_points[b - 2])) << b;
  }
}

// With each option tried on the whole network, ten times the blocks would take a hundred times as long.
TEST(FusionChoices, TheNetworkIsGroupedAsOftenForManyOptionsAsForFew) {
  const auto groupings_of = [](int blocks) {
    const FusionChoices fusion = FindFusionChoices(ManyBlocks(blocks)).value();
    EXPECT_GT(fusion.choice_points.size(), static_cast<size_t>(blocks) * 2 / 3);
    return fusion.groupings;
  };
  const int few = groupings_of(50);
  EXPECT_GT(few, 0);
  EXPECT_EQ(groupings_of(500), few);
}

// Four branches that a concatenation joins, again and again: each in place by itself, all found at once.
TEST(FusionChoices, TheEffortDoesNotGrowWithTheNumberOfConcatenations) {
  const auto choices_of = [](int blocks) {
    GraphBuilder b;
    int x = b.In({1, 4, 4, 4});
    for (int block = 0; block < blocks; ++block) {
      std::vector<int> parts;
      for (int branch = 0; branch < 4; ++branch)
        parts.push_back(b.Op("sigmoid", {b.Conv(x, 4, 1, 1 + branch % 2 * 2)}));
      x = b.Concat(parts, 1);
    }
    return FindFusionChoices(b.Out({x})).value();
  };
  const FusionChoices few = choices_of(20), many = choices_of(200);
  EXPECT_EQ(few.default_modes.size(), 20u);
  EXPECT_EQ(many.default_modes.size(), 200u);
  EXPECT_EQ(many.groupings, few.groupings);
}

TEST(FusionChoices, PlainNetworksHaveNoChoicePoint) {
  EXPECT_THAT(FindFusionChoices(LoadOptimized("mobilenet", {}).value())->choice_points, IsEmpty());
}

TEST(FusionChoices, TheFastestAlternativeIsTheOneOfLeastKnownTime) {
  const FusionChoices fusion = FindFusionChoices(Blocks()).value();
  const auto number = [&](const std::string& name) {
    for (size_t t = 0; t < fusion.partition.tasks.size(); ++t)
      if (fusion.partition.tasks[t].name == name) return t;
    ADD_FAILURE() << name;
    return size_t{0};
  };
  const auto able = [](const FusionAlternative&) { return true; };
  std::vector<double> seconds(fusion.partition.tasks.size(), 0);
  EXPECT_THAT(FastestAlternatives(fusion, seconds, 1, able), ElementsAre(0, 0, 0)) << "nothing is known";
  seconds[number("conv2d_1x1_s1_2x4x4_4_add")] = 2;
  seconds[number("conv2d_3x3_s1_2x4x4_4")] = 5;
  EXPECT_THAT(FastestAlternatives(fusion, seconds, 1, able), ElementsAre(2, 0, 0)) << "the only one that is known";
  seconds[number("conv2d_1x1_s1_2x4x4_4")] = 1;
  seconds[number("conv2d_3x3_s1_2x4x4_4_add")] = 6;
  EXPECT_THAT(FastestAlternatives(fusion, seconds, 1, able), ElementsAre(0, 0, 0)) << "7 as well as 7";
  seconds[number("add_4x4x4")] = 0.9;
  EXPECT_THAT(FastestAlternatives(fusion, seconds, 1, able), ElementsAre(1, 0, 0)) << "6.9";
  EXPECT_THAT(FastestAlternatives(fusion, seconds, 0.97, able), ElementsAre(0, 0, 0)) << "not worth it";
  EXPECT_THAT(FastestAlternatives(fusion, seconds, 1,
                                  [](const FusionAlternative& alternative) { return !alternative.writes_in_place; }),
              ElementsAre(1, 0, 1));
}

}  // namespace
}  // namespace diapason
