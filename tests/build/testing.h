// Small networks made into packages of reference kernels, for the tests of compiler/build.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/build/build_package.h"
#include "compiler/build/package.h"
#include "compiler/build/random_inputs.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/reference.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/network.h"
#include "compiler/graph/partition.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/fill.h"
#include "gtest/gtest.h"
#include "scheduler/space.h"

namespace diapason {

using Shape = std::vector<int64_t>;

struct NetworkMaker {
  Network n;
  int In(const std::string& name, Shape shape, DType dtype = DType::kFloat32) {
    return n.AddInput(name, {dtype, std::move(shape)});
  }
  int Const(const std::string& name, Shape shape) {
    Array value(DType::kFloat32, std::move(shape));
    FillRandom(value, n.tensors.size());
    return n.AddConstant(name, std::move(value));
  }
  int Op(const std::string& op, std::vector<int> inputs, Attributes attributes = {}, const std::string& name = "") {
    absl::StatusOr<int> id = n.AddNode(op, std::move(inputs), std::move(attributes), name);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  Network Out(std::vector<int> outputs) {
    n.name = "test";
    n.outputs = std::move(outputs);
    EXPECT_TRUE(n.Validate().ok()) << n.Validate();
    return n;
  }
};

// A directory of its own for each test, gone after it.
class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string base = ::testing::TempDir() + "/diapason_build_XXXXXX";
    ASSERT_NE(mkdtemp(base.data()), nullptr);
    root_ = base;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string Path(const std::string& name) const { return (root_ / name).string(); }
  static void WriteText(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string ReadText(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root_))
      names.push_back(entry.path().filename().string());
    return names;
  }

  std::filesystem::path root_;
};

inline Target TestTarget(TargetKind kind) {
  Target target;
  target.kind = kind;
  if (kind == TargetKind::kCpu) target.num_cores = 2;
  return target;
}

// Reference kernels write whole tensors: a program for a place is made by the fallback schedule.
inline absl::StatusOr<Program> ProgramFor(const Task& task, const OutputPlace& place, const Target& target) {
  if (place.whole()) return CompileReference(task.dag, target);
  const DeviceFacts facts = ResolveFacts(target);
  absl::StatusOr<Schedule> schedule = DefaultSchedule(task.dag, target, facts);
  if (!schedule.ok()) return schedule.status();
  absl::StatusOr<LoweredProgram> lowered = Lower(task.dag, *schedule, target, facts, place);
  if (!lowered.ok()) return lowered.status();
  return CompileProgram(*lowered, target);
}

// A request with reference kernels wherever they will do. `network` and `partition` must outlive it.
inline PackageRequest ReferenceRequest(const Network& network, const Partition& partition, const Target& target) {
  PackageRequest request{network, partition, target, ResolveFacts(target), {}};
  for (const PlacedTask& placed : partition.programs) {
    absl::StatusOr<Program> program = ProgramFor(partition.tasks[placed.task], placed.place, target);
    EXPECT_TRUE(program.ok()) << program.status();
    request.tasks.push_back({program.value_or(Program{}), "reference", -1, 0});
  }
  return request;
}

inline absl::Status BuildReferencePackage(const std::string& dir, const Network& network, const Target& target) {
  const absl::StatusOr<Partition> partition = PartitionNetwork(network);
  if (!partition.ok()) return partition.status();
  return BuildPackage(dir, ReferenceRequest(network, *partition, target));
}

// What the interpreter says of the network, on inputs by name.
inline std::vector<Array> Expected(const Network& network, const std::map<std::string, Array>& inputs) {
  std::vector<Array> ordered;
  for (int id : network.inputs) ordered.push_back(inputs.at(network.tensor(id).name));
  absl::StatusOr<std::vector<Array>> outputs = EvaluateNetwork(network, ordered);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.value_or(std::vector<Array>{});
}

}  // namespace diapason
