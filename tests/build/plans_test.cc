#include "compiler/build/plans.h"

#include <cmath>
#include <filesystem>
#include <list>
#include <set>

#include "compiler/build/check_package.h"
#include "compiler/graph/padding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/build/testing.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;

// One layer of attention over sequences with a mask, and a classifier of the whole batch's rows.
Network Encoder(int64_t batch, int64_t sequence) {
  NetworkMaker m;
  const int ids = m.In("ids", {batch, sequence}, DType::kInt64), mask = m.In("mask", {batch, sequence});
  Array table(DType::kFloat32, {11, 8}), weight(DType::kFloat32, {8, 8}), low(DType::kFloat32, {}),
      one(DType::kFloat32, {});
  FillRandom(table, 1);
  FillRandom(weight, 2);
  low.set(0, -1e9);
  one.set(0, 1);
  const int x = m.Op("gather", {m.n.AddConstant("table", table), ids});
  const int keys = m.Op("matmul", {x, m.n.AddConstant("weight", weight)});
  const int hidden = m.Op("mul", {m.Op("sub", {m.n.AddConstant("one", one), mask}), m.n.AddConstant("low", low)});
  const int scores = m.Op("add", {m.Op("matmul", {x, m.Op("transpose", {keys}, {{"perm", Shape{0, 2, 1}}})}),
                                  m.Op("reshape", {hidden}, {{"shape", Shape{batch, 1, sequence}}})});
  const int y = m.Op("add", {x, m.Op("matmul", {m.Op("softmax", {scores}), x})}, {}, "hidden");
  const int first = m.Op("slice", {y}, {{"starts", Shape{0}}, {"ends", Shape{1}}, {"axes", Shape{1}}});
  const int pooled = m.Op("tanh", {m.Op("reshape", {first}, {{"shape", Shape{batch, 8}}})}, {}, "pooled");
  const int dense = m.Op("matmul", {pooled, m.n.AddConstant("weight", weight)});
  return m.Out({y, m.Op("matmul", {dense, m.n.AddConstant("weight", weight)}, {}, "logits")});
}

struct Sizes {
  std::vector<int64_t> batch = {1, 4}, sequence = {4, 8};
};

// Of reference kernels, which are compiled once for all tests.
PackageRequest RequestFor(const Network& network, const Partition& partition, const Target& target) {
  static auto& compiled = *new std::map<std::string, Program>;
  PackageRequest request{network, partition, target, ResolveFacts(target), {}};
  for (const PlacedTask& placed : partition.programs) {
    const Task& task = partition.tasks[placed.task];
    const std::string key = target.ToString() + " " + task.workload_key + " " + placed.place.ToString();
    if (!compiled.contains(key)) {
      absl::StatusOr<Program> program = ProgramFor(task, placed.place, target);
      EXPECT_TRUE(program.ok()) << program.status();
      compiled[key] = program.value_or(Program{});
    }
    request.tasks.push_back({compiled[key], "reference", -1, 0});
  }
  return request;
}

class PlansTest : public FolderTest {
 protected:
  // The same as a build does of an imported model.
  void Build(TargetKind kind, const Sizes& sizes = {}, const std::string& mask = "mask") {
    std::list<Network> networks;
    std::list<Partition> partitions;
    std::vector<PackageRequest> requests;
    for (size_t b = 0; b < sizes.batch.size(); ++b) {
      for (size_t s = 0; s < sizes.sequence.size(); ++s) {
        const int64_t batch = sizes.batch[b], sequence = sizes.sequence[s];
        networks.push_back(Encoder(batch, sequence));
        partitions.push_back(PartitionNetwork(networks.back()).value());
        requests.push_back(RequestFor(networks.back(), partitions.back(), TestTarget(kind)));
        PlanSymbols& symbols = requests.back().symbols;
        symbols.sizes = {{"batch", batch}, {"seq", sequence}};
        symbols.inputs = {{"batch", "seq"}, {"batch", "seq"}};
        symbols.mask = mask;
        if (batch > 1)
          symbols.padding["batch"] = Padding({"batch", Encoder(batch, sequence), batch, Encoder(batch - 1, sequence),
                                              batch - 1, b == 0 ? 1 : sizes.batch[b - 1] + 1, mask});
        symbols.padding["seq"] = Padding({"seq", Encoder(batch, sequence), sequence, Encoder(batch, sequence - 1),
                                          sequence - 1, s == 0 ? 1 : sizes.sequence[s - 1] + 1, mask});
      }
    }
    const absl::Status built = BuildPackage(Path("p"), requests);
    ASSERT_TRUE(built.ok()) << built;
  }

  static SymbolPadding Padding(const PaddingQuestion& question) {
    const auto proof = ProvePadding(question);
    return proof.ok() ? SymbolPadding{question.least, "", proof->outputs, proof->needs_first}
                      : SymbolPadding{question.least, std::string(proof.status().message()), {}};
  }

  static void ExpectRight(PlanRunner& runner, int64_t batch, int64_t sequence) {
    SCOPED_TRACE(testing::Message() << "batch " << batch << ", seq " << sequence);
    const SymbolSizes given = {{"batch", batch}, {"seq", sequence}};
    std::map<std::string, Array> inputs = RandomInputs(runner.package().manifest(), given, 7 * batch + sequence);
    const absl::StatusOr<std::vector<Array>> got = runner.Run(inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    const std::vector<Array> want = Expected(Encoder(batch, sequence), inputs);
    ASSERT_EQ(got->size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ((*got)[i].shape, want[i].shape);
      for (int64_t e = 0; e < want[i].elements(); ++e)
        ASSERT_NEAR((*got)[i].at(e), want[i].at(e), 1e-5 * (1 + std::abs(want[i].at(e))));
    }
  }

  static std::string Refusal(PlanRunner& runner, const std::map<std::string, Array>& inputs) {
    return std::string(runner.Run(inputs).status().message());
  }
};

TEST_F(PlansTest, EachPlanAndSizesBetweenThemAreRight) {
  for (TargetKind kind : {TargetKind::kCpu, TargetKind::kOpenCl}) {
    SCOPED_TRACE(TestTarget(kind).ToString());
    if (!OpenDevice(TestTarget(kind)).ok()) continue;
    Build(kind);
    auto runner = PlanRunner::Load(Path("p"));
    ASSERT_TRUE(runner.ok()) << runner.status();
    for (int64_t batch : {1, 2, 3, 4})
      for (int64_t sequence : {1, 3, 4, 5, 8}) ExpectRight(**runner, batch, sequence);
    for (int plan : {0, 3}) {
      PackageRunner& one = **(*runner)->Runner(plan);
      const absl::StatusOr<CheckResult> check =
          CheckPackage(one, RandomInputs(one.manifest(), one.manifest().sizes, 3));
      ASSERT_TRUE(check.ok()) << check.status();
      EXPECT_TRUE(check->ok) << check->worst;
    }
  }
}

TEST_F(PlansTest, WhatIsEqualInPlansIsStoredOnce) {
  Build(TargetKind::kCpu);
  const Package package = Package::Open(Path("p")).value();
  ASSERT_EQ(package.plans().size(), 4u);
  std::set<std::string> files, workloads;
  size_t used = 0;
  for (const PackageManifest& plan : package.plans()) {
    for (const PackageTask& task : plan.tasks) {
      files.insert(task.file);
      workloads.insert(task.workload);
      ++used;
    }
  }
  // The classifier does not know how long sequences are.
  EXPECT_LT(files.size(), used);
  EXPECT_EQ(files.size(), workloads.size());
  size_t stored = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Path("p/tasks"))) stored += entry.is_regular_file();
  EXPECT_EQ(stored, files.size());
  // A table, a matrix, and two scalars, each on 512 bytes.
  EXPECT_EQ(std::filesystem::file_size(Path("p/weights.bin")), 4u * 512);
}

TEST_F(PlansTest, SizesBeyondThePlansAreRefused) {
  Build(TargetKind::kCpu);
  auto runner = PlanRunner::Load(Path("p"));
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto inputs = [&](int64_t batch, int64_t sequence) {
    return RandomInputs((*runner)->package().manifest(), {{"batch", batch}, {"seq", sequence}}, 1);
  };
  EXPECT_EQ(Refusal(**runner, inputs(1, 9)),
            "the inputs have batch=1 seq=9, and the package has plans up to seq=8 (batch=1,4 seq=4,8): give smaller "
            "inputs, or build it again with --dim seq=9");
  std::map<std::string, Array> contradicting = inputs(2, 4);
  contradicting["mask"] = inputs(3, 4)["mask"];
  EXPECT_EQ(Refusal(**runner, contradicting),
            "input 'ids' has batch=2, and input 'mask' has batch=3: give both the same size");
  std::map<std::string, Array> flat = inputs(2, 4);
  flat["ids"] = Array(DType::kInt64, {8});
  EXPECT_EQ(Refusal(**runner, flat), "input 'ids' is int64 8; the package wants int64 batchxseq");
  EXPECT_EQ(Refusal(**runner, {}),
            "the size of 'batch' is not known: give it with --dim batch=1, or an input that has it; the package has "
            "plans for batch=1,4 seq=4,8");
  EXPECT_EQ(Refusal(**runner, {{"ids", inputs(1, 4)["ids"]}}),
            "input 'mask' (float32 1x4) is missing; give it a value");
  EXPECT_EQ(Refusal(**runner, {{"x", Array(DType::kFloat32, {1})}}),
            "the package has no input 'x'; its inputs are: 'ids', 'mask'");
  EXPECT_EQ(ChoosePlan((*runner)->package(), {{"length", 3}}).status().message(),
            "the package has no symbolic dimension 'length': it has 'batch', 'seq'");
}

TEST_F(PlansTest, WithoutAMaskSequencesAreNotPadded) {
  Build(TargetKind::kCpu, {}, "");
  auto runner = PlanRunner::Load(Path("p"));
  ASSERT_TRUE(runner.ok()) << runner.status();
  ExpectRight(**runner, 3, 8);
  const std::map<std::string, Array> inputs =
      RandomInputs((*runner)->package().manifest(), {{"batch", 1}, {"seq", 5}}, 1);
  EXPECT_EQ(Refusal(**runner, inputs),
            "the inputs have batch=1 seq=5, and the package has plans for batch=1,4 seq=4,8; padding along 'seq' is "
            "not known to be harmless (node "
            "'softmax_8' (softmax) combines values along 'seq', those of padding included): give inputs of these "
            "sizes, or build it again with --dim seq=5");
}

TEST_F(PlansTest, MasksArePaddedWithZerosAndOthersWithTheirLastRow) {
  PackageManifest plan;
  plan.mask = "mask";
  plan.inputs = {{"x", DType::kInt64, {2, 3}, 0, 0, 0, {"batch", "seq"}, {}},
                 {"mask", DType::kInt64, {2, 3}, 1, 0, 0, {"batch", "seq"}, {}}};
  plan.outputs = {{"y", DType::kInt64, {4, 3}, 2, 0, 0, {}, {{"batch", 0, 2}, {"seq", 1, 1}}}};
  const auto list = [](std::vector<int64_t> shape, const std::vector<int64_t>& values) {
    Array array(DType::kInt64, std::move(shape));
    for (size_t i = 0; i < values.size(); ++i) array.set_int(static_cast<int64_t>(i), values[i]);
    return array;
  };
  const auto values = [](const Array& array) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < array.elements(); ++i) all.push_back(array.int_at(i));
    return all;
  };
  const auto padded = PadInputs(plan, {{"x", list({1, 2}, {7, 8})}, {"mask", list({1, 2}, {1, 1})}});
  ASSERT_TRUE(padded.ok()) << padded.status();
  EXPECT_THAT(values(padded->at("x")), ElementsAre(7, 8, 8, 7, 8, 8));
  EXPECT_THAT(values(padded->at("mask")), ElementsAre(1, 1, 0, 0, 0, 0));
  const std::vector<Array> cut =
      CutOutputs(plan, {{"batch", 1}, {"seq", 2}}, {list({4, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})});
  EXPECT_THAT(cut[0].shape, ElementsAre(2, 2));
  EXPECT_THAT(values(cut[0]), ElementsAre(0, 1, 3, 4));
}

// Sequences without a real position attend to the padding as much as to themselves.
TEST_F(PlansTest, SequencesThatBeginWithAMaskedPositionAreNotPadded) {
  Build(TargetKind::kCpu, {{4}, {4, 8}});
  auto runner = PlanRunner::Load(Path("p"));
  ASSERT_TRUE(runner.ok()) << runner.status();
  const PackageManifest& plan = (*runner)->package().manifest();
  EXPECT_TRUE(plan.padding.at("seq").needs_first);
  std::map<std::string, Array> inputs = RandomInputs(plan, {{"batch", 4}, {"seq", 5}}, 1);
  inputs.at("mask").set(5, 0);
  EXPECT_EQ(Refusal(**runner, inputs),
            "the mask 'mask' begins with 0 along 'seq', so padding from seq=5 to 8 could change results: let each "
            "sequence begin with a real position, or "
            "build the package again with --dim seq=5");
  inputs.at("mask").set(5, 1);
  inputs.at("mask").set(6, 0);
  EXPECT_TRUE((*runner)->Run(inputs).ok());
  // Where nothing is padded, a mask may say what it likes.
  inputs = RandomInputs(plan, {{"batch", 4}, {"seq", 8}}, 1);
  for (int i = 0; i < 32; ++i) inputs.at("mask").set(i, 0);
  EXPECT_TRUE((*runner)->Run(inputs).ok());
}

TEST_F(PlansTest, APackageOfFixedShapesHasOnePlan) {
  const Network network = Encoder(4, 4);
  const Partition partition = PartitionNetwork(network).value();
  ASSERT_TRUE(BuildPackage(Path("p"), RequestFor(network, partition, TestTarget(TargetKind::kCpu))).ok());
  auto runner = PlanRunner::Load(Path("p"));
  ASSERT_TRUE(runner.ok()) << runner.status();
  ExpectRight(**runner, 4, 4);
  EXPECT_EQ(ChoosePlan((*runner)->package(), {{"seq", 3}}).status().message(),
            "the package has no symbolic dimension 'seq': its shapes are fixed");
}

}  // namespace
}  // namespace diapason
