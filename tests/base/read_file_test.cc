#include "base/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace diapason {
namespace {

TEST(ReadWholeFile, GivesAllBytes) {
  const std::string path = testing::TempDir() + "/whole";
  std::string bytes(200000, 'x');
  bytes[70000] = '\0';
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_EQ(*ReadWholeFile(path), bytes);
}

TEST(ReadWholeFile, SaysWhyNot) {
  EXPECT_EQ(ReadWholeFile("/nonexistent").status().message(), "No such file or directory");
  EXPECT_EQ(ReadWholeFile(testing::TempDir()).status().message(), "Is a directory");
}

TEST(ReadNamedFile, SaysWhatItIs) {
  EXPECT_EQ(ReadNamedFile("--tls-ca", "/nonexistent").status().message(),
            "cannot read --tls-ca '/nonexistent' (No such file or directory)");
}

}  // namespace
}  // namespace diapason
