#include "compiler/build/package_archive.h"

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/build/archive_writer.h"
#include "tests/build/testing.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;

class PackageArchiveTest : public FolderTest {
 protected:
  // A small network as one file.
  void BuildFile() {
    NetworkMaker m;
    const int x = m.In("x", {4, 64});
    network_ = m.Out({m.Op("tanh", {m.Op("matmul", {x, m.Const("w", {64, 64})})}, {}, "y")});
    ASSERT_EQ(BuildReferencePackage(Path("m.dpk"), network_, TestTarget(TargetKind::kCpu)), absl::OkStatus());
  }
  void ExpectRuns(absl::StatusOr<Package> package) {
    ASSERT_TRUE(package.ok()) << package.status();
    const auto runner = PackageRunner::Load(*std::move(package));
    ASSERT_TRUE(runner.ok()) << runner.status();
    const PackageManifest& manifest = (*runner)->manifest();
    const auto inputs = RandomInputs(manifest, manifest.sizes, 3);
    ASSERT_TRUE((*runner)->SetInputs(inputs).ok());
    ASSERT_TRUE((*runner)->Run().ok());
    const std::vector<Array> got = (*runner)->Outputs().value(), want = Expected(network_, inputs);
    for (int64_t e = 0; e < want[0].elements(); ++e) ASSERT_NEAR(got[0].at(e), want[0].at(e), 1e-5) << e;
  }
  std::string ErrorOf(const std::string& bytes) {
    const auto archive = PackageArchive::FromMemory(bytes, "m.dpk");
    if (archive.ok()) return "";
    EXPECT_EQ(archive.status().code(), absl::StatusCode::kDataLoss);
    return std::string(archive.status().message());
  }
  std::string ErrorOf(const std::vector<ZipEntry>& entries) { return ErrorOf(WriteZip(entries)); }
  static std::string NoPackage(const std::string& why) {
    return "'m.dpk' is no package: " + why + "; name a folder or a .dpk file made by 'diapason build'";
  }

  Network network_;
};

TEST_F(PackageArchiveTest, APackageRunsFromAFileAndFromMemory) {
  BuildFile();
  EXPECT_THAT(Entries(), ::testing::ElementsAre("m.dpk"));
  ExpectRuns(Package::Open(Path("m.dpk")));
  const std::string bytes = ReadText(Path("m.dpk"));
  ExpectRuns(Package::FromMemory(bytes, "memory"));
}

TEST_F(PackageArchiveTest, WeightsLieAtPagesAndAreReadInPlace) {
  BuildFile();
  const std::string bytes = ReadText(Path("m.dpk"));
  const auto archive = PackageArchive::FromMemory(bytes, "m.dpk");
  ASSERT_TRUE(archive.ok()) << archive.status();
  const std::string_view weights = (*archive)->Read("weights.bin").value();
  EXPECT_EQ((weights.data() - bytes.data()) % 4096, 0);
  EXPECT_GE(weights.data(), bytes.data());
  EXPECT_LE(weights.data() + weights.size(), bytes.data() + bytes.size());
}

TEST_F(PackageArchiveTest, TheSameBuildMakesTheSameFile) {
  BuildFile();
  const std::string first = ReadText(Path("m.dpk"));
  BuildFile();
  EXPECT_EQ(ReadText(Path("m.dpk")), first);
}

TEST_F(PackageArchiveTest, AFileThatWasRemovedStaysInUse) {
  BuildFile();
  absl::StatusOr<Package> package = Package::Open(Path("m.dpk"));
  std::filesystem::remove(Path("m.dpk"));
  ExpectRuns(std::move(package));
}

TEST_F(PackageArchiveTest, OnlyPackagesAreReplaced) {
  WriteText(Path("m.dpk"), "my notes");
  EXPECT_EQ(CreatePackageArchive(Path("m.dpk")).status().message(),
            "'" + Path("m.dpk") + "' is a file that is no package; give --out a new name, or a package to replace");
  EXPECT_EQ(ReadText(Path("m.dpk")), "my notes");
  std::filesystem::create_directory(Path("d.dpk"));
  EXPECT_EQ(CreatePackageArchive(Path("d.dpk")).status().message(),
            "'" + Path("d.dpk") + "' is a folder, and a name that ends in .dpk is a file; give --out another name");
}

TEST_F(PackageArchiveTest, NothingIsLeftOfAFileNotCommitted) {
  {
    const auto writer = CreatePackageArchive(Path("m.dpk"));
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Write("weights.bin", "w").ok());
  }
  EXPECT_THAT(Entries(), ::testing::IsEmpty());
}

TEST_F(PackageArchiveTest, WhatWouldBeTooLargeForAFileIsRefused) {
  const auto writer = CreatePackageArchive(Path("m.dpk"), /*most_bytes=*/1 << 20);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE((*writer)->Write("a", std::string(1 << 19, 'a')).ok());
  EXPECT_EQ((*writer)->Write("b", std::string(1 << 19, 'b')).message(),
            "'" + std::filesystem::weakly_canonical(Path("m.dpk")).string() +
                "' would be a file of more than 1 MiB, which a .dpk file cannot be; give --out a folder: a name "
                "without .dpk");
}

TEST_F(PackageArchiveTest, OtherFilesAreNoPackages) {
  EXPECT_EQ(ErrorOf("not a zip archive"), NoPackage("it is no zip archive, or not a whole one"));
  EXPECT_EQ(ErrorOf(""), NoPackage("it is no zip archive, or not a whole one"));
  EXPECT_EQ(Package::FromMemory(WriteZip({{"a", "b"}}), "m.dpk").status().message(),
            NoPackage("it has no manifest.json"));
  WriteText(Path("m.dpk"), "");
  EXPECT_THAT(std::string(Package::Open(Path("m.dpk")).status().message()), HasSubstr("it is no zip archive"));
}

TEST_F(PackageArchiveTest, EntriesThatCannotBeReadInPlaceAreRefused) {
  EXPECT_EQ(ErrorOf({{"a", "b", /*method=*/8}}), NoPackage("its entry 'a' is compressed"));
  EXPECT_EQ(ErrorOf({{.name = "a", .contents = "b", .bytes = 1000, .compressed_bytes = 1}}),
            NoPackage("its entry 'a' is compressed"));
  EXPECT_EQ(ErrorOf({{"a", "b", 0, /*flags=*/1}}), NoPackage("its entry 'a' is encrypted"));
}

TEST_F(PackageArchiveTest, NamesThatLeadElsewhereAreRefused) {
  for (const std::string name : {"../a", "/a", "a/../b", "a//b", "./a", "a\\b", "..", ""})
    EXPECT_EQ(ErrorOf({{name, "b"}}), NoPackage("its entry '" + name + "' has a name that leads elsewhere")) << name;
  EXPECT_EQ(ErrorOf({{std::string("a\0b", 3), "b"}}), NoPackage("its entry 'a?b' has a name that leads elsewhere"));
  EXPECT_EQ(ErrorOf({{"kernels/", ""}, {"kernels/a", "b"}}), "");
}

TEST_F(PackageArchiveTest, EntriesThatAreTwiceThereOrOverEachOtherAreRefused) {
  EXPECT_EQ(ErrorOf({{"a", "b"}, {"a", "c"}}), NoPackage("its entry 'a' is there twice"));
  // The second entry's contents are a whole local header and contents, of another entry that the list names as well.
  const std::string inner = WriteZip({{"b", "xyz"}});
  EXPECT_EQ(ErrorOf({{"a", inner}, {.name = "b", .contents = "xyz", .offset = 31}}),
            NoPackage("its entries 'a' and 'b' lie over each other"));
}

TEST_F(PackageArchiveTest, SizesAndPlacesOutsideOfTheFileAreRefused) {
  EXPECT_EQ(ErrorOf({{.name = "a", .contents = "b", .bytes = 0x7fffffff}}),
            NoPackage("its entry 'a' lies outside of the file"));
  EXPECT_EQ(ErrorOf({{.name = "a", .contents = "b", .offset = 0x7fffffff}}),
            NoPackage("its entry 'a' does not lie where the list of entries says"));
}

TEST_F(PackageArchiveTest, SizesOf64BitsAreRefused) {
  for (const auto& entry : {ZipEntry{.name = "a", .contents = "b", .bytes = 0xffffffff},
                            ZipEntry{.name = "a", .contents = "b", .bytes = 1, .compressed_bytes = 0xffffffff}})
    EXPECT_EQ(ErrorOf({entry}),
              NoPackage("its entry 'a' gives its size in 64 bits (zip64), and a .dpk file is below 4 GiB"));
  EXPECT_EQ(ErrorOf({{.name = "a", .contents = "b", .offset = 0xffffffff}}),
            NoPackage("its entry 'a' does not lie where the list of entries says"));
}

TEST_F(PackageArchiveTest, DamageShowsWhenAnEntryIsRead) {
  const auto archive = PackageArchive::FromMemory(WriteZip({{.name = "a", .contents = "b", .crc = 1}}), "m.dpk");
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_EQ((*archive)->Read("a").status().message(),
            "m.dpk:a is damaged: its checksum does not match; build the package again");
  EXPECT_EQ((*archive)->Read("b").status().message(),
            "cannot read m.dpk:b: there is no such entry; build the package again");
  EXPECT_EQ((*archive)->Read("b").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PackageArchiveTest, DamageAnywhereInALongEntryShows) {
  std::string contents(13 << 20, 'x');
  for (size_t i = 0; i < contents.size(); i += 7) contents[i] = static_cast<char>(i * 31);
  const std::string bytes = WriteZip({{.name = "a", .contents = contents}});
  EXPECT_EQ(PackageArchive::FromMemory(bytes, "m.dpk").value()->Read("a").value(), contents);
  const size_t begin = bytes.find(contents.substr(0, 1000));
  for (size_t at = 0; at < contents.size(); at += (3 << 20) - 1) {
    std::string changed = bytes;
    changed[begin + at] ^= 1;
    EXPECT_EQ(PackageArchive::FromMemory(changed, "m.dpk").value()->Read("a").status().code(),
              absl::StatusCode::kDataLoss)
        << at;
  }
}

TEST_F(PackageArchiveTest, AFileCutAnywhereIsRefused) {
  BuildFile();
  const std::string bytes = ReadText(Path("m.dpk"));
  for (size_t length = 0; length < bytes.size(); length += 1 + bytes.size() / 500)
    EXPECT_NE(ErrorOf(bytes.substr(0, length)), "") << length;
  EXPECT_NE(ErrorOf(bytes.substr(0, bytes.size() - 1)), "");
}

TEST_F(PackageArchiveTest, ChangedBytesAreNoticed) {
  BuildFile();
  const std::string bytes = ReadText(Path("m.dpk"));
  const std::string weights(PackageArchive::FromMemory(bytes, "m").value()->Read("weights.bin").value());
  std::string changed = bytes;
  changed[bytes.find(weights) + 100] ^= 1;
  WriteText(Path("c.dpk"), changed);
  EXPECT_EQ(PackageRunner::Load(Path("c.dpk")).status().message(),
            Path("c.dpk") + ":weights.bin is damaged: its checksum does not match; build the package again");
}

}  // namespace
}  // namespace diapason
