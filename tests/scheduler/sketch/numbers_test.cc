// The guard: what Evaluate says of a candidate from its numbers is what is counted on the loop nest that it lowers to.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "compiler/lower/lower.h"
#include "scheduler/sketch/sketch_space.h"
#include "tests/scheduler/sketch/dags.h"

namespace diapason {
namespace {

struct Counted {
  std::map<int, double> updates;   // by buffer: executions of its reduction's update, or of its only store
  std::map<int, double> products;  // by buffer: of instructions on tensor cores
  std::map<int, int64_t> elements; // of buffers allocated in the kernel
};

// A reduction's update reads the element that it writes.
bool IsUpdate(const StmtNode& store) {
  bool update = false;
  for (const Expr& arg : store.value->args)
    update |= arg->kind == ExprKind::kLoad && arg->buffer == store.buffer && Equal(arg->args[0], store.index);
  return update;
}

// The steps of a pipeline (a loop "step_...") in which the condition holds: "step < n" or "n <= step"; as a share of all, 1 for other conditions.
double StepsOf(const Expr& condition, const std::map<std::string, double>& steps) {
  for (const auto& [name, extent] : steps) {
    const bool first = condition->kind == ExprKind::kLt && condition->args[0]->name == name;
    const bool last = condition->kind == ExprKind::kLe && condition->args[1]->name == name;
    if (first) return static_cast<double>(condition->args[1]->value) / extent;
    if (last) return (extent - static_cast<double>(condition->args[0]->value)) / extent;
  }
  return 1;
}

void Count(const Stmt& stmt, double outer, double threads, std::map<int, std::vector<std::pair<bool, double>>>* stores,
           Counted* counted, std::map<std::string, double> steps = {}) {
  switch (stmt->kind) {
    case StmtKind::kIf: outer = std::round(outer * StepsOf(stmt->condition, steps)); break;
    case StmtKind::kFor:
      // Nested thread loops are the same threads.
      if (stmt->for_kind == ForKind::kThreadX) threads = static_cast<double>(stmt->extent);
      else outer *= static_cast<double>(stmt->extent);
      if (stmt->var->name.rfind("step_", 0) == 0) steps[stmt->var->name] = static_cast<double>(stmt->extent);
      break;
    case StmtKind::kStore: (*stores)[stmt->buffer].push_back({IsUpdate(*stmt), outer * threads}); break;
    // One instruction makes 16x8x8 products in 32 lanes.
    case StmtKind::kMma: counted->products[stmt->buffer] += outer * threads * 32; break;
    case StmtKind::kAlloc: counted->elements[stmt->decl.id] = stmt->decl.elements; break;
    default: break;
  }
  for (const Stmt& child : stmt->body) Count(child, outer, threads, stores, counted, steps);
}

Target TargetOf(const std::string& text) { return Target::Parse(text).value(); }

class NumbersTest : public ::testing::TestWithParam<std::string> {};

TEST_P(NumbersTest, AgreeWithTheLoweredNest) {
  const Target target = TargetOf(GetParam());
  const DeviceFacts facts = DefaultFacts(target);
  int checked = 0;
  for (const auto& [name, dag] : testing::AllKinds()) {
    const auto task = TaskSpace::Create(dag, target, facts);
    ASSERT_TRUE(task.ok()) << name << ": " << task.status();
    for (int i = 0; i < (*task)->size(); ++i) {
      const auto& space = static_cast<const SketchSpace&>((*task)->space(i));
      std::mt19937 random(7);
      std::vector<int32_t> decisions = space.Default(), values;
      for (int n = 0; n < 60; ++n) {
        for (int h = 0; n > 0 && h < space.size(); ++h) {
          space.Domain(h, decisions, &values);
          ASSERT_FALSE(values.empty());
          decisions[h] = values[random() % values.size()];
        }
        Metrics metrics;
        space.Evaluate(decisions, &metrics);
        ASSERT_TRUE(metrics.legal) << name << " " << space.name();
        const auto lowered = Lower(dag, space.Instantiate(decisions), target, facts);
        ASSERT_TRUE(lowered.ok()) << name << " " << space.name() << ": " << lowered.status();
        Bounds bounds;
        space.skeleton().Infer(decisions, &bounds);
        std::vector<MetricsModel::Resources> resources;
        space.model().ResourcesOf(bounds, decisions, &resources);
        ASSERT_EQ(resources.size(), lowered->kernels.size());
        for (size_t k = 0; k < resources.size(); ++k) {
          const KernelFunc& kernel = lowered->kernels[k];
          EXPECT_EQ(resources[k].threads, kernel.threads) << kernel.name;
          EXPECT_EQ(resources[k].blocks, kernel.blocks) << kernel.name;
          EXPECT_EQ(resources[k].shared_bytes, kernel.shared_bytes) << name << " " << space.name() << "\n" << ToString(kernel);
          Counted counted;
          std::map<int, std::vector<std::pair<bool, double>>> stores;
          Count(kernel.body, 1, 1, &stores, &counted);
          for (int id : space.skeleton().state().topological()) {
            const StageState& stage = space.skeleton().state().stage(id);
            if (!stage.computes() || space.skeleton().root_of(id) != resources[k].root) continue;
            if (counted.elements.count(id)) {
              EXPECT_EQ(bounds.stages[id].stored(), counted.elements[id]);
            }
            if (stage.op.reduces()) {
              // Updates go to the stage's own buffer or to the registers that stand for it: its executions must occur.
              bool found = false;
              const double expected = space.model().Executions(bounds, id);
              for (const auto& [buffer, list] : stores)
                for (const auto& [update, times] : list) found |= update && times == expected;
              for (const auto& [buffer, times] : counted.products) found |= times == expected;
              EXPECT_TRUE(found) << name << " " << space.name() << " stage " << stage.op.name << " " << expected << "\n"
                                 << ToString(kernel);
            } else {
              ASSERT_FALSE(stores[id].empty());
              EXPECT_EQ(space.model().Executions(bounds, id), stores[id].back().second)
                  << name << " " << space.name() << " stage " << stage.op.name << "\n" << ToString(kernel);
            }
          }
          ++checked;
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(checked, 1000);
}

INSTANTIATE_TEST_SUITE_P(Targets, NumbersTest, ::testing::Values("cpu", "opencl", "cuda -arch=sm_90"),
                         [](const auto& info) { return info.param.substr(0, info.param.find(' ')); });

}  // namespace
}  // namespace diapason
