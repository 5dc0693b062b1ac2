// Small built-in networks as packages of compiled fallback schedules, against the interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "compiler/build/check_package.h"
#include "compiler/build/random_inputs.h"
#include "compiler/graph/model.h"
#include "compiler/graph/passes.h"
#include "tests/build/testing.h"

namespace diapason {
namespace {

struct SmallNetwork {
  std::string name;
  std::map<std::string, std::string> extra;
  int64_t tokens = 0;  // integers of inputs are below it
};

class BuiltinPackages : public FolderTest {
 protected:
  // A package of `network` whose kernels are all scheduled, as one built without a record has them.
  void BuildByDefault(const Network& network, const Target& target) {
    const absl::StatusOr<Partition> partition = PartitionNetwork(network);
    ASSERT_TRUE(partition.ok()) << partition.status();
    const DeviceFacts facts = ResolveFacts(target);
    PackageRequest request{network, *partition, target, facts, {}};
    for (const PlacedTask& placed : partition->programs) {
      const ComputeDag& dag = partition->tasks[placed.task].dag;
      const absl::StatusOr<Schedule> schedule = DefaultSchedule(dag, target, facts);
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      const absl::StatusOr<LoweredProgram> lowered = Lower(dag, *schedule, target, facts, placed.place);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      absl::StatusOr<Program> program = CompileProgram(*lowered, target);
      ASSERT_TRUE(program.ok()) << program.status();
      request.tasks.push_back({*std::move(program), "default", -1, 0});
    }
    const absl::Status built = BuildPackage(Path("p"), request);
    ASSERT_TRUE(built.ok()) << built;
  }

  static std::map<std::string, Array> InputsOf(const Network& network, int64_t tokens) {
    std::map<std::string, Array> inputs;
    for (int id : network.inputs) {
      const Tensor& tensor = network.tensor(id);
      Array value(tensor.type.dtype, tensor.type.shape);
      // Masks and kinds of tokens are 0 or 1.
      const int64_t most = tensor.name == "input_ids" ? tokens - 1 : 1;
      FillRandom(value, inputs.size() + 1, 0, most);
      inputs[tensor.name] = std::move(value);
    }
    return inputs;
  }

  void ExpectRight(const SmallNetwork& small, TargetKind kind = TargetKind::kCpu) {
    SCOPED_TRACE(small.name);
    ModelOptions options;
    options.batch = 2;
    options.extra = small.extra;
    const absl::StatusOr<Network> network = LoadOptimized(small.name, options);
    ASSERT_TRUE(network.ok()) << network.status();
    BuildByDefault(*network, TestTarget(kind));
    if (HasFatalFailure()) return;
    absl::StatusOr<std::unique_ptr<PackageRunner>> runner = PackageRunner::Load(Path("p"));
    ASSERT_TRUE(runner.ok()) << runner.status();
    const std::map<std::string, Array> inputs = InputsOf(*network, small.tokens);
    const absl::Status set = (*runner)->SetInputs(inputs);
    ASSERT_TRUE(set.ok()) << set;
    const absl::Status ran = (*runner)->Run();
    ASSERT_TRUE(ran.ok()) << ran;
    const std::vector<Array> got = (*runner)->Outputs().value(), want = Expected(*network, inputs);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].shape, want[i].shape);
      for (int64_t e = 0; e < want[i].elements(); ++e)
        ASSERT_NEAR(got[i].at(e), want[i].at(e), 1e-4 * (1 + std::abs(want[i].at(e)))) << "output " << i << ", " << e;
    }
  }
};

// Kernels of two results: a row and the sums of its runs.
TEST_F(BuiltinPackages, NormalizationsBehindProductsAreRight) {
  for (const TargetKind kind : {TargetKind::kCpu, TargetKind::kOpenCl}) {
    ModelOptions options;
    options.dtype = DType::kFloat16;
    options.extra = {{"layers", "2"},         {"hidden", "64"}, {"heads", "2"},
                     {"intermediate", "128"}, {"seq", "33"},    {"vocab", "31"}};
    const Network before = LoadOptimized("bert-base", options).value();
    Network network = before;
    ASSERT_EQ(DeferNorms(network, 1024), 3) << "all but the first, of embeddings, and the last";
    ASSERT_TRUE(EliminateDeadCode(network).ok());
    BuildByDefault(network, TestTarget(kind));
    ASSERT_FALSE(HasFatalFailure());
    absl::StatusOr<std::unique_ptr<PackageRunner>> runner = PackageRunner::Load(Path("p"));
    ASSERT_TRUE(runner.ok()) << runner.status();
    const std::map<std::string, Array> inputs = InputsOf(before, 31);
    ASSERT_TRUE((*runner)->SetInputs(inputs).ok());
    ASSERT_TRUE((*runner)->Run().ok());
    const std::vector<Array> got = (*runner)->Outputs().value(), want = Expected(before, inputs);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      for (int64_t e = 0; e < want[i].elements(); ++e)
        ASSERT_NEAR(got[i].at(e), want[i].at(e), 3e-2 * (1 + std::abs(want[i].at(e)))) << "output " << i << ", " << e;
    const absl::StatusOr<CheckResult> check = CheckPackage(**runner, RandomInputs((*runner)->manifest(), 4));
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check->ok) << check->worst << ", " << check->max_rel_error << " of " << check->tolerance;
  }
}

// Exponentials and quotients of a transformer's layers make bounds of errors useless; what is allowed instead must see
// a real fault, and let what is right pass.
TEST_F(BuiltinPackages, TolerancesOfTransformersAreOfUse) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    ModelOptions options;
    options.dtype = dtype;
    options.extra = {{"layers", "2"},        {"hidden", "32"}, {"heads", "2"},
                     {"intermediate", "64"}, {"seq", "9"},     {"vocab", "31"}};
    const absl::StatusOr<Network> network = LoadOptimized("bert-base", options);
    ASSERT_TRUE(network.ok()) << network.status();
    BuildByDefault(*network, TestTarget(TargetKind::kCpu));
    ASSERT_FALSE(HasFatalFailure());
    absl::StatusOr<std::unique_ptr<PackageRunner>> runner = PackageRunner::Load(Path("p"));
    ASSERT_TRUE(runner.ok()) << runner.status();
    for (int seed : {1, 2, 3}) {
      const absl::StatusOr<CheckResult> check = CheckPackage(**runner, RandomInputs((*runner)->manifest(), seed));
      ASSERT_TRUE(check.ok()) << check.status();
      EXPECT_TRUE(check->ok) << check->worst << ", " << check->max_rel_error << " of " << check->tolerance;
      EXPECT_LT(check->tolerance, dtype == DType::kBfloat16  ? 0.8
                                  : dtype == DType::kFloat16 ? 0.1
                                                             : 0.05)
          << check->max_rel_error;
      EXPECT_GT(check->tolerance, check->max_rel_error);
    }
  }
}

TEST_F(BuiltinPackages, BertIsRight) {
  ExpectRight(
      {"bert-base",
       {{"layers", "1"}, {"hidden", "24"}, {"heads", "3"}, {"intermediate", "40"}, {"seq", "9"}, {"vocab", "31"}},
       31});
}

TEST_F(BuiltinPackages, BertIsRightOnOpencl) {
  ExpectRight(
      {"bert-base",
       {{"layers", "1"}, {"hidden", "24"}, {"heads", "3"}, {"intermediate", "40"}, {"seq", "9"}, {"vocab", "31"}},
       31},
      TargetKind::kOpenCl);
}

TEST_F(BuiltinPackages, AStepOfGpt2IsRight) {
  ExpectRight({"gpt2",
               {{"layers", "1"},
                {"hidden", "24"},
                {"heads", "3"},
                {"intermediate", "40"},
                {"seq", "9"},
                {"vocab", "31"},
                {"decode", "1"}},
               31});
}

TEST_F(BuiltinPackages, LlamaIsRight) {
  ExpectRight({"llama-tiny",
               {{"layers", "1"},
                {"hidden", "32"},
                {"heads", "4"},
                {"kv_heads", "2"},
                {"intermediate", "40"},
                {"seq", "9"},
                {"vocab", "31"}},
               31});
}

}  // namespace
}  // namespace diapason
