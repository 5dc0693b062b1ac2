// Which dags are attention, and what becomes of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/lower/lower.h"
#include "scheduler/sketch/attention_chain.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"

namespace diapason {
namespace {

using testing::Attention;
using testing::NamedDag;

std::optional<AttentionChain> ChainOf(const ComputeDag& dag) {
  const Target target = Target::Parse("opencl").value();
  const DeviceFacts facts = DefaultFacts(target);
  return FindAttention(EndingElementwise(Draft(State(dag), {target, facts}), dag.outputs()[0]), dag.outputs()[0]);
}

std::vector<std::string> Sketches(const ComputeDag& dag, const std::string& target_text) {
  const Target target = Target::Parse(target_text).value();
  const auto spaces = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
  std::vector<std::string> names;
  for (int i = 0; i < spaces->size(); ++i)
    if (spaces->space(i).name().find("/attention") != std::string::npos) names.push_back(spaces->space(i).name());
  return names;
}

TEST(AttentionChainTest, KnowsProductsSoftmaxAndAxes) {
  const auto chain = ChainOf(Attention({.queries = 13, .keys = 37, .size = 20, .values = 24, .joined = true}));
  ASSERT_TRUE(chain.has_value());
  // q, k, v, scores, scaled, mask, masked, top, e, sum, weights, y, residual, added
  EXPECT_EQ(chain->scores, 3);
  EXPECT_EQ(chain->seen, 6);
  EXPECT_EQ(chain->reductions, (std::vector<int>{7, 9}));
  EXPECT_EQ(chain->weights, 10);
  EXPECT_EQ(chain->product, 11);
  EXPECT_EQ(chain->root, 13);
  EXPECT_EQ(chain->query_of_product, 1);
  EXPECT_EQ(chain->value_of_product, 2);
  EXPECT_EQ(chain->key_of_seen, 2);
  EXPECT_EQ(chain->keys_read, 1);
  EXPECT_EQ(std::vector({chain->queries, chain->keys, chain->values, chain->size}), (std::vector<int64_t>{13, 37, 24, 20}));
}

TEST(AttentionChainTest, OneQueryHasNoRowsToShareKeys) {
  const auto chain = ChainOf(Attention({.heads = 4, .groups = 1, .queries = 1, .keys = 200, .size = 32, .values = 32}));
  ASSERT_TRUE(chain.has_value());
  EXPECT_EQ(chain->keys, 200);
}

TEST(AttentionChainTest, OtherDagsAreNone) {
  for (const NamedDag& kind : testing::AllKinds()) EXPECT_FALSE(ChainOf(kind.dag).has_value()) << kind.name;
  for (const NamedDag& kind : testing::RowChains()) EXPECT_FALSE(ChainOf(kind.dag).has_value()) << kind.name;
}

TEST(AttentionTest, TheDefaultScheduleIsOneKernel) {
  for (const char* text : {"cpu -num-cores=2", "opencl", "cuda -arch=sm_90"}) {
    const Target target = Target::Parse(text).value();
    const DeviceFacts facts = DefaultFacts(target);
    for (const NamedDag& attention : testing::Attentions()) {
      const auto schedule = DefaultSchedule(attention.dag, target, facts);
      ASSERT_TRUE(schedule.ok()) << attention.name << ": " << schedule.status();
      const auto lowered = Lower(attention.dag, *schedule, target, facts);
      ASSERT_TRUE(lowered.ok()) << attention.name << ": " << lowered.status();
      EXPECT_EQ(lowered->kernels.size(), 1u) << attention.name << " on " << text << " by " << schedule->sketch;
      for (const BufferDecl& param : lowered->kernels[0].params) EXPECT_NE(param.name, "scores") << attention.name;
    }
  }
}

// Rows of scores that no block can hold are kernels of their own.
TEST(AttentionTest, RowsThatDoNotFitAreNotHeld) {
  const ComputeDag longest = Attention({.queries = 4, .keys = 20000, .size = 8, .values = 8});
  EXPECT_TRUE(Sketches(longest, "opencl").empty());
  EXPECT_EQ(Sketches(longest, "cuda -arch=sm_90"), std::vector<std::string>{"direct/attention_block"});
  EXPECT_EQ(Sketches(longest, "cpu"), std::vector<std::string>{"direct/attention_row"});
}

}  // namespace
}  // namespace diapason
