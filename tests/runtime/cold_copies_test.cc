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

constexpr char kSource[] = R"(
void prepare(void* const* a, long begin, long end) {
  for (long i = begin; i < end; ++i) ((float*)a[1])[i] = ((const float*)a[0])[i];
}
void add(void* const* a, long begin, long end) {
  for (long i = begin; i < end; ++i) ((float*)a[2])[i] = ((const float*)a[0])[i] + ((const float*)a[1])[i];
}
)";

// out = x + w, where w is packed first. No other buffer has as many elements as out.
constexpr int64_t kMoreInOut = 16;

Program AddConstant(int64_t n) {
  Program program = CProgram(kSource);
  program.buffers = {FloatBuffer("x", n, BufferRole::kInput, 0), FloatBuffer("w", n, BufferRole::kConstant, 1),
                     FloatBuffer("packed", n, BufferRole::kPrepared),
                     FloatBuffer("out", n + kMoreInOut, BufferRole::kOutput, 2)};
  program.prologue = {KernelOf("prepare", {1, 2}, n)};
  program.kernels = {KernelOf("add", {0, 2, 3}, n)};
  return program;
}

class BuffersInTurnsTest : public ::testing::Test {
 protected:
  void Make(int64_t n) {
    executable_ = Executable::Create(*device_, AddConstant(n)).value();
    ASSERT_TRUE(executable_->AllocateRest().ok());
    WriteFloats(*device_, *executable_->buffer(0), std::vector<float>(n, 1));
    WriteFloats(*device_, *executable_->buffer(1), std::vector<float>(n, 2));
    ASSERT_TRUE(executable_->RunPrologue().ok());
  }
  std::vector<float> Out(int64_t n) { return ReadFloats(*device_, *executable_->buffer(3), n); }
  // Runs all turns of the executable and returns their number.
  size_t RunTurns() {
    const auto turns = BuffersInTurns::Create(*executable_, &spare_);
    EXPECT_TRUE(turns.ok()) << turns.status();
    for (const auto& plan : turns->plans()) EXPECT_TRUE(plan->Run().ok());
    return turns->plans().size();
  }
  // A buffer of so many floats that the turns gave back.
  std::unique_ptr<DeviceBuffer> Spare(int64_t elements) { return spare_.others.Take(4 * elements).value(); }

  std::unique_ptr<Device> device_ = OpenDevice(Target()).value();
  SpareBuffers spare_{*device_, 256 << 20};
  std::unique_ptr<Executable> executable_;
};

TEST_F(BuffersInTurnsTest, EachPlanReadsConstantsAndWritesOutputsOfItsOwn) {
  constexpr int64_t kElements = 1 << 20;  // 4 MiB of packed weights; the constant behind them is not read
  Make(kElements);
  WriteFloats(*device_, *executable_->buffer(3), std::vector<float>(kElements, -1));
  EXPECT_EQ(RunTurns(), 16u);  // 64 MiB
  const auto first = Spare(kElements + kMoreInOut), second = Spare(kElements + kMoreInOut);
  for (const auto& out : {first.get(), second.get()})
    EXPECT_THAT(ReadFloats(*device_, *out, kElements), Each(FloatNear(1.0115f, 1e-3)));
  // The program itself is as it was.
  EXPECT_THAT(Out(kElements), Each(-1.0f));
  ASSERT_TRUE(executable_->MakePlan().value()->Run().ok());
  EXPECT_THAT(Out(kElements), Each(3.0f));
}

TEST_F(BuffersInTurnsTest, CopiesAreKeptForTheNextProgram) {
  constexpr int64_t kElements = 1 << 20;
  Make(kElements);
  // Which copies of constants a round has is seen in what is written to them.
  for (const float before : {0.0115f, 5.0f}) {
    ASSERT_EQ(RunTurns(), 16u);
    EXPECT_THAT(ReadFloats(*device_, *Spare(kElements + kMoreInOut), kElements), Each(FloatNear(1 + before, 1e-3)));
    std::vector<std::unique_ptr<DeviceBuffer>> taken;
    for (int i = 0; i < 16; ++i) {
      taken.push_back(spare_.small_numbers.Take(4 * kElements).value());
      WriteFloats(*device_, *taken.back(), std::vector<float>(kElements, 5));
    }
    for (auto& buffer : taken) spare_.small_numbers.Give(std::move(buffer));
  }
}

// Copies for GPUs, which any device can have: their constants are kept too, and hold small numbers.
TEST_F(BuffersInTurnsTest, ConstantsOfColdCopiesAreKept) {
  constexpr int64_t kElements = 1 << 18;
  Make(kElements);
  for (const float before : {0.0115f, 5.0f}) {
    {
      ColdCopies copies = ColdCopies::Create(*executable_, &spare_).value();
      const auto plan = copies.MakePlan(2).value();  // the program itself, then the first copy
      ASSERT_TRUE(plan->Run().ok());
      EXPECT_THAT(Out(kElements), Each(FloatNear(1 + before, 1e-3)));
    }
    std::vector<std::unique_ptr<DeviceBuffer>> taken;
    for (int i = 0; i < 70; ++i) {
      taken.push_back(spare_.small_numbers.Take(4 * kElements).value());
      WriteFloats(*device_, *taken.back(), std::vector<float>(kElements, 5));
    }
    for (auto& buffer : taken) spare_.small_numbers.Give(std::move(buffer));
  }
  ASSERT_TRUE(executable_->MakePlan().value()->Run().ok());
  EXPECT_THAT(Out(kElements), Each(3.0f)) << "the program has its own constants";
}

// What is small takes many turns: 4 MiB of activations.
TEST_F(BuffersInTurnsTest, ActivationsTakeTurnsWithoutConstants) {
  constexpr int64_t kElements = 1 << 14;  // 64 KiB each
  Program program = AddConstant(kElements);
  program.buffers[1].role = BufferRole::kInput;
  program.prologue.clear();
  program.kernels = {KernelOf("add", {0, 1, 3}, kElements)};
  executable_ = Executable::Create(*device_, program).value();
  ASSERT_TRUE(executable_->AllocateRest().ok());
  for (const int input : {0, 1})
    WriteFloats(*device_, *executable_->buffer(input), std::vector<float>(kElements, static_cast<float>(input + 1)));
  EXPECT_EQ(RunTurns(), 21u);
  EXPECT_THAT(ReadFloats(*device_, *Spare(kElements + kMoreInOut), kElements), Each(3.0f));
}

// Constants that are integers may be indices: their copies hold the same.
TEST_F(BuffersInTurnsTest, IntegersAreTheSameInEachTurn) {
  constexpr int64_t kElements = 1 << 20;
  Program program = CProgram(R"(
void gather(void* const* a, long begin, long end) {
  for (long i = begin; i < end; ++i) ((float*)a[2])[i] = ((const float*)a[0])[((const int*)a[1])[i]];
}
)");
  program.buffers = {FloatBuffer("x", kElements, BufferRole::kInput, 0),
                     FloatBuffer("indices", kElements, BufferRole::kConstant, 1),
                     FloatBuffer("out", kElements + kMoreInOut, BufferRole::kOutput, 2)};
  program.buffers[1].dtype = DType::kInt32;
  program.kernels = {KernelOf("gather", {0, 1, 2}, kElements)};
  executable_ = Executable::Create(*device_, program).value();
  ASSERT_TRUE(executable_->AllocateRest().ok());
  std::vector<float> x(kElements), reversed(kElements);
  std::vector<int32_t> indices(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    x[i] = reversed[kElements - 1 - i] = static_cast<float>(i);
    indices[i] = static_cast<int32_t>(kElements - 1 - i);
  }
  WriteFloats(*device_, *executable_->buffer(0), x);
  ASSERT_TRUE(device_->CopyIn(*executable_->buffer(1), indices.data(), 4 * kElements).ok());
  EXPECT_EQ(RunTurns(), 16u);
  EXPECT_EQ(ReadFloats(*device_, *Spare(kElements + kMoreInOut), kElements), reversed);
}

TEST_F(BuffersInTurnsTest, NoMoreIsKeptThanItMay) {
  SpareBuffers spare(*device_, 2 << 20);
  BufferPool& kept = spare.small_numbers;
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

TEST_F(BuffersInTurnsTest, SmallBuffersStayWhereTheyAre) {
  Make(1000);
  EXPECT_EQ(RunTurns(), 0u);
}

TEST_F(BuffersInTurnsTest, MeasuringTakesTurnsUnlessTold) {
  constexpr int64_t kElements = 1 << 16;
  Make(kElements);
  TimingOptions options;
  options.spare_buffers = &spare_;
  options.repeat = 1;
  options.min_repeat_ms = 0;  // one run
  for (const bool cold : {false, true}) {
    options.cold = cold;
    std::unique_ptr<DeviceBuffer> marked = Spare(kElements + kMoreInOut);
    WriteFloats(*device_, *marked, std::vector<float>(kElements, -1));
    spare_.others.Give(std::move(marked));
    const auto timing = MeasureExecutable(*executable_, options);
    ASSERT_TRUE(timing.ok()) << timing.status();
    EXPECT_EQ(timing->number, 1);
    EXPECT_THAT(Out(kElements), Each(3.0f));
    for (int i = 0; cold && i < 6; ++i) Spare(kElements + kMoreInOut);  // of turns behind the first, which were not run
    EXPECT_THAT(ReadFloats(*device_, *Spare(kElements + kMoreInOut), kElements),
                Each(FloatNear(cold ? 1.0115f : -1, 1e-3)));
  }
}

}  // namespace
}  // namespace diapason
