#include "compiler/build/port_memory.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/build/package.h"
#include "compiler/build/profile_package.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/dynamic_library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/build/testing.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Values;

CallerPort In(uint64_t begin, uint64_t bytes, bool movable = true) { return {{begin, begin + bytes}, false, movable}; }
CallerPort Out(uint64_t begin, uint64_t bytes, bool movable = true) { return {{begin, begin + bytes}, true, movable}; }

TEST(UsableInPlace, MemoryApartIs) {
  EXPECT_THAT(UsableInPlace({In(0x1000, 64), In(0x1040, 64), Out(0x1080, 100), Out(0x2000, 64)}, {}),
              ElementsAre(true, true, true, true));
}

TEST(UsableInPlace, NoMemoryIsTheRunnersOwn) {
  EXPECT_THAT(UsableInPlace({{{}, false, true}, {{}, true, true}, Out(0x1000, 4)}, {}),
              ElementsAre(false, false, true));
  EXPECT_THAT(UsableInPlace({}, {}), IsEmpty());
}

TEST(UsableInPlace, WhatCannotBeMovedIsCopied) {
  EXPECT_THAT(UsableInPlace({In(0x1000, 64, false), In(0x2000, 64), Out(0x3000, 64, false)}, {}),
              ElementsAre(false, true, false));
}

TEST(UsableInPlace, AddressesThatKernelsDoNotExpectAreCopied) {
  EXPECT_THAT(
      UsableInPlace({In(0x1004, 8), In(0x1010, 8), In(0x1020, 8), In(0x1040, 8), Out(0x1061, 8), Out(0x1080, 8)}, {}),
      ElementsAre(false, false, false, true, false, true));
}

TEST(UsableInPlace, OutputsOverAnotherPortAreCopied) {
  // The same memory, the last byte, all around, touching.
  EXPECT_THAT(UsableInPlace({In(0x1000, 64), Out(0x1000, 64)}, {}), ElementsAre(true, false));
  EXPECT_THAT(UsableInPlace({In(0x1000, 65), Out(0x1040, 64)}, {}), ElementsAre(true, false));
  EXPECT_THAT(UsableInPlace({In(0x1040, 64), Out(0x1000, 512)}, {}), ElementsAre(true, false));
  EXPECT_THAT(UsableInPlace({In(0x1000, 512), Out(0x1040, 64)}, {}), ElementsAre(true, false));
  EXPECT_THAT(UsableInPlace({In(0x1000, 64), Out(0x1040, 64)}, {}), ElementsAre(true, true));
  // One that covers several, which are apart; the memory of an input that is copied counts too.
  EXPECT_THAT(UsableInPlace({Out(0x1000, 1024), Out(0x1040, 64), Out(0x1080, 64), Out(0x1400, 64)}, {}),
              ElementsAre(false, false, false, true));
  EXPECT_THAT(UsableInPlace({In(0x1004, 64), Out(0x1040, 64)}, {}), ElementsAre(false, false));
  EXPECT_THAT(UsableInPlace({Out(0x1000, 1024), In(0x1040, 64), In(0x1080, 64), Out(0x13c0, 64)}, {}),
              ElementsAre(false, true, true, false));
}

TEST(UsableInPlace, InputsMayOverlap) {
  EXPECT_THAT(UsableInPlace({In(0x1000, 64), In(0x1000, 64), In(0x1000, 4096), Out(0x2000, 4)}, {}),
              ElementsAre(true, true, true, true));
}

TEST(UsableInPlace, OwnMemoryIsCopied) {
  const std::vector<AddressRange> own = {{0x1000, 0x2000}, {0x4000, 0x4100}};
  EXPECT_THAT(UsableInPlace({In(0x1fc0, 64), In(0x2000, 64), In(0xfc0, 65), Out(0xe00, 0x100), Out(0x3fc0, 0x1000),
                             Out(0x40c0, 4), Out(0x5000, 4)},
                            own),
              ElementsAre(false, true, false, true, false, false, true));
}

TEST(TensorsOfOnePort, AreInputsAndComputedOutputsThatHaveNoOtherName) {
  using Place = PackageTensor::Place;
  PackageManifest manifest;
  for (Place place : {Place::kInput, Place::kInput, Place::kConstant, Place::kArena, Place::kArena, Place::kArena})
    manifest.tensors.push_back({"", DType::kFloat32, 1, place, 0});
  const auto port = [](int tensor) { return PackagePort{"", DType::kFloat32, {1}, tensor, 0, 0}; };
  manifest.inputs = {port(0), port(1)};
  manifest.outputs = {port(1), port(2), port(3), port(4), port(3)};
  EXPECT_THAT(TensorsOfOnePort(manifest), ElementsAre(true, false, false, false, true, false));
}

// ---- Redirections ----

// Remembers what it was asked for, and fails when told to.
class FakePlan : public Plan {
 public:
  absl::Status Run() override { return absl::OkStatus(); }
  absl::StatusOr<double> Time(int64_t) override { return 0.0; }
  bool CanRedirect(const DeviceBuffer& buffer) const override { return &buffer != fixed; }
  absl::Status Redirect(absl::Span<const Redirection> redirections) override {
    calls.emplace_back();
    for (const Redirection& one : redirections) calls.back().push_back({one.buffer, one.address});
    return fail ? absl::InternalError("the driver failed") : absl::OkStatus();
  }

  using Call = std::vector<std::pair<const DeviceBuffer*, void*>>;
  std::vector<Call> calls;
  const DeviceBuffer* fixed = nullptr;
  bool fail = false;
};

// An input and two outputs of 64 bytes.
class RedirectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    using Place = PackageTensor::Place;
    for (Place place : {Place::kInput, Place::kArena, Place::kArena}) {
      const int tensor = static_cast<int>(manifest_.tensors.size());
      manifest_.tensors.push_back({"", DType::kFloat32, 16, place, 0});
      auto& ports = place == Place::kInput ? manifest_.inputs : manifest_.outputs;
      ports.push_back(PackagePort{"", DType::kFloat32, {16}, tensor, 0, 0});
      tensors_.push_back(device_->Allocate(64).value());
      callers_.push_back(device_->Allocate(64).value());
      own_.push_back(device_->AddressOf(*tensors_.back()));
      given_.push_back(device_->AddressOf(*callers_.back()));
    }
  }
  std::unique_ptr<PortMemory> Make() {
    return std::make_unique<PortMemory>(manifest_, *device_, plan_, tensors_, std::vector<Launch>{});
  }

  const std::unique_ptr<Device> device_ = OpenDevice(TestTarget(TargetKind::kCpu)).value();
  FakePlan plan_;
  PackageManifest manifest_;
  std::vector<std::shared_ptr<DeviceBuffer>> tensors_, callers_;
  std::vector<void*> own_, given_;
};

TEST_F(RedirectionTest, OnlyWhatChangesIsRedirected) {
  const auto memory = Make();
  const auto use = [&](void* in, void* out, void* other) {
    plan_.calls.clear();
    EXPECT_EQ(memory->Use({in}, {out, other}), absl::OkStatus());
    return plan_.calls;
  };
  using Calls = std::vector<FakePlan::Call>;
  const DeviceBuffer *const x = tensors_[0].get(), *const y = tensors_[1].get();
  EXPECT_EQ(use(nullptr, nullptr, nullptr), Calls{});
  EXPECT_EQ(use(own_[0], own_[1], nullptr), Calls{}) << "own memory by its address";
  EXPECT_EQ(use(given_[0], given_[1], nullptr), (Calls{{{x, given_[0]}, {y, given_[1]}}}));
  EXPECT_EQ(use(given_[0], given_[1], nullptr), Calls{});
  EXPECT_EQ(use(given_[0], given_[2], nullptr), (Calls{{{y, given_[2]}}}));
  EXPECT_EQ(use(given_[0], given_[0], nullptr), (Calls{{{y, own_[1]}}})) << "over the input: copied";
  EXPECT_EQ(use(nullptr, given_[0], nullptr), (Calls{{{x, own_[0]}, {y, given_[0]}}}));
  plan_.calls.clear();
  EXPECT_EQ(memory->Use({}, {}), absl::OkStatus());
  EXPECT_EQ(plan_.calls, (Calls{{{y, own_[1]}}}));
}

TEST_F(RedirectionTest, WhatThePlanCannotRedirectIsCopied) {
  plan_.fixed = tensors_[1].get();
  const auto memory = Make();
  ASSERT_EQ(memory->Use({given_[0]}, {given_[1], given_[2]}), absl::OkStatus());
  EXPECT_THAT(memory->in_place(), ElementsAre(true, false, true));
  ASSERT_EQ(plan_.calls.size(), 1u);
  EXPECT_EQ(plan_.calls[0].size(), 2u);
  // Only the copied output is touched.
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(device_->Fill(*tensors_[i], 1), absl::OkStatus());
    ASSERT_EQ(device_->Fill(*callers_[i], 2), absl::OkStatus());
  }
  ASSERT_EQ(memory->CopyIn(nullptr), absl::OkStatus());
  ASSERT_EQ(memory->CopyOut(nullptr), absl::OkStatus());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(*static_cast<char*>(own_[i]), 1) << i;
    EXPECT_EQ(*static_cast<char*>(given_[i]), i == 1 ? 1 : 2) << i;
  }
}

TEST_F(RedirectionTest, AFailureIsMadeUpFor) {
  const auto memory = Make();
  plan_.fail = true;
  EXPECT_EQ(memory->Use({given_[0]}, {given_[1], nullptr}).message(), "the driver failed");
  EXPECT_EQ(memory->Use({given_[0]}, {given_[1], nullptr}).message(), "the driver failed") << "the same again";
  plan_.fail = false;
  plan_.calls.clear();
  ASSERT_EQ(memory->Use({}, {}), absl::OkStatus());
  // Nobody knows what the plan has: all are put back.
  EXPECT_EQ(plan_.calls,
            (std::vector<FakePlan::Call>{
                {{tensors_[0].get(), own_[0]}, {tensors_[1].get(), own_[1]}, {tensors_[2].get(), own_[2]}}}));
  plan_.calls.clear();
  ASSERT_EQ(memory->Use({}, {}), absl::OkStatus());
  EXPECT_TRUE(plan_.calls.empty());
}

// ---- Packages ----

// Products of rows, of which some are outputs and are read again.
Network Rows() {
  NetworkMaker m;
  const int x = m.In("x", {16, 32}), y = m.In("y", {16, 32});
  const int a = m.Op("tanh", {m.Op("matmul", {x, m.Const("w", {32, 32})})}, {}, "a");
  const int b = m.Op("relu", {m.Op("add", {m.Op("matmul", {a, m.Const("v", {32, 32})}), y})}, {}, "b");
  const int c = m.Op("softmax", {m.Op("matmul", {b, m.Const("u", {32, 32})})}, {}, "c");
  return m.Out({a, b, c});
}

// An output that is an input, one that is two, a constant, and one by itself.
Network Doubled() {
  NetworkMaker m;
  const int x = m.In("x", {4, 16}), y = m.In("y", {4, 16});
  const int sum = m.Op("tanh", {m.Op("add", {x, y})}, {}, "sum");
  const int flat = m.Op("reshape", {sum}, {{"shape", Shape{64}}}, "flat");
  const int alone = m.Op("mul", {m.Op("relu", {y}), y}, {}, "alone");
  return m.Out({x, sum, flat, m.Const("constant", {4, 16}), alone});
}

// As a transformer that returns its cache: two outputs a layer, both read again.
Network Layers(int layers) {
  NetworkMaker m;
  int h = m.In("x", {16, 32});
  std::vector<int> outputs;
  for (int i = 0; i < layers; ++i) {
    for (const char* name : {"k", "v"})
      outputs.push_back(m.Op("matmul", {h, m.Const(absl::StrCat("w", name, i), {32, 32})}, {}, absl::StrCat(name, i)));
    h = m.Op("tanh", {m.Op("mul", {outputs[2 * i], outputs[2 * i + 1]})}, {}, absl::StrCat("h", i));
  }
  outputs.push_back(h);
  return m.Out(outputs);
}

class PortMemoryTest : public FolderTest, public ::testing::WithParamInterface<TargetKind> {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    auto opened = OpenDevice(TestTarget(GetParam()));
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    device_ = *std::move(opened);
  }

  // Tuned kernels' ancestors: vectors and shared memory instead of plain loops.
  std::unique_ptr<PackageRunner> Load(const Network& network) {
    Target target = TestTarget(GetParam());
    if (GetParam() == TargetKind::kCuda) target.arch = device_->facts().arch;
    const Partition partition = PartitionNetwork(network).value();
    PackageRequest request{network, partition, target, ResolveFacts(target), {}};
    for (const PlacedTask& placed : partition.programs) {
      const ComputeDag& dag = partition.tasks[placed.task].dag;
      const Schedule schedule = DefaultSchedule(dag, target, request.device).value();
      const auto lowered = Lower(dag, schedule, target, request.device, placed.place);
      EXPECT_TRUE(lowered.ok()) << lowered.status();
      request.tasks.push_back({CompileProgram(*lowered, target).value(), schedule.sketch, -1, 0});
    }
    EXPECT_EQ(BuildPackage(Path("p"), request), absl::OkStatus());
    auto runner = PackageRunner::Load(Path("p"), device_.get());
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  }

  // Memory of a caller, as that of a framework's allocator: in `size` bytes, at an offset.
  char* Memory(int64_t size) {
    memory_.push_back(device_->Allocate(size).value());
    EXPECT_EQ(device_->Fill(*memory_.back(), 0xff), absl::OkStatus());
    return static_cast<char*>(device_->AddressOf(*memory_.back()));
  }
  void Put(void* to, const Array& value) {
    const auto buffer = device_->Wrap(to, static_cast<int64_t>(value.data.size()));
    ASSERT_EQ(device_->CopyIn(*buffer, value.data.data(), buffer->bytes()), absl::OkStatus());
  }
  Array Get(const void* from, const PackagePort& port) {
    Array value(port.dtype, port.shape);
    const auto buffer = device_->Wrap(const_cast<void*>(from), static_cast<int64_t>(value.data.size()));
    EXPECT_EQ(device_->CopyOut(value.data.data(), *buffer, buffer->bytes()), absl::OkStatus());
    return value;
  }
  // Runs are put into a stream of nobody: the default one, which Wait is behind.
  absl::Status Enqueue(PackageRunner& runner, const std::vector<void*>& inputs, const std::vector<void*>& outputs) {
    RETURN_IF_ERROR(runner.Enqueue(nullptr, inputs, outputs));
    return Wait();
  }
  absl::Status Wait() {
    if (GetParam() != TargetKind::kCuda) return absl::OkStatus();
    int (*wait)() = nullptr;
    const auto cuda = DynamicLibrary::Open({"libcuda.so.1"});
    if (cuda == nullptr || !cuda->Find("cuCtxSynchronize", wait)) return absl::InternalError("no cuCtxSynchronize");
    return wait() == 0 ? absl::OkStatus() : absl::InternalError("the GPU failed");
  }

  static std::vector<Array> RandomArrays(const PackageManifest& manifest, uint64_t seed) {
    std::vector<Array> arrays;
    for (const PackagePort& port : manifest.inputs) FillRandom(arrays.emplace_back(port.dtype, port.shape), seed++);
    return arrays;
  }
  static void ExpectClose(const Array& got, const Array& want, const std::string& what) {
    ASSERT_EQ(got.elements(), want.elements()) << what;
    for (int64_t e = 0; e < want.elements(); ++e)
      ASSERT_NEAR(got.at(e), want.at(e), 1e-5 * (1 + std::abs(want.at(e)))) << what << ", element " << e;
  }
  void ExpectAt(const std::vector<void*>& outputs, const Network& network, const PackageManifest& manifest,
                const std::vector<Array>& inputs, const std::string& what) {
    const std::vector<Array> want = EvaluateNetwork(network, inputs).value();
    for (size_t i = 0; i < want.size(); ++i)
      ExpectClose(Get(outputs[i], manifest.outputs[i]), want[i], absl::StrCat(what, ", output ", i));
  }

  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<DeviceBuffer>> memory_;
};

INSTANTIATE_TEST_SUITE_P(Devices, PortMemoryTest, Values(TargetKind::kCpu, TargetKind::kCuda),
                         [](const auto& info) { return info.param == TargetKind::kCpu ? "cpu" : "cuda"; });

constexpr int64_t kRowBytes = 16 * 32 * 4;

TEST_P(PortMemoryTest, RunsUseTheMemoryThatEachIsGiven) {
  const Network network = Rows();
  const auto runner = Load(network);
  struct Set {
    std::vector<void*> in, out;
  };
  std::vector<Set> sets(2);
  for (Set& set : sets) {
    for (int i = 0; i < 2; ++i) set.in.push_back(Memory(kRowBytes));
    for (int i = 0; i < 3; ++i) set.out.push_back(Memory(kRowBytes));
  }
  uint64_t seed = 1;
  for (int which : {0, 0, 1, 0, 1, 1}) {
    const Set& set = sets[which];
    const std::vector<Array> inputs = RandomArrays(runner->manifest(), seed += 10);
    for (int i = 0; i < 2; ++i) Put(set.in[i], inputs[i]);
    const Array other = Get(sets[1 - which].out[0], runner->manifest().outputs[0]);
    ASSERT_EQ(Enqueue(*runner, set.in, set.out), absl::OkStatus());
    EXPECT_THAT(runner->UsedInPlace(), ElementsAre(true, true, true, true, true));
    ExpectAt(set.out, network, runner->manifest(), inputs, absl::StrCat("run ", seed));
    EXPECT_EQ(Get(sets[1 - which].out[0], runner->manifest().outputs[0]).data, other.data);
  }
}

TEST_P(PortMemoryTest, RunsOfOtherKindsUseTheRunnersOwnMemory) {
  const Network network = Rows();
  const auto runner = Load(network);
  const std::vector<Array> own = RandomArrays(runner->manifest(), 1), given = RandomArrays(runner->manifest(), 7);
  const std::vector<Array> want = EvaluateNetwork(network, own).value();
  ASSERT_EQ(runner->SetInputs({{"x", own[0]}, {"y", own[1]}}), absl::OkStatus());
  std::vector<void*> in = {Memory(kRowBytes), Memory(kRowBytes)},
                     out = {Memory(kRowBytes), Memory(kRowBytes), Memory(kRowBytes)};
  const auto give = [&] {
    for (int i = 0; i < 2; ++i) Put(in[i], given[i]);
    ASSERT_EQ(Enqueue(*runner, in, out), absl::OkStatus());
    ASSERT_EQ(runner->Poison(), absl::OkStatus());
    // What a later run must neither read nor write.
    for (int i = 0; i < 2; ++i) ASSERT_EQ(device_->Fill(*memory_[i], 0xff), absl::OkStatus());
  };
  const auto expect_own = [&](const std::string& what) {
    const std::vector<Array> outputs = runner->Outputs().value();
    for (size_t i = 0; i < want.size(); ++i) ExpectClose(outputs[i], want[i], what);
    ExpectAt(out, network, runner->manifest(), given, what);
  };
  give();
  ASSERT_EQ(runner->Run(), absl::OkStatus());
  expect_own("Run");
  give();
  ASSERT_EQ(runner->RunTimes(3), absl::OkStatus());
  expect_own("RunTimes");
  give();
  ASSERT_EQ(runner->Bench({}).status(), absl::OkStatus());
  expect_own("Bench");
  give();
  ASSERT_EQ(Enqueue(*runner, {}, {}), absl::OkStatus());
  expect_own("Enqueue without addresses");
  give();
  ASSERT_EQ(Enqueue(*runner, {nullptr, nullptr}, {nullptr, nullptr, nullptr}), absl::OkStatus());
  expect_own("Enqueue with nulls");
  give();
  ProfileOptions options;
  options.seconds = options.warm_up_seconds = 0.01;
  ASSERT_EQ(ProfilePackage(*runner, options).status(), absl::OkStatus());
  expect_own("profile");
  // Single ports by themselves.
  give();
  ASSERT_EQ(Enqueue(*runner, {nullptr, in[1]}, {nullptr, out[1], nullptr}), absl::OkStatus());
  EXPECT_THAT(runner->UsedInPlace(), ElementsAre(false, true, false, true, false));
}

TEST_P(PortMemoryTest, MemoryThatLaunchesCannotUseIsCopied) {
  const Network network = Rows();
  const auto runner = Load(network);
  const PackageManifest& manifest = runner->manifest();
  char *const x = Memory(4 * kRowBytes), *const y = Memory(4 * kRowBytes), *const a = Memory(4 * kRowBytes),
              *const b = Memory(4 * kRowBytes), *const c = Memory(4 * kRowBytes);
  const auto own_input = [&](int i) { return static_cast<char*>(device_->AddressOf(runner->input(i))); };
  const auto own_output = [&](int i) { return static_cast<char*>(device_->AddressOf(runner->output(i))); };
  struct Case {
    const char* name;
    std::vector<void*> in, out;
    std::vector<bool> in_place;
  };
  const std::vector<Case> cases = {
      {"odd addresses", {x + 4, y + 16}, {a + 4, b + 64, c + 20}, {false, false, false, true, false}},
      {"outputs over inputs", {x, y}, {x, y, c}, {true, true, false, false, true}},
      {"an output over the end of an input", {x, y}, {x + kRowBytes - 64, b, c}, {true, true, false, true, true}},
      {"the last output over all inputs", {x, x + kRowBytes}, {a, b, x + 512}, {true, true, true, true, false}},
      {"own inputs in the wrong places", {own_input(1), y}, {a, b, c}, {false, true, true, true, true}},
      {"an output into an own input", {x, y}, {own_input(0), b, c}, {true, true, false, true, true}},
      {"an own output as an input", {own_output(2), y}, {a, b, nullptr}, {false, true, true, true, false}},
      {"an output where another has its own", {x, y}, {a, own_output(0), c}, {true, true, true, false, true}},
      {"one input twice", {x, x}, {a, b, c}, {true, true, true, true, true}},
  };
  uint64_t seed = 1;
  for (int round = 0; round < 2; ++round) {
    for (const Case& one : cases) {
      std::vector<Array> inputs = RandomArrays(manifest, seed += 10);
      for (int i = 0; i < 2; ++i) Put(one.in[i], inputs[i]);
      for (int i = 0; i < 2; ++i) inputs[i] = Get(one.in[i], manifest.inputs[i]);  // they may overlap
      std::vector<void*> out = one.out;
      for (int i = 0; i < 3; ++i)
        if (out[i] == nullptr) out[i] = own_output(i);
      ASSERT_EQ(Enqueue(*runner, one.in, one.out), absl::OkStatus()) << one.name;
      EXPECT_EQ(runner->UsedInPlace(), one.in_place) << one.name;
      ExpectAt(out, network, manifest, inputs, one.name);
    }
  }
}

TEST_P(PortMemoryTest, OutputsThatAreNotOneTensorByThemselvesAreCopied) {
  const Network network = Doubled();
  const auto runner = Load(network);
  const PackageManifest& manifest = runner->manifest();
  uint64_t seed = 1;
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> in, out;
    for (int i = 0; i < 2; ++i) in.push_back(Memory(256));
    for (int i = 0; i < 5; ++i) out.push_back(Memory(256));
    const std::vector<Array> inputs = RandomArrays(manifest, seed += 10);
    for (int i = 0; i < 2; ++i) Put(in[i], inputs[i]);
    ASSERT_EQ(Enqueue(*runner, in, out), absl::OkStatus());
    EXPECT_THAT(runner->UsedInPlace(), ElementsAre(false, true, false, false, false, false, true));
    ExpectAt(out, network, manifest, inputs, absl::StrCat("round ", round));
  }
}

TEST_P(PortMemoryTest, TwoRunnersOfAPlanHaveMemoryOfTheirOwn) {
  const Network network = Rows();
  const auto first = Load(network);
  const auto second = PackageRunner::FromParts(first->package(), device_.get(), first->Parts()).value();
  PackageRunner* const runners[] = {first.get(), second.get()};
  std::vector<void*> in[2], out[2];
  std::vector<Array> inputs[2];
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 2; ++i) in[r].push_back(Memory(kRowBytes));
    for (int i = 0; i < 3; ++i) out[r].push_back(Memory(kRowBytes));
    inputs[r] = RandomArrays(first->manifest(), 5 + 10 * r);
    for (int i = 0; i < 2; ++i) Put(in[r][i], inputs[r][i]);
  }
  for (int round = 0; round < 3; ++round) {
    for (int r = 0; r < 2; ++r) ASSERT_EQ(runners[r]->Enqueue(nullptr, in[r], out[r]), absl::OkStatus());
    ASSERT_EQ(Wait(), absl::OkStatus());
    for (int r = 0; r < 2; ++r)
      ExpectAt(out[r], network, first->manifest(), inputs[r], absl::StrCat("runner ", r, ", round ", round));
    std::swap(in[0], in[1]);
    std::swap(inputs[0], inputs[1]);
  }
}

TEST_P(PortMemoryTest, ManyOutputsInTurns) {
  const Network network = Layers(12);
  const auto runner = Load(network);
  constexpr int kOutputs = 25;
  std::vector<void*> in = {Memory(kRowBytes)}, out[2];
  for (auto& set : out)
    for (int i = 0; i < kOutputs; ++i) set.push_back(Memory(kRowBytes));
  for (int run = 0; run < 4; ++run) {
    const std::vector<Array> inputs = RandomArrays(runner->manifest(), 1 + run);
    ASSERT_EQ(runner->SetInput("x", inputs[0]), absl::OkStatus());
    ASSERT_EQ(runner->Run(), absl::OkStatus());
    const std::vector<Array> want = runner->Outputs().value();
    Put(in[0], inputs[0]);
    ASSERT_EQ(runner->Poison(), absl::OkStatus());
    ASSERT_EQ(Enqueue(*runner, in, out[run % 2]), absl::OkStatus());
    EXPECT_EQ(runner->UsedInPlace(), std::vector<bool>(1 + kOutputs, true));
    for (int i = 0; i < kOutputs; ++i)
      ASSERT_EQ(Get(out[run % 2][i], runner->manifest().outputs[i]).data, want[i].data) << "run " << run << ", " << i;
  }
  // What a call takes of the host, for docs/lab-notes.md.
  constexpr int kRuns = 50;
  for (const bool alternate : {false, true}) {
    double seconds = 0;
    for (int round = 0; round < 4; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int run = 0; run < kRuns; ++run)
        ASSERT_EQ(runner->Enqueue(nullptr, in, out[alternate ? run % 2 : 0]), absl::OkStatus());
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      ASSERT_EQ(Wait(), absl::OkStatus());
    }
    std::cout << runner->Launches().size() << " kernels, 25 outputs, "
              << (alternate ? "in two places in turn" : "in place") << ": " << seconds / kRuns * 1e6 << " us a call\n";
  }
}

// Any addresses, in any order: what is read is what was there before the run, and what is written is right.
TEST_P(PortMemoryTest, AnyAddressesGiveTheSameResults) {
  const Network network = Rows();
  const auto runner = Load(network);
  const PackageManifest& manifest = runner->manifest();
  constexpr int kSlots = 9;
  std::vector<char*> slots;
  for (int i = 0; i < kSlots; ++i) slots.push_back(Memory(4 * kRowBytes));
  slots.push_back(static_cast<char*>(device_->AddressOf(runner->input(1))));  // for input 0, which is copied first
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  std::vector<int> in_place(5, 0);
  for (int run = 0; run < 150; ++run) {
    const auto any = [&](void* own, int slot) -> std::pair<void*, void*> {  // as given, and where it then is
      if (below(5) == 0) return {nullptr, own};
      const int offsets[] = {0, 0, 0, 64, 4, 512};
      char* const at = slots[slot] + (slot < kSlots ? offsets[below(6)] : 0);
      return {at, at};
    };
    std::vector<void*> in(2), in_at(2), out(3), out_at(3);
    std::vector<Array> inputs = RandomArrays(manifest, 100 + 10 * run);
    for (int i = 0; i < 2; ++i) {
      std::tie(in[i], in_at[i]) = any(device_->AddressOf(runner->input(i)), below(kSlots + 1 - i));
      Put(in_at[i], inputs[i]);
    }
    for (int i = 0; i < 2; ++i) inputs[i] = Get(in_at[i], manifest.inputs[i]);
    // Apart from each other, or what they hold would depend on their order; over inputs as it comes.
    std::vector<int> order(kSlots);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (int i = 0; i < 3; ++i) std::tie(out[i], out_at[i]) = any(device_->AddressOf(runner->output(i)), order[i]);
    ASSERT_EQ(Enqueue(*runner, in, out), absl::OkStatus());
    ExpectAt(out_at, network, manifest, inputs, absl::StrCat("run ", run));
    for (int i = 0; i < 5; ++i) in_place[i] += runner->UsedInPlace()[i] ? 1 : 0;
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_GT(in_place[i], 20) << i;
    EXPECT_LT(in_place[i], 130) << i;
  }
}

}  // namespace
}  // namespace diapason
