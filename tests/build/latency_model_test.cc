#include "compiler/build/latency_model.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

// On four paths, with those dependencies.
double OnPaths(const std::vector<ModelledLaunch>& launches, const std::vector<std::vector<int>>& dependencies) {
  return SecondsOnPaths(launches, PlacePaths(dependencies, kMostPaths));
}

TEST(SecondsOnPaths, AChainTakesTheSum) {
  const std::vector<ModelledLaunch> chain{{3, 0.1}, {4, 1}, {5, 0.2}};
  EXPECT_DOUBLE_EQ(SecondsInOrder(chain), 12);
  EXPECT_DOUBLE_EQ(OnPaths(chain, {{}, {0}, {1}}), 12);
}

TEST(SecondsOnPaths, NothingTakesNoTime) { EXPECT_EQ(OnPaths({}, {}), 0); }

TEST(SecondsOnPaths, BranchesOfSmallKernelsTakeTheLongest) {
  EXPECT_DOUBLE_EQ(OnPaths({{1, 1}, {2, 0.3}, {5, 0.3}, {1, 1}}, {{}, {0}, {0}, {1, 2}}), 1 + 5 + 1);
}

TEST(SecondsOnPaths, BranchesOfKernelsThatFillTheDeviceTakeTheSum) {
  EXPECT_DOUBLE_EQ(OnPaths({{1, 1}, {2, 1}, {5, 1}, {1, 1}}, {{}, {0}, {0}, {1, 2}}), 1 + 2 + 5 + 1);
}

// Both ask for 1.5 devices: each second of theirs takes 1.5, until the short one has ended.
TEST(SecondsOnPaths, BranchesThatNearlyFillTheDeviceShareIt) {
  EXPECT_DOUBLE_EQ(OnPaths({{2, 0.75}, {5, 0.75}}, {{}, {}}), 2 * 1.5 + 3);
}

// An inception block: four branches between two concatenations (in place: no kernel), of 1, 2, 2 and 2 kernels.
TEST(SecondsOnPaths, AnInceptionBlockTakesItsLongestBranch) {
  const std::vector<ModelledLaunch> block{{2, 1},   {1, 0.2}, {1, 0.2}, {4, 0.2}, {1, 0.2},
                                          {2, 0.2}, {2, 0.2}, {1, 0.2}, {3, 1}};
  const std::vector<std::vector<int>> dependencies{{}, {0}, {0}, {2}, {0}, {4}, {0}, {6}, {1, 3, 5, 7}};
  EXPECT_DOUBLE_EQ(SecondsInOrder(block), 17);
  EXPECT_DOUBLE_EQ(OnPaths(block, dependencies), 2 + 5 + 3);
}

TEST(SecondsOnPaths, MoreBranchesThanPathsFollowOneAnother) {
  const std::vector<ModelledLaunch> branches(8, {1, 0.01});
  EXPECT_DOUBLE_EQ(SecondsOnPaths(branches, PlacePaths(std::vector<std::vector<int>>(8), 4)), 2);
}

Program WithGrids(const std::vector<int64_t>& blocks) {
  Program program;
  for (int64_t count : blocks) {
    Kernel kernel;
    kernel.grid = {count, 1, 1};
    program.kernels.push_back(kernel);
  }
  return program;
}

TEST(ShareOf, IsThatOfBlocksAmongMultiprocessors) {
  EXPECT_DOUBLE_EQ(ShareOf(WithGrids({33}), 132), 0.25);
  EXPECT_DOUBLE_EQ(ShareOf(WithGrids({1000}), 132), 1);
  EXPECT_DOUBLE_EQ(ShareOf(WithGrids({33, 1000, 33}), 132), 0.5);
  EXPECT_GT(ShareOf(WithGrids({0}), 132), 0);
  EXPECT_EQ(ShareOf(WithGrids({}), 132), 1);
}

// x -> a, b (the parts of one tensor, written in place) -> c.
class ModelledPackage : public ::testing::Test {
 protected:
  void SetUp() override {
    manifest_.target = Target::Parse("cuda -arch=sm_90").value();
    manifest_.device.num_cores = 100;
    manifest_.tensors = {{"x", DType::kFloat32, 64, PackageTensor::Place::kInput, 0},
                         {"ab", DType::kFloat32, 128, PackageTensor::Place::kArena, 0},
                         {"c", DType::kFloat32, 64, PackageTensor::Place::kArena, 512}};
    const OutputPlace a{8, 16, 0, 128}, b{8, 16, 8, 128};
    const auto task = [](const char* name, double seconds, OutputPlace place) {
      PackageTask made;
      made.name = name;
      made.estimated_seconds = seconds;
      made.place = place;
      return made;
    };
    manifest_.tasks = {task("a", 3, a), task("b", 4, b), task("c", 2, {})};
    manifest_.steps = {{0, {0}, {1}, {}}, {1, {0}, {1}, {}}, {2, {1}, {2}, {}}};
    for (int i = 0; i < 3; ++i) programs_.push_back(WithGrids({10}));
  }
  double Seconds() const {
    std::vector<const Program*> programs;
    for (const Program& program : programs_) programs.push_back(&program);
    return ModelledSeconds(manifest_, programs);
  }
  PackageManifest manifest_;
  std::vector<Program> programs_;
};

TEST_F(ModelledPackage, MakersOfAConcatenationInPlaceRunSideBySide) { EXPECT_DOUBLE_EQ(Seconds(), 4 + 2); }

TEST_F(ModelledPackage, MakersThatShareAWorkspaceDoNot) {
  ProgramBuffer workspace;
  workspace.elements = 16;
  workspace.role = BufferRole::kWorkspace;
  for (int i : {0, 1}) {
    programs_[i].buffers = {workspace};
    manifest_.steps[i].workspaces = {{0, 4096}};
  }
  EXPECT_DOUBLE_EQ(Seconds(), 3 + 4 + 2);
}

TEST_F(ModelledPackage, OnlyCudaRunsSideBySideAndNotWithLibraries) {
  manifest_.libraries = {Library::kCudnn};
  EXPECT_DOUBLE_EQ(Seconds(), 9);
  manifest_.libraries.clear();
  manifest_.target = Target::Parse("cpu").value();
  EXPECT_DOUBLE_EQ(Seconds(), 9);
}

TEST_F(ModelledPackage, WithoutATimeOfEachTaskThereIsNone) {
  manifest_.tasks[1].estimated_seconds = 0;
  EXPECT_EQ(Seconds(), 0);
}

}  // namespace
}  // namespace diapason
