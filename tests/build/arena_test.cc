#include "compiler/build/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "compiler/build/memory_plan.h"
#include "tests/build/testing.h"

namespace diapason {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// The processor's memory, which says whether its views may overlap and counts what is allocated.
class MemoryDevice : public Device {
 public:
  explicit MemoryDevice(bool overlap) : overlap_(overlap), cpu_(OpenDevice(TestTarget(TargetKind::kCpu)).value()) {}
  std::vector<int64_t> allocated;

  const DeviceFacts& facts() const override { return cpu_->facts(); }
  TargetKind kind() const override { return cpu_->kind(); }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override {
    allocated.push_back(bytes);
    return cpu_->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> View(DeviceBuffer& of, int64_t offset, int64_t bytes) override {
    EXPECT_TRUE(overlap_ || offset == 0);
    return cpu_->View(of, offset, bytes);
  }
  bool views_may_overlap() const override { return overlap_; }
  absl::Status CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) override {
    return cpu_->CopyIn(to, from, bytes);
  }
  absl::Status CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) override {
    return cpu_->CopyOut(to, from, bytes);
  }
  absl::Status Fill(DeviceBuffer& to, uint8_t value) override { return cpu_->Fill(to, value); }
  absl::StatusOr<std::unique_ptr<Module>> Load(const Program& program) override { return cpu_->Load(program); }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(std::vector<Launch> launches) override {
    return cpu_->MakePlan(std::move(launches));
  }
  absl::Status FlushCache() override { return cpu_->FlushCache(); }
  Clocks clocks() const override { return cpu_->clocks(); }

 private:
  const bool overlap_;
  const std::unique_ptr<Device> cpu_;
};

std::vector<uint8_t> BytesOf(Device& device, const DeviceBuffer& buffer) {
  std::vector<uint8_t> bytes(buffer.bytes());
  EXPECT_TRUE(device.CopyOut(bytes.data(), buffer, buffer.bytes()).ok());
  return bytes;
}

TEST(ArenaTest, GroupsOverlapAllWithAll) {
  // 0 to 2,000 meets both others, which do not meet each other; the last is empty.
  EXPECT_THAT(MutuallyOverlapping({{0, 600}, {1024, 976}, {0, 2000}, {512, 0}}),
              ElementsAre(ElementsAre(2, 1), ElementsAre(0), ElementsAre(3)));
  EXPECT_THAT(MutuallyOverlapping({}), ElementsAre());
}

// A step writes a tensor while it reads the one before: whatever lives at that time must keep its contents.
TEST(ArenaTest, TensorsThatLiveAtTheSameTimeKeepTheirContents) {
  for (const bool overlap : {true, false}) {
    std::mt19937 random(overlap);
    std::vector<PlannedTensor> tensors(40);
    for (int i = 0; i < 40; ++i) {
      tensors[i].bytes = random() % 3 == 0 ? 0 : 1 + random() % 5000;
      tensors[i].first = i;
      tensors[i].last = i + static_cast<int>(random() % 6);
    }
    const MemoryPlan plan = PlanMemory(tensors);
    std::vector<ArenaPart> parts;
    int64_t bytes = 0;
    for (int i = 0; i < 40; ++i) {
      parts.push_back({plan.offsets[i], tensors[i].bytes});
      bytes += tensors[i].bytes;
    }
    MemoryDevice device(overlap);
    absl::StatusOr<Arena> arena = Arena::Allocate(device, plan.bytes, parts);
    ASSERT_TRUE(arena.ok()) << arena.status();
    int64_t allocated = 0;
    for (const int64_t one : device.allocated) allocated += one;
    EXPECT_LT(allocated, bytes);
    if (overlap) {
      EXPECT_THAT(device.allocated, ElementsAre(plan.bytes));
    }
    for (int step = 0; step < 40; ++step) {
      ASSERT_EQ(arena->part(step)->bytes(), tensors[step].bytes);
      ASSERT_TRUE(device.Fill(*arena->part(step), static_cast<uint8_t>(step)).ok());
      for (int i = 0; i <= step; ++i) {
        if (tensors[i].last < step) continue;
        EXPECT_THAT(BytesOf(device, *arena->part(i)), Each(i)) << "tensor " << i << " at step " << step;
      }
    }
    ASSERT_TRUE(arena->Fill(device, 0xff).ok());
    for (int i = 0; i < 40; ++i) EXPECT_THAT(BytesOf(device, *arena->part(i)), Each(0xff));
  }
}

}  // namespace
}  // namespace diapason
