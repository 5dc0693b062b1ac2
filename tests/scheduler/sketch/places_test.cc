// Candidates that write a part of a larger tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/executable.h"
#include "scheduler/space.h"
#include "tests/count_text.h"
#include "tests/paths.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/execute.h"
#include "tests/scheduler/sketch/guard.h"

namespace diapason {
namespace {

constexpr float kUntouched = 77;  // a number of each type

// Ways to lie in a larger tensor: as channels behind others, one row after the other behind something, rows that are no
// whole rows of the last dimension, and at elements that no vector begins at.
std::vector<OutputPlace> PlacesFor(const ComputeDag& dag) {
  const Stage& output = dag.stage(dag.outputs()[0]);
  const int64_t elements = output.elements(), channels = output.shape().back(), rows = elements / channels;
  std::vector<OutputPlace> places{{channels, channels + 8, 4, rows * (channels + 8)},
                                  {elements, elements, 64, elements + 100},
                                  {channels, 2 * channels + 1, 3, rows * (2 * channels + 1)}};
  if (channels % 2 == 0) places.push_back({channels / 2, channels, channels / 2, 2 * elements});
  return places;
}

class PlacesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto device = OpenDevice(target_);
    if (!device.ok() && (target_.kind == TargetKind::kCuda || MayLack(GetParam())))
      GTEST_SKIP() << device.status().message();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  absl::StatusOr<Array> Run(const Program& program, const ComputeDag& dag, const std::map<int, Array>& inputs) {
    ASSIGN_OR_RETURN(const auto executable, Executable::Create(*device_, program));
    RETURN_IF_ERROR(executable->AllocateRest());
    for (const auto& [stage, array] : inputs) {
      const int index = executable->BufferOfStage(stage);
      if (index < 0) continue;
      RETURN_IF_ERROR(
          device_->CopyIn(*executable->buffer(index), array.data.data(), static_cast<int64_t>(array.data.size())));
    }
    const int out = executable->BufferOfStage(dag.outputs()[0]);
    const ProgramBuffer& buffer = executable->program().buffers[out];
    Array whole(buffer.dtype, {buffer.elements});
    for (int64_t i = 0; i < buffer.elements; ++i) whole.set(i, kUntouched);
    const auto bytes = static_cast<int64_t>(whole.data.size());
    RETURN_IF_ERROR(device_->CopyIn(*executable->buffer(out), whole.data.data(), bytes));
    RETURN_IF_ERROR(executable->RunPrologue());
    ASSIGN_OR_RETURN(const auto plan, executable->MakePlan());
    RETURN_IF_ERROR(plan->Run());
    RETURN_IF_ERROR(device_->CopyOut(whole.data.data(), *executable->buffer(out), bytes));
    return whole;
  }

  void ExpectPlaced(const ComputeDag& dag, const Schedule& schedule, const OutputPlace& place,
                    const testing::Reference& reference) {
    const auto lowered = Lower(dag, schedule, target_, device_->facts(), place);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const auto program = CompileProgram(*lowered, target_);
    ASSERT_TRUE(program.ok()) << program.status();
    const auto whole = Run(*program, dag, reference.inputs);
    ASSERT_TRUE(whole.ok()) << whole.status();
    std::vector<float> want(place.elements, kUntouched);
    ASSERT_EQ(whole->elements(), place.elements);
    const Array& part = reference.outputs[0];
    for (int64_t i = 0; i < part.elements(); ++i) want[place.At(i)] = static_cast<float>(part.at(i));
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(whole->at(static_cast<int64_t>(i)), want[i],
                  2e-3 * (part.dtype == DType::kFloat16 ? 1 + std::fabs(want[i]) : 1))
          << "element " << i << "\n"
          << program->source;
  }

  const Target target_ = Target::Parse(GetParam()).value();
  std::unique_ptr<Device> device_;
};

TEST_P(PlacesTest, CandidatesWriteTheirPartAndNothingElse) {
  constexpr int kShare = 5;  // of the sketches, one in so many
  int next = 0, placed = 0;
  for (const testing::NamedDag& task : testing::AllKinds()) {
    const auto space = TaskSpace::Create(task.dag, target_, device_->facts()).value();
    const testing::Reference reference = testing::MakeReference(task.dag, 5);
    const std::vector<OutputPlace> places = PlacesFor(task.dag);
    for (int s = next; s < space->size(); s = next += kShare) {
      SCOPED_TRACE(task.name + " " + space->space(s).name());
      const auto configuration = testing::DrawCandidate(space->space(s), 7, 0);
      ExpectPlaced(task.dag, space->space(s).Instantiate(configuration), places[s % places.size()], reference);
      if (HasFatalFailure()) return;
      ++placed;
    }
    next -= space->size();
  }
  EXPECT_GE(placed, 10);
}

INSTANTIATE_TEST_SUITE_P(Targets, PlacesTest, ::testing::Values("cpu", "opencl", "cuda"),
                         [](const auto& info) { return info.param; });

// As OneHot does: the condition reads a row and a column, the choice two scalars. Such tiles hold any number of
// elements.
TEST(Places, WhatAnElementwiseTileReadsIsNotWrittenOut) {
  DagBuilder b;
  const int x = b.Placeholder("x", {1536}, DType::kInt64), depth = b.Constant("depth", {257}, DType::kInt64);
  const int on = b.Constant("on", {1}), off = b.Constant("off", {1});
  const int equal = b.Compute("equal", {1536, 257},
                              [&](const DagBuilder::Vars& i) { return Eq(b.At(x, {i[0]}), b.At(depth, {i[1]})); });
  const int where = b.Compute("where", {1536, 257}, [&](const DagBuilder::Vars& i) {
    return Select(b.At(equal, {i[0], i[1]}), b.At(on, {IntImm(0)}), b.At(off, {IntImm(0)}));
  });
  const ComputeDag dag = b.Build({where}).value();
  for (const char* name : {"cpu", "opencl", "cuda -arch=sm_90"}) {
    const Target target = Target::Parse(name).value();
    const auto space = TaskSpace::Create(dag, target, DefaultFacts(target));
    ASSERT_TRUE(space.ok()) << name << ": " << space.status();
    for (int s = 0; s < (*space)->size(); ++s) {
      const Space& one = (*space)->space(s);
      const auto lowered = Lower(dag, one.Instantiate(one.Default()), target, DefaultFacts(target));
      EXPECT_TRUE(lowered.ok()) << name << ": " << lowered.status();
    }
  }
}

// Vectors stay vectors where each row begins at a multiple of four.
TEST(Places, StoresStayAsWideAsTheyWere) {
  const ComputeDag dag = testing::Convolution({14, 14, 16, 32, 3, 1, 1});
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  const auto space = TaskSpace::Create(dag, target, facts).value();
  int vectors = 0, scalars = 0;
  for (int s = 0; s < space->size(); ++s) {
    const Schedule schedule = space->space(s).Instantiate(testing::DrawCandidate(space->space(s), 1, 1));
    const auto source = [&](const OutputPlace& place) {
      return PrintSource(*Lower(dag, schedule, target, facts, place), target);
    };
    const int before = testing::CountText(source({}), "(float4*)");
    EXPECT_EQ(testing::CountText(source({32, 96, 64, 196 * 96}), "(float4*)"), before) << space->space(s).name();
    vectors += before;
    scalars += before - testing::CountText(source({32, 97, 3, 196 * 97}), "(float4*)");
  }
  EXPECT_GT(vectors, 0);
  EXPECT_GT(scalars, 0) << "rows that begin anywhere cannot be stored in vectors";
}

TEST(Places, ThatDoNotHoldTheOutputAreRefused) {
  const ComputeDag dag = testing::MatMul(4, 8, 8, false);
  const Target target;
  const Schedule schedule = DefaultSchedule(dag, target, DefaultFacts(target)).value();
  EXPECT_EQ(Lower(dag, schedule, target, DefaultFacts(target), {8, 16, 12, 64}).status().message(),
            "stage dense of 32 elements has no room in rows of 8 at 12 of every 16");
}

}  // namespace
}  // namespace diapason
