#include "db/history.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/serialize.h"
#include "scheduler/candidate.h"
#include "tests/cli/testing.h"

namespace diapason {
namespace {

ComputeDag Doubled(int64_t n) {
  DagBuilder builder;
  const int x = builder.Placeholder("x", {n});
  const int y =
      builder.Compute("y", {n}, [&](const auto& i) { return Add(builder.At(x, {i[0]}), builder.At(x, {i[0]})); });
  return builder.Build({y}).value();
}

TuningRecord Record(int64_t n, int64_t trial, double seconds) {
  TuningRecord record;
  const ComputeDag dag = Doubled(n);
  record.workload_key = dag.workload_key();
  record.workload = SerializeDag(dag);
  record.task_name = "double";
  record.target = "cpu";
  record.device_model = "a processor";
  record.rewrite = "direct";
  record.sketch = "direct/plain";
  record.schedule = SerializeSchedule(Schedule{});
  record.trial = trial;
  record.configuration = {static_cast<int32_t>(trial)};
  record.configuration_hash = CandidateHash(record.sketch, record.configuration);
  if (seconds > 0) {
    record.outcome = Timing{{seconds, seconds}, 1, false, 0.1, 0.1};
  } else {
    record.outcome = MeasureError{ErrorKind::kCompile, MeasureStage::kCompile, "no"};
  }
  return record;
}

void Damage(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(0, std::ios::end);
  const auto size = static_cast<int64_t>(file.tellp());
  for (int64_t at = 4096 + 100; at < size; at += 512) {
    file.seekp(at);
    file.write("damage", 6);
  }
}

class HistoryCommands : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    auto history = History::Open(Path("h.db"), HistoryMode::kCreate);
    ASSERT_TRUE(history.ok()) << history.status();
    const auto ids = (*history)->Append({Record(8, 0, 3e-6), Record(8, 1, 2e-6), Record(8, 2, 0), Record(16, 0, 5e-6)});
    ASSERT_TRUE(ids.ok()) << ids.status();
    ASSERT_TRUE(
        (*history)->LinkNetwork({{"tiny", Doubled(8).workload_key(), SerializeDag(Doubled(8)), "double", 2}}).ok());
  }
};

TEST_F(HistoryCommands, InfoCounts) {
  const auto json = Cli({"history", "info", Path("h.db"), "--json"}).json();
  EXPECT_EQ(json["record_count"], 4);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["errors"]["compile"], 1);
  EXPECT_EQ(json["workloads"].size(), 2u);
  EXPECT_NE(Cli({"history", "info", Path("h.db")}).out.find("4 records (1 failed)"), std::string::npos);
}

TEST_F(HistoryCommands, CheckFindsAWholeFileInOrder) {
  const auto json = Cli({"history", "check", Path("h.db"), "--json"}).json();
  EXPECT_EQ(json, (nlohmann::json{{"schema", "diapason.history_check/2"},
                                  {"ok", true},
                                  {"record_count", 4},
                                  {"problems", nlohmann::json::array()}}));
  EXPECT_EQ(Cli({"history", "check", Path("h.db")}).out, "ok, 4 records\n");
}

// Ids are 5 and up: four records are there.
TEST_F(HistoryCommands, CheckReplaysSchedulesAndHashesConfigurations) {
  TuningRecord no_schedule = Record(32, 0, 1e-6), no_replay = Record(32, 1, 1e-6), other_hash = Record(32, 2, 1e-6),
               other_configuration = Record(32, 3, 1e-6);
  no_schedule.schedule = "\xff\xff";
  Schedule schedule;
  schedule.steps = {{StepKind::kInline, 99, {}, {}, -1, {}}};
  no_replay.schedule = SerializeSchedule(schedule);
  ++other_hash.configuration_hash;
  schedule = Schedule();
  schedule.configuration = {77};
  other_configuration.schedule = SerializeSchedule(schedule);
  auto history = History::Open(Path("h.db"), HistoryMode::kReadWrite);
  ASSERT_TRUE((*history)->Append({no_schedule, no_replay, other_hash, other_configuration}).ok());
  const CliResult result = Cli({"history", "check", Path("h.db"), "--json"});
  EXPECT_EQ(result.code, 1);
  const auto problems = result.json()["problems"];
  ASSERT_EQ(problems.size(), 4u) << result.out;
  EXPECT_EQ(result.json()["record_count"], 8);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(std::string(problems[i]).rfind("record " + std::to_string(5 + i) + ": ", 0), 0u) << problems[i];
  }
  EXPECT_NE(std::string(problems[1]).find("stage 99"), std::string::npos) << problems[1];
  EXPECT_EQ(problems[2], absl::StrCat("record 7: the hash of its configuration is ",
                                      absl::Hex(other_hash.configuration_hash - 1, absl::kZeroPad16), ", not ",
                                      absl::Hex(other_hash.configuration_hash, absl::kZeroPad16)));
  EXPECT_EQ(problems[3], "record 8: its schedule was made from another configuration than the stored one");
  EXPECT_EQ(result.err, "error: " + Path("h.db") +
                            " has 4 problems; save what is whole with `diapason history export " + Path("h.db") +
                            " --skip-damaged --out good.jsonl` and import that into a new file\n");
}

TEST_F(HistoryCommands, AnExportOfACutHistoryThatSavesNothingKeepsTheOneBefore) {
  ASSERT_EQ(Cli({"history", "export", Path("h.db"), "--out", Path("good.jsonl")}).code, 0);
  std::filesystem::resize_file(Path("h.db"), 8192);
  ExpectError(Cli({"history", "export", Path("h.db"), "--skip-damaged", "--out", Path("good.jsonl")}),
              "history '" + Path("h.db") + "' is damaged (none of its records can be read); restore a copy of it");
  EXPECT_EQ(Cli({"history", "import", Path("copy.db"), Path("good.jsonl"), "--json"}).json()["added"], 4);
}

TEST_F(HistoryCommands, ExportAndImportLoseNothing) {
  const CliResult lines = Cli({"history", "export", Path("h.db")});
  EXPECT_EQ(lines.code, 0) << lines.err;
  const CliResult imported = Cli({"history", "import", Path("copy.db"), "--json"}, lines.out);
  EXPECT_EQ(imported.json()["added"], 4) << imported.err;
  EXPECT_EQ(Cli({"history", "export", Path("copy.db")}).out, lines.out);
  EXPECT_EQ(Cli({"history", "import", Path("copy.db")}, lines.out).out, "imported 0 records; 4 were there already\n");
}

TEST_F(HistoryCommands, ExportNamesHostsOnlyWhenAsked) {
  {
    auto history = History::Open(Path("runs.db"), HistoryMode::kCreate).value();
    TuningRecord record = Record(32, 0, 1e-6);
    record.run_id = history->StartRun({.command_line = "tune double", .seed = 1, .host = "box"}).value();
    ASSERT_TRUE(history->Append({record}).ok());
  }
  const auto run = [&](const std::string& history, std::vector<std::string> more) {
    more.insert(more.begin(), {"history", "export", Path(history)});
    const std::string lines = Cli(more).out;
    return nlohmann::json::parse(lines.substr(0, lines.find('\n')))["runs"][0];
  };
  const auto host = [&](const std::vector<std::string>& more) { return run("runs.db", more)["host"]; };
  EXPECT_EQ(host({}), "");
  EXPECT_EQ(host({"--with-host"}), "box");
  EXPECT_EQ(Cli({"history", "copy", Path("runs.db"), Path("copied.db")}).code, 0);
  EXPECT_EQ(run("copied.db", {"--with-host"})["host"], "box");
  EXPECT_EQ(run("copied.db", {})["command_line"], "tune double");
}

TEST_F(HistoryCommands, ExportAndImportByFile) {
  EXPECT_EQ(Cli({"history", "export", Path("h.db"), "--out", Path("h.jsonl")}).out,
            "exported 4 records to " + Path("h.jsonl") + "\n");
  EXPECT_EQ(Cli({"history", "import", Path("copy.db"), Path("h.jsonl")}).out,
            "imported 4 records; 0 were there already\n");
  ExpectError(Cli({"history", "import", Path("copy.db"), Path("none.jsonl")}),
              Path("none.jsonl") + " cannot be read; name a file that `diapason history export` wrote");
  ExpectError(
      Cli({"history", "import", Path("copy.db"), Path("")}),
      "'" + Path("") + "' cannot be read to its end: it is a folder, or its disk has an error; name a file of records");
  ExpectError(
      Cli({"history", "export", Path("h.db"), "--out", Path("no/such/file")}),
      "cannot write '" + Path("no/such/file") +
          "' (No such file or directory); name a file in a folder that exists, with room, that you may write to");
}

TEST_F(HistoryCommands, ExportDestroysNothing) {
  const std::string kept = Cli({"history", "export", Path("h.db")}).out;
  const auto other = [&](const std::string& file) {
    return "'" + file + "' is there already and is no export of a history; name another file";
  };
  for (const std::vector<std::string>& format : std::vector<std::vector<std::string>>{{}, {"--format", "t4"}}) {
    std::vector<std::string> command{"history", "export", Path("h.db"), "--out", Path("h.db")};
    command.insert(command.end(), format.begin(), format.end());
    ExpectError(Cli(command), other(Path("h.db")));
  }
  EXPECT_EQ(Cli({"history", "export", Path("h.db")}).out, kept);
  // A backup is replaced by one that is whole, and by nothing else.
  ASSERT_EQ(Cli({"history", "export", Path("h.db"), "--out", Path("backup.jsonl")}).code, 0);
  ASSERT_EQ(Cli({"history", "export", Path("h.db"), "--out", Path("backup.jsonl")}).code, 0);
  EXPECT_NE(Cli({"history", "export", Path("none.db"), "--out", Path("backup.jsonl")}).code, 0);
  std::filesystem::copy_file(Path("h.db"), Path("damaged.db"));
  Damage(Path("damaged.db"));
  EXPECT_NE(Cli({"history", "export", Path("damaged.db"), "--out", Path("backup.jsonl")}).code, 0);
  std::stringstream backup;
  backup << std::ifstream(Path("backup.jsonl")).rdbuf();
  EXPECT_EQ(backup.str(), kept);
  // Nothing stays beside it.
  for (const auto& entry : std::filesystem::directory_iterator(Path("")))
    EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << entry.path();
}

TEST_F(HistoryCommands, PruneKeepsTheBestOfEachWorkload) {
  const auto json = Cli({"history", "prune", Path("h.db"), "--out", Path("best.db"), "--json"}).json();
  EXPECT_EQ(json["kept"], 2);
  EXPECT_EQ(json["dropped"], 2);
  EXPECT_EQ(Cli({"history", "info", Path("best.db"), "--json"}).json()["record_count"], 2);
  EXPECT_EQ(Cli({"history", "info", Path("h.db"), "--json"}).json()["record_count"], 4);
}

TEST_F(HistoryCommands, QueryShowsTheBestFirst) {
  const auto json = Cli({"query", "--history", Path("h.db"), "--top", "2", "--model", "tiny", "--json"}).json();
  ASSERT_EQ(json["records"].size(), 2u);
  const auto& best = json["records"][0];
  EXPECT_EQ(best["record"], 2);
  EXPECT_EQ(best["workload"], Doubled(8).workload_key());
  EXPECT_EQ(best["target"], "cpu");
  EXPECT_EQ(best["device"], "a processor");
  EXPECT_NEAR(best["median_us"], 2, 1e-9);
  EXPECT_EQ(best["trial"], 1);
  EXPECT_EQ(best["verified"], false);
  EXPECT_EQ(best["share"], 1) << "the only task";
  EXPECT_TRUE(Cli({"query", "--history", Path("h.db"), "--json"}).json()["records"][0]["share"].is_null())
      << "of which network?";
  EXPECT_EQ(Cli({"query", "--history", Path("h.db"), "--json"}).json()["records"].size(), 2u);
  EXPECT_EQ(Cli({"query", "--history", Path("h.db"), "--target", "cuda", "--json"}).json()["records"].size(), 0u);
}

TEST_F(HistoryCommands, ErrorsNameTheFileAndTheMend) {
  ExpectError(Cli({"query", "--history", Path("h.db"), "--model", "big"}),
              Path("h.db") + " knows no network big; `diapason history info " + Path("h.db") + "` lists those it has");
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"query", "--history", Path("none.db")},
                                             {"history", "info", Path("none.db")},
                                             {"history", "check", Path("none.db")}}) {
    const CliResult result = Cli(command);
    EXPECT_EQ(result.code, 1);
    EXPECT_NE(result.err.find(Path("none.db")), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(std::filesystem::exists(Path("none.db")));
  }
}

TEST_F(HistoryCommands, CheckReportsDamage) {
  Damage(Path("h.db"));
  std::filesystem::remove(Path("h.db-wal"));
  const CliResult result = Cli({"history", "check", Path("h.db"), "--json"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.json()["ok"], false);
  EXPECT_FALSE(result.json()["problems"].empty());
}

}  // namespace
}  // namespace diapason
