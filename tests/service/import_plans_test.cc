#include "service/import_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "service/tune_spec.h"

namespace diapason {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

ImportRequest Convolution() {
  ImportRequest request;
  request.model = "conv2d";
  request.options.extra = {{"h", "8"}, {"w", "8"}, {"ci", "4"}, {"co", "4"}, {"relu", "1"}};
  request.with_network = true;
  request.prove_padding = true;
  return request;
}

DimChoices Batches(std::vector<int64_t> sizes) {
  DimChoices dims;
  dims.sizes["batch"] = std::move(sizes);
  return dims;
}

TEST(ImportPlans, APlanForEachSizeWithSharedConstants) {
  const auto plans = ImportPlans(Convolution(), Batches({1, 4, 6}));
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_THAT(*plans, SizeIs(3));
  const Tensor* weights[3] = {};
  for (size_t p = 0; p < 3; ++p) {
    const ImportedPlan& plan = (*plans)[p];
    EXPECT_EQ(plan.model.inputs[0].symbols, (std::vector<std::string>{"batch", "", "", ""}));
    EXPECT_EQ(plan.model.Sizes(), plan.combination.sizes);
    for (const Tensor& tensor : plan.model.network.tensors)
      if (tensor.constant()) weights[p] = &tensor;
    ASSERT_NE(weights[p], nullptr);
    EXPECT_EQ(weights[p]->data, weights[0]->data);
  }
  EXPECT_THAT((*plans)[0].model.padding, IsEmpty());
  for (size_t p : {1, 2}) {
    const SymbolPadding& padding = (*plans)[p].model.padding.at("batch");
    EXPECT_EQ(padding.why_not, "");
    EXPECT_EQ(padding.least, p == 1 ? 2 : 5);
    EXPECT_EQ(padding.outputs, (std::vector<std::vector<GrowingAxis>>{{{0, 1}}}));
  }
  const PlanSymbols symbols = SymbolsOf((*plans)[1], "");
  EXPECT_EQ(symbols.sizes, (SymbolSizes{{"batch", 4}}));
  EXPECT_EQ(symbols.inputs[0][0], "batch");
}

TEST(ImportPlans, WithoutSizesThereIsOneAsItIs) {
  const auto plans = ImportPlans(Convolution(), {});
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_THAT(*plans, SizeIs(1));
  EXPECT_TRUE((*plans)[0].combination.sizes.empty());
  EXPECT_TRUE(SymbolsOf((*plans)[0], "").sizes.empty());
}

TEST(ImportPlans, ErrorsNameTheSymbolAndTheSizes) {
  const auto why = [](
                       const DimChoices& dims,
                       const std::function<void(ImportRequest&)>& change = [](ImportRequest&) {}) {
    ImportRequest request = Convolution();
    change(request);
    return ImportPlans(request, dims).status();
  };
  DimChoices sequence;
  sequence.sizes["seq"] = {4};
  EXPECT_EQ(why(sequence),
            absl::InvalidArgumentError("network 'conv2d' has no symbolic dimension 'seq': it has 'batch'"));
  EXPECT_EQ(why(Batches({2}),
                [](ImportRequest& r) {
                  r.model = "gemm";
                  r.options.extra.clear();
                }),
            absl::InvalidArgumentError("network 'gemm' has no symbolic dimension 'batch' and no other"));
  EXPECT_EQ(why(Batches({2, 3}), [](ImportRequest& r) { r.options.batch = 2; }),
            absl::InvalidArgumentError("with batch=3: --batch 2 contradicts --dim batch=3: leave one of them out"));
  EXPECT_EQ(why(Batches({2}), [](ImportRequest& r) { r.mask = "m"; }),
            absl::InvalidArgumentError("the model has no input 'm' for --mask: its inputs are 'data'"));
}

TEST(MergePlans, EqualTasksAreOneAndWeightsAddUp) {
  DimChoices dims = Batches({1, 2});
  dims.weights["batch"][2] = 5;
  ImportRequest request = Convolution();
  // Batches of one task: the same network twice, once more under another batch.
  auto plans = ImportPlans(request, dims);
  ASSERT_TRUE(plans.ok()) << plans.status();
  std::vector<ImportedPlan> three = *plans;
  three.push_back((*plans)[0]);
  three.back().combination = {{{"batch", 3}}, 0.5};
  const TuneWork work = MergePlans("conv", std::move(three), "cpu");
  ASSERT_THAT(work.tasks, SizeIs(2));
  EXPECT_EQ(work.partition.tasks[0].weight, 2);
  ASSERT_THAT(work.tasks[0].weights, SizeIs(2));
  EXPECT_EQ(work.tasks[0].weights[0].network, "conv[batch:1]");
  EXPECT_EQ(work.tasks[0].weights[0].weight, 1);
  EXPECT_EQ(work.tasks[0].weights[1].network, "conv[batch:3]");
  EXPECT_EQ(work.tasks[0].weights[1].weight, 0.5);
  EXPECT_EQ(work.links[0].network, "conv");
  EXPECT_EQ(work.links[0].weight, 1.5);
  EXPECT_EQ(work.tasks[1].weights[0].weight, 5);
  EXPECT_NE(work.tasks[0].workload_key, work.tasks[1].workload_key);
  EXPECT_NE(work.tasks[0].name, work.tasks[1].name);
  EXPECT_EQ(work.latency_key, "");
}

}  // namespace
}  // namespace diapason
