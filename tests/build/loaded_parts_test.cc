#include "compiler/build/loaded_parts.h"

#include "testing.h"

namespace diapason {
namespace {

class LoadedPartsTest : public ::testing::Test {
 protected:
  std::shared_ptr<DeviceBuffer> Buffer() { return std::shared_ptr<DeviceBuffer>(device_->Allocate(64).value()); }

  const std::unique_ptr<Device> device_ = OpenDevice(TestTarget(TargetKind::kCpu)).value();
  LoadedParts loaded_;
};

TEST_F(LoadedPartsTest, AConstantIsOnTheDeviceOnceAsLongAsItIsHeld) {
  const std::string weights(1024, 'x');
  auto first = loaded_.Constant(*device_, weights, 512, 64), again = loaded_.Constant(*device_, weights, 512, 64),
       other = loaded_.Constant(*device_, weights, 0, 64);
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
  const std::weak_ptr<DeviceBuffer> held = *first;
  first->reset();
  EXPECT_FALSE(held.expired());
  again->reset();
  EXPECT_TRUE(held.expired());
  EXPECT_TRUE(loaded_.Constant(*device_, weights, 512, 64).ok());
}

TEST_F(LoadedPartsTest, ProgramsAreToldApartByAllOfThem) {
  Program program;
  program.binary = "code";
  const int number = loaded_.Number(program);
  EXPECT_EQ(loaded_.Number(program), number);
  Program other = program;
  other.binary = "cove";
  EXPECT_NE(loaded_.Number(other), number);
  other = program;
  other.kernels.emplace_back();
  EXPECT_NE(loaded_.Number(other), number);
}

// Layers of one program have weights of their own.
TEST_F(LoadedPartsTest, PreparedBuffersAreOfOneProgramAndItsConstants) {
  const LoadedParts::Source source{3, {{0, 64}, {512, 64}}};
  std::vector<std::shared_ptr<DeviceBuffer>> buffers = {nullptr, Buffer(), nullptr, Buffer(), nullptr};
  loaded_.KeepPrepared(source, buffers);
  const std::vector<std::shared_ptr<DeviceBuffer>> found = loaded_.FindPrepared(source);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0], nullptr);
  EXPECT_EQ(found[1], buffers[1]);
  EXPECT_EQ(found[3], buffers[3]);
  EXPECT_TRUE(loaded_.FindPrepared({4, source.constants}).empty());
  EXPECT_TRUE(loaded_.FindPrepared({3, {{0, 64}, {1024, 64}}}).empty());
}

TEST_F(LoadedPartsTest, WhereOneOfThemIsGoneAllArePreparedAgain) {
  const LoadedParts::Source source{3, {{0, 64}}};
  std::vector<std::shared_ptr<DeviceBuffer>> buffers = {Buffer(), Buffer()};
  loaded_.KeepPrepared(source, buffers);
  buffers[1].reset();
  EXPECT_TRUE(loaded_.FindPrepared(source).empty());
  buffers[1] = Buffer();
  loaded_.KeepPrepared(source, buffers);
  EXPECT_EQ(loaded_.FindPrepared(source), buffers);
}

}  // namespace
}  // namespace diapason
