#include "db/json_lines.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "db/integrity.h"
#include "nlohmann/json.hpp"
#include "tests/db/backends.h"

namespace diapason {
namespace {

class JsonLinesTest : public BackendTest {
 protected:
  std::string Export(History& history, const ExportOptions& options = {}) {
    std::ostringstream out;
    absl::StatusOr<ExportReport> report = ExportJson(history, out, options);
    EXPECT_TRUE(report.ok()) << report.status();
    return out.str();
  }
  absl::StatusOr<ImportReport> Import(History& history, const std::string& lines, const ImportOptions& options = {}) {
    std::istringstream in(lines);
    return ImportJson(history, in, "in.jsonl", options);
  }

  // Runs, links, timed, failed, verified and refuted records, a run and a workload of no record.
  std::unique_ptr<History> FullHistory(const std::string& path) {
    auto history = Open(path);
    TuningRecord first = TimedRecord("a"), second = TimedRecord("b", 1.0 / 3), third = FailedRecord();
    first.run_id = history->StartRun({.command_line = "tune --seed 1", .seed = ~uint64_t{0}, .host = "h"}).value();
    EXPECT_TRUE(history->StartRun({.command_line = "idle"}).ok());
    EXPECT_TRUE(history->EndRun(first.run_id).ok());
    second.outcome = Timing{{5e-324, 0.1, 2.2250738585072014e-308}, 3, true, 0.1 + 0.2, 1e300};
    third.outcome = MeasureError{ErrorKind::kCompile, MeasureStage::kCompile, "line 1: \"\\ \n\t\x01 \xc3\xa9 \xff"};
    EXPECT_TRUE(history->Append({first, second, third, TimedRecord("a")}).ok());
    EXPECT_TRUE(history->SetVerified(1, true, 1.0 / 3, "close").ok());
    EXPECT_TRUE(history->SetVerified(2, false, NAN, "NaN").ok());
    EXPECT_TRUE(history->LinkNetwork({{"n1", "a", "x", "conv", 2.5}, {"n2", "a", "x", "conv", 1}}).ok());
    EXPECT_TRUE(history->LinkNetwork({{"n1", "unmeasured", "dag", "dense", 1}}).ok());
    return history;
  }
};
DIAPASON_ON_EVERY_BACKEND(JsonLinesTest);

TEST_P(JsonLinesTest, NothingIsLostEitherWay) {
  auto history = FullHistory(Path("a.db"));
  const std::string lines = Export(*history);
  auto copy = Open(Path("b.db"));
  const ImportReport report = Import(*copy, lines).value();
  EXPECT_EQ(report.lines, 6);  // four records, a run and a workload without one
  EXPECT_EQ(report.added, 4);
  for (int64_t id = 1; id <= 4; ++id) {
    const TuningRecord original = history->Get(id).value(), imported = copy->Get(id).value();
    ExpectSameContent(original, imported);
    EXPECT_EQ(original.workload, imported.workload);
    EXPECT_EQ(original.run_id, imported.run_id);
  }
  EXPECT_EQ(copy->Runs().value().size(), 2u);
  EXPECT_EQ(copy->Runs().value()[0].seed, ~uint64_t{0});
  EXPECT_EQ(copy->NetworkTasks().value().size(), 3u);
  EXPECT_EQ(copy->NetworkTasks("n1").value()[0].weight, 2.5);
  EXPECT_EQ(Export(*copy), lines);
  EXPECT_TRUE(CheckHistory(Path("b.db")).value().ok());
}

TEST_P(JsonLinesTest, EachLineIsCompleteInItself) {
  auto history = FullHistory(Path("a.db"));
  const std::string lines = Export(*history);
  std::istringstream in(lines);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(line + "\n");
  auto copy = Open(Path("b.db"));
  EXPECT_EQ(Import(*copy, all[3] + "\n\r\n" + all[0]).value().added, 2);  // reordered, with blank lines
  EXPECT_EQ(copy->Get(1).value().uuid, history->Get(4).value().uuid);
  EXPECT_EQ(copy->Get(2).value().run_id, 1);
  EXPECT_EQ(copy->NetworkTasks().value().size(), 2u);
}

TEST_P(JsonLinesTest, TheFieldsAreThoseOfTheDocument) {
  auto history = FullHistory(Path("a.db"));
  const std::string lines = Export(*history);
  const nlohmann::json line = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(line["format"], 1);
  EXPECT_EQ(line["workload_key"], "a");
  EXPECT_EQ(line["timing"]["number"], 100);
  EXPECT_EQ(line["decision_hash"], "fedcba9876543210");
  EXPECT_EQ(line["seed"], ~uint64_t{0});
  EXPECT_EQ(line["schedule"], "c3RlcHMAgA==");
  EXPECT_EQ(line["verified"], "ok");
  EXPECT_EQ(line["run"]["command_line"], "tune --seed 1");
  EXPECT_EQ(line["networks"][0]["network"], "n1");
}

ExportOptions WithHeader() {
  ExportOptions options;
  options.program = "diapason 1.2";
  options.names = [](const TuningRecord& record) {
    return record.workload_key == "a" ? std::vector<std::string>{"m", "n", "k", "unroll"} : std::vector<std::string>{};
  };
  return options;
}

std::vector<std::string> Split(const std::string& lines) {
  std::vector<std::string> all;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) all.push_back(line + "\n");
  return all;
}

TEST_P(JsonLinesTest, AHeaderHasTheProgramAndTheRunsOnce) {
  auto history = FullHistory(Path("a.db"));
  const std::string lines = Export(*history, WithHeader());
  const std::vector<std::string> all = Split(lines);
  ASSERT_EQ(all.size(), 6u);  // the header, four records, a workload without one
  const nlohmann::json header = nlohmann::json::parse(all[0]), record = nlohmann::json::parse(all[1]);
  EXPECT_EQ(header["format"], 2);
  EXPECT_EQ(header["program"], "diapason 1.2");
  ASSERT_EQ(header["runs"].size(), 2u);
  EXPECT_EQ(header["runs"][0]["command_line"], "tune --seed 1");
  EXPECT_EQ(record["run"], header["runs"][0]["uuid"]);
  EXPECT_EQ(record["decisions"].size(), record["configuration"].size());
  EXPECT_EQ(record["configuration"][0], (nlohmann::json{{"name", "m"}, {"value", record["decisions"][0]}}));
  EXPECT_FALSE(nlohmann::json::parse(all[2]).contains("configuration"));

  auto copy = Open(Path("b.db"));
  EXPECT_EQ(Import(*copy, lines).value().added, 4);
  EXPECT_EQ(Export(*copy, WithHeader()), lines);
  EXPECT_EQ(Export(*copy), Export(*history));
  EXPECT_EQ(Import(*history, lines).value().known, 4);
}

TEST_P(JsonLinesTest, AHeaderMayComeBehindItsRecordsOrNotAtAll) {
  auto history = FullHistory(Path("a.db"));
  const std::vector<std::string> all = Split(Export(*history, WithHeader()));
  auto copy = Open(Path("b.db"));
  ASSERT_TRUE(Import(*copy, all[1]).ok());
  EXPECT_EQ(copy->Get(1).value().run_id, 1);
  EXPECT_EQ(copy->Runs().value()[0].command_line, "");
  ASSERT_TRUE(Import(*copy, all[0]).ok());
  const TuningRun found = copy->Runs().value()[0], known = history->Runs().value()[0];
  EXPECT_EQ(std::tie(found.uuid, found.command_line, found.seed, found.host, found.started_at, found.ended_at),
            std::tie(known.uuid, known.command_line, known.seed, known.host, known.started_at, known.ended_at));
}

TEST_P(JsonLinesTest, AHeaderHasTheRunsOfWhatIsSelected) {
  auto history = FullHistory(Path("a.db"));
  ExportOptions options = WithHeader();
  options.filter.network = "n1";
  const nlohmann::json header = nlohmann::json::parse(Split(Export(*history, options))[0]);
  ASSERT_EQ(header["runs"].size(), 1u);
  EXPECT_EQ(header["runs"][0]["command_line"], "tune --seed 1");
}

TEST_P(JsonLinesTest, ImportingTwiceAddsNothing) {
  auto history = FullHistory(Path("a.db"));
  const std::string lines = Export(*history);
  const ImportReport report = Import(*history, lines + lines).value();
  EXPECT_EQ(report.added, 0);
  EXPECT_EQ(report.known, 8);
  EXPECT_EQ(report.updated, 0);
  EXPECT_EQ(Export(*history), lines);
}

TEST_P(JsonLinesTest, AKnownRecordGainsItsVerificationAndARunItsEnd) {
  auto history = Open(Path("a.db"));
  TuningRecord record = TimedRecord();
  record.run_id = history->StartRun({}).value();
  ASSERT_TRUE(history->Append({record}).ok());
  const std::string before = Export(*history);
  ASSERT_TRUE(history->SetVerified(1, true, 0.5, "fine").ok());
  ASSERT_TRUE(history->EndRun(1).ok());
  const std::string after = Export(*history);
  auto other = Open(Path("b.db"));
  ASSERT_TRUE(Import(*other, before).ok());
  EXPECT_EQ(Import(*other, after).value().updated, 1);
  EXPECT_EQ(Export(*other), after);
  EXPECT_EQ(Import(*other, before).value().updated, 0);  // and does not lose it again
  EXPECT_EQ(Export(*other), after);
}

TEST_P(JsonLinesTest, AKnownRecordGainsSamplesAndNeverLosesThem) {
  auto history = Open(Path("a.db")), other = Open(Path("b.db"));
  ASSERT_TRUE(history->Append({TimedRecord()}).ok());
  const std::string before = Export(*history);
  ASSERT_TRUE(history->AddSamples(1, {5e-6, 6e-6}).ok());
  const std::string after = Export(*history);
  ASSERT_TRUE(Import(*other, before).ok());
  EXPECT_EQ(Import(*other, after).value().updated, 1);
  EXPECT_EQ(Export(*other), after);
  EXPECT_EQ(Import(*other, before).value().updated, 0);
  EXPECT_EQ(Export(*other), after);
  // Others than those that both have.
  auto third = Open(Path("c.db"));
  ASSERT_TRUE(Import(*third, before).ok());
  ASSERT_TRUE(third->AddSamples(1, {7e-6}).ok());
  EXPECT_FALSE(Import(*third, after).ok());
}

TEST_P(JsonLinesTest, WhatIsWrongInANetworkIsPassedOnToARecordThatWasRightAlone) {
  auto history = Open(Path("a.db"));
  ASSERT_TRUE(history->Append({TimedRecord()}).ok());
  ASSERT_TRUE(history->SetVerified(1, true, 0.5, "").ok());
  const std::string before = Export(*history);
  ASSERT_TRUE(history->MarkWrongInNetwork(1, 7, "output 'y' of net").ok());
  const std::string after = Export(*history);
  EXPECT_NE(after.find("\"verified\":\"wrong_in_network\""), std::string::npos) << after;
  auto other = Open(Path("b.db"));
  ASSERT_TRUE(Import(*other, before).ok());
  EXPECT_EQ(Import(*other, after).value().updated, 1);
  EXPECT_EQ(Export(*other), after);
  EXPECT_EQ(Import(*other, before).value().updated, 0);
  EXPECT_EQ(Export(*other), after);
}

TEST_P(JsonLinesTest, AnExportCanBeFiltered) {
  auto history = FullHistory(Path("a.db"));
  const std::string lines = Export(*history, {.filter = {.network = "n1"}});
  auto copy = Open(Path("b.db"));
  EXPECT_EQ(Import(*copy, lines).value().added, 2);
  EXPECT_EQ(copy->Info().value().workloads.size(), 1u);
}

TEST_P(JsonLinesTest, ADamagedLineIsNamedAndNothingIsImported) {
  auto history = Open(Path("a.db"));
  ASSERT_TRUE(history->Append({TimedRecord(), FailedRecord()}).ok());
  const std::string lines = Export(*history);
  const std::string good = lines.substr(0, lines.find('\n') + 1), error = lines.substr(good.size());
  const auto changed = [](std::string line, const std::string& from, const std::string& to) {
    const size_t at = line.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return line.replace(at, from.size(), to);
  };
  const std::pair<std::string, std::string> cases[] = {
      {"{\"format\":1,", "it is no JSON"},
      {good.substr(0, good.size() / 2), "it is no JSON"},
      {"[1]", "it is no JSON object"},
      {"{}", "'format' is missing; it is an integer"},
      {"{\"format\":1}", "it holds neither a record nor a run nor a workload"},
      {changed(good, "\"format\":1", "\"format\":3"), "its format is 3 and this program reads 1 and 2"},
      {"{\"format\":2,\"runs\":[{}]}", "'uuid' is missing; it is a text"},
      {"{\"format\":2,\"run\":\"here\"}", "'run' is not of 32 hexadecimal digits"},
      {changed(good, "\"trial\":17", "\"trial\":18"), "its checksum does not match: it was changed"},
      {changed(good, "\"trial\":17", "\"trial\":\"x\""), "'trial' is not an integer"},
      {changed(good, "\"trial\":17", "\"trial\":18446744073709551615"), "'trial' is out of range"},
      {changed(good, "\"seed\":18446744073709551615", "\"seed\":-1"), "'seed' is not an unsigned integer"},
      {changed(good, "[4,", "[2147483648,"), "'decisions' holds something that is no 32-bit integer"},
      {changed(good, "\"samples\":[", "\"samples\":[null,"), "'samples' holds something that is no number"},
      {changed(good, "c3RlcHMAgA==", "c3RlcHMAgB=="), "'schedule' is no base64"},
      {changed(good, "\"timing\":", "\"timings\":"), "it has not one of 'timing' and 'error'"},
      {changed(good, "fedcba9876543210", "fedcba98765432xx"), "'decision_hash' is not of 16 hexadecimal digits"},
      {changed(good, "\"verified\":\"unknown\"", "\"verified\":\"maybe\""),
       "'verified' is none of unknown, ok, failed and wrong_in_network"},
      {changed(good, "\"clocks\":{", "\"clocks\":{\"cpu_mhz\":-1,\"x\":{"), "it is no JSON"},
      {changed(error, "run_timeout", "sunspots"), "error kind 'sunspots' is not known"},
      {changed(good, "\"workload\":\"", "\"workload\":\"\",\"x\":\""), "its workload is empty"},
  };
  int histories = 0;
  for (const auto& [bad, reason] : cases) {
    auto other = Open(Path(absl::StrCat("b", ++histories, ".db")));
    EXPECT_EQ(
        Import(*other, good + "\n" + bad).status(),
        absl::InvalidArgumentError("line 3 of 'in.jsonl' is damaged (" + reason +
                                   "); nothing was imported: correct or remove the line, or give --skip-damaged"));
    EXPECT_EQ(other->Info().value().records, 0);
    const absl::StatusOr<ImportReport> report =
        Import(*other, bad + (bad.back() == '\n' ? "" : "\n") + good, {.skip_damaged = true});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->added, 1);
    EXPECT_EQ(report->damaged, std::vector<std::string>{"line 1 of 'in.jsonl' is damaged (" + reason + ")"});
  }
}

TEST_P(JsonLinesTest, RefusesADifferentRecordWithAKnownUuid) {
  auto history = Open(Path("a.db"));
  TuningRecord record = TimedRecord();
  record.uuid = std::string(32, 'b');
  ASSERT_TRUE(history->Append({record}).ok());
  auto other = Open(Path("b.db"));
  record.trial = 99;
  ASSERT_TRUE(other->Append({record}).ok());
  EXPECT_EQ(
      Import(*other, Export(*history)).status(),
      absl::InvalidArgumentError("line 1 of 'in.jsonl' is damaged (the history has a different record with its uuid); "
                                 "nothing was imported: correct or remove the line, or give --skip-damaged"));
}

TEST_P(JsonLinesTest, ALineWrittenByHandNeedsNoChecksum) {
  auto history = Open(Path("a.db"));
  ASSERT_TRUE(history->Append({TimedRecord()}).ok());
  std::string lines = Export(*history);
  const size_t at = lines.find(",\"checksum\":");
  lines.erase(at, std::string(",\"checksum\":\"0123456789abcdef\"").size());
  lines.replace(lines.find("\"trial\":17"), 10, "\"trial\":3");
  auto other = Open(Path("b.db"));
  EXPECT_EQ(Import(*other, lines).value().added, 1);
  EXPECT_EQ(other->Get(1).value().trial, 3);
}

// A cut export is a few records short, and says at which line.
TEST_P(JsonLinesTest, CutAtAnyByteItIsReportedOrComplete) {
  auto history = FullHistory(Path("a.db"));
  const std::string lines = Export(*history);
  auto other = Open(Path("b.db"));
  for (size_t cut = 0; cut < lines.size(); cut += 37) {
    const absl::StatusOr<ImportReport> report = Import(*other, lines.substr(0, cut));
    const bool at_line_end = cut == 0 || lines[cut - 1] == '\n' || lines[cut] == '\n';
    EXPECT_EQ(report.ok(), at_line_end) << cut << report.status();
  }
}

TEST_P(JsonLinesTest, AnyChangedByteIsRefusedOrHarmless) {
  auto history = Open(Path("a.db"));
  ASSERT_TRUE(history->Append({TimedRecord()}).ok());
  const TuningRecord original = history->Get(1).value();
  const std::string lines = Export(*history);
  for (size_t at = 0; at + 1 < lines.size(); at += 3) {
    std::string bad = lines;
    bad[at] = static_cast<char>(bad[at] ^ (1 + at % 7));
    auto other = Open(Path(absl::StrCat(at, ".db")));
    const absl::StatusOr<ImportReport> report = Import(*other, bad);
    if (report.ok() && report->added == 1) {
      TuningRecord read = other->Get(1).value();
      read.verified = original.verified;  // the one field that the checksum leaves out
      ExpectSameContent(read, original);
    }
  }
}

class FullBuffer : public std::streambuf {
  int overflow(int) override { return std::char_traits<char>::eof(); }
};

TEST_P(JsonLinesTest, AnExportThatCannotBeWrittenSaysSo) {
  auto history = Open(Path("a.db"));
  ASSERT_TRUE(history->Append({TimedRecord()}).ok());
  FullBuffer full;
  std::ostream out(&full);
  EXPECT_EQ(ExportJson(*history, out).status(),
            absl::ResourceExhaustedError("the export cannot be written; check the space on its disk and try again"));
}

}  // namespace
}  // namespace diapason
