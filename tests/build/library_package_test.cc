// Packages whose programs call libraries: on the cpu device with a library on the host, so that the whole way is run.
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "compiler/build/check_package.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/cpu/device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/sketch/library_space.h"
#include "tests/build/testing.h"
#include "tests/runtime/cuda/host_library.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Two convolutions of one shape, a residual and a classifier.
Network Classifier() {
  NetworkMaker m;
  const int x = m.In("image", {2, 4, 8, 8});
  const auto conv = [&](int in, const std::string& name) {
    const int w = m.Const(name + ".weight", {4, 4, 3, 3}), b = m.Const(name + ".bias", {4});
    return m.Op("conv2d", {in, w, b}, {{"pads", Shape{1, 1, 1, 1}}});
  };
  const int a = m.Op("relu", {conv(x, "conv1")});
  const int sum = m.Op("relu", {m.Op("add", {conv(a, "conv2"), a})});
  const int flat = m.Op("reshape", {m.Op("reduce_mean", {sum}, {{"axes", Shape{2, 3}}})}, {{"shape", Shape{2, 4}}});
  return m.Out({m.Op("gemm", {flat, m.Const("fc", {4, 10}), m.Const("fc.bias", {10})}, {}, "logits")});
}

// Every task by the last of its library spaces where it has some.
PackageRequest LibraryRequest(const Network& network, const Partition& partition,
                              const std::vector<std::string>& libs) {
  const Target target = TestTarget(TargetKind::kCpu);
  Target with_libraries = target;
  with_libraries.libs = libs;
  PackageRequest request{network, partition, target, ResolveFacts(target), {}};
  for (const Task& task : partition.tasks) {
    const auto spaces = LibrarySpaces(task.dag, {with_libraries, request.device});
    const Schedule schedule = spaces.empty() ? DefaultSchedule(task.dag, target, request.device).value()
                                             : spaces.back()->Instantiate(spaces.back()->Default());
    const absl::StatusOr<LoweredProgram> lowered = Lower(task.dag, schedule, target, request.device);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    request.tasks.push_back({CompileProgram(*lowered, target).value(), schedule.sketch, -1, 0});
  }
  return request;
}

class LibraryPackage : public FolderTest {
 protected:
  void Build(const std::vector<std::string>& libs) {
    const absl::Status built = BuildPackage(Path("p"), LibraryRequest(network_, partition_, libs));
    ASSERT_TRUE(built.ok()) << built;
  }
  const Network network_ = Classifier();
  const Partition partition_ = PartitionNetwork(network_).value();
};

TEST_F(LibraryPackage, ComputesTheNetwork) {
  Build({"cudnn", "cublas"});
  auto device = OpenCpuDevice(TestTarget(TargetKind::kCpu), std::make_unique<HostLibrary>()).value();
  auto runner = PackageRunner::Load(Path("p"), device.get());
  ASSERT_TRUE(runner.ok()) << runner.status();
  for (uint64_t seed : {1, 2}) {
    const absl::StatusOr<CheckResult> check = CheckPackage(**runner, RandomInputs((*runner)->manifest(), seed));
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check->ok) << check->worst;
  }
}

// Calls of libraries keep the addresses that they were prepared with: what they read or write is copied.
TEST_F(LibraryPackage, MemoryOfACallerThatALibraryWouldUseIsCopied) {
  Build({"cudnn", "cublas"});
  auto device = OpenCpuDevice(TestTarget(TargetKind::kCpu), std::make_unique<HostLibrary>()).value();
  auto runner = PackageRunner::Load(Path("p"), device.get()).value();
  std::vector<bool> of_library(2, false);
  for (const Launch& launch : runner->Launches()) {
    if (launch.kernel.library == nullptr) continue;
    for (const DeviceBuffer* arg : launch.args) {
      of_library[0] = of_library[0] || arg == &runner->input(0);
      of_library[1] = of_library[1] || arg == &runner->output(0);
    }
  }
  EXPECT_TRUE(of_library[0] || of_library[1]);
  const PackageManifest& manifest = runner->manifest();
  for (uint64_t seed : {1, 2, 3}) {
    const std::map<std::string, Array> inputs = RandomInputs(manifest, seed);
    const Array& image = inputs.at("image");
    auto in = device->Allocate(static_cast<int64_t>(image.data.size())).value(), out = device->Allocate(80).value();
    ASSERT_EQ(device->CopyIn(*in, image.data.data(), in->bytes()), absl::OkStatus());
    ASSERT_EQ(runner->Enqueue(nullptr, {device->AddressOf(*in)}, {device->AddressOf(*out)}), absl::OkStatus());
    EXPECT_THAT(runner->UsedInPlace(), ElementsAre(!of_library[0], !of_library[1]));
    const Array want = Expected(network_, inputs)[0];
    Array got = want;
    ASSERT_EQ(device->CopyOut(got.data.data(), *out, 80), absl::OkStatus());
    for (int64_t e = 0; e < 20; ++e) EXPECT_NEAR(got.at(e), want.at(e), 1e-4 * (1 + std::abs(want.at(e)))) << e;
  }
}

TEST_F(LibraryPackage, ManifestNamesTheLibraries) {
  Build({"cudnn", "cublas"});
  EXPECT_THAT(Package::Open(Path("p"))->manifest().libraries, ElementsAre(Library::kCudnn, Library::kCublas));
  EXPECT_THAT(ReadText(Path("p/manifest.json")), HasSubstr("\"libraries\": [\n  \"cudnn\",\n  \"cublas\"\n ]"));
  Build({"cublas"});
  EXPECT_THAT(Package::Open(Path("p"))->manifest().libraries, ElementsAre(Library::kCublas));
  Build({});
  EXPECT_THAT(Package::Open(Path("p"))->manifest().libraries, IsEmpty());
  EXPECT_THAT(ReadText(Path("p/manifest.json")), Not(HasSubstr("libraries")));
}

TEST_F(LibraryPackage, TheSameBuildGivesTheSameFiles) {
  Build({"cudnn"});
  const std::string manifest = ReadText(Path("p/manifest.json"));
  Build({"cudnn"});
  EXPECT_EQ(ReadText(Path("p/manifest.json")), manifest);
}

TEST_F(LibraryPackage, AMissingLibraryIsNamedWithTheMend) {
  Build({"cudnn", "cublas"});
  const Package package = Package::Open(Path("p")).value();
  const auto only_cudnn = [](Library library) {
    return library == Library::kCudnn ? absl::OkStatus()
                                      : absl::UnavailableError("cuBLAS is not on this machine; install it");
  };
  EXPECT_EQ(CheckPackageLibraries(package, only_cudnn).ToString(),
            absl::StrCat("UNAVAILABLE: package '", Path("p"),
                         "' calls a library: cuBLAS is not on this machine; install it, or "
                         "build the package for a target without -libs=cublas"));
  EXPECT_TRUE(CheckPackageLibraries(package, [](Library) { return absl::OkStatus(); }).ok());
}

TEST_F(LibraryPackage, AManifestWithAnUnknownLibraryIsDamaged) {
  Build({"cudnn"});
  std::string manifest = ReadText(Path("p/manifest.json"));
  manifest.replace(manifest.find("\"cudnn\""), 7, "\"mkldn\"");
  WriteText(Path("p/manifest.json"), manifest);
  EXPECT_EQ(Package::Open(Path("p")).status().message(),
            Path("p") + "/manifest.json is damaged: 'mkldn' is no library; build the package again");
}

}  // namespace
}  // namespace diapason
