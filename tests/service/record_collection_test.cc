#include "service/record_collection.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "db/json_lines.h"
#include "tests/db/testing.h"

namespace diapason {
namespace {

ResolvedTarget On(const std::string& target, const std::string& model, int cores = 1, int vector_bytes = 16) {
  DeviceFacts facts;
  facts.model = model;
  facts.num_cores = cores;
  facts.vector_bytes = vector_bytes;
  return ResolveWith(*Target::Parse(target), facts);
}

TuningRecord Of(const std::string& target, const std::string& model, const std::string& key = "w",
                double seconds = 1e-3) {
  TuningRecord record = TimedRecord(key, seconds);
  record.target = target;
  record.device_model = model;
  return record;
}

TEST(DeviceDistance, OfGpusIsTheModelWithinAnArchitecture) {
  const ResolvedTarget h100 = On("cuda -arch=sm_90", "NVIDIA H100");
  EXPECT_EQ(DeviceDistance(Of("cuda -arch=sm_90", "NVIDIA H100"), h100), 0);
  EXPECT_GT(DeviceDistance(Of("cuda -arch=sm_90", "NVIDIA H200"), h100).value(), 0);
  EXPECT_EQ(DeviceDistance(Of("cuda -arch=sm_80", "NVIDIA A100"), h100), std::nullopt);
  EXPECT_EQ(DeviceDistance(Of("opencl", "NVIDIA H100"), h100), std::nullopt);
  EXPECT_EQ(DeviceDistance(Of("no target", "NVIDIA H100"), h100), std::nullopt);
}

TEST(DeviceDistance, KeepsLibrariesAndArithmeticThatTheTargetForbids) {
  const ResolvedTarget plain = On("cuda -arch=sm_90", "NVIDIA H200");
  const ResolvedTarget strict = On("cuda -arch=sm_90 -strict-fp32", "NVIDIA H200");
  const ResolvedTarget cublas = On("cuda -arch=sm_90 -libs=cublas", "NVIDIA H200");
  const TuningRecord generated = Of("cuda -arch=sm_90", "NVIDIA H200");
  EXPECT_EQ(DeviceDistance(generated, strict), std::nullopt);
  EXPECT_EQ(DeviceDistance(generated, cublas), 0);
  EXPECT_EQ(DeviceDistance(Of("cuda -arch=sm_90 -strict-fp32", "NVIDIA H200"), plain), 0);
  EXPECT_EQ(DeviceDistance(Of("cuda -arch=sm_90 -libs=cublas", "NVIDIA H200"), plain), std::nullopt);
  const ResolvedTarget tf32 = On("cuda -arch=sm_90 -tf32", "NVIDIA H200");
  const ResolvedTarget mixed = On("cuda -arch=sm_90 -tf32=1e-3", "NVIDIA H200");
  EXPECT_EQ(DeviceDistance(generated, tf32), 0);
  EXPECT_EQ(DeviceDistance(Of("cuda -arch=sm_90 -tf32", "NVIDIA H200"), plain), std::nullopt);
  EXPECT_EQ(DeviceDistance(Of("cuda -arch=sm_90 -tf32", "NVIDIA H200"), mixed), std::nullopt);
  EXPECT_EQ(DeviceDistance(Of("cuda -arch=sm_90 -tf32=1e-4", "NVIDIA H200"), mixed), 0);
  EXPECT_EQ(DeviceDistance(Of("cuda -arch=sm_90 -tf32=1e-4", "NVIDIA H200"), tf32), 0);
}

TEST(DeviceDistance, KeepsTimesApartThatWereMeasuredWithOtherCaches) {
  const std::string warm = "cuda -arch=sm_90 -caches=warm", network = "cuda -arch=sm_90";
  EXPECT_EQ(DeviceDistance(Of(warm, "NVIDIA H200"), On(warm, "NVIDIA H200")), 0);
  EXPECT_EQ(DeviceDistance(Of(warm, "NVIDIA H200"), On(network, "NVIDIA H200")), std::nullopt);
  EXPECT_EQ(DeviceDistance(Of(network, "NVIDIA H200"), On(warm, "NVIDIA H200")), std::nullopt);
}

TEST(DeviceDistance, OfOpenClDevicesIsTheModelAlone) {
  const ResolvedTarget here = On("opencl", "a GPU");
  EXPECT_EQ(DeviceDistance(Of("opencl", "a GPU"), here), 0);
  EXPECT_EQ(DeviceDistance(Of("opencl", "another"), here), std::nullopt);
}

TEST(DeviceDistance, OfProcessorsIsVectorsAndCores) {
  const ResolvedTarget avx2 = On("cpu -num-cores=4", "here", 4, 32);
  EXPECT_EQ(DeviceDistance(Of("cpu -num-cores=4", "here"), avx2), 0);
  EXPECT_EQ(DeviceDistance(Of("cpu -num-cores=4", "elsewhere"), avx2), std::nullopt);
  const std::optional<double> near = DeviceDistance(Of("cpu -mcpu=x86-64-v3 -num-cores=4", "elsewhere"), avx2);
  const std::optional<double> far = DeviceDistance(Of("cpu -mcpu=x86-64-v3 -num-cores=1", "elsewhere"), avx2);
  ASSERT_TRUE(near.has_value() && far.has_value());
  EXPECT_GT(*near, 0);
  EXPECT_GT(*far, *near);
  EXPECT_EQ(DeviceDistance(Of("cpu -mcpu=x86-64-v4 -num-cores=4", "elsewhere"), avx2), std::nullopt);
}

class RecordFilesTest : public HistoryFolder, public testing::Test {
 protected:
  // A record that a history has, as a line.
  std::string Line(TuningRecord record, Verified verified = Verified::kOk) {
    record.trial = ++lines_;
    record.verified = verified;
    const std::string path = Path(absl::StrCat(lines_, ".db"));
    auto history = Open(path);
    const auto ids = history->Append({record});
    EXPECT_TRUE(ids.ok()) << ids.status();
    std::ostringstream out;
    EXPECT_TRUE(ExportJson(*history, out, {}).ok());
    return out.str();
  }

  static RecordCollection Collect(const std::string& lines) {
    RecordCollection records;
    std::istringstream in(lines);
    EXPECT_TRUE(records.Read(in, "lines").ok());
    return records;
  }

  void Write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    std::ofstream(Path(name)) << content;
  }

  int lines_ = 0;
};

TEST_F(RecordFilesTest, TakesWhatWasTimedAndVerified) {
  const RecordCollection records =
      Collect(Line(TimedRecord("a")) + "\n" + Line(FailedRecord()) + Line(TimedRecord("b"), Verified::kFailed) +
              Line(TimedRecord("c"), Verified::kUnknown) + Line(TimedRecord("d")));
  ASSERT_EQ(records.entries().size(), 2u);
  EXPECT_EQ(records.entries()[0].record.workload_key, "a");
  EXPECT_EQ(records.entries()[0].record.workload, TimedRecord("a").workload);
  EXPECT_EQ(records.entries()[0].record.id, 1);
  EXPECT_EQ(records.entries()[1].record.workload_key, "d");
  EXPECT_EQ(records.entries()[1].record.id, 2);
}

TEST_F(RecordFilesTest, NamesTheDamagedLine) {
  RecordCollection records;
  std::istringstream in(Line(TimedRecord("a")) + "{\"format\"\n");
  const absl::Status status = records.Read(in, "good.jsonl");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().rfind("line 2 of 'good.jsonl' is damaged (", 0), 0u) << status;
}

TEST_F(RecordFilesTest, TheBestIsOfTheNearestDeviceAndTimedToTheEnd) {
  const ResolvedTarget h100 = On("cuda -arch=sm_90", "NVIDIA H100");
  TuningRecord raced = Of("cuda -arch=sm_90", "NVIDIA H100", "w", 1e-3);
  std::get<Timing>(raced.outcome).stopped_early = true;
  const RecordCollection records = Collect(
      Line(Of("cuda -arch=sm_90", "NVIDIA H200", "w", 2e-3)) + Line(raced) +
      Line(Of("cuda -arch=sm_90", "NVIDIA H100", "w", 5e-3)) + Line(Of("cuda -arch=sm_90", "NVIDIA H100", "w", 4e-3)) +
      Line(Of("cuda -arch=sm_80", "NVIDIA A100", "w", 1e-4)) + Line(Of("cuda -arch=sm_90", "NVIDIA H200", "v", 7e-3)));
  const RecordsByWorkload best = records.Best({"w", "v", "u"}, h100);
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best.at("w").device_model, "NVIDIA H100");
  EXPECT_DOUBLE_EQ(MedianSeconds(*best.at("w").timing()), 4e-3);
  EXPECT_EQ(best.at("v").device_model, "NVIDIA H200");
}

TEST_F(RecordFilesTest, TheNextBestTakesThePlaceOfARemovedOne) {
  const ResolvedTarget h200 = On("cuda -arch=sm_90", "NVIDIA H200");
  RecordCollection records = Collect(Line(TimedRecord("w", 2e-3)) + Line(TimedRecord("w", 1e-3)));
  records.Remove(records.Best({"w"}, h200).at("w").uuid);
  EXPECT_DOUBLE_EQ(MedianSeconds(*records.Best({"w"}, h200).at("w").timing()), 2e-3);
  records.Remove(records.Best({"w"}, h200).at("w").uuid);
  EXPECT_TRUE(records.Best({"w"}, h200).empty());
}

TEST_F(RecordFilesTest, ShippedOnesAreThoseOfTheKindThatSuit) {
  Write("records/cuda/b.jsonl", Line(Of("cuda -arch=sm_80", "NVIDIA A100")));
  Write("records/cuda/a.jsonl", Line(Of("cuda -arch=sm_90", "NVIDIA H200")));
  Write("records/cuda/notes.txt", "no records");
  Write("records/cpu/c.jsonl", Line(Of("cpu", "NVIDIA H200")));
  const std::vector<std::string> files = RecordFiles(Path("records"), "cuda");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0], Path("records/cuda/a.jsonl"));
  const auto shipped = RecordCollection::Shipped(Path("records"), On("cuda -arch=sm_90", "NVIDIA H100"));
  ASSERT_TRUE(shipped.ok()) << shipped.status();
  ASSERT_EQ(shipped->entries().size(), 1u);
  EXPECT_EQ(shipped->entries()[0].record.device_model, "NVIDIA H200");
  const auto none = RecordCollection::Shipped("", On("cuda -arch=sm_90", "NVIDIA H100"));
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->entries().empty());
  Write("records/cuda/a.jsonl", "{");
  EXPECT_FALSE(RecordCollection::Shipped(Path("records"), On("cuda -arch=sm_90", "NVIDIA H100")).ok());
}

TEST_F(RecordFilesTest, TheFolderIsNamedOrBesideTheProgram) {
  ASSERT_EQ(setenv("DIAPASON_RECORDS", "/elsewhere", 1), 0);
  EXPECT_EQ(ShippedRecordsFolder(Path("bin/program")), "/elsewhere");
  ASSERT_EQ(unsetenv("DIAPASON_RECORDS"), 0);
  EXPECT_EQ(ShippedRecordsFolder(Path("bin/program")), "");
  Write("bin/program", "");
  EXPECT_EQ(ShippedRecordsFolder(Path("bin/program")), "");
  std::filesystem::create_directories(Path("share/diapason/records"));
  EXPECT_EQ(ShippedRecordsFolder(Path("bin/program")),
            std::filesystem::canonical(Path("share/diapason/records")).string());
  std::filesystem::create_symlink(Path("bin/program"), Path("link"));
  EXPECT_EQ(ShippedRecordsFolder(Path("link")), std::filesystem::canonical(Path("share/diapason/records")).string());
  ASSERT_EQ(setenv("DIAPASON_RECORDS", "", 1), 0);
}

}  // namespace
}  // namespace diapason
