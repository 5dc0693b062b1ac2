#include "db/t4_export.h"

#include <limits>
#include <map>
#include <sstream>

#include "nlohmann/json.hpp"
#include "tests/db/backends.h"

namespace diapason {
namespace {

class T4ExportTest : public BackendTest {
 protected:
  static nlohmann::json Export(History& history, const T4Options& options = {}) {
    std::ostringstream out;
    const absl::StatusOr<ExportReport> report = ExportT4(history, out, options);
    EXPECT_TRUE(report.ok()) << report.status();
    const nlohmann::json document = nlohmann::json::parse(out.str());
    EXPECT_EQ(report->records, static_cast<int64_t>(document["results"].size()));
    return document;
  }
  static nlohmann::json Measured(const nlohmann::json& result, const std::string& name) {
    for (const nlohmann::json& one : result["measurements"])
      if (one["name"] == name) return one;
    return nullptr;
  }
};
DIAPASON_ON_EVERY_BACKEND(T4ExportTest);

TEST_P(T4ExportTest, ATimedRecordHasItsTimesInMilliseconds) {
  auto history = Open(Path("a.db"));
  TuningRecord record = TimedRecord("a", 2e-3);
  record.created_at = 1760000000500000000;
  ASSERT_TRUE(history->Append({record}).ok());
  const nlohmann::json document = Export(*history);
  EXPECT_EQ(document["schema_version"], "1.0.0");
  EXPECT_EQ(document["metadata"]["timeunit"], "milliseconds");
  const nlohmann::json& result = document["results"].at(0);
  EXPECT_EQ(result["timestamp"], "2025-10-09T08:53:20.500000Z");
  EXPECT_EQ(result["times"]["compilation_time"], 750);
  EXPECT_EQ(result["times"]["benchmark"], 62.5);
  ASSERT_EQ(result["times"]["runtimes"].size(), 3u);
  EXPECT_DOUBLE_EQ(result["times"]["runtimes"][1].get<double>(), 2);
  EXPECT_EQ(result["invalidity"], "correct");
  EXPECT_EQ(result["correctness"], 1);
  EXPECT_EQ(result["objectives"], nlohmann::json({"time"}));
  EXPECT_DOUBLE_EQ(Measured(result, "time")["value"].get<double>(), 2);
  EXPECT_EQ(Measured(result, "time")["unit"], "ms");
  EXPECT_EQ(Measured(result, "sm_clock")["value"], 1980);
  EXPECT_EQ(result["task"], "conv2d_relu");
  EXPECT_EQ(result["workload"], "a");
}

TEST_P(T4ExportTest, ConfigurationsHaveTheNamesOfTheirParametersOrTheirPositions) {
  auto history = Open(Path("a.db"));
  ASSERT_TRUE(history->Append({TimedRecord("a")}).ok());
  EXPECT_EQ(Export(*history)["results"][0]["configuration"], (nlohmann::json{{"sketch", "tile+shared"},
                                                                             {"parameter 0", 4},
                                                                             {"parameter 1", -1},
                                                                             {"parameter 2", 2147483647},
                                                                             {"parameter 3", -2147483648}}));
  T4Options options;
  options.names = [](const TuningRecord&) { return std::vector<std::string>{"m", "n", "k"}; };
  EXPECT_EQ(Export(*history, options)["results"][0]["configuration"],
            (nlohmann::json{
                {"sketch", "tile+shared"}, {"m", 4}, {"n", -1}, {"k", 2147483647}, {"parameter 3", -2147483648}}));
}

TEST_P(T4ExportTest, EveryErrorKindHasAWordOrIsLeftOut) {
  auto history = Open(Path("a.db"));
  std::vector<TuningRecord> records;
  for (const ErrorKind kind : AllErrorKinds()) records.push_back(FailedRecord(kind));
  ASSERT_TRUE(history->Append(records).ok());
  std::map<std::string, std::string> words;
  const nlohmann::json document = Export(*history);
  for (const nlohmann::json& result : document["results"]) {
    words[Measured(result, "error_kind")["value"]] = result["invalidity"];
    EXPECT_EQ(result["correctness"], 0);
    EXPECT_EQ(result["times"], (nlohmann::json{{"runtimes", nlohmann::json::array()}}));
    EXPECT_TRUE(Measured(result, "time").is_null());
    EXPECT_EQ(Measured(result, "error_text")["value"], "the kernel did not finish in 10 s");
  }
  EXPECT_EQ(words, (std::map<std::string, std::string>{{"instantiation", "constraints"},
                                                       {"lowering", "constraints"},
                                                       {"compile", "compile"},
                                                       {"build_timeout", "timeout"},
                                                       {"build_crash", "compile"},
                                                       {"run_timeout", "timeout"},
                                                       {"run_crash", "runtime"},
                                                       {"out_of_memory", "runtime"},
                                                       {"illegal_access", "runtime"},
                                                       {"launch_failure", "runtime"},
                                                       {"wrong_result", "correctness"},
                                                       {"unknown", "runtime"}}));
}

TEST_P(T4ExportTest, TheStageDecidesWhereTheKindDoesNot) {
  TuningRecord record;
  for (const auto& [stage, word] : std::map<MeasureStage, std::string>{{MeasureStage::kLower, "constraints"},
                                                                       {MeasureStage::kCompile, "compile"},
                                                                       {MeasureStage::kLoad, "runtime"},
                                                                       {MeasureStage::kVerify, "correctness"}}) {
    record.outcome = MeasureError{ErrorKind::kOutOfMemory, stage, ""};
    EXPECT_EQ(T4Invalidity(record), word);
  }
}

TEST_P(T4ExportTest, WhatVerificationRefutedIsIncorrect) {
  auto history = Open(Path("a.db"));
  ASSERT_TRUE(history->Append({TimedRecord("a"), TimedRecord("b"), TimedRecord("c")}).ok());
  ASSERT_TRUE(history->SetVerified(1, true, 0.5, "").ok());
  ASSERT_TRUE(history->SetVerified(2, false, std::numeric_limits<double>::infinity(), "NaN").ok());
  ASSERT_TRUE(history->MarkWrongInNetwork(3, 7, "x").ok());
  const nlohmann::json results = Export(*history)["results"];
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(results[i]["invalidity"], i == 0 ? "correct" : "correctness");
    EXPECT_EQ(results[i]["correctness"], i == 0 ? 1 : 0);
  }
  EXPECT_EQ(Measured(results[0], "verified")["value"], "ok");
  EXPECT_EQ(Measured(results[0], "max_error")["value"], 0.5);
  EXPECT_TRUE(Measured(results[1], "max_error").is_null()) << "JSON has no infinity";
  EXPECT_EQ(Measured(results[2], "verified")["value"], "wrong_in_network");
}

TEST_P(T4ExportTest, FiltersCountAndAnEmptyHistoryIsADocument) {
  auto history = Open(Path("a.db"));
  EXPECT_EQ(Export(*history)["results"], nlohmann::json::array());
  ASSERT_TRUE(history->Append({TimedRecord("a"), TimedRecord("b"), TimedRecord("a")}).ok());
  T4Options options;
  options.records.filter.workload = "a";
  EXPECT_EQ(Export(*history, options)["results"].size(), 2u);
}

TEST_P(T4ExportTest, AFullDiskIsAnError) {
  auto history = Open(Path("a.db"));
  ASSERT_TRUE(history->Append({TimedRecord("a")}).ok());
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  EXPECT_EQ(ExportT4(*history, out).status().message(),
            "the export cannot be written; check the space on its disk and try again");
}

}  // namespace
}  // namespace diapason
