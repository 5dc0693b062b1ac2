#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace diapason {
namespace {

TEST(MappedFile, HasWhatTheFileHas) {
  const std::string path = testing::TempDir() + "mapped_file";
  std::string text = "text ";
  text += '\0';
  text.append(10'000, 'x');
  std::ofstream(path, std::ios::binary) << text;
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->bytes(), text);
  std::filesystem::remove(path);
  EXPECT_EQ((*file)->bytes(), text) << "another one may take its place";
  std::ofstream(path, std::ios::binary) << "";
  file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->bytes(), "");
  std::filesystem::remove(path);
}

TEST(MappedFile, SaysWhyThereIsNone) {
  EXPECT_EQ(MappedFile::Open("/none/at/all").status(), absl::NotFoundError("No such file or directory"));
  EXPECT_EQ(MappedFile::Open("/dev/null").status(), absl::InvalidArgumentError("it is no file"));
  EXPECT_EQ(MappedFile::Open("/").status(), absl::InvalidArgumentError("it is no file"));
}

}  // namespace
}  // namespace diapason
