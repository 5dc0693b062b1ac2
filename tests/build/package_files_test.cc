#include "compiler/build/package_files.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/build/testing.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr char kManifest[] = R"({"format": "diapason-package", "version": 1})";

class PackageFilesTest : public FolderTest {};

absl::Status WritePackage(const std::string& dir, const std::string& weights) {
  absl::StatusOr<PackageFolder> folder = PackageFolder::Create(dir);
  if (!folder.ok()) return folder.status();
  EXPECT_TRUE(folder->Write("weights.bin", weights).ok());
  EXPECT_TRUE(folder->Write("kernels/a.c", "source").ok());
  EXPECT_TRUE(folder->Write(kManifestFile, kManifest).ok());
  return folder->Commit();
}

TEST_F(PackageFilesTest, AFolderAppearsWhenCommitted) {
  absl::StatusOr<PackageFolder> folder = PackageFolder::Create(Path("deep/er/out"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_TRUE(folder->Write("kernels/a.c", "source").ok());
  EXPECT_FALSE(std::filesystem::exists(Path("deep/er/out")));
  ASSERT_TRUE(folder->Commit().ok());
  EXPECT_EQ(ReadText(Path("deep/er/out/kernels/a.c")), "source");
}

TEST_F(PackageFilesTest, NothingIsLeftOfAFolderNotCommitted) {
  {
    absl::StatusOr<PackageFolder> folder = PackageFolder::Create(Path("out"));
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE(folder->Write("weights.bin", "w").ok());
  }
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(PackageFilesTest, AnOlderPackageIsReplacedWhole) {
  ASSERT_TRUE(WritePackage(Path("out"), "old").ok());
  WriteText(Path("out/kernels/stale.c"), "stale");
  ASSERT_TRUE(WritePackage(Path("out/"), "new").ok());
  EXPECT_EQ(ReadText(Path("out/weights.bin")), "new");
  EXPECT_FALSE(std::filesystem::exists(Path("out/kernels/stale.c")));
  EXPECT_THAT(Entries(), ElementsAre("out"));
}

TEST_F(PackageFilesTest, AnEmptyFolderIsUsed) {
  std::filesystem::create_directory(Path("out"));
  ASSERT_TRUE(WritePackage(Path("out"), "w").ok());
  EXPECT_EQ(ReadText(Path("out/weights.bin")), "w");
}

TEST_F(PackageFilesTest, WhatIsNotOursIsLeftAlone) {
  const auto text = [&](const std::string& name) {
    return "'" + Path(name) +
           "' holds files that are no part of a package; give --out a new or empty folder, or a package "
           "to replace";
  };
  WriteText(Path("home/thesis.tex"), "ten years");
  absl::Status status = WritePackage(Path("home"), "w");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), text("home"));
  EXPECT_EQ(ReadText(Path("home/thesis.tex")), "ten years");

  WriteText(Path("web/manifest.json"), "{\"name\": \"a web page\"}");
  EXPECT_EQ(WritePackage(Path("web"), "w").message(), text("web"));

  ASSERT_TRUE(WritePackage(Path("out"), "w").ok());
  WriteText(Path("out/outputs.npy"), "results");
  EXPECT_EQ(WritePackage(Path("out"), "w").message(), text("out"));
  EXPECT_EQ(ReadText(Path("out/outputs.npy")), "results");

  WriteText(Path("file"), "text");
  EXPECT_EQ(WritePackage(Path("file"), "w").message(),
            "'" + Path("file") + "' is a file; give --out a folder, or a name that ends in .dpk");
  EXPECT_THAT(Entries(), UnorderedElementsAre("home", "web", "out", "file"));
}

TEST_F(PackageFilesTest, FilesThatAppearMeanwhileAreLeftAlone) {
  absl::StatusOr<PackageFolder> folder = PackageFolder::Create(Path("out"));
  ASSERT_TRUE(folder.ok());
  WriteText(Path("out/thesis.tex"), "ten years");
  EXPECT_EQ(folder->Commit().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReadText(Path("out/thesis.tex")), "ten years");
}

TEST_F(PackageFilesTest, ErrorsNameThePath) {
  const absl::Status missing = ReadPackageFile(Path("none")).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "cannot read " + Path("none") + ": No such file or directory");
  WriteText(Path("file"), "text");
  const absl::Status below = PackageFolder::Create(Path("file/out")).status();
  EXPECT_EQ(below.code(), absl::StatusCode::kUnavailable) << below;
  EXPECT_EQ(below.message(), "cannot write " + std::filesystem::weakly_canonical(Path("file/out")).string() +
                                 ": Not a directory; choose an --out where you may write");
  EXPECT_EQ(PackageFolder::Create("").status().message(), "'' is no folder name; give --out a folder");
}

TEST(Checksum, TellsEveryByteAndTheLength) {
  std::string bytes(37, 'a');
  const uint64_t sum = ChecksumOfBytes(bytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = bytes;
      other[i] = static_cast<char>(other[i] ^ (1 << bit));
      EXPECT_NE(ChecksumOfBytes(other), sum);
    }
  }
  EXPECT_NE(ChecksumOfBytes(bytes + '\0'), sum);
  EXPECT_NE(ChecksumOfBytes(bytes.substr(1)), sum);
}

}  // namespace
}  // namespace diapason
