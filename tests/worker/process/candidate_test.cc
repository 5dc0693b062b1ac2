#include "worker/process/candidate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "compiler/tensor/serialize.h"
#include "diapason/v1/process.pb.h"
#include "tests/worker/fakes.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;

// Counts what is moved; its kernels are "double" and those that misbehave as they are told here.
struct DeviceCounts {
  int64_t in = 0, out = 0, within = 0, allocated = 0, loads = 0, flushes = 0;
  double kernel_seconds = 1e-3;
  int64_t runs = 0;
  std::set<class Buffer*> buffers;  // those that live
  void Reset() { in = out = within = allocated = runs = loads = flushes = 0; }
  // Called with the arguments of the kernel "candidate".
  std::function<void(std::vector<uint8_t>& in, std::vector<uint8_t>& out)> candidate;
};

class Buffer : public DeviceBuffer {
 public:
  Buffer(DeviceCounts& counts, int64_t bytes)
      : counts(&counts), own(static_cast<size_t>(bytes)), data(own.data()), size(bytes) {
    counts.buffers.insert(this);
  }
  ~Buffer() override {
    if (counts != nullptr) counts->buffers.erase(this);
  }
  Buffer(uint8_t* at, int64_t bytes) : data(at), size(bytes) {}
  int64_t bytes() const override { return size; }
  DeviceCounts* const counts = nullptr;  // null for a view
  std::vector<uint8_t> own;
  uint8_t* const data;
  const int64_t size;
};

class DoublingPlan : public Plan {
 public:
  DoublingPlan(DeviceCounts& counts, std::vector<Launch> launches) : counts_(counts), launches_(std::move(launches)) {}
  absl::Status Run() override { return Time(1).status(); }
  absl::StatusOr<double> Time(int64_t times) override {
    for (const Launch& launch : launches_) {
      auto& in = static_cast<Buffer&>(*launch.args[0]).own;
      auto& out = static_cast<Buffer&>(*launch.args[1]).own;
      if (launch.kernel.name == "candidate" && counts_.candidate) {
        counts_.candidate(in, out);
        continue;
      }
      for (size_t i = 0; i + 4 <= out.size(); i += 4) {
        float value;
        std::memcpy(&value, in.data() + i, 4);
        value += value;
        std::memcpy(out.data() + i, &value, 4);
      }
    }
    counts_.runs += times;
    return counts_.kernel_seconds * static_cast<double>(times * static_cast<int64_t>(launches_.size()));
  }

 private:
  DeviceCounts& counts_;
  const std::vector<Launch> launches_;
};

class CountingDevice : public Device {
 public:
  explicit CountingDevice(DeviceCounts& counts) : counts_(counts) { facts_.flops = 1e18; }
  const DeviceFacts& facts() const override { return facts_; }
  TargetKind kind() const override { return TargetKind::kCuda; }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override {
    counts_.allocated += bytes;
    return std::make_unique<Buffer>(counts_, bytes);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> View(DeviceBuffer& of, int64_t offset, int64_t bytes) override {
    if (offset % 512 != 0 || offset + bytes > of.bytes()) return absl::InternalError("a view that cannot be");
    return std::make_unique<Buffer>(static_cast<Buffer&>(of).data + offset, bytes);
  }
  absl::Status CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) override {
    counts_.in += bytes;
    std::memcpy(static_cast<Buffer&>(to).data, from, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) override {
    counts_.out += bytes;
    std::memcpy(to, static_cast<const Buffer&>(from).data, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Copy(DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) override {
    counts_.within += bytes;
    std::memcpy(static_cast<Buffer&>(to).data, static_cast<const Buffer&>(from).data, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Fill(DeviceBuffer& to, uint8_t value) override {
    std::memset(static_cast<Buffer&>(to).data, value, static_cast<size_t>(to.bytes()));
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Module>> Load(const Program&) override {
    ++counts_.loads;
    return std::make_unique<Module>();
  }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(std::vector<Launch> launches) override {
    return std::make_unique<DoublingPlan>(counts_, std::move(launches));
  }
  absl::Status FlushCache() override {
    ++counts_.flushes;
    return absl::OkStatus();
  }
  Clocks clocks() const override { return {}; }

 private:
  DeviceCounts& counts_;
  DeviceFacts facts_;
};

constexpr int64_t kElements = 1 << 20, kBytes = 4 * kElements;

class CandidateTest : public testing::Test {
 protected:
  static std::string ProgramOf(const std::string& kernel) {
    Program program;
    program.target = Target::Parse("cuda -arch=sm_90").value();
    for (int id = 0; id < 2; ++id) {
      ProgramBuffer& buffer = program.buffers.emplace_back();
      buffer.name = id == 0 ? "x" : "y";
      buffer.dtype = DType::kFloat32;
      buffer.elements = kElements;
      buffer.role = id == 0 ? BufferRole::kInput : BufferRole::kOutput;
      buffer.stage = id;
    }
    program.kernels.resize(1);
    program.kernels[0].name = kernel;
    program.kernels[0].args = {0, 1};
    return SerializeProgram(program);
  }

  v1::RunReply Run(v1::MeasureMode mode, double best_seconds) {
    v1::RunJob job;
    job.set_workload(SerializeDag(DoublingDag(kElements)));
    job.set_program(ProgramOf("candidate"));
    job.set_reference_program(ProgramOf("reference"));
    job.set_mode(mode);
    job.mutable_timing()->set_race(best_seconds > 0);
    job.mutable_timing()->set_repeat(3);
    job.mutable_timing()->set_min_repeat_ms(20);
    job.mutable_timing()->set_flush_cache(older_tuner_flushes_);
    job.set_target(target_);
    if (best_seconds > 0) job.set_best_seconds(best_seconds);
    return runner_.Run(job, [](MeasureStage, bool) {});
  }

  std::string target_;
  bool older_tuner_flushes_ = false;
  DeviceCounts counts_;
  CountingDevice device_{counts_};
  CandidateRunner runner_{device_};
};

TEST_F(CandidateTest, TheSecondOfAWorkloadIsGivenWhatIsOnTheDevice) {
  ASSERT_TRUE(Run(v1::MEASURE_MODE_TIME, 0).has_timing());
  EXPECT_EQ(counts_.in, kBytes);
  counts_.Reset();
  ASSERT_TRUE(Run(v1::MEASURE_MODE_TIME, 0).has_timing());
  EXPECT_EQ(counts_.in, 0);
  EXPECT_EQ(counts_.within, kBytes);
  EXPECT_EQ(counts_.allocated, 0);
}

TEST_F(CandidateTest, WhatLosesTheRaceRunsTwiceAndIsReadInPart) {
  ASSERT_TRUE(Run(v1::MEASURE_MODE_TIME, 0).has_timing());
  counts_.Reset();
  const v1::RunReply reply = Run(v1::MEASURE_MODE_TIME, 0.4e-3);
  ASSERT_TRUE(reply.timing().stopped_early());
  EXPECT_EQ(counts_.runs, 2);
  EXPECT_LE(counts_.out, kBytes / 8);
  EXPECT_EQ(reply.stages().stopped_early(), 1u);
  EXPECT_GT(reply.stages().stopped_early_seconds(), 0);
  EXPECT_EQ(reply.stages().timing_seconds(), 0);
}

TEST_F(CandidateTest, FinalistsAreMeasuredAndReadInFull) {
  ASSERT_TRUE(Run(v1::MEASURE_MODE_TIME, 0).has_timing());
  counts_.Reset();
  const v1::RunReply reply = Run(v1::MEASURE_MODE_TIME, 1e-3);
  ASSERT_FALSE(reply.timing().stopped_early());
  EXPECT_EQ(reply.timing().samples_size(), 3);
  EXPECT_GE(counts_.runs, 60);
  EXPECT_EQ(counts_.out, kBytes);
}

TEST_F(CandidateTest, WhatLosesTheRaceWithoutWritingItsLastElementIsFoundOut) {
  counts_.candidate = [](auto&, auto& out) { std::memset(out.data(), 0, out.size() - 4); };
  const v1::RunReply reply = Run(v1::MEASURE_MODE_TIME, 0.4e-3);
  EXPECT_EQ(reply.error().kind(), "wrong_result");
  EXPECT_EQ(reply.error().text(), "element 1048575 of output 'y' was not written, or came from memory that was not");
}

// In a network a kernel's code is cold as well: copies of the program take turns.
TEST_F(CandidateTest, TheTargetSaysWhatTheCachesHold) {
  counts_.kernel_seconds = 4e-4;  // graphs of two
  struct Case {
    const char* target;
    bool older_tuner, copies, flushes;
  };
  for (const Case& one :
       {Case{"cuda -arch=sm_90", false, true, false}, Case{"cuda -arch=sm_90 -caches=warm", false, false, false},
        Case{"cuda -arch=sm_90 -caches=flushed", false, false, true}, Case{"cuda -arch=sm_90", true, false, true}}) {
    counts_.Reset();
    target_ = one.target;
    older_tuner_flushes_ = one.older_tuner;
    ASSERT_TRUE(Run(v1::MEASURE_MODE_TIME, 0).has_timing()) << one.target;
    EXPECT_EQ(counts_.loads > 1, one.copies) << one.target << ": " << counts_.loads;
    EXPECT_EQ(counts_.flushes > 0, one.flushes) << one.target;
  }
}

// A candidate that writes to its inputs does not change those of the next.
TEST_F(CandidateTest, InputsAreFreshForEach) {
  counts_.candidate = [](auto& in, auto& out) {
    std::memset(out.data(), 0, out.size());
    std::memset(in.data(), 0, in.size());
  };
  ASSERT_TRUE(Run(v1::MEASURE_MODE_TIME, 0).has_timing());
  counts_.candidate = nullptr;
  EXPECT_TRUE(Run(v1::MEASURE_MODE_VERIFY, 0).verification().ok());
}

TEST_F(CandidateTest, ARefutationByInputsThatWereOverwrittenDoesNotStand) {
  EXPECT_TRUE(Run(v1::MEASURE_MODE_VERIFY, 0).verification().ok());
  for (Buffer* buffer : counts_.buffers) std::memset(buffer->data, 0, buffer->own.size());
  EXPECT_TRUE(Run(v1::MEASURE_MODE_VERIFY, 0).verification().ok());
}

TEST_F(CandidateTest, ARefutationByInputsAsTheyWereMadeStands) {
  EXPECT_TRUE(Run(v1::MEASURE_MODE_VERIFY, 0).verification().ok());
  counts_.candidate = [](auto&, auto& out) { std::memset(out.data(), 0, out.size()); };
  const v1::RunReply wrong = Run(v1::MEASURE_MODE_VERIFY, 0);
  EXPECT_EQ(wrong.error().kind(), "wrong_result");
  EXPECT_THAT(wrong.error().text(), HasSubstr("where the reference implementation has"));
  EXPECT_FALSE(wrong.verification().ok());
}

}  // namespace
}  // namespace diapason
