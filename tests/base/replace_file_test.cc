#include "base/replace_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace diapason {
namespace {

class ReplaceFileTest : public ::testing::Test {
 protected:
  ReplaceFileTest() {
    std::string folder = ::testing::TempDir() + "/replace-XXXXXX";
    folder_ = mkdtemp(folder.data());
  }
  ~ReplaceFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  static std::string Contents(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static absl::Status Replace(const std::string& path, const std::string& text) {
    return ReplaceFile(path, [&](std::ostream& out) {
      out << text;
      return absl::OkStatus();
    });
  }
  size_t FileCount() const {
    return std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator());
  }

 private:
  std::string folder_;
};

TEST_F(ReplaceFileTest, MakesAndReplaces) {
  EXPECT_TRUE(Replace(Path("a"), "one").ok());
  EXPECT_TRUE(Replace(Path("a"), "two").ok());
  EXPECT_EQ(Contents(Path("a")), "two");
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(ReplaceFileTest, AFailureLeavesWhatWasThere) {
  ASSERT_TRUE(Replace(Path("a"), "one").ok());
  const absl::Status failed = ReplaceFile(Path("a"), [&](std::ostream& out) {
    out << "half";
    EXPECT_EQ(Contents(Path("a")), "one");  // nobody finds half of it
    return absl::DataLossError("no more");
  });
  EXPECT_EQ(failed, absl::DataLossError("no more"));
  EXPECT_EQ(Contents(Path("a")), "one");
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(ReplaceFileTest, ALinkStays) {
  ASSERT_TRUE(Replace(Path("a"), "one").ok());
  ASSERT_EQ(symlink(Path("a").c_str(), Path("link").c_str()), 0);
  EXPECT_TRUE(Replace(Path("link"), "two").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_EQ(Contents(Path("a")), "two");
}

TEST_F(ReplaceFileTest, DevicesAreWrittenDirectly) {
  EXPECT_TRUE(Replace("/dev/null", "one").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(Replace("/dev/full", "one").message(),
            "cannot write '/dev/full' (No space left on device); name a file in a folder that exists, with room, that "
            "you may write to");
}

TEST_F(ReplaceFileTest, SaysWhyItCannot) {
  EXPECT_EQ(Replace(Path("none/a"), "one"),
            absl::UnavailableError("cannot write '" + Path("none/a") +
                                   "' (No such file or directory); name a file in a folder that exists, with room, "
                                   "that you may write to"));
  ASSERT_EQ(mkdir(Path("folder").c_str(), 0755), 0);
  EXPECT_FALSE(Replace(Path("folder"), "one").ok());
}

TEST_F(ReplaceFileTest, OnlyItsOwnKindIsReplaceable) {
  const auto check = [&](const std::string& path) { return CheckReplaceable(path, "list", {"list:", "[list]"}); };
  EXPECT_TRUE(check(Path("none")).ok());
  EXPECT_TRUE(check("/dev/null").ok());
  for (const auto& [text, fine] : std::vector<std::pair<std::string, bool>>{
           {"", true}, {"list: 1", true}, {"[list]", true}, {"lis", false}, {"text", false}}) {
    ASSERT_TRUE(Replace(Path("a"), text).ok());
    EXPECT_EQ(check(Path("a")).ok(), fine) << text;
  }
  EXPECT_EQ(check(Path("a")),
            absl::AlreadyExistsError("'" + Path("a") + "' is there already and is no list; name another file"));
}

}  // namespace
}  // namespace diapason
