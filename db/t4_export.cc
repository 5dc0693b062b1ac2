#include "db/t4_export.h"

#include <cmath>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/json.h"

namespace diapason {
namespace {

constexpr char kT4Version[] = "1.0.0";  // of the schema
constexpr double kMilliseconds = 1e3;   // in a second

// Where a candidate failed, for kinds that may come from any stage.
std::string StageInvalidity(MeasureStage stage) {
  switch (stage) {
    case MeasureStage::kInstantiate:
    case MeasureStage::kLower: return "constraints";
    case MeasureStage::kCompile: return "compile";
    case MeasureStage::kVerify: return "correctness";
    default: return "runtime";
  }
}

std::string ErrorInvalidity(const MeasureError& error) {
  switch (error.kind) {
    case ErrorKind::kInstantiation:
    case ErrorKind::kLowering: return "constraints";
    case ErrorKind::kCompile:
    case ErrorKind::kBuildCrash: return "compile";
    case ErrorKind::kBuildTimeout:
    case ErrorKind::kRunTimeout: return "timeout";
    case ErrorKind::kRunCrash:
    case ErrorKind::kIllegalAccess:
    case ErrorKind::kLaunchFailure: return "runtime";
    case ErrorKind::kWrongResult: return "correctness";
    case ErrorKind::kInfrastructure: return "";
    case ErrorKind::kOutOfMemory:
    case ErrorKind::kUnknown: return StageInvalidity(error.stage);
  }
  return "runtime";
}

Json Configuration(const TuningRecord& record, const T4Options& options) {
  Json configuration = {{"sketch", record.sketch}};
  const std::vector<std::string> names = options.names ? options.names(record) : std::vector<std::string>();
  for (size_t i = 0; i < record.configuration.size(); ++i)
    configuration[i < names.size() ? names[i] : absl::StrCat("parameter ", i)] = record.configuration[i];
  return configuration;
}

Json Times(const TuningRecord& record) {
  Json times = {{"runtimes", Json::array()}};
  const Timing* timing = record.timing();
  if (timing == nullptr) return times;
  for (const double sample : timing->samples) times["runtimes"].push_back(sample * kMilliseconds);
  times["compilation_time"] = timing->build_seconds * kMilliseconds;
  times["benchmark"] = timing->run_seconds * kMilliseconds;
  return times;
}

Json Measurement(const std::string& name, const Json& value, const std::string& unit = "") {
  return {{"name", name}, {"value", value}, {"unit", unit}};
}

Json Measurements(const TuningRecord& record) {
  Json all = Json::array();
  if (const Timing* timing = record.timing()) {
    all.push_back(Measurement("time", MedianSeconds(*timing) * kMilliseconds, "ms"));
    all.push_back(Measurement("launches", timing->number));
    all.push_back(Measurement("stopped_early", timing->stopped_early ? 1 : 0));
  }
  if (const MeasureError* error = record.error()) {
    all.push_back(Measurement("error_kind", ErrorKindName(error->kind)));
    all.push_back(Measurement("error_stage", StageName(error->stage)));
    all.push_back(Measurement("error_text", error->text));
  }
  all.push_back(Measurement("verified", VerifiedName(record.verified)));
  if (record.max_error.has_value() && std::isfinite(*record.max_error))
    all.push_back(Measurement("max_error", *record.max_error));
  for (const auto& [name, mhz] : {std::pair<const char*, int32_t>{"sm_clock", record.clocks.sm_mhz},
                                  {"memory_clock", record.clocks.memory_mhz},
                                  {"cpu_clock", record.clocks.cpu_mhz}})
    if (mhz > 0) all.push_back(Measurement(name, mhz, "MHz"));
  return all;
}

Json ResultJson(const TuningRecord& record, const T4Options& options) {
  const std::string invalidity = T4Invalidity(record);
  return {{"timestamp",
           absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixNanos(record.created_at), absl::UTCTimeZone())},
          {"configuration", Configuration(record, options)},
          {"objectives", {"time"}},
          {"times", Times(record)},
          {"invalidity", invalidity},
          {"correctness", invalidity == "correct" ? 1 : 0},
          {"measurements", Measurements(record)},
          {"task", record.task_name},
          {"workload", record.workload_key},
          {"target", record.target},
          {"device", record.device_model},
          {"uuid", record.uuid}};
}

absl::Status WriteText(std::ostream& out, const std::string& text) {
  out << text;
  if (out.good()) return absl::OkStatus();
  return absl::ResourceExhaustedError("the export cannot be written; check the space on its disk and try again");
}

}  // namespace

std::string T4Invalidity(const TuningRecord& record) {
  if (const MeasureError* error = record.error()) return ErrorInvalidity(*error);
  return IsRefuted(record.verified) ? "correctness" : "correct";
}

absl::StatusOr<ExportReport> ExportT4(History& history, std::ostream& out, const T4Options& options) {
  const Json metadata = {{"timeunit", "milliseconds"}, {"tuner", "diapason"}};
  RETURN_IF_ERROR(WriteText(out, absl::StrCat("{\"schema_version\":\"", kT4Version,
                                              "\",\"metadata\":", JsonText(metadata), ",\"results\":[")));
  int64_t written = 0;
  ASSIGN_OR_RETURN(ExportReport report, history.Scan(options.records, [&](const TuningRecord& record) -> absl::Status {
    if (T4Invalidity(record).empty()) return absl::OkStatus();
    const std::string line = JsonText(ResultJson(record, options));
    return WriteText(out, absl::StrCat(written++ == 0 ? "\n" : ",\n", line));
  }));
  report.records = written;
  RETURN_IF_ERROR(WriteText(out, "\n]}\n"));
  out.flush();
  RETURN_IF_ERROR(WriteText(out, ""));
  return report;
}

}  // namespace diapason
