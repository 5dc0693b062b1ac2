#include "compiler/runtime/cold_copies.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/runtime/measure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/c_program.h"

namespace diapason {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::IsEmpty;

constexpr char kSource[] = R"(
void prepare(void* const* a, long begin, long end) {
  for (long i = begin; i < end; ++i) ((float*)a[1])[i] = ((const float*)a[0])[i];
}
void add(void* const* a, long begin, long end) {
  for (long i = begin; i < end; ++i) ((float*)a[2])[i] = ((const float*)a[0])[i] + ((const float*)a[1])[i];
}
)";

// out = x + w, where w is packed first.
Program AddConstant(int64_t n) {
  Program program = CProgram(kSource);
  program.buffers = {FloatBuffer("x", n, BufferRole::kInput, 0), FloatBuffer("w", n, BufferRole::kConstant, 1),
                     FloatBuffer("packed", n, BufferRole::kPrepared), FloatBuffer("out", n, BufferRole::kOutput, 2)};
  program.prologue = {KernelOf("prepare", {1, 2}, n)};
  program.kernels = {KernelOf("add", {0, 2, 3}, n)};
  return program;
}

class ConstantsInTurnsTest : public ::testing::Test {
 protected:
  void Make(int64_t n) {
    device_ = OpenDevice(Target()).value();
    executable_ = Executable::Create(*device_, AddConstant(n)).value();
    ASSERT_TRUE(executable_->AllocateRest().ok());
    WriteFloats(*device_, *executable_->buffer(0), std::vector<float>(n, 1));
    WriteFloats(*device_, *executable_->buffer(1), std::vector<float>(n, 2));
    ASSERT_TRUE(executable_->RunPrologue().ok());
  }
  std::vector<float> Out(int64_t n) { return ReadFloats(*device_, *executable_->buffer(3), n); }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Executable> executable_;
};

TEST_F(ConstantsInTurnsTest, EachPlanReadsConstantsOfItsOwn) {
  constexpr int64_t kElements = 1 << 20;  // 4 MiB of packed weights; the constant behind them is not read
  Make(kElements);
  auto turns = ConstantsInTurns::Create(*executable_);
  ASSERT_TRUE(turns.ok()) << turns.status();
  EXPECT_EQ(turns->plans().size(), 16u);  // 64 MiB
  for (const auto& plan : turns->plans()) {
    WriteFloats(*device_, *executable_->buffer(3), std::vector<float>(kElements, -1));
    ASSERT_TRUE(plan->Run().ok());
    EXPECT_THAT(Out(kElements), Each(FloatNear(1.0115f, 1e-3)));
  }
  // The program itself is as it was.
  ASSERT_TRUE(executable_->MakePlan().value()->Run().ok());
  EXPECT_THAT(Out(kElements), Each(3.0f));
}

TEST_F(ConstantsInTurnsTest, CopiesAreKeptForTheNextProgram) {
  constexpr int64_t kElements = 1 << 20;
  Make(kElements);
  SmallNumbers kept(*device_, 64 << 20);
  // Where the copies of a round lie is seen in what is written to them.
  for (const float before : {0.0115f, 5.0f}) {
    std::vector<std::unique_ptr<DeviceBuffer>> taken;
    {
      auto turns = ConstantsInTurns::Create(*executable_, &kept);
      ASSERT_TRUE(turns.ok()) << turns.status();
      ASSERT_EQ(turns->plans().size(), 16u);
      ASSERT_TRUE(turns->plans()[3]->Run().ok());
      EXPECT_THAT(Out(kElements), Each(FloatNear(1 + before, 1e-3)));
    }
    for (int i = 0; i < 16; ++i) {
      taken.push_back(kept.Take(4 * kElements).value());
      WriteFloats(*device_, *taken.back(), std::vector<float>(kElements, 5));
    }
    for (auto& buffer : taken) kept.Give(std::move(buffer));
  }
}

TEST_F(ConstantsInTurnsTest, NoMoreIsKeptThanItMay) {
  Make(1000);
  SmallNumbers kept(*device_, 2 << 20);
  std::vector<std::unique_ptr<DeviceBuffer>> taken;
  for (int i = 0; i < 3; ++i) {
    taken.push_back(kept.Take(1 << 20).value());
    WriteFloats(*device_, *taken.back(), std::vector<float>(1 << 18, 5));
  }
  for (auto& buffer : taken) kept.Give(std::move(buffer));
  taken.clear();
  for (const float value : {5.0f, 5.0f, 0.0115f}) {
    taken.push_back(kept.Take(1 << 20).value());
    EXPECT_THAT(ReadFloats(*device_, *taken.back(), 1 << 18), Each(FloatNear(value, 1e-3)));
  }
  for (auto& buffer : taken) kept.Give(std::move(buffer));
  kept.Clear();
  EXPECT_THAT(ReadFloats(*device_, *kept.Take(1 << 20).value(), 1 << 18), Each(FloatNear(0.0115f, 1e-3)));
}

TEST_F(ConstantsInTurnsTest, SmallConstantsStayWhereTheyAre) {
  Make(1000);
  auto turns = ConstantsInTurns::Create(*executable_);
  ASSERT_TRUE(turns.ok()) << turns.status();
  EXPECT_THAT(turns->plans(), IsEmpty());
}

TEST_F(ConstantsInTurnsTest, MeasuringTakesTurnsUnlessTold) {
  Make(1 << 16);
  for (bool cold : {true, false}) {
    TimingOptions options;
    options.cold = cold;
    options.repeat = 1;
    options.min_repeat_ms = 0;  // one run
    const auto timing = MeasureExecutable(*executable_, options);
    ASSERT_TRUE(timing.ok()) << timing.status();
    EXPECT_EQ(timing->number, 1);
    EXPECT_THAT(Out(1 << 16), Each(FloatNear(cold ? 1.0115f : 3.0f, 1e-3)));
  }
}

}  // namespace
}  // namespace diapason
