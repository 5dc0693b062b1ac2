#include "compiler/build/check_network.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "compiler/build/network_plan.h"
#include "diapason/v1/program.pb.h"
#include "gmock/gmock.h"
#include "tests/build/testing.h"
#include "tests/runtime/c_program.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;

// y = x + w by hand; `body` is what the kernel does for element i, with x, w and y at hand and `run` counting the runs.
PackageRequest AddByHand(const Network& network, const Partition& partition, const std::string& body) {
  const ComputeDag& dag = partition.tasks[0].dag;
  const std::vector<int> inputs = dag.inputs();
  const bool first_is_constant = dag.stage(inputs[0]).constant;
  Program program = CProgram(
      "static int run = 0;\n"
      "void add(void* const* a, long b, long e) {\n"
      "  const float *x = a[0], *w = a[1]; float* y = a[2]; ++run;\n"
      "  for (long i = 0; i < 100; ++i) {" +
      body + "}\n}\n");
  program.buffers = {FloatBuffer("x", 100, BufferRole::kInput, inputs[first_is_constant ? 1 : 0]),
                     FloatBuffer("w", 100, BufferRole::kConstant, inputs[first_is_constant ? 0 : 1]),
                     FloatBuffer("y", 100, BufferRole::kOutput, dag.outputs()[0])};
  program.kernels = {KernelOf("add", {0, 1, 2}, 1)};
  return {network,
          partition,
          TestTarget(TargetKind::kCpu),
          ResolveFacts(TestTarget(TargetKind::kCpu)),
          {{program, "by hand", 1, 0}}};
}

class CheckNetworkTest : public ::testing::Test {
 protected:
  NetworkVerdict Check(const std::string& body, const ReplayOptions& options = {},
                       const NetworkCheckOptions& check = {.seed = 5, .seeds = 3}) {
    NetworkMaker m;
    const int x = m.In("x", {100});
    const Network network = m.Out({m.Op("add", {x, m.Const("w", {100})}, {}, "y")});
    const Partition partition = PartitionNetwork(network).value();
    const Package package = Package::InMemory(
        "test", std::make_shared<const PackageContents>(AssemblePackage(AddByHand(network, partition, body)).value()));
    const std::unique_ptr<Device> device = OpenDevice(TestTarget(TargetKind::kCpu)).value();
    const NetworkReferences references = MakeReferences(package, *device, check).value();
    const std::unique_ptr<PackageRunner> runner = PackageRunner::Load(package, device.get()).value();
    return CheckRepeatedly(*runner, references, options).value();
  }
};

TEST_F(CheckNetworkTest, ARightNetworkIsRunOnAllInputsInTurns) {
  const NetworkVerdict verdict = Check("y[i] = x[i] + w[i];");
  EXPECT_TRUE(verdict.ok) << verdict.text;
  EXPECT_EQ(verdict.runs, 60);
  EXPECT_EQ(verdict.max_abs_error, 0);
  EXPECT_EQ(Check("y[i] = x[i] + w[i];", {.replays = 1000, .most_seconds = 0}).runs, 4);
}

// The first run of the other input is what its later ones are compared with.
TEST_F(CheckNetworkTest, ASlowReferenceComputesOneOfTwoInputs) {
  const NetworkCheckOptions slow = {.seed = 5, .seeds = 3, .most_seconds = 0};
  const NetworkVerdict verdict = Check("y[i] = x[i] + w[i];", {.replays = 5}, slow);
  EXPECT_TRUE(verdict.ok) << verdict.text;
  EXPECT_EQ(verdict.runs, 10);
  const char* const wrong_once = "y[i] = x[i] + w[i] + (run == 2 && i == 17);";
  EXPECT_THAT(Check(wrong_once).text, HasSubstr(" is allowed (inputs of seed 6, run 1)"));
  EXPECT_THAT(Check(wrong_once, {.replays = 5}, slow).text,
              HasSubstr(" in the first run of the same inputs (inputs of seed 6, run 2)"));
  EXPECT_EQ(Check("y[i] = x[i] + w[i] + (i == 17);", {}, slow).runs, 1);
}

TEST_F(CheckNetworkTest, AWrongNumberIsTold) {
  const NetworkVerdict verdict = Check("y[i] = x[i] + w[i] + (i == 17);");
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(verdict.runs, 1);
  EXPECT_NEAR(verdict.max_abs_error, 1, 1e-6);
  EXPECT_THAT(verdict.text, HasSubstr("output 'y' at element 17: "));
  EXPECT_THAT(verdict.text, HasSubstr(" is allowed (inputs of seed 5, run 1)"));
}

// Within the tolerance, and only now and then.
TEST_F(CheckNetworkTest, ALaterRunThatDiffersInOneBitIsTold) {
  const NetworkVerdict verdict = Check("y[i] = x[i] + w[i]; if (run == 8 && i == 3) y[i] *= 1.0000002f;");
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(verdict.runs, 8);
  EXPECT_THAT(verdict.text, HasSubstr("output 'y' at element 3: "));
  EXPECT_THAT(verdict.text, HasSubstr(" in the first run of the same inputs (inputs of seed 6, run 3)"));
}

// What an input of the run before leaves behind: shows since the inputs change.
TEST_F(CheckNetworkTest, WhatIsReadFromTheRunBeforeShows) {
  const NetworkVerdict verdict =
      Check("static float old[100]; y[i] = (run > 1 && i == 99 ? old[i] : x[i]) + w[i]; old[i] = x[i];");
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(verdict.runs, 2);
}

TEST_F(CheckNetworkTest, ANumberThatIsNotFiniteIsAnInfiniteError) {
  const NetworkVerdict verdict = Check("y[i] = x[i] + w[i]; if (i == 2) y[i] = 0.0f / 0.0f;");
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(verdict.max_abs_error, std::numeric_limits<double>::infinity());
}

// A cpu device that pretends to have paths: a plan with paths is slower by its own account, and runs its launches in
// `order`.
class PathsDevice : public Device {
 public:
  PathsDevice() : cpu_(OpenDevice(TestTarget(TargetKind::kCpu)).value()) {}
  bool reversed = false;

  const DeviceFacts& facts() const override { return cpu_->facts(); }
  TargetKind kind() const override { return cpu_->kind(); }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override { return cpu_->Allocate(bytes); }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> View(DeviceBuffer& of, int64_t offset, int64_t bytes) override {
    return cpu_->View(of, offset, bytes);
  }
  absl::Status CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) override {
    return cpu_->CopyIn(to, from, bytes);
  }
  absl::Status CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) override {
    return cpu_->CopyOut(to, from, bytes);
  }
  absl::Status Fill(DeviceBuffer& to, uint8_t value) override { return cpu_->Fill(to, value); }
  absl::StatusOr<std::unique_ptr<Module>> Load(const Program& program) override { return cpu_->Load(program); }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(std::vector<Launch> launches) override {
    return cpu_->MakePlan(std::move(launches));
  }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlanWith(std::vector<Launch> launches,
                                                     const PlanOptions& options) override {
    if (!options.parallel) return MakePlan(std::move(launches));
    if (reversed) std::reverse(launches.begin(), launches.end());
    absl::StatusOr<std::unique_ptr<Plan>> plan = cpu_->MakePlan(std::move(launches));
    if (!plan.ok()) return plan;
    return std::make_unique<TwoPaths>(*std::move(plan));
  }
  absl::Status FlushCache() override { return cpu_->FlushCache(); }
  Clocks clocks() const override { return cpu_->clocks(); }

 private:
  class TwoPaths : public Plan {
   public:
    explicit TwoPaths(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) {}
    absl::Status Run() override { return plan_->Run(); }
    absl::StatusOr<double> Time(int64_t times) override {
      const absl::StatusOr<double> seconds = plan_->Time(times);
      return seconds.ok() ? absl::StatusOr<double>(1000 + *seconds) : seconds;
    }
    int paths() const override { return 2; }

   private:
    const std::unique_ptr<Plan> plan_;
  };

  const std::unique_ptr<Device> cpu_;
};

// Which of two plans a load takes is decided by measuring: the one that was not taken today must be right too.
// Rows of padding, divided by their norms: a build that made numbers of them would be off by as much as the outputs
// are, which a tolerance must not allow.
TEST_F(CheckNetworkTest, RowsThatAreZeroDoNotMakeTheCheckBlind) {
  NetworkMaker m;
  const int x = m.Op("pad", {m.In("x", {4, 32})}, {{"pads", Shape{0, 0, 4, 0}}});
  const int y = m.Op("matmul", {x, m.Const("w", {32, 24})});
  const int squares = m.Op("reduce_sum", {m.Op("mul", {y, y})}, {{"axes", Shape{1}}});
  const int norm = m.Op("clip", {m.Op("sqrt", {squares})}, {{"min", 1e-12}});
  const Network network = m.Out({m.Op("matmul", {m.Op("div", {y, norm}), m.Const("v", {24, 16})}, {}, "z")});
  const Partition partition = PartitionNetwork(network).value();
  const Target target = TestTarget(TargetKind::kCpu);
  const Package package = Package::InMemory(
      "test",
      std::make_shared<const PackageContents>(AssemblePackage(ReferenceRequest(network, partition, target)).value()));
  const std::unique_ptr<Device> device = OpenDevice(target).value();
  Array input(DType::kFloat32, {4, 32});
  FillRandom(input, 3);
  const ExpectedOutputs expected = EvaluateReference(package, *device, {{"x", input}}).value();
  EXPECT_LT(expected.tolerances[0].relative, 0.01);
  EXPECT_EQ(expected.values[0].at(4 * 16), 0);
}

// A normalization behind a large bias has the bias's rounding errors, which are many times those of its own numbers.
TEST_F(CheckNetworkTest, DifferencesOfLargeNumbersMayHaveTheirErrors) {
  NetworkMaker m;
  const int bias = m.n.AddConstant("b", Array::FromFloats({1}, {300}));
  const int x = m.Op("add", {m.In("x", {16, 32}), bias});
  const Network network = m.Out({m.Op("sub", {x, m.Op("reduce_mean", {x}, {{"axes", Shape{1}}})}, {}, "y")});
  const Partition partition = PartitionNetwork(network).value();
  const Package package = Package::InMemory(
      "test", std::make_shared<const PackageContents>(
                  AssemblePackage(ReferenceRequest(network, partition, TestTarget(TargetKind::kCpu))).value()));
  const std::unique_ptr<Device> device = OpenDevice(TestTarget(TargetKind::kCpu)).value();
  NetworkReferences references = MakeReferences(package, *device, {.seed = 5, .seeds = 2}).value();
  // As another order of the sums may make it: a unit in the last place of 300.
  const std::unique_ptr<PackageRunner> runner = PackageRunner::Load(package, device.get()).value();
  const auto check = [&](double off) {
    NetworkReferences moved = references;
    for (ExpectedOutputs& outputs : moved.outputs) outputs.values[0].set(7, outputs.values[0].at(7) + off);
    if (references.widen != nullptr)
      moved.widen = [&references](size_t input, ExpectedOutputs* outputs) {
        ExpectedOutputs right = references.outputs[input];
        const absl::Status widened = references.widen(input, &right);
        outputs->tolerances = right.tolerances;
        return widened;
      };
    return CheckRepeatedly(*runner, moved).value();
  };
  EXPECT_TRUE(check(3e-5).ok) << check(3e-5).text;
  EXPECT_FALSE(check(0.5).ok);
  references.widen = nullptr;
  EXPECT_FALSE(check(3e-5).ok);
}

TEST_F(CheckNetworkTest, BothPlansAreRunWhereThereAreTwo) {
  NetworkMaker m;
  const int x = m.In("x", {1, 8});
  const int a = m.Op("gemm", {x, m.Const("a", {8, 8})});
  const Network network = m.Out({m.Op("gemm", {a, m.Const("b", {8, 9})}, {}, "y")});
  const Partition partition = PartitionNetwork(network).value();
  const Package package = Package::InMemory(
      "test", std::make_shared<const PackageContents>(
                  AssemblePackage(ReferenceRequest(network, partition, TestTarget(TargetKind::kCpu))).value()));
  PathsDevice device;
  const NetworkReferences references = MakeReferences(package, device, {}).value();
  const auto check = [&](bool keep_other_plan) {
    const std::unique_ptr<PackageRunner> runner = PackageRunner::Load(package, &device, keep_other_plan).value();
    EXPECT_EQ(runner->paths(), 1);
    return CheckRepeatedly(*runner, references).value();
  };
  EXPECT_TRUE(check(true).ok);
  device.reversed = true;
  EXPECT_TRUE(check(false).ok);
  const NetworkVerdict verdict = check(true);
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(verdict.runs, 4);
}

// ---- plans

Network Branches(int64_t width) {
  NetworkMaker m;
  const int x = m.In("x", {1, width});
  const int a = m.Op("gemm", {x, m.Const("wa", {width, width})}, {}, "a");
  const int b = m.Op("gemm", {x, m.Const("wb", {width, width})}, {}, "b");
  const int sum = m.Op("relu", {m.Op("add", {a, b})});
  const int flat = m.Op("reshape", {sum}, {{"shape", Shape{width}}}, "flat");
  return m.Out({flat, sum});
}

v1::NetworkPlan PlanOf(const Network& network) {
  v1::NetworkPlan plan;
  PlanNetwork(network, PartitionNetwork(network).value(), plan);
  return plan;
}

constexpr int64_t kEnough = int64_t{1} << 30;

TEST(NetworkPlanTest, APlannedNetworkComputesTheSame) {
  const Network network = Branches(8);
  const v1::NetworkPlan plan = PlanOf(network);
  const absl::StatusOr<PlannedNetwork> read = ParseNetworkPlan(plan, 1, 1, kEnough);
  ASSERT_TRUE(read.ok()) << read.status();
  const auto outputs = [](const Network& n, const Partition& partition) {
    const Package package = Package::InMemory(
        "test", std::make_shared<const PackageContents>(
                    AssemblePackage(ReferenceRequest(n, partition, TestTarget(TargetKind::kCpu))).value()));
    const std::unique_ptr<PackageRunner> runner = PackageRunner::Load(package).value();
    EXPECT_TRUE(runner->SetInputs(RandomInputs(runner->manifest(), 3)).ok());
    EXPECT_TRUE(runner->Run().ok());
    std::vector<std::vector<uint8_t>> bytes;
    const std::vector<Array> arrays = runner->Outputs().value();
    for (const Array& output : arrays) bytes.push_back(output.data);
    return bytes;
  };
  EXPECT_EQ(outputs(read->network, read->partition), outputs(network, PartitionNetwork(network).value()));
  EXPECT_EQ(read->network.tensor(read->network.outputs[0]).name, network.tensor(network.outputs[0]).name);
}

TEST(NetworkPlanTest, LargeConstantsAreMadeFromASeedInTheRangeOfTheRealOnes) {
  const Network network = Branches(1024);  // two constants of 4 MiB
  const v1::NetworkPlan plan = PlanOf(network);
  EXPECT_LT(plan.ByteSizeLong(), size_t{kPlanConstantBytes} + 100'000);
  const auto weights = [&](uint64_t seed, double gain) {
    const PlannedNetwork read = ParseNetworkPlan(plan, seed, gain, kEnough).value();
    for (const Tensor& tensor : read.network.tensors)
      if (tensor.constant()) return *tensor.data;
    return Array();
  };
  const Array one = weights(1, 1), again = weights(1, 1), other = weights(2, 1), smaller = weights(1, 0.5);
  EXPECT_EQ(one.data, again.data);
  EXPECT_NE(one.data, other.data);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < one.elements(); ++i) {
    sum += one.at(i);
    squares += one.at(i) * one.at(i);
    ASSERT_NEAR(smaller.at(i), one.at(i) / 2, 1e-6);
  }
  const double n = static_cast<double>(one.elements());
  EXPECT_NEAR(sum / n, 0, 0.01);  // the real ones are uniform in [-1, 1)
  EXPECT_NEAR(squares / n, 1.0 / 3, 0.01);
}

TEST(NetworkPlanTest, APlanThatContradictsItselfIsRefused) {
  const v1::NetworkPlan good = PlanOf(Branches(8));
  struct Case {
    const char* why;
    void (*change)(v1::NetworkPlan&);
  };
  const Case cases[] = {
      {"a program is of no task", [](v1::NetworkPlan& p) { p.mutable_programs(0)->set_task(99); }},
      {"a step runs no program", [](v1::NetworkPlan& p) { p.mutable_steps(0)->set_program(99); }},
      {"a step does not fit its task", [](v1::NetworkPlan& p) { p.mutable_steps(0)->set_inputs(0, 99); }},
      {"a step does not fit its task", [](v1::NetworkPlan& p) { p.mutable_steps(0)->add_inputs(0); }},
      {"a step reads what none before it makes",
       [](v1::NetworkPlan& p) { p.mutable_steps()->SwapElements(0, p.steps_size() - 1); }},
      {"an output is no tensor", [](v1::NetworkPlan& p) { p.set_outputs(0, 99); }},
      {"an input is no tensor of its own", [](v1::NetworkPlan& p) { p.set_inputs(0, 99); }},
      {"nothing makes tensor", [](v1::NetworkPlan& p) { p.mutable_steps()->RemoveLast(); }},
      {"a tensor is of no type", [](v1::NetworkPlan& p) { p.mutable_tensors(0)->set_dtype(77); }},
      {"has an extent of -1", [](v1::NetworkPlan& p) { p.mutable_tensors(0)->set_shape(0, -1); }},
      {"a tensor is the same as none", [](v1::NetworkPlan& p) { p.mutable_tensors(0)->set_same_as(77); }},
      {"need more memory", [](v1::NetworkPlan& p) { p.mutable_tensors(0)->set_shape(0, int64_t{1} << 60); }},
      {"of version 2", [](v1::NetworkPlan& p) { p.set_version(2); }},
      {"does not hold",
       [](v1::NetworkPlan& p) {
         *p.mutable_programs(0)->mutable_place() = {};
         p.mutable_programs(0)->mutable_place()->set_row(3);
       }},
  };
  for (const Case& c : cases) {
    v1::NetworkPlan plan = good;
    c.change(plan);
    const absl::Status status = ParseNetworkPlan(plan, 1, 1, kEnough).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why << ": " << status;
    if (std::string(c.why) == "does not hold") continue;  // one of several reasons
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why));
  }
}

// Bytes of peers: an answer or an error, never a crash, and what is read can be laid out.
TEST(NetworkPlanTest, NoChangeOfAPlanCrashesItsReader) {
  const std::string good = PlanOf(Branches(4)).SerializeAsString();
  std::mt19937 random(1);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    v1::NetworkPlan plan;
    if (!plan.ParseFromString(bytes)) continue;
    read += ParseNetworkPlan(plan, 1, 1, int64_t{1} << 20).ok();
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace diapason
