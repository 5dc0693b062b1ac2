#include "compiler/codegen/temporary.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace diapason {
namespace {

class TemporaryTest : public ::testing::Test {
 protected:
  TemporaryTest() {
    std::string path = ::testing::TempDir() + "/temporary-XXXXXX";
    base_ = mkdtemp(path.data());
    if (const char* set = std::getenv("TMPDIR")) before_ = set;
    setenv("TMPDIR", base_.c_str(), 1);
  }
  ~TemporaryTest() override {
    before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1);
    std::filesystem::remove_all(base_);
  }

  size_t Count() const {
    return std::distance(std::filesystem::directory_iterator(base_), std::filesystem::directory_iterator());
  }

  std::string base_, before_;
};

TEST_F(TemporaryTest, GoesWithItsOwner) {
  {
    TemporaryDirectory one = TemporaryDirectory::Create().value();
    const TemporaryDirectory moved = std::move(one), other = TemporaryDirectory::Create().value();
    EXPECT_TRUE(WriteFile(moved.File("a"), "text").ok());
    EXPECT_EQ(ReadFile(moved.File("a")).value(), "text");
    EXPECT_EQ(Count(), 2u);
  }
  EXPECT_EQ(Count(), 0u);
}

// As by Ctrl-C during a build.
TEST_F(TemporaryTest, WhatAnEndedProcessLeftIsRemovedByTheNextOne) {
  const pid_t child = fork();
  if (child == 0) {
    const TemporaryDirectory left = TemporaryDirectory::Create().value();
    const absl::Status written = WriteFile(left.File("kernels.c"), "int x;");
    _exit(written.ok() ? 0 : 1);  // without destructors
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(Count(), 1u);
  std::filesystem::create_directory(base_ + "/diapason-others");
  const TemporaryDirectory next = TemporaryDirectory::Create().value();
  EXPECT_EQ(Count(), 2u);
  EXPECT_TRUE(std::filesystem::exists(base_ + "/diapason-others"));
}

TEST_F(TemporaryTest, WhatALivingProcessHasStays) {
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = fork();
  char byte = 0;
  if (child == 0) {
    const TemporaryDirectory mine = TemporaryDirectory::Create().value();
    close(done[1]);
    (void)!write(ready[1], &byte, 1);
    (void)!read(done[0], &byte, 1);  // until the other one has looked
    _exit(std::filesystem::exists(mine.File("")) ? 0 : 1);
  }
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const TemporaryDirectory other = TemporaryDirectory::Create().value();
  EXPECT_EQ(Count(), 2u);
  close(done[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace diapason
