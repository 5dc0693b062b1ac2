// Which dags are attention, and what becomes of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/passes.h"
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
  EXPECT_EQ(std::vector({chain->queries, chain->keys, chain->values, chain->size}),
            (std::vector<int64_t>{13, 37, 24, 20}));
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

// Both products on tensor cores, in the view that lays operands out for them; not where a query is alone, or heads are
// too small.
TEST(AttentionTest, BothProductsAreMadeOnTensorCores) {
  const ComputeDag half = Attention({.queries = 40, .keys = 70, .size = 32, .values = 48, .dtype = DType::kFloat16});
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
    const Target target = Target::Parse(absl::StrCat("cuda -arch=", arch)).value();
    const auto task = TaskSpace::Create(half, target, DefaultFacts(target)).value();
    const int found = task->Find("attention/attention_tensor");
    ASSERT_GE(found, 0) << arch;
    const Space& space = task->space(found);
    const auto lowered = Lower(half, space.Instantiate(space.Default()), target, DefaultFacts(target));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    ASSERT_EQ(lowered->kernels.size(), 1u);
    int products = 0;
    Contains(lowered->kernels[0].body, [&](const StmtNode& s) {
      products += s.kind == StmtKind::kMma;
      return false;
    });
    EXPECT_GT(products, 1) << arch;
    const auto program = CompileProgram(*lowered, target);
    ASSERT_TRUE(program.ok()) << arch << program.status();
    EXPECT_NE(program->source.find("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), std::string::npos);
    EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
  }
  EXPECT_EQ(Sketches(half, "cuda -arch=sm_75"), std::vector<std::string>{"direct/attention_block"});
  EXPECT_EQ(Sketches(half, "cpu"), std::vector<std::string>{"direct/attention_row"});
  EXPECT_EQ(Sketches(half, "cuda -arch=sm_90").size(), 2u);
  for (const ComputeDag& other :
       {Attention({.queries = 1, .keys = 70, .size = 32, .values = 48, .dtype = DType::kFloat16}),
        Attention({.queries = 40, .keys = 70, .size = 4, .values = 48, .dtype = DType::kFloat16})})
    EXPECT_EQ(Sketches(other, "cuda -arch=sm_90"), std::vector<std::string>{"direct/attention_block"});
  EXPECT_EQ(Sketches(Attention({.queries = 40, .keys = 70, .size = 32, .values = 48}), "cuda -arch=sm_90 -strict-fp32"),
            std::vector<std::string>{"direct/attention_block"});
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
