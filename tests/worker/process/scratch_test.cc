#include "worker/process/scratch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "tests/worker/testing.h"

namespace diapason {
namespace {

namespace fs = std::filesystem;

TEST(ScratchTest, IsRemovedWithItsOwner) {
  TemporaryFolder base;
  {
    auto scratch = ScratchFolder::Create(base.path());
    ASSERT_TRUE(scratch.ok()) << scratch.status();
    auto folder = (*scratch)->Fresh("job");
    ASSERT_TRUE(folder.ok());
    std::ofstream(*folder + "/file") << "x";
    EXPECT_FALSE(fs::is_empty(*folder));
    ASSERT_TRUE((*scratch)->Fresh("job").ok());
    EXPECT_TRUE(fs::is_empty(*folder));
  }
  EXPECT_TRUE(base.empty());
}

// Workers that start at once on one host do not take each other's folders for those of killed owners.
TEST(ScratchTest, OwnersThatStartTogetherKeepTheirFolders) {
  TemporaryFolder base;
  std::vector<std::jthread> owners;
  std::atomic<int> lost{0};
  for (int i = 0; i < 8; ++i) {
    owners.emplace_back([&] {
      for (int j = 0; j < 200; ++j) {
        auto scratch = ScratchFolder::Create(base.path());
        if (!scratch.ok() || !(*scratch)->Fresh("job").ok()) ++lost;
      }
    });
  }
  owners.clear();
  EXPECT_EQ(lost, 0);
  EXPECT_TRUE(base.empty());
}

TEST(ScratchTest, RemovesWhatAKilledOwnerLeft) {
  TemporaryFolder base;
  auto living = ScratchFolder::Create(base.path());
  ASSERT_TRUE(living.ok());
  pid_t child = fork();
  if (child == 0) {
    auto scratch = ScratchFolder::Create(base.path());
    if (scratch.ok()) std::ofstream((*scratch)->path() + "/file") << "x";
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(base.path()), fs::directory_iterator()), 2);
  auto next = ScratchFolder::Create(base.path());
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(base.path()), fs::directory_iterator()), 2);
  EXPECT_TRUE(fs::exists((*living)->path()));
  EXPECT_TRUE(fs::exists((*next)->path()));
}

}  // namespace
}  // namespace diapason
