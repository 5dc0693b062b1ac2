// Which dags are attention, and what becomes of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/passes.h"
#include "compiler/graph/model.h"
#include "compiler/graph/partition.h"
#include "compiler/lower/lower.h"
#include "compiler/schedule/rewrite_attention.h"
#include "scheduler/sketch/attention_chain.h"
#include "scheduler/space.h"
#include "tests/lower/count_statements.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/run_nest.h"

namespace diapason {
namespace {

using testing::Attention;
using testing::NamedDag;

const char* const kSketchesOnTensorCores[] = {"attention/attention_tensor", "attention/attention_tensor.whole",
                                              "attention/attention_tensor.stream", "attention/attention_tensor.lanes"};

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

// Whether the statement stores an exponential.
bool IsExponential(const StmtNode& s) {
  bool found = false;
  if (s.kind == StmtKind::kStore)
    Visit(s.value, [&](const ExprNode& e) { found |= e.kind == ExprKind::kCall && e.name == "exp"; });
  return found;
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

// In the rewrite, the output is divided by the sums of its weights.
TEST(AttentionChainTest, KnowsRowsThatAreDividedLast) {
  for (const NamedDag& attention : testing::Attentions()) {
    const auto plain = ChainOf(attention.dag), rewritten = ChainOf(AttentionRewrite(attention.dag).value());
    ASSERT_TRUE(plain.has_value() && rewritten.has_value()) << attention.name;
    EXPECT_FALSE(plain->divides_last) << attention.name;
    EXPECT_TRUE(rewritten->divides_last) << attention.name;
    EXPECT_EQ(rewritten->reductions.size(), plain->reductions.size()) << attention.name;
    EXPECT_EQ(std::vector({rewritten->queries, rewritten->keys, rewritten->values, rewritten->size}),
              std::vector({plain->queries, plain->keys, plain->values, plain->size}))
        << attention.name;
  }
}

TEST(AttentionChainTest, OneQueryHasNoRowsToShareKeys) {
  const auto chain = ChainOf(Attention({.heads = 4, .groups = 1, .queries = 1, .keys = 200, .size = 32, .values = 32}));
  ASSERT_TRUE(chain.has_value());
  EXPECT_EQ(chain->keys, 200);
  const auto alone = ChainOf(Attention({.queries = 1, .keys = 50, .size = 32, .values = 32}));
  ASSERT_TRUE(alone.has_value());
  EXPECT_EQ(std::vector({alone->query_of_product, alone->query_of_root, alone->query_of_seen, alone->query_of_scores}),
            std::vector({1, 1, 1, 1}));
}

// As the graph writes it: what has one element is read at 0, whatever the axis.
TEST(AttentionChainTest, OneQueryOfANetworkIsARowInTheRewrite) {
  ModelOptions options;
  options.extra = {{"heads", "3"}, {"queries", "1"}, {"keys", "70"}, {"size", "16"}};
  options.dtype = DType::kFloat16;
  const Network network = LoadOptimized("attention", options).value();
  const Partition partition = PartitionNetwork(network).value();
  ASSERT_EQ(partition.subgraphs.size(), 1u);
  EXPECT_EQ(Sketches(partition.subgraphs[0].dag, "cuda -arch=sm_90").size(), 6u);
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
      const size_t kernels = schedule->sketch == "direct/attention_row.keys" ? 2 : 1;  // one that transposes keys
      EXPECT_EQ(lowered->kernels.size(), kernels) << attention.name << " on " << text << " by " << schedule->sketch;
      for (const auto& kernel : lowered->kernels)
        for (const BufferDecl& param : kernel.params) EXPECT_NE(param.name, "scores") << attention.name;
    }
  }
}

// Both products on tensor cores, in the rewrite that lays operands out for them, however few queries there are; not
// where heads are too small.
TEST(AttentionTest, BothProductsAreMadeOnTensorCores) {
  const ComputeDag half = Attention({.queries = 40, .keys = 70, .size = 32, .values = 48, .dtype = DType::kFloat16});
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
    const Target target = Target::Parse(absl::StrCat("cuda -arch=", arch)).value();
    const auto task = TaskSpace::Create(half, target, DefaultFacts(target)).value();
    for (const char* name : kSketchesOnTensorCores) {
      SCOPED_TRACE(absl::StrCat(name, " for ", arch));
      const int found = task->Find(name);
      ASSERT_GE(found, 0);
      const Space& space = task->space(found);
      const auto lowered = Lower(half, space.Instantiate(space.Default()), target, DefaultFacts(target));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      ASSERT_EQ(lowered->kernels.size(), 1u);
      EXPECT_GT(testing::CountStatements(lowered->kernels[0].body,
                                         [](const StmtNode& s) { return s.kind == StmtKind::kMma; }),
                1);
      // Streamed, there is one more for each row and step: by how much its maximum grew.
      const int stream =
          space.name().find("stream") != std::string::npos || space.name().find("lanes") != std::string::npos;
      EXPECT_EQ(testing::CountStatements(lowered->kernels[0].body, IsExponential), 1 + stream)
          << "each exponential once";
      const auto program = CompileProgram(*lowered, target);
      ASSERT_TRUE(program.ok()) << program.status();
      EXPECT_NE(program->source.find("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), std::string::npos);
      EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
    }
  }
  EXPECT_EQ(Sketches(half, "cuda -arch=sm_75"), std::vector<std::string>{"direct/attention_block"});
  EXPECT_EQ(Sketches(half, "cpu"), std::vector<std::string>{"direct/attention_row"});
  EXPECT_EQ(Sketches(half, "cuda -arch=sm_90").size(), 5u);
  for (const int64_t queries : {1, 2, 11})
    EXPECT_EQ(Sketches(Attention({.queries = queries, .keys = 70, .size = 32, .values = 48, .dtype = DType::kFloat16}),
                       "cuda -arch=sm_90")
                  .size(),
              5u)
        << queries;
  EXPECT_EQ(Sketches(Attention({.queries = 40, .keys = 70, .size = 4, .values = 48, .dtype = DType::kFloat16}),
                     "cuda -arch=sm_90"),
            std::vector<std::string>{"direct/attention_block"});
  EXPECT_EQ(Sketches(Attention({.queries = 40, .keys = 70, .size = 32, .values = 48}), "cuda -arch=sm_90 -strict-fp32"),
            std::vector<std::string>{"direct/attention_block"});
}

// As loops for tensor cores, with copies that arrive no sooner than they are waited for.
TEST(AttentionTest, SketchesOnTensorCoresComputeTheDag) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  for (const NamedDag& attention : testing::Attentions()) {
    if (attention.name.find("half") == std::string::npos) continue;
    const auto task = TaskSpace::Create(attention.dag, target, facts).value();
    const testing::Reference reference = testing::MakeReference(attention.dag, 5);
    for (const char* name : kSketchesOnTensorCores) {
      SCOPED_TRACE(absl::StrCat(name, " of ", attention.name));
      ASSERT_GE(task->Find(name), 0);
      const Space& space = task->space(task->Find(name));
      const auto lowered = Lower(attention.dag, space.Instantiate(space.Default()), target, facts);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      testing::ExpectNestComputes(*lowered, reference, 2e-3);
    }
  }
}

// Single products of TensorFloat-32, where the target allows them, with errors of rounded factors.
TEST(AttentionTest, FactorsAreRoundedWhereTheTargetAllowsIt) {
  const Target exact = Target::Parse("cuda -arch=sm_90").value();
  const Target target = Target::Parse("cuda -arch=sm_90 -tf32").value();
  const ComputeDag dag =
      Attention({.queries = 21, .keys = 90, .size = 16, .values = 24, .masked = false, .hidden = 35});
  const testing::Reference reference = testing::MakeReference(dag, 7);
  const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
  const auto without = TaskSpace::Create(dag, exact, DefaultFacts(exact)).value();
  EXPECT_EQ(task->DefaultSchedule().sketch.find("tf32"), std::string::npos);
  for (const char* ending : {"", ".whole", ".stream", ".lanes"}) {
    const std::string name = absl::StrCat("attention/attention_tf32", ending);
    SCOPED_TRACE(name);
    EXPECT_LT(without->Find(name), 0);
    EXPECT_GE(task->Find(absl::StrCat("attention/attention_tensor", ending)), 0) << "they compete";
    ASSERT_GE(task->Find(name), 0);
    const Space& space = task->space(task->Find(name));
    EXPECT_TRUE(space.loses_digits());
    const auto lowered = Lower(dag, space.Instantiate(space.Default()), target, DefaultFacts(target));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_GT(testing::CountStatements(
                  lowered->kernels[0].body,
                  [](const StmtNode& s) { return s.kind == StmtKind::kMma && s.tensor == TensorMode::kTf32; }),
              1);
    const std::vector<double> got = testing::RunNest(*lowered, reference);
    double error = 0;
    for (int64_t i = 0; i < reference.outputs[0].elements(); ++i)
      error = std::max(error, std::fabs(got[i] - reference.outputs[0].at(i)));
    EXPECT_LT(error, 2e-3);
    EXPECT_GT(error, 1e-5);
    EXPECT_EQ(testing::CompareNest(*lowered, dag, reference, target.tf32), "");
    EXPECT_NE(testing::CompareNest(*lowered, dag, reference, exact.tf32), "") << "as if nothing were rounded";
    const auto program = CompileProgram(*lowered, target);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
  }
}

// Steps of 16 and 32 keys, the last of them short, and a step that hides all its keys from all rows, before and behind
// others: as loops, for tensor cores and without them.
TEST(AttentionTest, StreamedKeysComputeTheDag) {
  for (const char* text : {"cuda -arch=sm_90", "opencl"}) {
    const Target target = Target::Parse(text).value();
    for (DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kFloat32}) {
      for (int64_t hidden : {0, 35, 89}) {
        if (hidden != 35 && dtype != DType::kFloat16) continue;
        const ComputeDag dag = Attention(
            {.queries = 21, .keys = 90, .size = 16, .values = 24, .masked = false, .dtype = dtype, .hidden = hidden});
        const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
        const testing::Reference reference = testing::MakeReference(dag, 7);
        for (const char* name : {"attention/attention_tensor.stream", "attention/attention_tensor.lanes"}) {
          ASSERT_GE(task->Find(name), 0) << name;
          const Space& space = task->space(task->Find(name));
          for (const auto& [step, stages] : {std::pair(1, 1), {1, 3}, {2, 2}}) {
            if (hidden == 0 && stages > 1) continue;
            SCOPED_TRACE(absl::StrCat(name, " of ", NameOf(dtype), " on ", text, ", ", hidden, " hidden, step ", step,
                                      ", stages ", stages));
            const std::vector<int32_t> configuration = testing::Decide(space, {{"key.step", step}, {"stages", stages}});
            const auto lowered = Lower(dag, space.Instantiate(configuration), target, DefaultFacts(target));
            ASSERT_TRUE(lowered.ok()) << lowered.status();
            ASSERT_EQ(lowered->kernels.size(), 1u);
            testing::ExpectNestComputes(*lowered, reference, dtype == DType::kFloat32 ? 1e-5 : 2e-2);
          }
        }
      }
    }
  }
}

// The weights of a product go from registers to registers: what a block has in shared memory is queries, keys and
// values.
TEST(AttentionTest, LanesKeepScoresInRegisters) {
  const ComputeDag half = Attention({.queries = 64, .keys = 256, .size = 64, .values = 64, .dtype = DType::kFloat16});
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const auto task = TaskSpace::Create(half, target, DefaultFacts(target)).value();
  const Space& space = task->space(task->Find("attention/attention_tensor.lanes"));
  const auto lowered = Lower(half, space.Instantiate(space.Default()), target, DefaultFacts(target)).value();
  std::vector<std::string> shared;
  Contains(lowered.kernels[0].body, [&](const StmtNode& s) {
    if (s.kind == StmtKind::kAlloc && s.decl.scope == Scope::kShared) shared.push_back(s.decl.name);
    return false;
  });
  std::sort(shared.begin(), shared.end());
  EXPECT_EQ(shared, (std::vector<std::string>{"k_rows_", "q_rows_", "v_rows_"}));
  // Of each row: four for the maximum and four for the sum.
  EXPECT_EQ(
      testing::CountStatements(lowered.kernels[0].body, [](const StmtNode& s) { return s.kind == StmtKind::kShuffle; }),
      2);
  const auto program = CompileProgram(lowered, target);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
}

// 64 rows a warpgroup, the last ones short, by steps of keys of which the last is short too and one hides all its keys:
// each step's products waited for, made beside the next step, and with warpgroups that begin a step at different times.
TEST(AttentionTest, WarpgroupsComputeTheDag) {
  for (const char* text : {"cuda -arch=sm_90", "opencl"}) {
    const Target target = Target::Parse(text).value();
    const DeviceFacts facts = DefaultFacts(target);
    for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
      const ComputeDag dag = Attention({.heads = 1,
                                        .groups = 1,
                                        .queries = 140,
                                        .keys = 200,
                                        .size = 24,
                                        .values = 40,
                                        .masked = false,
                                        .dtype = dtype,
                                        .hidden = 35});
      const auto task = TaskSpace::Create(dag, target, facts).value();
      const testing::Reference reference = testing::MakeReference(dag, 7);
      for (const auto& [step, stages, name] : {std::tuple(2, 1, "attention/attention_wgmma"),
                                               {2, 2, "attention/attention_wgmma"},
                                               {2, 3, "attention/attention_wgmma"},
                                               {2, 4, "attention/attention_wgmma"},
                                               {2, 5, "attention/attention_wgmma"},
                                               {4, 4, "attention/attention_wgmma"},
                                               {12, 2, "attention/attention_wgmma"},
                                               {2, 1, "attention/attention_wgmma.boxes"},
                                               {2, 2, "attention/attention_wgmma.boxes"},
                                               {2, 3, "attention/attention_wgmma.boxes"},
                                               {2, 4, "attention/attention_wgmma.boxes"},
                                               {4, 4, "attention/attention_wgmma.boxes"}}) {
        const bool cuda = target.kind == TargetKind::kCuda;
        if (cuda ? dtype == DType::kBfloat16 && stages != 4 : stages > 2 || step > 4) continue;
        const bool boxes = std::string(name).ends_with(".boxes");
        ASSERT_EQ(task->Find(name) >= 0, cuda || !boxes) << name;
        if (boxes && !cuda) continue;
        const Space& space = task->space(task->Find(name));
        SCOPED_TRACE(absl::StrCat(name, ", ", NameOf(dtype), " on ", text, ", step ", step, ", stages ", stages));
        const std::vector<int32_t> configuration =
            testing::Decide(space, {{"query.groups", cuda ? 2 : 1}, {"key.step", step}, {"stages", stages}});
        const auto lowered = Lower(dag, space.Instantiate(configuration), target, facts);
        ASSERT_TRUE(lowered.ok()) << lowered.status();
        ASSERT_EQ(lowered->kernels.size(), 1u);
        EXPECT_EQ(testing::CountStatements(lowered->kernels[0].body,
                                           [](const StmtNode& s) { return s.kind == StmtKind::kGroupMma; }) > 1,
                  cuda);
        // Rows of 40 values are no whole runs of 16: threads copy them.
        EXPECT_EQ(MappedTensorsOf(lowered->kernels[0].body).size(), boxes && stages > 1 ? 1u : 0u);
        testing::ExpectNestComputes(*lowered, reference, 2e-2);
      }
    }
  }
}

// Scores that a factor alone scales stay as the product has them: exponentials scale their differences.
TEST(AttentionTest, ExponentialsScaleDifferences) {
  for (const char* text : {"cuda -arch=sm_90", "opencl"}) {
    const Target target = Target::Parse(text).value();
    const DeviceFacts facts = DefaultFacts(target);
    for (const bool given : {false, true}) {
      const ComputeDag dag = Attention({.heads = 1,
                                        .groups = 1,
                                        .queries = 140,
                                        .keys = 200,
                                        .size = 24,
                                        .values = 40,
                                        .masked = false,
                                        .dtype = DType::kFloat16,
                                        .scale = -0.4,
                                        .scale_is_input = given});
      const auto task = TaskSpace::Create(dag, target, facts).value();
      const testing::Reference reference = testing::MakeReference(dag, 11);
      for (const char* name : {"attention(1)/attention_tensor.lanes", "attention(1)/attention_wgmma"}) {
        ASSERT_GE(task->Find(name), 0) << name << " on " << text;
        const Space& space = task->space(task->Find(name));
        const bool groups = std::string(name).ends_with("wgmma");
        const bool cuda = target.kind == TargetKind::kCuda;
        for (const int stages : groups&& cuda ? std::vector{1, 2, 3, 5} : std::vector{1, 2}) {
          SCOPED_TRACE(absl::StrCat(name, " on ", text, ", stages ", stages, ", given ", given));
          const std::vector<int32_t> configuration = testing::Decide(space, {{"key.step", 2}, {"stages", stages}});
          const auto lowered = Lower(dag, space.Instantiate(configuration), target, facts);
          ASSERT_TRUE(lowered.ok()) << lowered.status();
          testing::ExpectNestComputes(*lowered, reference, 2e-2);
          for (const KernelFunc& kernel : lowered->kernels) {
            Contains(kernel.body, [](const StmtNode& s) {
              if (s.kind == StmtKind::kAlloc) {
                EXPECT_NE(s.decl.name, "scaled_");
              }
              return false;
            });
          }
          if (!cuda) continue;
          const auto program = CompileProgram(*lowered, target);
          ASSERT_TRUE(program.ok()) << program.status();
          EXPECT_NE(program->source.find("coarse_exp_scaled"), std::string::npos);
        }
      }
    }
  }
}

// Heads that share keys and values are blocks of their own, and queries and keys that are turned first are computed
// where they are copied.
TEST(AttentionTest, WarpgroupsComputeSharedHeadsAndTurnedKeys) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  for (const auto& [name, dag] : {NamedDag{"shared", testing::AttentionOfSharedHeads(1, 2, 70, 80, 24)},
                                  NamedDag{"turned", Attention({.heads = 1,
                                                     .groups = 1,
                                                     .queries = 70,
                                                     .keys = 80,
                                                     .size = 16,
                                                     .values = 24,
                                                     .masked = false,
                                                     .dtype = DType::kFloat16,
                                                     .rotated = true})}}) {
    const auto task = TaskSpace::Create(dag, target, facts).value();
    const testing::Reference reference = testing::MakeReference(dag, 7);
    ASSERT_GE(task->Find("attention/attention_wgmma"), 0) << name;
    const Space& space = task->space(task->Find("attention/attention_wgmma"));
    for (const int stages : {1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat(name, ", stages ", stages));
      const std::vector<int32_t> configuration = testing::Decide(space, {{"key.step", 2}, {"stages", stages}});
      const auto lowered = Lower(dag, space.Instantiate(configuration), target, facts);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      testing::ExpectNestComputes(*lowered, reference, 2e-2);
      const auto program = CompileProgram(*lowered, target);
      EXPECT_TRUE(program.ok()) << program.status();
    }
  }
}

// No branch stands between the start of products and the wait for them, and nothing is kept outside of registers.
TEST(AttentionTest, WarpgroupsKeepScoresInRegisters) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  for (const int64_t queries : {256, 197}) {
    const ComputeDag half = Attention(
        {.queries = queries, .keys = 512, .size = 64, .values = 64, .masked = false, .dtype = DType::kFloat16});
    const auto task = TaskSpace::Create(half, target, DefaultFacts(target)).value();
    const Space& space = task->space(task->Find("attention/attention_wgmma"));
    for (const int stages : {2, 3, 4}) {
      const std::vector<int32_t> configuration = testing::Decide(space, {{"stages", stages}});
      const auto lowered = Lower(half, space.Instantiate(configuration), target, DefaultFacts(target)).value();
      std::vector<std::string> shared;
      bool chooses = false;
      Contains(lowered.kernels[0].body, [&](const StmtNode& s) {
        if (s.kind == StmtKind::kAlloc && s.decl.scope == Scope::kShared) shared.push_back(s.decl.name);
        if (s.kind == StmtKind::kStore && !s.async)
          Visit(s.value, [&](const ExprNode& e) { chooses |= e.kind == ExprKind::kSelect; });
        return false;
      });
      std::sort(shared.begin(), shared.end());
      std::vector<std::string> expected = {"k_rows_", "q_rows_", "v_rows_"};
      if (stages > 3) expected.insert(expected.begin() + 2, "steps_begun");
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(shared, expected) << stages;
      EXPECT_FALSE(chooses) << "rows behind the last one are computed like others and not stored";
      const auto program = CompileProgram(lowered, target);
      ASSERT_TRUE(program.ok()) << program.status();
      EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
      EXPECT_NE(program->source.find("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"), std::string::npos);
    }
  }
}

// Steps may come from a peer: whatever is left out or put behind them, lowering answers.
TEST(AttentionTest, ChangedSchedulesAreRefusedOrLowered) {
  const ComputeDag dag = Attention(
      {.heads = 1, .groups = 1, .queries = 20, .keys = 70, .size = 16, .values = 16, .dtype = DType::kFloat16});
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
  for (const char* name : {"attention/attention_tensor.stream", "attention/attention_tensor.lanes"}) {
    const Space& space = task->space(task->Find(name));
    const Schedule schedule = space.Instantiate(space.Default());
    const auto lower = [&](const std::vector<Step>& steps) {
      Schedule changed = schedule;
      changed.steps = steps;
      return Lower(dag, changed, target, DefaultFacts(target)).status();
    };
    ASSERT_TRUE(lower(schedule.steps).ok());
    int refused = 0;
    for (size_t s = 0; s < schedule.steps.size(); ++s) {
      std::vector<Step> steps = schedule.steps;
      steps.erase(steps.begin() + static_cast<int64_t>(s));
      refused += !lower(steps).ok();
    }
    EXPECT_GT(refused, 20);
    // The loop that carries, made another one behind the steps that name it.
    const auto carry = std::find_if(schedule.steps.begin(), schedule.steps.end(), [](const Step& step) {
      return step.kind == StepKind::kCarry && step.target != step.stage;
    });
    ASSERT_NE(carry, schedule.steps.end());
    const auto refuses = [&](Step step) {
      std::vector<Step> steps = schedule.steps;
      steps.push_back(std::move(step));
      return !lower(steps).ok();
    };
    EXPECT_TRUE(refuses({StepKind::kSplit, carry->stage, carry->loops, {Factor::Of(2)}, -1, {}}));
    EXPECT_TRUE(refuses({StepKind::kSplit, carry->target, {carry->ints[0]}, {Factor::Of(2)}, -1, {}}));
    EXPECT_TRUE(refuses({StepKind::kAnnotate, carry->target, {carry->ints[0]}, {}, -1, {1}}));
    EXPECT_TRUE(refuses({StepKind::kRfactor, carry->stage, carry->loops, {}, -1, {}}));
    EXPECT_TRUE(refuses({StepKind::kSetScope, carry->target, {}, {}, -1, {1}}));
  }
}

// A row of any length on tensor cores takes no more shared memory than its steps.
TEST(AttentionTest, RowsOfAnyLengthAreStreamed) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  const ComputeDag longest = Attention(
      {.heads = 16, .groups = 16, .queries = 2048, .keys = 65536, .size = 64, .values = 64, .dtype = DType::kFloat16});
  EXPECT_EQ(Sketches(longest, "cuda -arch=sm_90"),
            (std::vector<std::string>{"attention/attention_tensor.stream", "attention/attention_tensor.lanes",
                                      "attention/attention_wgmma", "attention/attention_wgmma.boxes"}));
  const auto schedule = DefaultSchedule(longest, target, facts);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const auto lowered = Lower(longest, *schedule, target, facts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->kernels.size(), 1u) << schedule->sketch;
}

// What is asked for first is waited for where it is read: values not before the scores are there.
TEST(AttentionTest, ValuesArriveBehindTheScores) {
  const ComputeDag half = Attention({.queries = 40, .keys = 70, .size = 32, .values = 48, .dtype = DType::kFloat16});
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const auto task = TaskSpace::Create(half, target, DefaultFacts(target)).value();
  const Space& space = task->space(task->Find("attention/attention_tensor.whole"));
  const auto lowered = Lower(half, space.Instantiate(space.Default()), target, DefaultFacts(target)).value();
  std::vector<std::string> order;
  Contains(lowered.kernels[0].body, [&](const StmtNode& s) {
    if (s.kind == StmtKind::kCommit) order.push_back("ask");
    if (s.kind == StmtKind::kWait) order.push_back(absl::StrCat("wait ", s.extent));
    if (s.kind == StmtKind::kMma && order.back() != "products") order.push_back("products");
    return false;
  });
  EXPECT_EQ(order, (std::vector<std::string>{"ask", "ask", "ask", "wait 1", "products", "wait 0", "products"}));
}

// What scores are scaled and masked with does not wait for them: it is loaded while the first copies are on their way,
// and with them, where they are waited for once.
TEST(AttentionTest, MasksAreLoadedInFrontOfTheScores) {
  const ComputeDag half = Attention({.queries = 128, .keys = 64, .size = 32, .values = 32, .dtype = DType::kFloat16});
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  const auto task = TaskSpace::Create(half, target, facts).value();
  const testing::Reference reference = testing::MakeReference(half, 7);
  for (const auto& [name, step, stages] : {std::tuple("attention/attention_wgmma", 4, 1),
                                           {"attention/attention_wgmma.boxes", 2, 2},
                                           {"attention/attention_tensor.lanes", 4, 1}}) {
    SCOPED_TRACE(name);
    ASSERT_GE(task->Find(name), 0);
    const Space& space = task->space(task->Find(name));
    const auto configuration = testing::Decide(space, {{"key.step", step}, {"stages", stages}});
    const auto lowered = Lower(half, space.Instantiate(configuration), target, facts);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    testing::ExpectNestComputes(*lowered, reference, 2e-2);
    const KernelFunc& kernel = lowered->kernels[0];
    // Not by copies: by threads, into registers.
    int before = 0, behind = 0, waits = 0;
    bool products = false;
    Contains(kernel.body, [&](const StmtNode& s) {
      products = products || s.kind == StmtKind::kMma || s.kind == StmtKind::kGroupMma;
      waits += s.kind == StmtKind::kWait && !products;
      const bool loads = s.kind == StmtKind::kStore && !s.async && LoadsFrom(s.value, [&](int buffer) {
                           return std::any_of(kernel.params.begin(), kernel.params.end(),
                                              [&](const BufferDecl& p) { return p.id == buffer; });
                         });
      if (loads && !products) before += waits == 0;
      behind += loads && products && s.value->kind != ExprKind::kCast;
      return false;
    });
    EXPECT_GE(before, 1) << ToString(kernel);
    EXPECT_TRUE(behind == 0 || stages > 1) << ToString(kernel);  // or the next step's
    EXPECT_EQ(waits, 1) << ToString(kernel);
  }
}

// On a processor vectors run along keys: a kernel in front transposes them where the model does, and then nothing is
// transposed or scaled in the loops.
TEST(AttentionTest, OnProcessorsKeysAreTransposedOnce) {
  const Target target = Target::Parse("cpu -num-cores=2").value();
  const DeviceFacts facts = DefaultFacts(target);
  const ComputeDag exported =
      Attention({.heads = 12, .groups = 12, .queries = 128, .keys = 128, .size = 64, .values = 64, .exported = true});
  EXPECT_EQ(Sketches(exported, "cpu"), (std::vector<std::string>{"direct/attention_row", "direct/attention_row.keys"}));
  const auto lowered = Lower(exported, DefaultSchedule(exported, target, facts).value(), target, facts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_EQ(lowered->kernels.size(), 2u);
  EXPECT_EQ(lowered->kernels[0].name, "k_keys");
  // Keys that are computed, but not transposed, are read along heads.
  EXPECT_EQ(Sketches(Attention({.queries = 32, .keys = 64, .size = 32, .values = 32, .rotated = true}), "cpu"),
            std::vector<std::string>{"direct/attention_row"});
}

// Rows of scores that no block can hold are kernels of their own, where tensor cores cannot stream the keys.
TEST(AttentionTest, RowsThatDoNotFitAreNotHeld) {
  EXPECT_EQ(Sketches(Attention({.queries = 4, .keys = 20000, .size = 8, .values = 8}), "opencl"),
            (std::vector<std::string>{"attention/attention_tensor.stream", "attention/attention_tensor.lanes"}));
  const ComputeDag longest = Attention({.queries = 4, .keys = 20000, .size = 4, .values = 4});
  EXPECT_TRUE(Sketches(longest, "opencl").empty());
  EXPECT_EQ(Sketches(longest, "cuda -arch=sm_90"), std::vector<std::string>{"direct/attention_block"});
  EXPECT_EQ(Sketches(longest, "cpu"), std::vector<std::string>{"direct/attention_row"});
  const ComputeDag longer = Attention({.queries = 4, .keys = 70000, .size = 4, .values = 4});
  for (const char* text : {"cpu -num-cores=2", "opencl", "cuda -arch=sm_90"}) {
    EXPECT_TRUE(Sketches(longer, text).empty()) << text;
    const Target target = Target::Parse(text).value();
    const DeviceFacts facts = DefaultFacts(target);
    const auto schedule = DefaultSchedule(longer, target, facts);
    ASSERT_TRUE(schedule.ok()) << text << ": " << schedule.status();
    const auto lowered = Lower(longer, *schedule, target, facts);
    ASSERT_TRUE(lowered.ok()) << text << ": " << lowered.status();
    EXPECT_GT(lowered->kernels.size(), 1u) << text;
  }
}

}  // namespace
}  // namespace diapason
