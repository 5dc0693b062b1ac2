#include "db/history.h"

#include <cmath>
#include <limits>

#include "db/integrity.h"
#include "db/prune.h"
#include "tests/db/backends.h"

namespace diapason {
namespace {

using StoreTest = BackendTest;
using QueryTest = BackendTest;
DIAPASON_ON_EVERY_BACKEND(StoreTest);
DIAPASON_ON_EVERY_BACKEND(QueryTest);

TuningRecord With(double seconds, Verified verified = Verified::kUnknown, bool stopped_early = false) {
  TuningRecord record = TimedRecord("w", seconds);
  std::get<Timing>(record.outcome).stopped_early = stopped_early;
  record.verified = verified;
  return record;
}

TEST_P(StoreTest, GivesBackEveryFieldAfterReopening) {
  const TuningRecord timed = TimedRecord(), failed = FailedRecord();
  std::vector<int64_t> ids;
  int64_t run_id = 0;
  {
    auto history = Open(Path("h.db"));
    run_id = history->StartRun({.command_line = "diapason tune", .seed = 7, .host = "box", .version = "0.1"}).value();
    TuningRecord of_run = timed;
    of_run.run_id = run_id;
    ids = history->Append({of_run, failed}).value();
  }
  auto history = Open(Path("h.db"), HistoryMode::kReadOnly);
  ASSERT_EQ(ids, (std::vector<int64_t>{1, 2}));
  TuningRecord read = history->Get(1).value();
  EXPECT_EQ(read.run_id, run_id);
  EXPECT_EQ(read.workload, timed.workload);
  EXPECT_EQ(read.uuid.size(), 32u);
  EXPECT_NE(read.uuid, history->Get(2).value().uuid);
  EXPECT_EQ(read.created_at, 1700000002000000000);
  TuningRecord expected = timed;
  expected.uuid = read.uuid;
  expected.created_at = read.created_at;
  ExpectSameContent(read, expected);

  read = history->Get(2).value();
  EXPECT_EQ(read.run_id, 0);
  EXPECT_FALSE(read.predicted.has_value());
  ASSERT_NE(read.error(), nullptr);
  EXPECT_TRUE(*read.error() == *failed.error());
}

TEST_P(StoreTest, KeepsExtremeNumbersExactly) {
  TuningRecord record = TimedRecord();
  record.outcome = Timing{{5e-324, 0.1, 1.7976931348623157e308, 1.0 / 3}, int64_t{1} << 62, true, 1e-300, 3};
  record.predicted = -0.0;
  record.configuration_hash = 0;
  record.seed = uint64_t{1} << 63;
  record.trial = -1;
  record.created_at = std::numeric_limits<int64_t>::max();
  auto history = Open(Path("h.db"));
  const int64_t id = history->Append({record}).value()[0];
  TuningRecord read = history->Get(id).value();
  EXPECT_TRUE(read.outcome == record.outcome);
  EXPECT_EQ(*read.predicted, 0);
  EXPECT_EQ(read.seed, record.seed);
  EXPECT_EQ(read.trial, -1);
  EXPECT_EQ(read.created_at, record.created_at);
}

TEST_P(StoreTest, StoresTextsThatAreNoUtf8AsReplacementCharacters) {
  TuningRecord record = FailedRecord();
  record.outcome =
      MeasureError{ErrorKind::kCompile, MeasureStage::kCompile, std::string("bad \xff\xc3 and \0 end \xc3\xa9", 19)};
  auto history = Open(Path("h.db"));
  const int64_t id = history->Append({record}).value()[0];
  EXPECT_EQ(history->Get(id).value().error()->text, "bad \xef\xbf\xbd\xef\xbf\xbd and \xef\xbf\xbd end \xc3\xa9");
}

TEST_P(StoreTest, ABatchIsStoredWholeOrNotAtAll) {
  auto history = Open(Path("h.db"));
  const std::string prefix = "record 2 of 2 cannot be stored in history '" + Path("h.db") + "': ";
  const auto refusal = [&](void (*spoil)(TuningRecord&)) {
    TuningRecord bad = TimedRecord();
    spoil(bad);
    absl::Status status = history->Append({TimedRecord(), bad}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(history->Info().value().records, 0);
    const std::string message(status.message());
    EXPECT_EQ(message.substr(0, prefix.size()), prefix);
    return message.substr(std::min(prefix.size(), message.size()));
  };
  EXPECT_EQ(refusal([](TuningRecord& r) { r.workload_key = ""; }), "it has no workload key");
  EXPECT_EQ(refusal([](TuningRecord& r) { r.target = ""; }), "it has no target");
  EXPECT_EQ(refusal([](TuningRecord& r) { r.device_model = ""; }), "it has no device model");
  EXPECT_EQ(refusal([](TuningRecord& r) { r.outcome = Timing{}; }), "its timing has no samples");
  EXPECT_EQ(refusal([](TuningRecord& r) {
              r.outcome = Timing{.samples = {1e-5, 0}};
            }),
            "its sample of 0 s is no positive time");
  EXPECT_EQ(refusal([](TuningRecord& r) { r.outcome = Timing{.samples = {INFINITY}}; }),
            "its sample of inf s is no positive time");
  EXPECT_EQ(refusal([](TuningRecord& r) { r.outcome = Timing{.samples = {1}, .number = 0}; }),
            "its samples are of 0 launches");
  EXPECT_EQ(refusal([](TuningRecord& r) { r.predicted = NAN; }), "its predicted score is not finite");
  EXPECT_EQ(refusal([](TuningRecord& r) { r.uuid = "x"; }), "its uuid is not of 32 hexadecimal digits");
  EXPECT_EQ(refusal([](TuningRecord& r) { r.run_id = 5; }), "its run 5 is not known");
  EXPECT_EQ(refusal([](TuningRecord& r) { r.workload_key = "new", r.workload = ""; }),
            "its workload is empty, and its key not known yet");
}

TEST_P(StoreTest, RefusesAUuidThatIsThere) {
  auto history = Open(Path("h.db"));
  TuningRecord record = TimedRecord();
  record.uuid = std::string(32, 'a');
  ASSERT_TRUE(history->Append({record}).ok());
  EXPECT_EQ(history->Append({record}).status(),
            absl::InvalidArgumentError("record 1 of 1 cannot be stored in history '" + Path("h.db") +
                                       "': the history has a record with its uuid " + record.uuid));
}

TEST_P(StoreTest, NamesARecordThatIsNotThere) {
  auto history = Open(Path("h.db"));
  const absl::Status expected =
      absl::NotFoundError("history '" + Path("h.db") + "' has no record 4; 'diapason query --history " + Path("h.db") +
                          "' lists the best ones with their ids");
  EXPECT_EQ(history->Get(4).status(), expected);
  EXPECT_EQ(history->SetVerified(4, true, 0, ""), expected);
  EXPECT_EQ(history->EndRun(9), absl::NotFoundError("history '" + Path("h.db") + "' has no run 9"));
}

TEST_P(StoreTest, SamplesThatAreAddedCountWithThoseThatWereThere) {
  auto history = Open(Path("h.db"));
  TuningRecord lucky = TimedRecord("w", 1e-6), steady = TimedRecord("w", 2e-6);
  std::get<Timing>(lucky.outcome) = Timing{{1e-6}, 10, true, 0.5, 0.25};
  ASSERT_TRUE(history->Append({lucky, steady, FailedRecord()}).ok());
  EXPECT_EQ(history->AddSamples(1, {3e-6, 4e-6}).value(), 3e-6);
  history = Open(Path("h.db"));
  const TuningRecord read = history->Get(1).value();
  EXPECT_TRUE(read.outcome == Outcome(Timing{{1e-6, 3e-6, 4e-6}, 10, false, 0.5, 0.25}));
  EXPECT_EQ(history->Best("w", read.device_model).value()->id, 2);
  EXPECT_TRUE(CheckHistory(Path("h.db")).value().ok());

  EXPECT_EQ(history->AddSamples(9, {1e-6}).status().code(), absl::StatusCode::kNotFound);
  const std::string name = Path("h.db");
  EXPECT_EQ(history->AddSamples(3, {1e-6}).status(),
            absl::FailedPreconditionError("record 3 of history '" + name + "' is of a failure and can get no samples"));
  EXPECT_EQ(history->AddSamples(1, {}).status(),
            absl::InvalidArgumentError("record 1 of history '" + name + "' cannot get these samples: there are none"));
  EXPECT_EQ(history->AddSamples(1, {-1}).status(),
            absl::InvalidArgumentError("record 1 of history '" + name +
                                       "' cannot get these samples: its sample of -1 s is no positive time"));
  EXPECT_TRUE(history->Get(1).value().outcome == read.outcome);
}

TEST_P(StoreTest, KeepsTheLastLatencyOfANetworkOnADevice) {
  {
    auto history = Open(Path("h.db"));
    EXPECT_EQ(history->Latency("net", "cuda", "H200").value(), std::nullopt);
    ASSERT_TRUE(history->SetLatency({"net", "cuda", "H200", 9e-6, 8e-6}).ok());
    ASSERT_TRUE(history->SetLatency({"net", "cuda", "H100", 5e-6, 4e-6}).ok());
    ASSERT_TRUE(history->SetLatency({"net", "cuda", "H200", 3e-6, 2e-6, 77}).ok());
    EXPECT_EQ(history->SetLatency({"net", "cuda", "H200", 0, 2e-6}),
              absl::InvalidArgumentError("the latency of network 'net' cannot be stored in history '" + Path("h.db") +
                                         "': 0 s is no positive time"));
  }
  auto history = Open(Path("h.db"), HistoryMode::kReadOnly);
  const auto known = history->Latency("net", "cuda", "H200").value();
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ(std::make_tuple(known->measured, known->tasks, known->measured_at),
            std::make_tuple(3e-6, 2e-6, int64_t{77}));
  EXPECT_GT(history->Latency("net", "cuda", "H100").value()->measured_at, 0);
  EXPECT_EQ(history->Latency("net", "cpu", "H200").value(), std::nullopt);
}

TEST_P(StoreTest, NotesRunsAndTheirEnd) {
  auto history = Open(Path("h.db"));
  const int64_t first = history->StartRun({.command_line = "a", .seed = 1}).value();
  const int64_t second = history->StartRun({.command_line = "b", .started_at = 5}).value();
  ASSERT_TRUE(history->EndRun(first).ok());
  const std::vector<TuningRun> runs = history->Runs().value();
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].id, first);
  EXPECT_EQ(runs[0].started_at, 1700000001000000000);
  EXPECT_EQ(runs[0].ended_at, 1700000002000000000);
  EXPECT_EQ(runs[1].id, second);
  EXPECT_EQ(runs[1].command_line, "b");
  EXPECT_EQ(runs[1].started_at, 5);
  EXPECT_EQ(runs[1].ended_at, 0);
}

TEST_P(QueryTest, BestIsTheFastestByMedianOfItsWorkloadAndDevice) {
  auto history = Open(Path("h.db"));
  TuningRecord noisy = With(0);
  noisy.outcome = Timing{.samples = {1e-6, 9e-6, 9e-6}};  // smallest minimum, not smallest median
  TuningRecord elsewhere = With(1e-7);
  elsewhere.device_model = "NVIDIA A100";
  TuningRecord other = TimedRecord("other", 1e-7);
  ASSERT_TRUE(history->Append({With(5e-6), noisy, With(4e-6), With(4e-6), elsewhere, other, FailedRecord()}).ok());
  EXPECT_EQ(history->Best("w", "NVIDIA H200").value()->id, 3);  // the older of two equal ones
  EXPECT_EQ(history->Best("w", "NVIDIA A100").value()->id, 5);
  EXPECT_FALSE(history->Best("w", "NVIDIA V100").value().has_value());
  EXPECT_FALSE(history->Best("conv2d-1a2b", "NVIDIA H200").value().has_value());  // it only failed
}

TEST_P(QueryTest, BestOfATargetLeavesOtherTargetsOut) {
  auto history = Open(Path("h.db"));
  TuningRecord all_cores = With(1e-6), one_core = With(3e-6);
  all_cores.target = "cpu";
  one_core.target = "cpu -num-cores=1";
  ASSERT_TRUE(history->Append({all_cores, one_core}).ok());
  EXPECT_EQ(history->Best("w", "NVIDIA H200").value()->id, 1);
  EXPECT_EQ(history->Best("w", "NVIDIA H200", "cpu -num-cores=1").value()->id, 2);
  EXPECT_EQ(history->BestForBuild("w", "NVIDIA H200", "cpu -num-cores=1").value()->id, 2);
  EXPECT_EQ(history->ForWorkload("w", "NVIDIA H200", "cpu").value().size(), 1u);
}

TEST_P(QueryTest, ContendersGoBeforeThoseThatWereRacedOut) {
  auto history = Open(Path("h.db"));
  ASSERT_TRUE(history->Append({With(1e-6, Verified::kUnknown, /*stopped_early=*/true), With(2e-6)}).ok());
  EXPECT_EQ(history->Best("w", "NVIDIA H200").value()->id, 2);
  EXPECT_EQ(history->Info().value().workloads[0].best_seconds, 2e-6);
}

TEST_P(QueryTest, ABuildTakesVerifiedRecordsFirstAndRefutedOnesNever) {
  auto history = Open(Path("h.db"));
  ASSERT_TRUE(history->Append({With(1e-6), With(2e-6), With(3e-6)}).ok());
  EXPECT_EQ(history->BestForBuild("w", "NVIDIA H200").value()->id, 1);
  ASSERT_TRUE(history->SetVerified(3, true, 1e-6, "").ok());
  EXPECT_EQ(history->Best("w", "NVIDIA H200").value()->id, 1);
  EXPECT_EQ(history->BestForBuild("w", "NVIDIA H200").value()->id, 3);
  ASSERT_TRUE(history->SetVerified(1, false, NAN, "element 5 is NaN").ok());
  EXPECT_EQ(history->Best("w", "NVIDIA H200").value()->id, 2);
  ASSERT_TRUE(history->SetVerified(3, false, 0.5, "off").ok());
  ASSERT_TRUE(history->SetVerified(2, false, 0.5, "off").ok());
  EXPECT_FALSE(history->BestForBuild("w", "NVIDIA H200").value().has_value());
  EXPECT_TRUE(history->TopK({}, 5).value().empty());

  const TuningRecord refuted = history->Get(1).value();
  EXPECT_EQ(refuted.verified, Verified::kFailed);
  EXPECT_TRUE(std::isinf(*refuted.max_error));
  EXPECT_EQ(refuted.verify_text, "element 5 is NaN");
}

TEST_P(QueryTest, ARecordThatIsWrongInANetworkIsNeverTaken) {
  auto history = Open(Path("h.db"));
  ASSERT_TRUE(history->Append({With(1e-6), With(2e-6)}).ok());
  ASSERT_TRUE(history->SetVerified(1, true, 1e-6, "").ok());
  ASSERT_TRUE(history->SetVerified(2, true, 1e-6, "").ok());
  ASSERT_TRUE(history->MarkWrongInNetwork(1, 3.5, "output 'logits' of resnet-18").ok());
  EXPECT_EQ(history->Best("w", "NVIDIA H200").value()->id, 2);
  EXPECT_EQ(history->BestForBuild("w", "NVIDIA H200").value()->id, 2);
  EXPECT_EQ(history->TopK({}, 5).value().size(), 1u);
  EXPECT_EQ(history->Info().value().workloads[0].best_seconds, 2e-6);
  EXPECT_EQ(history->MarkWrongInNetwork(9, 1, "x"), history->SetVerified(9, true, 0, ""));
  ASSERT_TRUE(PruneHistory(*history, 5).ok());
  EXPECT_FALSE(history->Get(1).ok());
  EXPECT_TRUE(history->Get(2).ok());
}

TEST_P(QueryTest, TopKCountsWithinEachWorkloadTargetAndDevice) {
  auto history = Open(Path("h.db"));
  TuningRecord cpu = With(9e-6);
  cpu.target = "cpu";
  ASSERT_TRUE(history->Append({With(3e-6), With(1e-6), With(2e-6), TimedRecord("v", 7e-6), cpu, FailedRecord()}).ok());
  const auto ids = [&](const RecordFilter& filter, int64_t k) {
    std::vector<int64_t> ids;
    const std::vector<TuningRecord> records = history->TopK(filter, k).value();
    for (const TuningRecord& record : records) ids.push_back(record.id);
    return ids;
  };
  EXPECT_EQ(ids({}, 2), (std::vector<int64_t>{4, 5, 2, 3}));
  EXPECT_EQ(ids({}, 1), (std::vector<int64_t>{4, 5, 2}));
  EXPECT_EQ(ids({.target = "cuda"}, 9), (std::vector<int64_t>{4, 2, 3, 1}));
  EXPECT_EQ(ids({.target = "cuda -arch=sm_90"}, 1), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(ids({.target = "cud"}, 1), (std::vector<int64_t>{}));
  EXPECT_EQ(ids({.workload = "w"}, 1), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(ids({.workload = "%"}, 1), (std::vector<int64_t>{}));
  EXPECT_EQ(ids({.device_model = "NVIDIA A100"}, 1), (std::vector<int64_t>{}));
}

TEST_P(QueryTest, FiltersByTheNetworkThatAWorkloadIsLinkedTo) {
  auto history = Open(Path("h.db"));
  ASSERT_TRUE(history->Append({TimedRecord("a"), TimedRecord("b"), TimedRecord("c")}).ok());
  ASSERT_TRUE(
      history->LinkNetwork({{"resnet-18", "a", "dag a", "conv", 2}, {"resnet-18", "c", "dag c", "dense", 1}}).ok());
  ASSERT_TRUE(history->LinkNetwork({{"vgg", "a", "dag a", "conv", 1}, {"resnet-18", "a", "dag a", "conv1", 3}}).ok());
  const std::vector<TuningRecord> records = history->TopK({.network = "resnet-18"}, 1).value();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].workload_key, "a");
  EXPECT_EQ(records[1].workload_key, "c");
  const std::vector<NetworkTask> tasks = history->NetworkTasks("resnet-18").value();
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].task_name, "conv1");  // renewed
  EXPECT_EQ(tasks[0].weight, 3);
  EXPECT_EQ(tasks[0].workload, TimedRecord("a").workload);  // the bytes stored first stay
  EXPECT_EQ(history->NetworkTasks().value().size(), 3u);
}

TEST_P(QueryTest, ForWorkloadGivesEverythingInTheOrderOfStoring) {
  auto history = Open(Path("h.db"));
  ASSERT_TRUE(history
                  ->Append({TimedRecord("w", 2e-6), FailedRecord(ErrorKind::kCompile, "w"), TimedRecord("x"),
                            TimedRecord("w", 1e-6)})
                  .ok());
  const std::vector<TuningRecord> records = history->ForWorkload("w", "NVIDIA H200").value();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].id, 1);
  EXPECT_EQ(records[1].error()->kind, ErrorKind::kCompile);
  EXPECT_EQ(records[2].id, 4);
}

TEST_P(QueryTest, InfoCountsWhatIsThere) {
  auto history = Open(Path("h.db"));
  EXPECT_EQ(history->Info().value().first_at, 0);
  ASSERT_TRUE(history->StartRun({}).ok());
  ASSERT_TRUE(history->LinkNetwork({{"net", "w", "dag", "t", 1}}).ok());
  ASSERT_TRUE(history
                  ->Append({With(1e-6, Verified::kFailed), With(2e-6, Verified::kOk), With(3e-6),
                            FailedRecord(ErrorKind::kCompile, "w"), FailedRecord(ErrorKind::kRunTimeout, "w"),
                            FailedRecord(ErrorKind::kRunTimeout, "v")})
                  .ok());
  const HistoryInfo info = history->Info().value();
  EXPECT_EQ(info.schema_version, 5);
  EXPECT_EQ(info.records, 6);
  EXPECT_EQ(info.failed, 3);
  EXPECT_EQ(info.runs, 1);
  EXPECT_EQ(info.errors, (std::vector<std::pair<std::string, int64_t>>{{"run_timeout", 2}, {"compile", 1}}));
  ASSERT_EQ(info.workloads.size(), 2u);
  EXPECT_EQ(info.workloads[0].workload_key, "v");
  EXPECT_FALSE(info.workloads[0].best_seconds.has_value());
  EXPECT_EQ(info.workloads[1].records, 5);
  EXPECT_EQ(info.workloads[1].failed, 2);
  EXPECT_EQ(info.workloads[1].verified, 1);
  EXPECT_EQ(info.workloads[1].best_seconds, 2e-6);
  ASSERT_EQ(info.devices.size(), 1u);
  EXPECT_EQ(info.devices[0].model, "NVIDIA H200");
  EXPECT_EQ(info.devices[0].records, 6);
  ASSERT_EQ(info.networks.size(), 1u);
  EXPECT_EQ(info.networks[0].tasks, 1);
  EXPECT_EQ(info.last_at - info.first_at, 5000000000);
  EXPECT_GT(info.bytes, 4096);
}

}  // namespace
}  // namespace diapason
