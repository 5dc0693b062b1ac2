#include "compiler/build/package.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "compiler/build/check_package.h"
#include "compiler/build/open_package.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/build/testing.h"
#include "tests/runtime/c_program.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// Convolutions of the same shape and different weights (two are one task), a residual, a pool, a classifier and a
// softmax.
Network TinyClassifier(DType dtype = DType::kFloat32) {
  NetworkMaker m;
  const int x = m.In("image", {1, 4, 8, 8});
  const auto conv = [&](int in, const std::string& name) {
    const int w = m.Const(name + ".weight", {4, 4, 3, 3}), b = m.Const(name + ".bias", {4});
    return m.Op("conv2d", {in, w, b}, {{"pads", Shape{1, 1, 1, 1}}});
  };
  const int a = m.Op("relu", {conv(x, "conv1")});
  const int b = m.Op("relu", {conv(a, "conv2")});
  const int sum = m.Op("add", {a, conv(b, "conv3")});
  const int mean = m.Op("reduce_mean", {sum}, {{"axes", Shape{2, 3}}});
  const int flat = m.Op("reshape", {mean}, {{"shape", Shape{1, 4}}});
  const int logits = m.Op("gemm", {flat, m.Const("fc", {4, 10})}, {}, "logits");
  const int p = m.Op("softmax", {logits}, {}, "probabilities");
  return m.Out({p, logits});
}

void ExpectClose(const std::vector<Array>& got, const std::vector<Array>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].shape, want[i].shape);
    ASSERT_EQ(got[i].dtype, want[i].dtype);
    for (int64_t e = 0; e < want[i].elements(); ++e)
      ASSERT_NEAR(got[i].at(e), want[i].at(e), tolerance * (1 + std::abs(want[i].at(e))))
          << "output " << i << ", " << e;
  }
}

class PackageTest : public FolderTest {
 protected:
  std::unique_ptr<PackageRunner> BuildAndLoad(const Network& network, TargetKind kind = TargetKind::kCpu) {
    const absl::Status built = BuildReferencePackage(Path("p"), network, TestTarget(kind));
    EXPECT_TRUE(built.ok()) << built;
    absl::StatusOr<std::unique_ptr<PackageRunner>> runner = PackageRunner::Load(Path("p"));
    EXPECT_TRUE(runner.ok()) << runner.status();
    return runner.ok() ? *std::move(runner) : nullptr;
  }

  // Builds, runs twice (leftovers of the first run must not matter), and compares with the interpreter.
  void ExpectRight(const Network& network, TargetKind kind, double tolerance = 1e-5) {
    auto runner = BuildAndLoad(network, kind);
    ASSERT_NE(runner, nullptr);
    for (uint64_t seed : {1, 2}) {
      const std::map<std::string, Array> inputs = RandomInputs(runner->manifest(), seed);
      ASSERT_TRUE(runner->SetInputs(inputs).ok());
      ASSERT_TRUE(runner->Run().ok());
      ExpectClose(runner->Outputs().value(), Expected(network, inputs), tolerance);
    }
  }
};

TEST_F(PackageTest, RunsOnCpu) { ExpectRight(TinyClassifier(), TargetKind::kCpu); }

TEST_F(PackageTest, RunsOnOpenCl) {
  if (const auto device = OpenDevice(TestTarget(TargetKind::kOpenCl)); !device.ok())
    GTEST_SKIP() << device.status().message();
  ExpectRight(TinyClassifier(), TargetKind::kOpenCl);
}

// What reads a sum of bytes in the same kernel reads the byte that it wraps to.
TEST_F(PackageTest, BytesWrapWithinAKernel) {
  for (const DType dtype : {DType::kUint8, DType::kInt8}) {
    for (const char* op : {"add", "sub", "mul"}) {
      SCOPED_TRACE(std::string(op) + " of " + std::string(NameOf(dtype)));
      NetworkMaker m;
      const int a = m.In("a", {64}, dtype), b = m.In("b", {64}, dtype), c = m.In("c", {64}, dtype);
      ExpectRight(m.Out({m.Op("maximum", {m.Op(op, {a, b}), c})}), TargetKind::kCpu, 0);
    }
  }
}

// Parts by convolutions, of which the network gives one out, by a sigmoid, and an input; two of them are the network's
// outputs.
Network Concatenations(int64_t axis) {
  NetworkMaker m;
  const int x = m.In("x", {2, 4, 4, 4});
  const auto conv = [&](int in, int kernel) {
    return m.Op("conv2d", {in, m.Const("w", {4, 4, kernel, kernel})}, {{"pads", Shape(4, kernel / 2)}});
  };
  const int a = conv(x, 3), b = m.Op("relu", {conv(x, 1)});
  const int first = m.Op("concat", {a, b, m.Op("sigmoid", {x})}, {{"axis", axis}});
  const int half =
      m.Op("slice", {first}, {{"starts", Shape{0}}, {"ends", Shape{axis == 0 ? 2 : 4}}, {"axes", Shape{axis}}});
  const int c = conv(half, 3);
  const int second = m.Op("concat", {c, x}, {{"axis", axis}}, "second");
  const int d = conv(half, 1);
  const int third = m.Op("concat", {m.Op("exp", {conv(x, 1)}), d}, {{"axis", int64_t{3}}}, "third");
  return m.Out({second, third, m.Op("reduce_sum", {first}, {{"axes", Shape{1, 3}}}), d});
}

TEST_F(PackageTest, ConcatenationsAreWrittenInPlace) {
  const Network network = Concatenations(1);
  const Partition partition = PartitionNetwork(network).value();
  for (const Task& task : partition.tasks) EXPECT_THAT(task.name, Not(HasSubstr("concat")));
  for (int64_t axis : {0, 1, 2, 3}) {
    SCOPED_TRACE(axis);
    ExpectRight(Concatenations(axis), TargetKind::kCpu);
    auto runner = PackageRunner::Load(Path("p"));
    ASSERT_TRUE(runner.ok()) << runner.status();
    const absl::StatusOr<CheckResult> check = CheckPackage(**runner, RandomInputs((*runner)->manifest(), 3));
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check->ok) << check->worst;
  }
  EXPECT_THAT(ReadText(Path("p/manifest.json")), HasSubstr("\"version\": 2"));
}

TEST_F(PackageTest, ConcatenationsAreWrittenInPlaceOnOpenCl) {
  if (const auto device = OpenDevice(TestTarget(TargetKind::kOpenCl)); !device.ok())
    GTEST_SKIP() << device.status().message();
  for (int64_t axis : {1, 3}) ExpectRight(Concatenations(axis), TargetKind::kOpenCl);
}

TEST_F(PackageTest, OutputsMayBeViewsInputsAndConstants) {
  NetworkMaker m;
  const int x = m.In("x", {2, 6});
  m.In("unused", {3});
  const int c = m.Const("c", {6});
  const int sum = m.Op("add", {x, c});
  const int view = m.Op("reshape", {sum}, {{"shape", Shape{3, 4}}});
  const int later = m.Op("exp", {m.Op("transpose", {view})});
  ExpectRight(m.Out({view, sum, x, c, later}), TargetKind::kCpu);
}

TEST_F(PackageTest, IntegerInputsStayInRange) {
  NetworkMaker m;
  const int indices = m.In("indices", {5}, DType::kInt64);
  const int table = m.Const("table", {7, 3});
  const Network network = m.Out({m.Op("gather", {table, indices})});
  auto runner = BuildAndLoad(network);
  ASSERT_NE(runner, nullptr);
  bool varies = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto inputs = RandomInputs(runner->manifest(), seed);
    for (int i = 0; i < 5; ++i) {
      const int64_t index = inputs.at("indices").int_at(i);
      ASSERT_LT(std::abs(index), 8);
      varies = varies || index != 0;
    }
  }
  EXPECT_TRUE(varies);
  ExpectRight(network, TargetKind::kCpu);
}

TEST_F(PackageTest, IndicesOfNoElementAreRefused) {
  NetworkMaker m;
  const int indices = m.In("indices", {5}, DType::kInt64);
  const int equal = m.Op("equal", {indices, indices});  // any value will do for this reader
  auto runner = BuildAndLoad(m.Out({m.Op("gather", {m.Const("table", {7, 3}), indices}), equal}));
  ASSERT_NE(runner, nullptr);
  Array values(DType::kInt64, {5});
  values.set_int(0, -7);
  values.set_int(1, 6);
  EXPECT_EQ(runner->SetInput("indices", values), absl::OkStatus());
  values.set_int(3, 7);
  EXPECT_EQ(runner->SetInput("indices", values).message(),
            "input 'indices' has 7 at element 3; it is an index there, and must be from -7 to 6");
  values.set_int(3, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(runner->SetInput("indices", values).code(), absl::StatusCode::kInvalidArgument);
}

// Nobody sees them before the kernel does: they choose the first or the last element.
TEST_F(PackageTest, ComputedIndicesOfNoElementStayWithinTheTensor) {
  NetworkMaker m;
  const int indices = m.In("indices", {4}, DType::kInt64), one = m.n.AddConstant("one", [] {
    Array value(DType::kInt64, {1});
    value.set_int(0, 1);
    return value;
  }());
  const int computed = m.Op("add", {indices, one}), table = m.Const("table", {7});
  const int pairs = m.Op("reshape", {computed}, {{"shape", Shape{4, 1}}});
  const Network network = m.Out({m.Op("gather", {table, computed}), m.Op("gather_elements", {table, computed}),
                                 m.Op("gather_nd", {table, pairs})});
  const Array& data = *network.tensor(table).data;
  for (const TargetKind kind : {TargetKind::kCpu, TargetKind::kOpenCl}) {
    if (const auto device = OpenDevice(TestTarget(kind)); !device.ok()) GTEST_SKIP() << device.status().message();
    auto runner = BuildAndLoad(network, kind);
    ASSERT_NE(runner, nullptr);
    Array values(DType::kInt64, {4});
    values.set_int(0, 3);
    values.set_int(1, 100'000'000'000);
    values.set_int(2, -100'000'000'000);
    values.set_int(3, -2);
    ASSERT_EQ(runner->SetInputs({{"indices", values}}), absl::OkStatus());
    ASSERT_EQ(runner->Run(), absl::OkStatus());
    const auto outputs = runner->Outputs();
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    for (const Array& output : *outputs) {
      EXPECT_EQ(output.at(0), data.at(4));
      EXPECT_EQ(output.at(1), data.at(6));
      EXPECT_EQ(output.at(2), data.at(0));
      EXPECT_EQ(output.at(3), data.at(6));
    }
  }
}

TEST_F(PackageTest, HalfPrecision) {
  NetworkMaker m;
  const int x = m.In("x", {3, 8}, DType::kFloat16), y = m.In("y", {8}, DType::kFloat16);
  ExpectRight(m.Out({m.Op("tanh", {m.Op("mul", {x, y})})}), TargetKind::kCpu, 2e-3);
}

TEST_F(PackageTest, EqualSubgraphsShareAProgramAndTensorsShareMemory) {
  auto runner = BuildAndLoad(TinyClassifier());
  ASSERT_NE(runner, nullptr);
  const PackageManifest& manifest = runner->manifest();
  EXPECT_LT(manifest.tasks.size(), manifest.steps.size());
  int64_t sum = 0;
  for (const PackageTensor& tensor : manifest.tensors)
    if (tensor.place == PackageTensor::Place::kArena) sum += (tensor.bytes() + 511) / 512 * 512;
  for (const PackageStep& step : manifest.steps) sum += 512 * static_cast<int64_t>(step.workspaces.size());
  EXPECT_GT(manifest.arena_bytes, 0);
  EXPECT_LT(manifest.arena_bytes, sum);
  EXPECT_EQ(manifest.inputs[0].TypeText(), "float32 1x4x8x8");
  EXPECT_EQ(manifest.outputs[1].name, "logits");
}

TEST_F(PackageTest, TheSameBuildGivesTheSameFiles) {
  const Network network = TinyClassifier();
  ASSERT_TRUE(BuildReferencePackage(Path("a"), network, TestTarget(TargetKind::kCpu)).ok());
  ASSERT_TRUE(BuildReferencePackage(Path("b"), network, TestTarget(TargetKind::kCpu)).ok());
  EXPECT_EQ(ReadText(Path("a/weights.bin")), ReadText(Path("b/weights.bin")));
  EXPECT_NE(ReadText(Path("a/weights.bin")), "");
}

TEST_F(PackageTest, InputsAreChecked) {
  auto runner = BuildAndLoad(TinyClassifier());
  ASSERT_NE(runner, nullptr);
  EXPECT_EQ(runner->SetInput("picture", Array(DType::kFloat32, {1})).message(),
            "the package has no input 'picture'; its inputs are: 'image'");
  EXPECT_EQ(runner->SetInput("image", Array(DType::kFloat32, {1, 8, 8, 4})).message(),
            "input 'image' is float32 1x8x8x4; the package wants float32 1x4x8x8");
  EXPECT_EQ(runner->SetInput("image", Array(DType::kFloat16, {1, 4, 8, 8})).message(),
            "input 'image' is float16 1x4x8x8; the package wants float32 1x4x8x8");
  EXPECT_EQ(runner->SetInputs({}).message(), "input 'image' (float32 1x4x8x8) is missing; give it a value");
}

TEST_F(PackageTest, BenchGivesSamples) {
  auto runner = BuildAndLoad(TinyClassifier());
  ASSERT_NE(runner, nullptr);
  TimingOptions options;
  options.repeat = 7;
  options.min_repeat_ms = 2;
  const absl::StatusOr<Timing> timing = runner->Bench(options);
  ASSERT_TRUE(timing.ok());
  EXPECT_THAT(timing->samples, SizeIs(7));
  EXPECT_GT(MedianSeconds(*timing), 1e-7);
  EXPECT_LT(MedianSeconds(*timing), 0.1);
}

TEST_F(PackageTest, CheckComparesWithTheReference) {
  for (TargetKind kind : {TargetKind::kCpu, TargetKind::kOpenCl}) {
    if (!OpenDevice(TestTarget(kind)).ok()) continue;
    auto runner = BuildAndLoad(TinyClassifier(), kind);
    ASSERT_NE(runner, nullptr);
    const absl::StatusOr<CheckResult> check = CheckPackage(*runner, RandomInputs(runner->manifest(), 3));
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check->ok) << check->worst;
    EXPECT_LT(check->max_rel_error, 1e-5);
  }
}

// One task by hand, with a prologue that prepares the constant: y = x + 2 w, where the network says y = x + w.
Network AddNetwork() {
  NetworkMaker m;
  const int x = m.In("x", {1000});
  return m.Out({m.Op("add", {x, m.Const("w", {1000})}, {}, "y")});
}

PackageRequest HandMade(const Network& network, const Partition& partition, const std::string& factor) {
  const ComputeDag& dag = partition.tasks[0].dag;
  const std::vector<int> inputs = dag.inputs();
  const bool first_is_constant = dag.stage(inputs[0]).constant;
  Program program = CProgram(
      "void prepare(void* const* a, long b, long e) {\n"
      "  for (long i = b; i < e; ++i) ((float*)a[1])[i] = " +
      factor +
      " * ((float*)a[0])[i];\n}\n"
      "void add(void* const* a, long b, long e) {\n"
      "  for (long i = b; i < e; ++i) ((float*)a[2])[i] = ((float*)a[0])[i] + ((float*)a[1])[i];\n}\n");
  program.buffers = {FloatBuffer("x", 1000, BufferRole::kInput, inputs[first_is_constant ? 1 : 0]),
                     FloatBuffer("w", 1000, BufferRole::kConstant, inputs[first_is_constant ? 0 : 1]),
                     FloatBuffer("prepared", 1000, BufferRole::kPrepared),
                     FloatBuffer("y", 1000, BufferRole::kOutput, dag.outputs()[0])};
  program.prologue = {KernelOf("prepare", {1, 2}, 1000)};
  program.kernels = {KernelOf("add", {0, 2, 3}, 1000)};
  return {network,
          partition,
          TestTarget(TargetKind::kCpu),
          ResolveFacts(TestTarget(TargetKind::kCpu)),
          {{program, "by hand", 5, 2e-6}}};
}

TEST_F(PackageTest, ProloguesRunWhenLoaded) {
  const Network network = AddNetwork();
  const Partition partition = PartitionNetwork(network).value();
  ASSERT_TRUE(BuildPackage(Path("p"), HandMade(network, partition, "1.0f")).ok());
  auto runner = PackageRunner::Load(Path("p"));
  ASSERT_TRUE(runner.ok()) << runner.status();
  const absl::StatusOr<CheckResult> check = CheckPackage(**runner, RandomInputs((*runner)->manifest(), 1));
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->ok) << check->worst;
  EXPECT_EQ(check->max_abs_error, 0);
  EXPECT_EQ((*runner)->manifest().tasks[0].record, 5);
  EXPECT_EQ((*runner)->manifest().tasks[0].schedule, "by hand");
  EXPECT_NEAR((*runner)->manifest().estimated_seconds(), 2e-6, 1e-12);
}

TEST_F(PackageTest, CheckFindsAWrongKernel) {
  const Network network = AddNetwork();
  const Partition partition = PartitionNetwork(network).value();
  ASSERT_TRUE(BuildPackage(Path("p"), HandMade(network, partition, "1.01f")).ok());
  auto runner = PackageRunner::Load(Path("p"));
  ASSERT_TRUE(runner.ok()) << runner.status();
  const absl::StatusOr<CheckResult> check = CheckPackage(**runner, RandomInputs((*runner)->manifest(), 1));
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_FALSE(check->ok);
  EXPECT_NEAR(check->max_abs_error, 0.01, 0.001);
  EXPECT_THAT(check->worst, HasSubstr("'y' at element "));
}

TEST_F(PackageTest, ProgramsThatDoNotFitTheirTaskAreRefused) {
  const Network network = AddNetwork();
  const Partition partition = PartitionNetwork(network).value();
  PackageRequest request = HandMade(network, partition, "1.0f");
  request.tasks[0].program.buffers[3].elements = 999;
  absl::Status status = BuildPackage(Path("p"), request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("' has no buffer that fits stage '"));
  PackageRequest other = HandMade(network, partition, "1.0f");
  other.tasks[0].program.target = TestTarget(TargetKind::kOpenCl);
  status = BuildPackage(Path("p"), other);
  EXPECT_THAT(status.message(), HasSubstr("' is for target 'opencl', the package for 'cpu -num-cores=2'"));
  EXPECT_TRUE(Entries().empty()) << "a refused build leaves nothing behind";
}

TEST_F(PackageTest, WhatIsNoPackageIsRefused) {
  EXPECT_EQ(PackageRunner::Load(Path("none")).status().message(),
            "there is no file or folder '" + Path("none") + "'; name a folder or a .dpk file made by 'diapason build'");
  std::filesystem::create_directory(Path("empty"));
  EXPECT_EQ(PackageRunner::Load(Path("empty")).status().message(),
            "'" + Path("empty") +
                "' is no package: it has no manifest.json; name a folder or a .dpk file made by 'diapason build'");
  WriteText(Path("web/manifest.json"), "{}");
  EXPECT_EQ(
      PackageRunner::Load(Path("web")).status().message(),
      Path("web/manifest.json") + " is not the manifest of a diapason package; name a folder made by 'diapason build'");
}

TEST_F(PackageTest, DamagedFilesAreNamed) {
  ASSERT_TRUE(BuildReferencePackage(Path("p"), TinyClassifier(), TestTarget(TargetKind::kCpu)).ok());
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Path("p")))
    if (entry.is_regular_file() && entry.path().extension() != ".c") files.push_back(entry.path().string());
  EXPECT_GT(files.size(), 10u);
  // What tasks compute is read for the check alone.
  const auto load = [&](const std::string& file) {
    absl::Status status = PackageRunner::Load(Path("p")).status();
    if (!file.ends_with(".dag") || !status.ok()) return status;
    const Package package = Package::Open(Path("p")).value();
    for (size_t task = 0; status.ok() && task < package.manifest().tasks.size(); ++task)
      status = ReadDag(package, static_cast<int>(task)).status();
    return status;
  };
  for (const std::string& file : files) {
    const std::string whole = ReadText(file);
    WriteText(file, whole.substr(0, whole.size() / 2));
    EXPECT_EQ(load(file).code(), absl::StatusCode::kDataLoss) << file;
    EXPECT_THAT(load(file).message(), HasSubstr(file));
    std::filesystem::remove(file);
    EXPECT_EQ(load(file).code(), absl::StatusCode::kNotFound) << file;
    WriteText(file, whole);
  }
  EXPECT_TRUE(PackageRunner::Load(Path("p")).ok());
}

// Manifests of before there were "stages" leave to the dags what steps bind.
TEST_F(PackageTest, PackagesOfOlderBuildsAreOpenedWithTheirDags) {
  ASSERT_TRUE(BuildReferencePackage(Path("p"), TinyClassifier(), TestTarget(TargetKind::kCpu)).ok());
  const Package fresh = Package::Open(Path("p")).value();
  nlohmann::ordered_json manifest = nlohmann::ordered_json::parse(ReadText(Path("p/manifest.json")));
  for (auto& task : manifest["tasks"]) EXPECT_EQ(task.erase("stages"), 1u);
  WriteText(Path("p/manifest.json"), manifest.dump());
  EXPECT_EQ(
      PackageRunner::Load(Path("p")).status(),
      absl::FailedPreconditionError(
          "package '" + Path("p") +
          "' was built by an older diapason, which did not write what its steps bind; run it with 'diapason run', "
          "or build it again"));
  const absl::StatusOr<Package> opened = OpenPackage(Path("p"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  for (size_t t = 0; t < fresh.manifest().tasks.size(); ++t) {
    EXPECT_EQ(opened->manifest().tasks[t].input_stages, fresh.manifest().tasks[t].input_stages);
    EXPECT_EQ(opened->manifest().tasks[t].output_stages, fresh.manifest().tasks[t].output_stages);
  }
  EXPECT_TRUE(PackageRunner::Load(*opened).ok());
}

// Runners that share constants, prepared weights and kernels do not disturb each other.
TEST_F(PackageTest, RunnersFromPartsComputeTheSame) {
  const Network network = TinyClassifier();
  ASSERT_TRUE(BuildReferencePackage(Path("p"), network, TestTarget(TargetKind::kCpu)).ok());
  const Package package = Package::Open(Path("p")).value();
  const std::unique_ptr<Device> device = OpenDeviceOf(package).value();
  PlanParts parts;
  {
    const auto first = PackageRunner::Load(package, device.get()).value();
    parts = first->Parts();
  }
  std::filesystem::remove_all(Path("p"));
  const auto a = PackageRunner::FromParts(package, device.get(), parts).value();
  const auto b = PackageRunner::FromParts(package, device.get(), parts).value();
  const auto inputs_a = RandomInputs(package.manifest(), 1), inputs_b = RandomInputs(package.manifest(), 2);
  ASSERT_TRUE(a->SetInputs(inputs_a).ok() && b->SetInputs(inputs_b).ok());
  ASSERT_TRUE(a->Poison().ok() && b->Poison().ok());
  ASSERT_TRUE(a->Run().ok() && b->Run().ok());
  ExpectClose(a->Outputs().value(), Expected(network, inputs_a), 1e-5);
  ExpectClose(b->Outputs().value(), Expected(network, inputs_b), 1e-5);
}

// Versions of a network that differ in a kernel: what is equal is on the device once, and is made again when the last
// runner that had it is gone.
TEST_F(PackageTest, VersionsShareTheirParts) {
  const Network network = AddNetwork();
  const Partition partition = PartitionNetwork(network).value();
  const std::unique_ptr<Device> device = OpenDevice(TestTarget(TargetKind::kCpu)).value();
  const auto weights = std::make_shared<PackageWeights>();
  LoadedParts loaded;
  const auto load = [&](const std::string& factor) {
    const PackageRequest request = HandMade(network, partition, factor);
    auto contents = std::make_shared<const PackageContents>(AssemblePackage(request, weights).value());
    return PackageRunner::Load(Package::InMemory("test", contents), device.get(), false, &loaded).value();
  };
  const auto y_over = [](PackageRunner& runner) {
    const auto inputs = RandomInputs(runner.manifest(), 1);
    EXPECT_TRUE(runner.SetInputs(inputs).ok() && runner.Run().ok());
    return runner.Outputs().value()[0].at(7) - inputs.at("x").at(7);
  };
  auto first = load("1.0f"), same = load("1.0f"), other = load("2.0f");
  const int64_t bytes = weights->bytes().size();
  std::weak_ptr<const Module> module;
  std::weak_ptr<DeviceBuffer> prepared;
  {
    const PlanParts::Step a = first->Parts().steps[0], b = same->Parts().steps[0], c = other->Parts().steps[0];
    EXPECT_EQ(a.module, b.module);
    EXPECT_NE(a.module, c.module);
    EXPECT_NE(a.prepared[2], nullptr);
    EXPECT_EQ(a.prepared[2], b.prepared[2]);
    EXPECT_NE(a.prepared[2], c.prepared[2]);
    module = a.module;
    prepared = a.prepared[2];
  }
  EXPECT_NE(y_over(*first), 0);
  EXPECT_EQ(y_over(*same), y_over(*first));
  EXPECT_NEAR(y_over(*other), 2 * y_over(*first), 1e-5);
  const double before = y_over(*first);
  first.reset();
  EXPECT_FALSE(module.expired() || prepared.expired());
  same.reset();
  EXPECT_TRUE(module.expired() && prepared.expired());
  EXPECT_EQ(y_over(*load("1.0f")), before);
  EXPECT_EQ(static_cast<int64_t>(weights->bytes().size()), bytes);
}

TEST_F(PackageTest, ChangedWeightsAndBinariesAreRefused) {
  ASSERT_TRUE(BuildReferencePackage(Path("p"), AddNetwork(), TestTarget(TargetKind::kCpu)).ok());
  std::string weights = ReadText(Path("p/weights.bin"));
  weights[5] = static_cast<char>(weights[5] ^ 1);
  WriteText(Path("p/weights.bin"), weights);
  EXPECT_EQ(PackageRunner::Load(Path("p")).status().message(),
            Path("p/weights.bin") + " is damaged: its checksum does not match; build the package again");
}

// Kernels that start early read constants while others still write: what a kernel takes for one must be one.
TEST_F(PackageTest, ConstantsThatAreInputsAreRefused) {
  ASSERT_TRUE(BuildReferencePackage(Path("p"), TinyClassifier(), TestTarget(TargetKind::kCpu)).ok());
  std::string manifest = ReadText(Path("p/manifest.json"));
  for (size_t at; (at = manifest.find("\"constant\"")) != std::string::npos;) manifest.replace(at, 10, "\"input\"");
  WriteText(Path("p/manifest.json"), manifest);
  EXPECT_THAT(std::string(PackageRunner::Load(Path("p")).status().message()),
              ::testing::MatchesRegex(
                  Path("p/manifest.json") +
                  " is damaged: tensor '.*' changes, and buffer '.*' is a constant; build the package again"));
}

TEST_F(PackageTest, DevicesThatCannotRunItAreRefused) {
  const Network network = AddNetwork();
  const Partition partition = PartitionNetwork(network).value();
  PackageRequest request = HandMade(network, partition, "1.0f");
  request.device.model = "Big CPU";
  request.device.vector_bytes = 4096;
  ASSERT_TRUE(BuildPackage(Path("p"), request).ok());
  const absl::Status vectors = PackageRunner::Load(Path("p")).status();
  EXPECT_EQ(vectors.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(vectors.message(), HasSubstr("package '" + Path("p") +
                                           "' was built for target 'cpu -num-cores=2' (Big CPU) "
                                           "with vectors of 4096 bytes; the processor here ("));

  auto opencl = OpenDevice(TestTarget(TargetKind::kOpenCl));
  if (!opencl.ok()) GTEST_SKIP() << opencl.status().message();
  EXPECT_EQ(PackageRunner::Load(Path("p"), opencl->get()).status().message(),
            "package '" + Path("p") +
                "' was built for target 'cpu -num-cores=2' (Big CPU), which is not the kind of the "
                "device given");
}

TEST_F(PackageTest, ACudaPackageWithoutAGpuSaysWhatIsMissing) {
  if (OpenDevice(TestTarget(TargetKind::kCuda)).ok()) GTEST_SKIP() << "this machine has a GPU";
  const Network network = AddNetwork();
  const Partition partition = PartitionNetwork(network).value();
  PackageRequest request = HandMade(network, partition, "1.0f");
  request.target = TestTarget(TargetKind::kCuda);
  request.target.arch = "sm_90";
  request.tasks[0].program.target = request.target;
  ASSERT_TRUE(BuildPackage(Path("p"), request).ok());
  const absl::Status status = PackageRunner::Load(Path("p")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("target 'cuda'"));
}

// On a GPU: the same end to end, one graph.
TEST_F(PackageTest, RunsOnCuda) {
  auto device = OpenDevice(TestTarget(TargetKind::kCuda));
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  Target target = TestTarget(TargetKind::kCuda);
  target.arch = (*device)->facts().arch;
  const Network network = TinyClassifier();
  ASSERT_TRUE(BuildReferencePackage(Path("p"), network, target).ok());
  auto runner = PackageRunner::Load(Path("p"));
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto inputs = RandomInputs((*runner)->manifest(), 1);
  const absl::StatusOr<CheckResult> check = CheckPackage(**runner, inputs);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->ok) << check->worst;
  ExpectClose((*runner)->Outputs().value(), Expected(network, inputs), 1e-5);
  const absl::StatusOr<Timing> timing = (*runner)->Bench({});
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_LT(MedianSeconds(*timing), 1e-3);
}

TEST(CompareOutputs, TakesTheOutputThatExceedsItsToleranceMost) {
  const std::vector<PackagePort> ports = {{"x", DType::kFloat32, {2}, 0, 0, 0}, {"y", DType::kFloat32, {3}, 0, 0, 0}};
  const auto compare = [&](std::vector<float> x, std::vector<float> y) {
    return CompareOutputs(
        ports, {Array::FromFloats({2}, x), Array::FromFloats({3}, y)},
        {{Array::FromFloats({2}, {100, 100}), Array::FromFloats({3}, {1, 2, 4})}, {{1e-2, 100}, {1e-4, 2}}});
  };
  const CheckResult right = compare({100.5f, 100}, {1, 2, 4});
  EXPECT_TRUE(right.ok);
  EXPECT_EQ(right.max_abs_error, 0.5);
  EXPECT_DOUBLE_EQ(right.max_rel_error, 0.005);
  EXPECT_EQ(right.tolerance, 1e-2);
  const CheckResult wrong = compare({100.5f, 100}, {1, 2, 4.001f});
  EXPECT_FALSE(wrong.ok);
  EXPECT_EQ(wrong.tolerance, 1e-4);
  EXPECT_EQ(wrong.worst, "'y' at element 2: 4.00099993 instead of 4");
  EXPECT_EQ(compare({100, 100}, {1, 2, NAN}).max_rel_error, std::numeric_limits<double>::infinity());
}

TEST(CompareOutputs, IntegersMustBeEqual) {
  const std::vector<PackagePort> ports = {{"y", DType::kInt64, {1}, 0, 0, 0}};
  Array a(DType::kInt64, {1}), b(DType::kInt64, {1});
  a.set_int(0, 1000000);
  b.set_int(0, 1000001);
  EXPECT_FALSE(CompareOutputs(ports, {a}, {{b}, {Tolerance{}}}).ok);
  EXPECT_TRUE(CompareOutputs(ports, {a}, {{a}, {Tolerance{}}}).ok);
}

}  // namespace
}  // namespace diapason
