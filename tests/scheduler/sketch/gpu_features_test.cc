// What GPU schedules can ask for beyond loops: pipelines of asynchronous copies, tensor cores. Each is run on OpenCL
// (where copies are at once and products scalar) and compiled, or where there is one run, on a GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <iterator>

#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/execute.h"

namespace diapason {
namespace {

// The configuration of the first space whose name contains `part`, its default with some parameters set by name; null
// if none has it.
const Space* SpaceWith(const TaskSpace& task, const std::string& part) {
  for (int i = 0; i < task.size(); ++i)
    if (task.space(i).name().find(part) != std::string::npos) return &task.space(i);
  return nullptr;
}

std::vector<int32_t> WithParameters(const Space& space, const std::vector<std::pair<std::string, int32_t>>& values) {
  std::vector<int32_t> configuration = space.Default();
  int set = 0;
  for (int h = 0; h < space.size(); ++h)
    for (const auto& [name, value] : values)
      if (space.parameter_name(h) == name) {
        configuration[h] = value;
        ++set;
      }
  EXPECT_EQ(set, static_cast<int>(values.size()));
  space.Clamp(0, absl::MakeSpan(configuration));
  for (int h = 0; h < space.size(); ++h)
    for (const auto& [name, value] : values)
      if (space.parameter_name(h) == name) {
        EXPECT_EQ(configuration[h], value) << name;
      }
  return configuration;
}

// The parameter of the reduction's innermost tile.
std::string TensorK(const Space& space) {
  for (int h = 0; h < space.size(); ++h)
    if (space.parameter_name(h).ends_with(".r2")) return space.parameter_name(h);
  return "";
}

class GpuFeaturesTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Lowers, compiles and, where there is a device, compares; gives the source.
  std::string Check(const ComputeDag& dag, const Space& space, const std::vector<int32_t>& configuration) {
    const Target target = Target::Parse(GetParam()).value();
    const auto lowered = Lower(dag, space.Instantiate(configuration), target, DefaultFacts(target));
    if (!lowered.ok()) {
      ADD_FAILURE() << lowered.status();
      return "";
    }
    const auto program = CompileProgram(*lowered, target);
    if (!program.ok()) {
      ADD_FAILURE() << program.status() << "\n" << PrintSource(*lowered, target);
      return "";
    }
    auto device = OpenDevice(target);
    if (!device.ok()) {
      EXPECT_EQ(target.kind, TargetKind::kCuda) << device.status();
      return program->source;
    }
    EXPECT_EQ(testing::CompareOnDevice(**device, *program, dag, testing::MakeReference(dag, 5)), "") << program->source;
    return program->source;
  }
  bool cuda() const { return GetParam().rfind("cuda", 0) == 0; }
  std::unique_ptr<TaskSpace> TaskOf(const ComputeDag& dag) const {
    const Target target = Target::Parse(GetParam()).value();
    return TaskSpace::Create(dag, target, DefaultFacts(target)).value();
  }
};

TEST_P(GpuFeaturesTest, PipelinesOfAnyDepthComputeTheSame) {
  const ComputeDag dag = testing::Convolution({.height = 9, .width = 7, .in = 12, .out = 24});
  const auto task = TaskOf(dag);
  for (const char* sketch : {"gemm/tile", "direct/tile", "gemm/tensor", "gemm_k/tensor"}) {
    const Space* space = SpaceWith(*task, sketch);
    ASSERT_NE(space, nullptr) << sketch;
    for (int stages : {1, 2, 3, 4, 6}) {
      // Small tiles of the reduction: more iterations than stages.
      std::vector<std::pair<std::string, int32_t>> parameters{{"stages", stages}};
      for (int h = 0; h < space->size(); ++h) {
        const std::string& name = space->parameter_name(h);
        if (name.ends_with(".r1")) parameters.emplace_back(name, 1);
        if (name.ends_with(".r2")) parameters.emplace_back(name, std::string(sketch).ends_with("tensor") ? 8 : 1);
      }
      const std::string source = Check(dag, *space, WithParameters(*space, parameters));
      const bool asynchronous = source.find("async_wait<" + std::to_string(stages - 2) + ">") != std::string::npos;
      if (cuda()) {
        EXPECT_EQ(asynchronous, stages > 1) << source;
      }
    }
  }
}

std::map<std::string, int32_t> ByName(const Space& space, const std::vector<int32_t>& configuration) {
  std::map<std::string, int32_t> values;
  for (int h = 0; h < space.size(); ++h) values[space.parameter_name(h)] = configuration[h];
  return values;
}

// The first layer of an image network: proposed before a model has a say.
TEST_P(GpuFeaturesTest, WindowsOfFewChannelsHaveAPrior) {
  const ComputeDag first =
      testing::Convolution({.height = 62, .width = 62, .in = 3, .out = 64, .kernel = 7, .stride = 2, .padding = 3});
  const auto task = TaskOf(first);
  EXPECT_TRUE(SpaceWith(*task, "direct/tile")->Priors().empty());
  const std::map<std::string, std::map<std::string, int32_t>> expected{
      {"rows/tile",
       {{"r0.r1", 7}, {"r0.r2", 1}, {"j.r1", 1}, {"j.r2", 21}, {"i2.s4", 4}, {"i3.threads", 16}, {"stages", 1}}},
      {"rows/tensor", {{"r0.r1", 7}, {"j.r1", 1}, {"j.r2", 24}, {"i1.warps", 4}, {"i2.tiles", 2}, {"stages", 1}}}};
  for (const auto& [name, parameters] : expected) {
    SCOPED_TRACE(name);
    const Space* space = SpaceWith(*task, name);
    ASSERT_NE(space, nullptr);
    const auto priors = space->Priors();
    ASSERT_EQ(priors.size(), 1u);
    const std::map<std::string, int32_t> values = ByName(*space, priors[0]);
    for (const auto& [parameter, value] : parameters) EXPECT_EQ(values.at(parameter), value) << parameter;
    Check(first, *space, priors[0]);
  }
  // Four channels are vectors: no rewrite of rows.
  const ComputeDag four =
      testing::Convolution({.height = 30, .width = 30, .in = 4, .out = 64, .kernel = 5, .stride = 2, .padding = 2});
  const auto vectors = TaskOf(four);
  const Space* space = SpaceWith(*vectors, "direct/tile");
  const auto priors = space->Priors();
  ASSERT_EQ(priors.size(), 1u);
  const std::map<std::string, int32_t> values = ByName(*space, priors[0]);
  EXPECT_EQ(values.at("r0.r2"), 1);
  EXPECT_EQ(values.at("r1.r2"), 5);
  EXPECT_EQ(values.at("r2.r2"), 4);
  EXPECT_EQ(values.at("stages"), 3);
  Check(four, *space, priors[0]);
  const ComputeDag deep = testing::Convolution({.height = 14, .width = 14, .in = 64, .out = 64}, true);
  const auto other = TaskOf(deep);
  for (int i = 0; i < other->size(); ++i) EXPECT_TRUE(other->space(i).Priors().empty()) << other->space(i).name();
}

// Though windows begin anywhere.
TEST_P(GpuFeaturesTest, RowsAreCopiedAsVectors) {
  const ComputeDag dag =
      testing::Convolution({.height = 32, .width = 32, .in = 3, .out = 32, .kernel = 7, .stride = 2, .padding = 3});
  const auto task = TaskOf(dag);
  for (const char* sketch : {"rows/tile", "rows/tensor"}) {
    SCOPED_TRACE(sketch);
    const Space* space = SpaceWith(*task, sketch);
    ASSERT_NE(space, nullptr);
    const std::string source =
        Check(dag, *space,
              WithParameters(*space, {{"r0.r1", 1}, {"stages", 3}, {"x.rows.vector", 4}, {"w.shared.vector", 4}}));
    if (!cuda()) continue;
    EXPECT_NE(source.find("async_copy<16>(x_rows_"), std::string::npos) << source;
    for (const char* less : {"async_copy<4>(", "async_copy<8>("})
      EXPECT_EQ(source.find(less), std::string::npos) << source;
  }
}

// Clamp never leaves so many, but records may have them.
TEST_P(GpuFeaturesTest, MoreStagesThanIterationsAreCut) {
  const ComputeDag dag = testing::MatMul(33, 40, 16, true);
  const auto task = TaskOf(dag);
  const Space* space = SpaceWith(*task, "direct/tensor");
  ASSERT_NE(space, nullptr);
  const std::string inner = TensorK(*space), outer = inner.substr(0, inner.size() - 1) + "1";
  const std::vector<int32_t> two = WithParameters(*space, {{"stages", 2}, {inner, 8}, {outer, 1}});
  std::vector<int32_t> six = two;
  six[testing::ParameterOf(*space, "stages")] = 6;
  const std::string source = Check(dag, *space, six);
  space->Clamp(0, absl::MakeSpan(six));
  EXPECT_EQ(six, two);
  if (cuda()) {
    EXPECT_NE(source.find("async_wait<0>"), std::string::npos) << source;
  }
}

TEST_P(GpuFeaturesTest, TensorCoresTakeTilesThatDoNotDivide) {
  for (const ComputeDag& dag : {testing::MatMul(50, 60, 70, true), testing::MatMul(16, 8, 8, false),
                                testing::Convolution({.height = 7, .width = 7, .in = 20, .out = 36}, true)}) {
    const auto task = TaskOf(dag);
    for (const char* sketch : {"gemm/tensor", "gemm_k/tensor"}) {
      const int found = task->Find(sketch);  // of products direct/tensor
      ASSERT_GE(found, 0) << sketch;
      const Space* space = &task->space(found);
      for (int k : {8, 16, 32}) {
        std::vector<int32_t> configuration = space->Default();
        for (int h = 0; h < space->size(); ++h)
          if (space->parameter_name(h) == TensorK(*space)) configuration[h] = k;
        space->Clamp(0, absl::MakeSpan(configuration));
        const std::string source = Check(dag, *space, configuration);
        if (!cuda()) continue;
        EXPECT_NE(source.find("add_three_tf32("), std::string::npos) << source;
        // Columns along k come as matrices, as rows do.
        EXPECT_EQ(source.find(" load_matrix_2(columns") != std::string::npos, std::string(sketch) == "gemm_k/tensor")
            << source;
      }
    }
  }
}

TEST_P(GpuFeaturesTest, OldGpusHaveNoTensorCores) {
  if (!cuda()) GTEST_SKIP() << "a question of the architecture";
  const Target target = Target::Parse("cuda -arch=sm_70").value();
  const auto task = TaskSpace::Create(testing::MatMul(50, 60, 70, true), target, DefaultFacts(target)).value();
  EXPECT_EQ(SpaceWith(*task, "tensor"), nullptr);
}

TEST_P(GpuFeaturesTest, StrictFloat32HasNoTensorCores) {
  if (!cuda()) GTEST_SKIP() << "an attribute of cuda";
  const Target target = Target::Parse("cuda -arch=sm_90 -strict-fp32").value();
  const auto task = TaskSpace::Create(testing::MatMul(50, 60, 70, true), target, DefaultFacts(target)).value();
  EXPECT_EQ(SpaceWith(*task, "tensor"), nullptr);
  EXPECT_NE(SpaceWith(*task, "direct/tile"), nullptr);
}

// Largest error of a product of random matrices against float64, relative to its largest element.
double ErrorOf(const std::vector<Array>& outputs, const std::map<int, Array>& inputs, int64_t m, int64_t n, int64_t k) {
  const Array &a = inputs.begin()->second, &b = std::next(inputs.begin())->second;
  double largest = 0, error = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t x = 0; x < k; ++x) sum += a.at(i * k + x) * b.at(x * n + j);
      largest = std::max(largest, std::abs(sum));
      error = std::max(error, std::abs(outputs[0].at(i * n + j) - sum));
    }
  }
  return error / largest;
}

// The factor that docs/kernels.md gives.
TEST_P(GpuFeaturesTest, TensorCoresAreAsPreciseAsMultiplyAdds) {
  if (!cuda()) GTEST_SKIP() << "there are no tensor cores";
  const auto device = OpenDevice(Target::Parse(GetParam()).value());
  if (!device.ok()) GTEST_SKIP() << device.status();
  for (int64_t k : {64, 576, 2304, 4608}) {
    const ComputeDag dag = testing::MatMul(48, 128, k, false);
    const testing::Reference reference = testing::MakeReference(dag, 11);
    const Target target = Target::Parse(GetParam()).value();
    DeviceFacts facts = DefaultFacts(target);
    facts.num_cores = 1;  // large enough for warpgroups
    const auto task = TaskSpace::Create(dag, target, facts).value();
    auto error_of = [&](const char* sketch, int32_t depth) -> double {
      const Space* space = SpaceWith(*task, sketch);
      if (space == nullptr) return INFINITY;
      std::vector<int32_t> configuration = space->Default();
      for (int h = 0; h < space->size(); ++h)
        if (depth > 0 && space->parameter_name(h).ends_with(".r2")) {
          configuration[h] = depth;
          space->Clamp(h + 1, absl::MakeSpan(configuration));
        }
      const auto lowered = Lower(dag, space->Instantiate(configuration), target, facts);
      if (!lowered.ok()) return INFINITY;
      const auto program = CompileProgram(*lowered, target);
      if (!program.ok()) return INFINITY;
      const auto outputs = testing::RunOnDevice(**device, *program, dag, reference.inputs);
      return outputs.ok() ? ErrorOf(*outputs, reference.inputs, 48, 128, k) : INFINITY;
    };
    const double multiply_adds = error_of("direct/tile", 0);
    for (const char* sketch : {"direct/tensor", "direct/wgmma"}) {
      for (int32_t depth : {8, 16, 32}) {
        const double products = error_of(sketch, depth);
        std::printf("sums of %lld: error %.2e with multiply-adds, %.2e with %s by %d\n", static_cast<long long>(k),
                    multiply_adds, products, sketch, depth);
        EXPECT_LE(products, 2.0 * multiply_adds) << k << " by " << depth << " " << sketch;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, GpuFeaturesTest, ::testing::Values("opencl", "cuda -arch=sm_90"),
                         [](const auto& info) { return info.param.substr(0, info.param.find(' ')); });

}  // namespace
}  // namespace diapason
