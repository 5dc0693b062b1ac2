// Programs that start early, behind a kernel that writes their inputs. Devices without such starts play them: the host
// runs kernels that may start early before the one in front of them.
#include "worker/process/in_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/reference.h"
#include "compiler/tensor/serialize.h"
#include "diapason/v1/process.pb.h"
#include "tests/paths.h"
#include "tests/worker/fakes.h"
#include "worker/process/candidate.h"

namespace diapason {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::IsEmpty;
using ::testing::Matcher;
using ::testing::Not;

// The whole text, but for the number of the element.
testing::Matcher<std::string> IsDifferent(const std::string& output) {
  return testing::MatchesRegex(absl::StrCat(
      "element [0-9]+ of output '", output, "'",
      " is another one when the program starts while the kernel in front still writes its inputs: a kernel "
      "reads or writes before it has waited \\(parameter 'overlap'\\)"));
}

// Launches in order; those that may start early, in front of the one before them.
class HastyPlan : public Plan {
 public:
  explicit HastyPlan(std::vector<std::unique_ptr<Plan>> plans) : plans_(std::move(plans)) {}
  absl::Status Run() override {
    for (const auto& plan : plans_) RETURN_IF_ERROR(plan->Run());
    return absl::OkStatus();
  }
  absl::StatusOr<double> Time(int64_t times) override {
    for (int64_t i = 0; i < times; ++i) RETURN_IF_ERROR(Run());
    return 1e-3 * static_cast<double>(times);
  }

 private:
  const std::vector<std::unique_ptr<Plan>> plans_;
};

// The cpu, as a device of another kind or one whose kernels do not wait when they start early.
class PlayingDevice : public Device {
 public:
  explicit PlayingDevice(bool hasty, TargetKind kind = TargetKind::kCpu)
      : device_(OpenDevice(Target::Parse("cpu -num-cores=1").value()).value()),
        hasty_(hasty),
        kind_(kind),
        facts_(device_->facts()) {
    if (kind != TargetKind::kCuda) return;
    facts_.arch = "sm_90";
    facts_.num_cores = 132;
    facts_.max_shared_bytes = 232448;
    facts_.shared_bytes_per_core = 233472;
  }
  const DeviceFacts& facts() const override { return facts_; }
  TargetKind kind() const override { return kind_; }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override { return device_->Allocate(bytes); }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> View(DeviceBuffer& of, int64_t offset, int64_t bytes) override {
    return device_->View(of, offset, bytes);
  }
  absl::Status CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) override {
    return device_->CopyIn(to, from, bytes);
  }
  absl::Status CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) override {
    return device_->CopyOut(to, from, bytes);
  }
  absl::Status Fill(DeviceBuffer& to, uint8_t value) override { return device_->Fill(to, value); }
  absl::StatusOr<std::unique_ptr<Module>> Load(const Program& program) override {
    if (program.target.kind == TargetKind::kCpu) return device_->Load(program);
    return std::make_unique<Module>();
  }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(std::vector<Launch> launches) override {
    ++plans_made;
    for (size_t i = 1; i < launches.size() && hasty_; ++i)
      if (launches[i].kernel.overlap) std::swap(launches[i - 1], launches[i]);
    std::vector<std::unique_ptr<Plan>> plans;
    for (const Launch& launch : launches) {
      if (kind_ == TargetKind::kCuda) continue;  // whose kernels there are not
      ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, device_->MakePlan({launch}));
      plans.push_back(std::move(plan));
    }
    return std::make_unique<HastyPlan>(std::move(plans));
  }
  absl::Status FlushCache() override { return absl::OkStatus(); }
  Clocks clocks() const override { return {}; }

  int plans_made = 0;

 private:
  const std::unique_ptr<Device> device_;
  const bool hasty_;
  const TargetKind kind_;
  DeviceFacts facts_;
};

// A buffer of a program.
struct Wanted {
  BufferRole role;
  int64_t elements;
  DType dtype = DType::kFloat32;
};

// A program of one kernel that may start early: `body` is C with the buffers as pointers b0, b1, ...
Program HastyProgram(const std::vector<Wanted>& buffers, const std::string& body) {
  Program program;
  program.target = Target::Parse("cpu -num-cores=1").value();
  program.source = "static int calls;\nvoid candidate(void* const* args, long long begin, long long end) {\n";
  Kernel& kernel = program.kernels.emplace_back();
  for (size_t i = 0; i < buffers.size(); ++i) {
    program.buffers.push_back({.name = absl::StrCat("b", i),
                               .dtype = buffers[i].dtype,
                               .elements = buffers[i].elements,
                               .role = buffers[i].role});
    const char* type = buffers[i].dtype == DType::kInt64     ? "long long"
                       : buffers[i].dtype == DType::kFloat16 ? "unsigned short"
                                                             : "float";
    absl::StrAppend(&program.source, "  ", type, "* b", i, " = args[", i, "];\n");
    kernel.args.push_back(static_cast<int>(i));
  }
  kernel.name = "candidate";
  kernel.overlap = true;
  absl::StrAppend(&program.source, "  (void)calls;\n", body, "\n}\n");
  EXPECT_EQ(CompileSource(program, 30), absl::OkStatus());
  return program;
}

constexpr auto kIn = BufferRole::kInput, kOut = BufferRole::kOutput, kWork = BufferRole::kWorkspace,
               kConst = BufferRole::kConstant;

class InPlaceTest : public ::testing::Test {
 protected:
  // Loads the program and fills each element of buffer b with a number of its own.
  void Prepare(Program program, bool hasty) {
    device_ = std::make_unique<PlayingDevice>(hasty);
    executable_ = Executable::Create(*device_, std::move(program)).value();
    ASSERT_TRUE(executable_->AllocateRest().ok());
    for (int b = 0; b < static_cast<int>(executable_->program().buffers.size()); ++b) {
      const ProgramBuffer& buffer = executable_->program().buffers[b];
      Array array(buffer.dtype, {buffer.elements});
      for (int64_t i = 0; i < buffer.elements; ++i) array.set(i, static_cast<double>(100 * b + i + 1));
      ASSERT_TRUE(device_->CopyIn(*executable_->buffer(b), array.data.data(), buffer.bytes()).ok());
    }
    in_place_ = InPlace::Create(*device_, &CompileSource).value();
  }

  std::string Compare(Program program, bool hasty) {
    Prepare(std::move(program), hasty);
    const absl::StatusOr<std::string> text = in_place_->Compare(*executable_, 3);
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }

  std::vector<double> Contents(int buffer) {
    const ProgramBuffer& what = executable_->program().buffers[buffer];
    Array array(what.dtype, {what.elements});
    EXPECT_TRUE(device_->CopyOut(array.data.data(), *executable_->buffer(buffer), what.bytes()).ok());
    std::vector<double> values;
    for (int64_t i = 0; i < what.elements; ++i) values.push_back(array.at(i));
    return values;
  }

  std::unique_ptr<PlayingDevice> device_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<InPlace> in_place_;
};

const std::string kDouble = "for (int i = 0; i < 1000; ++i) b1[i] = 2 * b0[i];";

TEST_F(InPlaceTest, WhatWaitsIsRightAndLeavesInputsAndOutputsBehind) {
  EXPECT_EQ(Compare(HastyProgram({{kIn, 1000}, {kOut, 1000}}, kDouble), false), "");
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(Contents(0)[i], i + 1);
    ASSERT_EQ(Contents(1)[i], 2 * (i + 1));
  }
}

TEST_F(InPlaceTest, StaleInputsAreFound) {
  EXPECT_THAT(Compare(HastyProgram({{kIn, 1000}, {kOut, 1000}}, kDouble), true), IsDifferent("b1"));
  // The same kernel, launched as any other.
  Program patient = HastyProgram({{kIn, 1000}, {kOut, 1000}}, kDouble);
  patient.kernels[0].overlap = false;
  EXPECT_FALSE(StartsEarly(patient));
  EXPECT_EQ(Compare(std::move(patient), true), "");
}

TEST_F(InPlaceTest, StaleInputsOfOneRunInManyAreFound) {
  // Right but for the fifth run: two are made in order, then there are two in each replay.
  const std::string body =
      "static float old[8];\nfor (int i = 0; i < 8; ++i) b1[i] = calls == 4 ? old[i] : b0[i];\n"
      "for (int i = 0; i < 8; ++i) old[i] = b0[i];\n++calls;";
  EXPECT_THAT(Compare(HastyProgram({{kIn, 8}, {kOut, 8}}, body), false), IsDifferent("b1"));
}

TEST_F(InPlaceTest, WritesBeforeTheWaitAreFound) {
  // What the kernel in front reads there would be lost: here that fills it.
  EXPECT_THAT(Compare(HastyProgram({{kConst, 9}, {kOut, 9}}, "for (int i = 0; i < 9; ++i) b1[i] = b0[i];"), true),
              IsDifferent("b1"));
}

TEST_F(InPlaceTest, StaleWorkspacesAreFound) {
  const auto program = [] {
    Program two =
        HastyProgram({{kIn, 16}, {kWork, 16}, {kOut, 16}},
                     "for (int i = 0; i < 16; ++i) b1[i] = b0[i] + 1;\n}\nvoid second(void* const* args, long long "
                     "begin, long long end) {\n"
                     "  float *b1 = args[0], *b2 = args[1];\n  for (int i = 0; i < 16; ++i) b2[i] = 2 * b1[i];");
    two.kernels.push_back(two.kernels[0]);
    two.kernels[0].overlap = false;
    two.kernels[1].name = "second";
    two.kernels[1].args = {1, 2};
    return two;
  };
  EXPECT_EQ(Compare(program(), false), "");
  EXPECT_THAT(Compare(program(), true), IsDifferent("b2"));
}

TEST_F(InPlaceTest, EachOfManyInputsIsTheLastThatIsWritten) {
  for (int stale : {0, 7, 8, 19}) {
    std::vector<Wanted> buffers(20, Wanted{kIn, 6});
    buffers.push_back({kOut, 6});
    const std::string body = absl::StrCat("for (int i = 0; i < 6; ++i) b20[i] = b", stale, "[i];");
    EXPECT_EQ(Compare(HastyProgram(buffers, body), false), "") << stale;
    EXPECT_THAT(Compare(HastyProgram(buffers, body), true), IsDifferent("b20")) << stale;
  }
}

TEST_F(InPlaceTest, InputsOfAllSizesChangeByWholeElements) {
  for (const Wanted& input : {Wanted{kIn, 2}, Wanted{kIn, 3}, Wanted{kIn, 64}, Wanted{kIn, 3, DType::kInt64},
                              Wanted{kIn, 5, DType::kFloat16}}) {
    const std::string body =
        absl::StrCat("b2[calls++] = b0[0]; for (int i = 0; i < ", input.elements, "; ++i) b1[i] = b0[i];");
    // What is called a constant here is where the test sees the first elements.
    EXPECT_EQ(
        Compare(HastyProgram({input, {kOut, input.elements, input.dtype}, {kConst, 20, input.dtype}}, body), false),
        "");
    EXPECT_EQ(Contents(0), Contents(1));
    const std::vector<double> first = Contents(2), elements = Contents(0);
    EXPECT_THAT(elements, Contains(first[0])) << "no element is cut in two";
    EXPECT_NE(first[0], elements[0]) << input.elements;
    EXPECT_EQ(first[1], elements[0]);
    EXPECT_EQ(first[2], first[0]);
  }
}

TEST_F(InPlaceTest, RewritingLeavesInputsAsTheyAre) {
  Prepare(HastyProgram({{kIn, 1000}, {kIn, 7}, {kOut, 1000}}, ""), false);
  const std::vector<double> first = Contents(0), second = Contents(1);
  std::vector<Launch> launches = in_place_->Rewrite(*executable_).value();
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_THAT(launches[0].args, Contains(executable_->buffer(0)));
  EXPECT_THAT(launches[0].args, Contains(executable_->buffer(1)));
  EXPECT_THAT(launches[0].args, Not(Contains(executable_->buffer(2))));
  ASSERT_TRUE(device_->MakePlan(launches).value()->Run().ok());
  EXPECT_EQ(Contents(0), first);
  EXPECT_EQ(Contents(1), second);
}

TEST_F(InPlaceTest, RewritingIsTimedOnceForInputsOfTheSameSizes) {
  const auto program = [](int64_t first, int64_t second) {
    return HastyProgram({{kIn, first}, {kIn, second}, {kOut, 7}}, "for (int i = 0; i < 7; ++i) b2[i] = b0[i] + b1[0];");
  };
  Prepare(program(1000, 7), false);
  const auto plans_for = [&](const Executable& executable) {
    const int made = device_->plans_made;
    EXPECT_NE(in_place_->TimedRewrite(executable, 1).value(), nullptr);
    return device_->plans_made - made;
  };
  EXPECT_EQ(plans_for(*executable_), 1);
  EXPECT_EQ(plans_for(*executable_), 0);
  const std::vector<double> first = Contents(0);
  EXPECT_EQ(in_place_->Compare(*executable_, 4).value(), "");
  EXPECT_EQ(plans_for(*executable_), 0) << "a comparison leaves it";
  ASSERT_TRUE(in_place_->TimedRewrite(*executable_, 1).value()->TimeAgain().ok());
  EXPECT_EQ(Contents(0), first);
  auto turned = Executable::Create(*device_, program(7, 1000)).value();
  ASSERT_TRUE(turned->AllocateRest().ok());
  EXPECT_EQ(plans_for(*turned), 1);
  EXPECT_EQ(plans_for(*turned), 0);
  // Inputs of a size that nobody wants a copy of.
  auto large = Executable::Create(*device_, HastyProgram({{kIn, 20 << 20}, {kOut, 1}}, "")).value();
  ASSERT_TRUE(large->AllocateRest().ok());
  EXPECT_EQ(in_place_->TimedRewrite(*large, 1).value(), nullptr);
  EXPECT_EQ(plans_for(*turned), 0);
  in_place_->Forget();
  EXPECT_EQ(plans_for(*turned), 1);
}

// On a GPU the launches that are timed with a program are as those of a network: they start early, on all
// multiprocessors.
TEST_F(InPlaceTest, RewritingStandsInForAKernelOfANetwork) {
  Prepare(HastyProgram({{kIn, 1000}, {kOut, 1000}}, ""), false);
  for (const TargetKind kind : {TargetKind::kCpu, TargetKind::kCuda}) {
    PlayingDevice device(false, kind);
    const bool cuda = kind == TargetKind::kCuda;  // which loads anything
    std::string source;
    const SourceCompiler keeps = [&source](Program& program, double) {
      source = program.source;
      return absl::OkStatus();
    };
    const auto in_place = InPlace::Create(device, cuda ? keeps : SourceCompiler(&CompileSource));
    ASSERT_TRUE(in_place.ok()) << in_place.status();
    // A program behind it starts when nothing in front of it writes or reads any more.
    EXPECT_THAT(source,
                cuda ? Matcher<std::string>(ContainsRegex("griddepcontrol.wait.*launch_dependents")) : IsEmpty());
    EXPECT_THAT(source, Not(ContainsRegex("launch_dependents.*griddepcontrol.wait")));
    const std::vector<Launch> launches = (*in_place)->Rewrite(*executable_).value();
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_EQ(launches[0].kernel.overlap, cuda);
    EXPECT_EQ(launches[0].kernel.grid[0], cuda ? device.facts().num_cores : 64);
    EXPECT_EQ(launches[0].kernel.shared_bytes, 0);
  }
}

// Blocks with more than half of a multiprocessor's shared memory find none free, as behind a kernel of their own kind.
TEST_F(InPlaceTest, RewritingLeavesNoRoomForProgramsThatLeaveNone) {
  const SourceCompiler keeps = [](Program&, double) { return absl::OkStatus(); };
  PlayingDevice device(false, TargetKind::kCuda);
  const auto in_place = InPlace::Create(device, keeps).value();
  const auto executable_with = [&](int64_t shared_bytes) {
    Program program = HastyProgram({{kIn, 1000}, {kOut, 1000}}, "");
    program.kernels[0].shared_bytes = shared_bytes;
    auto executable = Executable::Create(device, std::move(program)).value();
    DIAPASON_CHECK(executable->AllocateRest().ok());
    return executable;
  };
  const int64_t half = device.facts().shared_bytes_per_core / 2;
  for (int64_t few : {int64_t{0}, half - 1024})
    EXPECT_EQ(in_place->Rewrite(*executable_with(few)).value()[0].kernel.shared_bytes, 0) << few;
  for (int64_t many : {half - 1023, device.facts().max_shared_bytes}) {
    const std::vector<Launch> launches = in_place->Rewrite(*executable_with(many)).value();
    EXPECT_EQ(launches[0].kernel.shared_bytes, device.facts().max_shared_bytes) << many;
  }
  // Both kinds are timed, each once.
  const auto few = executable_with(0), many = executable_with(half);
  TimedLaunches* const beside = in_place->TimedRewrite(*few, 1).value();
  TimedLaunches* const alone = in_place->TimedRewrite(*many, 1).value();
  EXPECT_NE(beside, alone);
  EXPECT_EQ(in_place->TimedRewrite(*few, 1).value(), beside);
  EXPECT_EQ(in_place->TimedRewrite(*many, 1).value(), alone);
}

// A job as a runner gets it.
v1::RunReply RunJobOn(Device& device, const SourceCompiler& compile, v1::MeasureMode mode) {
  const ComputeDag dag = DoublingDag(1000);
  Program program = HastyProgram({{kIn, 1000}, {kOut, 1000}}, kDouble);
  program.buffers[0].stage = 0;
  program.buffers[1].stage = 1;
  v1::RunJob job;
  job.set_workload(SerializeDag(dag));
  job.set_program(SerializeProgram(program));
  job.set_reference_program(SerializeProgram(CompileReference(dag, program.target).value()));
  job.set_mode(mode);
  job.mutable_timing()->set_repeat(1);
  CandidateRunner runner(device, compile);
  return runner.Run(job, [](MeasureStage, bool) {});
}

TEST(CandidateInPlaceTest, RunnersRefuseWhatReadsBeforeItHasWaited) {
  for (v1::MeasureMode mode : {v1::MEASURE_MODE_TIME, v1::MEASURE_MODE_VERIFY, v1::MEASURE_MODE_TIME_AND_VERIFY}) {
    PlayingDevice patient(false), hasty(true);
    const v1::RunReply right = RunJobOn(patient, &CompileSource, mode), wrong = RunJobOn(hasty, &CompileSource, mode);
    EXPECT_FALSE(right.has_error()) << right.error().text();
    EXPECT_EQ(right.verification().ok(), mode != v1::MEASURE_MODE_TIME);
    EXPECT_EQ(wrong.error().kind(), "wrong_result");
    EXPECT_THAT(wrong.error().text(), IsDifferent("b1"));
    EXPECT_FALSE(wrong.verification().ok());
    EXPECT_EQ(wrong.verification().text(), mode == v1::MEASURE_MODE_TIME ? "" : wrong.error().text());
  }
}

TEST(CandidateInPlaceTest, WithoutACompilerNoVerdictIsGiven) {
  PlayingDevice device(false);
  const v1::RunReply reply = RunJobOn(device, nullptr, v1::MEASURE_MODE_VERIFY);
  EXPECT_EQ(reply.error().kind(), "infrastructure");
  EXPECT_EQ(reply.error().text(), "this runner has no compiler for the kernels around a program that starts early");
}

TEST(InPlaceSources, CompileForCuda) {
  PlayingDevice device(false, TargetKind::kCuda);
  const auto made = InPlace::Create(device, &CompileSource);
  if (absl::IsUnavailable(made.status())) GTEST_SKIP() << made.status().message();
  EXPECT_TRUE(made.ok()) << made.status();
}

// --- Devices that are what they are: PoCL, and a GPU where there is one.

constexpr char kOpenClSource[] =
    "__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void candidate(__global const float* x, __global float* "
    "y) {\n"
    "  y[get_global_id(0)] = 2 * x[get_global_id(0)];\n}\n";

// The text has WAIT where the kernel waits: in front of what it reads and writes, between, or behind.
std::string CudaSource(const std::string& body) {
  return "#define WAIT asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
         "extern \"C\" __global__ void candidate(const float* x, float* y) {\n"
         "  asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n"
         "  const int i = blockIdx.x * 64 + threadIdx.x;\n  " +
         body + "\n}\n";
}

// What InPlace says of a program y = f(x) of 6,400 elements on a device; the reason in `skipped` where there is none.
std::string CompareOn(const std::string& target_text, const std::string& source, std::string* skipped) {
  Program program;
  program.target = Target::Parse(target_text).value();
  auto device = OpenDevice(program.target);
  const bool cuda = program.target.kind == TargetKind::kCuda;
  if (!device.ok()) {
    EXPECT_TRUE(cuda || MayLack("opencl")) << device.status();
    *skipped = std::string(device.status().message());
  } else if (cuda && std::stoi((*device)->facts().arch.substr(3)) < 90) {
    *skipped = (*device)->facts().arch + " starts no kernel early";
  }
  if (!skipped->empty()) return "";
  if (cuda) program.target.arch = (*device)->facts().arch;
  program.source = source;
  program.buffers = {{.name = "x", .elements = 6400, .role = kIn}, {.name = "y", .elements = 6400, .role = kOut}};
  Kernel& kernel = program.kernels.emplace_back();
  kernel.name = "candidate";
  kernel.args = {0, 1};
  kernel.grid[0] = 100;
  kernel.block[0] = 64;
  kernel.overlap = true;
  EXPECT_EQ(CompileSource(program, 30), absl::OkStatus());
  auto executable = Executable::Create(**device, program).value();
  EXPECT_TRUE(executable->AllocateRest().ok());
  Array x(DType::kFloat32, {6400});
  for (int i = 0; i < 6400; ++i) x.set(i, i);
  EXPECT_TRUE((*device)->CopyIn(*executable->buffer(0), x.data.data(), 4 * 6400).ok());
  const auto in_place = InPlace::Create(**device, &CompileSource);
  EXPECT_TRUE(in_place.ok()) << in_place.status();
  const absl::StatusOr<std::string> text = (*in_place)->Compare(*executable, 16);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

TEST(InPlaceOnDevices, OpenCl) {
  std::string skipped;
  EXPECT_EQ(CompareOn("opencl", kOpenClSource, &skipped), "");
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(InPlaceOnDevices, CudaKernelsThatWaitAreRight) {
  std::string skipped;
  EXPECT_EQ(CompareOn("cuda", CudaSource("WAIT y[i] = 2 * x[i];"), &skipped), "");
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(InPlaceOnDevices, CudaKernelsThatReadTooEarlyAreFound) {
  std::string skipped;
  const std::string text =
      CompareOn("cuda", CudaSource("const float v = *(const volatile float*)(x + i); WAIT y[i] = 2 * v;"), &skipped);
  if (!skipped.empty()) GTEST_SKIP() << skipped;
  EXPECT_THAT(text, IsDifferent("y"));
}

TEST(InPlaceOnDevices, CudaKernelsThatWriteTooEarlyAreFound) {
  std::string skipped;
  const std::string text = CompareOn("cuda", CudaSource("y[i] = i; WAIT"), &skipped);
  if (!skipped.empty()) GTEST_SKIP() << skipped;
  EXPECT_THAT(text, IsDifferent("y"));
}

TEST(InPlaceOnDevices, CudaKernelsThatDoNotWaitAreFound) {
  std::string skipped;
  const std::string text = CompareOn("cuda", CudaSource("y[i] = 2 * x[i];"), &skipped);
  if (!skipped.empty()) GTEST_SKIP() << skipped;
  EXPECT_THAT(text, IsDifferent("y"));
}

}  // namespace
}  // namespace diapason
