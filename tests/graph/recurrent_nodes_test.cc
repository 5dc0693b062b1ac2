#include "compiler/graph/recurrent_nodes.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/grouping.h"
#include "compiler/graph/model.h"
#include "testing.h"

namespace diapason {
namespace {

constexpr int64_t kUnits = 4;

// h = tanh(h x R + x[t]) for all steps, the first one without a product.
struct PlainRecurrence {
  explicit PlainRecurrence(int steps) : x(b.In({steps, kUnits})), weights(b.Const({kUnits, kUnits})) {
    for (int t = 0; t < steps; ++t) AddStep(t, weights);
  }

  void AddStep(int t, int by) {
    const int of_x = b.Op("slice", {x}, {{"starts", Ints{t}}, {"ends", Ints{t + 1}}});
    slices.push_back(of_x);
    h.push_back(b.Op("tanh", {h.empty() ? of_x : b.Op("add", {b.Op("matmul", {h.back(), by}), of_x})}));
  }
  std::vector<RecurrentNodes> FoundIn(const std::vector<int>& outputs) {
    network = b.Out(outputs);
    return GroupingFacts(network).recurrences;
  }

  GraphBuilder b;
  int x, weights;
  std::vector<int> slices, h;
  Network network;
};

std::set<std::string> OpsOf(const Network& network, const RecurrentNodes& found) {
  std::set<std::string> ops;
  for (int n : found.nodes) ops.insert(network.nodes[n].op);
  return ops;
}

TEST(RecurrentNodes, EndWithTheOutputsOfAllStepsOrWithThatOfTheLastOne) {
  PlainRecurrence all(5), last(5);
  const std::vector<RecurrentNodes> outputs = all.FoundIn({all.b.Concat(all.h, 0)});
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].nodes.size(), all.network.nodes.size());
  EXPECT_EQ(OpsOf(all.network, outputs[0]), (std::set<std::string>{"add", "concat", "matmul", "slice", "tanh"}));
  const int relu = last.b.Op("relu", {last.h.back()});
  const std::vector<RecurrentNodes> state = last.FoundIn({relu});
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(last.network.nodes[state[0].nodes.back()].output, last.h.back());
  EXPECT_EQ(state[0].nodes.size(), last.network.nodes.size() - 1);
}

TEST(RecurrentNodes, AreNoneWhereAStateIsReadOutside) {
  PlainRecurrence one(5), given_out(5);
  const int other = one.b.Op("exp", {one.h[2]});
  EXPECT_TRUE(one.FoundIn({one.b.Concat(one.h, 0), other}).empty());
  EXPECT_TRUE(given_out.FoundIn({given_out.b.Concat(given_out.h, 0), given_out.h[1]}).empty());
}

TEST(RecurrentNodes, AreNoneOfFewOrTooManySteps) {
  for (const auto& [steps, found] : {std::pair(4, 0), {5, 1}, {513, 1}, {514, 0}}) {
    PlainRecurrence r(steps);
    EXPECT_EQ(r.FoundIn({r.b.Concat(r.h, 0)}).size(), found) << steps;
  }
}

TEST(RecurrentNodes, AreNoneWhereProductsDoNotDependOnEachOtherOrWeightsDiffer) {
  GraphBuilder b;
  const int weights = b.Const({kUnits, kUnits});
  std::vector<int> products;
  for (int i = 0; i < 5; ++i) products.push_back(b.Op("matmul", {b.In({1, kUnits}), weights}));
  const Network apart = b.Out({b.Concat(products, 0)});
  EXPECT_TRUE(GroupingFacts(apart).recurrences.empty());
  PlainRecurrence r(2);
  for (int t = 0; t < 2; ++t) r.AddStep(t, r.b.Const({kUnits, kUnits}));
  EXPECT_TRUE(r.FoundIn({r.b.Concat(r.h, 0)}).empty());
}

// One layer behind the other, and the same layer of two inputs.
TEST(RecurrentNodes, OfSeveralRecurrencesAreApart) {
  PlainRecurrence r(5);
  const int first = r.b.Concat(r.h, 0);
  r.h.clear();
  r.x = r.b.In({5, kUnits});
  for (int t = 0; t < 5; ++t) r.AddStep(t, r.weights);
  const int second = r.b.Concat(r.h, 0);
  r.h.clear();
  r.x = r.b.Op("matmul", {r.b.Op("add", {first, second}), r.b.Const({kUnits, kUnits})});
  const int others = r.b.Const({kUnits, kUnits});
  for (int t = 0; t < 5; ++t) r.AddStep(t, others);
  const std::vector<RecurrentNodes> found = r.FoundIn({r.h.back()});
  ASSERT_EQ(found.size(), 3u);
  std::set<int> nodes;
  size_t all = 0;
  for (const RecurrentNodes& one : found) {
    nodes.insert(one.nodes.begin(), one.nodes.end());
    all += one.nodes.size();
  }
  EXPECT_EQ(nodes.size(), all);
  EXPECT_EQ(r.network.nodes.size(), all + 2) << "but the sum and the product between the layers";
}

ModelOptions Tagger(const std::string& seq) {
  ModelOptions options;
  options.extra = {{"seq", seq}, {"hidden", "8"}, {"vocab", "50"}, {"embedding", "6"}, {"layers", "2"}, {"tags", "3"}};
  return options;
}

TEST(Recurrences, OfATaggerAreOneTaskForBothDirections) {
  const Network n = LoadOptimized("lstm-tagger", Tagger("6")).value();
  const FusionChoices fusion = FindFusionChoices(n).value();
  ASSERT_EQ(fusion.choice_points.size(), 4u) << "two layers of two directions";
  std::set<int> tasks;
  for (const ChoicePoint& point : fusion.choice_points) {
    ASSERT_EQ(point.alternatives.size(), 2u);
    EXPECT_EQ(point.alternatives[0].name, "default");
    EXPECT_EQ(point.alternatives[1].name, "recurrence in one kernel");
    ASSERT_EQ(point.alternatives[1].tasks.size(), 1u);
    EXPECT_EQ(point.alternatives[1].tasks[0].second, 1);
    EXPECT_TRUE(point.alternatives[1].writes_in_place) << "beside the other direction";
    tasks.insert(point.alternatives[1].tasks[0].first);
  }
  std::set<std::string> names;
  for (int task : tasks) names.insert(fusion.partition.tasks[task].name);
  EXPECT_EQ(names, (std::set<std::string>{"recurrence_1x6x8", "recurrence_1x6x8_v2"})) << "forward and backward";
  const Partition whole = PartitionAs(n, fusion, {1, 1, 1, 1}).value();
  int kernels = 0;
  for (const Task& task : whole.tasks)
    if (absl::StartsWith(task.name, "recurrence_")) {
      EXPECT_EQ(task.weight, 2);
      kernels += task.weight;
    }
  EXPECT_EQ(kernels, 4);
  const Array ids(DType::kInt64, n.tensors[n.inputs[0]].type.shape);
  const Array want = EvaluateNetwork(n, {ids}).value()[0];
  for (const std::vector<int>& chosen : {std::vector<int>{1, 1, 1, 1}, {1, 0, 0, 1}, {0, 1, 0, 0}})
    ExpectNear(EvaluatePartition(n, PartitionAs(n, fusion, chosen).value(), {ids}).value()[0], want, 1e-5);
}

// The other way around: one kernel by default, and the steps are the alternative.
TEST(Recurrences, MayBeWholeByDefault) {
  const Network n = LoadOptimized("lstm-tagger", Tagger("6")).value();
  const FusionChoices fusion = FindFusionChoices(n, {.whole_recurrence_bytes = 8 * 32 * 4}).value();
  ASSERT_EQ(fusion.choice_points.size(), 4u);
  EXPECT_EQ(
      FindFusionChoices(n, {.whole_recurrence_bytes = 8 * 32 * 4 - 1}).value().choice_points[0].alternatives[1].name,
      "recurrence in one kernel")
      << "its weights are too large";
  for (const ChoicePoint& point : fusion.choice_points) {
    ASSERT_EQ(point.alternatives.size(), 2u);
    EXPECT_EQ(point.alternatives[0].tasks.size(), 1u);
    EXPECT_EQ(point.alternatives[1].name, "recurrence unrolled");
    EXPECT_GT(point.alternatives[1].tasks.size(), 1u);
  }
  int64_t kernels = 0;
  for (const Task& task : fusion.partition.tasks)
    if (absl::StartsWith(task.name, "recurrence_")) kernels += task.weight;
  EXPECT_EQ(kernels, 4);
  const Array ids(DType::kInt64, n.tensors[n.inputs[0]].type.shape);
  const Array want = EvaluateNetwork(n, {ids}).value()[0];
  for (const std::vector<int>& chosen : {std::vector<int>{0, 0, 0, 0}, {1, 0, 0, 1}, {1, 1, 1, 1}})
    ExpectNear(EvaluatePartition(n, PartitionAs(n, fusion, chosen).value(), {ids}).value()[0], want, 1e-5);
}

// States stay in float32 between the steps; the output of all of them is rounded at the end.
TEST(Recurrences, InHalfPrecisionAreOneKernelToo) {
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    ModelOptions options = Tagger("6");
    options.dtype = dtype;
    const Network n = LoadOptimized("lstm-tagger", options).value();
    const FusionChoices fusion = FindFusionChoices(n).value();
    ASSERT_EQ(fusion.choice_points.size(), 4u) << NameOf(dtype);
    const Array ids(DType::kInt64, n.tensors[n.inputs[0]].type.shape);
    const Array want = EvaluateNetwork(n, {ids}).value()[0];
    ExpectNear(EvaluatePartition(n, PartitionAs(n, fusion, {1, 1, 1, 1}).value(), {ids}).value()[0], want, 1e-2);
  }
}

TEST(Recurrences, AreFoundAtTheSameEffortHoweverManyStepsTheyHave) {
  const auto groupings_of = [](const std::string& seq) {
    const FusionChoices fusion = FindFusionChoices(LoadOptimized("lstm-tagger", Tagger(seq)).value()).value();
    EXPECT_EQ(fusion.choice_points.size(), 4u);
    return fusion.groupings;
  };
  EXPECT_EQ(groupings_of("6"), groupings_of("60"));
}

TEST(Recurrences, AreLeftAloneByOtherRules) {
  PlainRecurrence r(5);
  const int before = r.b.Op("exp", {r.b.In({1, kUnits})});
  const int start = r.b.Op("mul", {r.h.back(), before}), after = r.b.Op("relu", {start});
  const Network n = r.b.Out({after});
  const GroupingFacts facts(n);
  ASSERT_EQ(facts.recurrences.size(), 1u);
  const int result = facts.recurrences[0].nodes.back();
  EXPECT_EQ(n.nodes[result].output, r.h.back());
  const Grouping grouping = GroupNodes(facts, {{result, FusionMode::kRecurrence}});
  ASSERT_EQ(grouping.groups.size(), 2u);
  EXPECT_TRUE(grouping.groups[0].recurrence);
  EXPECT_EQ(grouping.groups[0].nodes, facts.recurrences[0].nodes);
  EXPECT_EQ(grouping.groups[1].nodes.size(), 3u);
  for (const Group& group : GroupNodes(facts, {}).groups) EXPECT_FALSE(group.recurrence);
}

}  // namespace
}  // namespace diapason
