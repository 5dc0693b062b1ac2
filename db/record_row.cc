#include "db/record_row.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "db/text.h"

namespace diapason {
namespace {

// Appends fields in a form in which no two different records look alike.
class Fingerprint {
 public:
  void Add(const std::string& text) {
    Add(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  void Add(uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 255);
  }
  void Add(int64_t value) { Add(static_cast<uint64_t>(value)); }
  void Add(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    Add(bits);
  }
  uint64_t Hash() const { return Fnv1a(bytes_); }

 private:
  std::string bytes_;
};

void AddOutcome(Fingerprint& print, const Outcome& outcome) {
  if (const auto* timing = std::get_if<Timing>(&outcome)) {
    print.Add(uint64_t{1});
    print.Add(static_cast<uint64_t>(timing->samples.size()));
    for (double sample : timing->samples) print.Add(sample);
    print.Add(timing->number);
    print.Add(uint64_t{timing->stopped_early});
    print.Add(timing->build_seconds);
    print.Add(timing->run_seconds);
  } else {
    const auto& error = std::get<MeasureError>(outcome);
    print.Add(uint64_t{2});
    print.Add(std::string(ErrorKindName(error.kind)));
    print.Add(std::string(StageName(error.stage)));
    print.Add(error.text);
  }
}

// A JSON list of numbers. Nothing for any other text.
std::optional<std::vector<double>> ParseNumbers(const std::string& text) {
  const Json json = ParseJson(text);
  if (!json.is_array()) return std::nullopt;
  std::vector<double> numbers;
  for (const auto& item : json) {
    if (!item.is_number()) return std::nullopt;
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

absl::Status Damage(const std::string& reason) { return absl::DataLossError(reason); }

// From six columns: median, samples, number, raced_out, build_seconds, run_seconds.
absl::StatusOr<Timing> ReadTiming(const Statement& row, int first) {
  Timing timing;
  std::optional<std::vector<double>> parsed = ParseNumbers(row.Bytes(first + 1));
  if (!parsed.has_value() || parsed->empty()) return Damage("its samples are no list of numbers");
  timing.samples = *std::move(parsed);
  timing.number = row.Int(first + 2);
  timing.stopped_early = row.Int(first + 3) != 0;
  timing.build_seconds = row.Real(first + 4);
  timing.run_seconds = row.Real(first + 5);
  if (row.Real(first) != MedianSeconds(timing)) return Damage("its median is not that of its samples");
  return timing;
}

absl::StatusOr<MeasureError> ReadError(const Statement& row, int kind, int stage, int text) {
  MeasureError error;
  const std::optional<ErrorKind> known_kind = ParseErrorKind(row.Bytes(kind));
  const std::optional<MeasureStage> known_stage = ParseStage(row.Bytes(stage));
  if (!known_kind.has_value())
    return Damage(absl::StrCat("its error kind '", OneLine(row.Bytes(kind)), "' is not known"));
  if (!known_stage.has_value())
    return Damage(absl::StrCat("its error stage '", OneLine(row.Bytes(stage)), "' is not known"));
  error.kind = *known_kind;
  error.stage = *known_stage;
  error.text = row.Bytes(text);
  return error;
}

absl::Status ValidateTiming(const Timing& timing) {
  if (timing.samples.empty()) return absl::InvalidArgumentError("its timing has no samples");
  for (double sample : timing.samples) {
    if (!std::isfinite(sample) || sample <= 0)
      return absl::InvalidArgumentError(absl::StrCat("its sample of ", sample, " s is no positive time"));
  }
  if (timing.number < 1)
    return absl::InvalidArgumentError(absl::StrCat("its samples are of ", timing.number, " launches"));
  if (!std::isfinite(timing.build_seconds) || !std::isfinite(timing.run_seconds))
    return absl::InvalidArgumentError("its build or run time is not finite");
  return absl::OkStatus();
}

void BindOutcome(Statement& insert, const Outcome& outcome, int first) {
  if (const auto* timing = std::get_if<Timing>(&outcome)) {
    insert.BindReal(first, MedianSeconds(*timing));
    insert.BindText(first + 1, JsonText(timing->samples));
    insert.BindInt(first + 2, timing->number);
    insert.BindInt(first + 3, timing->stopped_early ? 1 : 0);
    insert.BindReal(first + 4, timing->build_seconds);
    insert.BindReal(first + 5, timing->run_seconds);
  } else {
    const auto& error = std::get<MeasureError>(outcome);
    insert.BindText(first + 6, ErrorKindName(error.kind));
    insert.BindText(first + 7, StageName(error.stage));
    insert.BindText(first + 8, error.text);
  }
}

}  // namespace

std::string SelectRecords(const std::string& rest, const std::string& source) {
  return absl::StrCat(
      "SELECT r.id, r.uuid, r.run_id, r.workload_key, w.dag, r.task_name, r.target, r.device_model, r.device_uuid, "
      "r.view, r.sketch, r.schedule, r.decisions, r.decision_hash, r.median, r.samples, r.number, r.raced_out, "
      "r.build_seconds, r.run_seconds, r.error_kind, r.error_stage, r.error_text, r.predicted, r.seed, r.trial, "
      "r.sm_mhz, r.memory_mhz, r.cpu_mhz, r.driver, r.compiler, r.created_at, r.verified, r.max_error, r.verify_text, "
      "r.checksum, w.checksum FROM ",
      source, " r LEFT JOIN workloads w ON w.workload_key = r.workload_key ", rest);
}

const char* const kInsertRecord =
    "INSERT INTO records(uuid, run_id, workload_key, task_name, target, device_model, device_uuid, view, sketch, "
    "schedule, decisions, decision_hash, median, samples, number, raced_out, build_seconds, run_seconds, error_kind, "
    "error_stage, error_text, predicted, seed, trial, sm_mhz, memory_mhz, cpu_mhz, driver, compiler, created_at, "
    "verified, max_error, verify_text, checksum) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
    "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id";

absl::StatusOr<TuningRecord> ReadRecord(const Statement& row) {
  TuningRecord record;
  record.id = row.Int(0);
  record.uuid = row.Bytes(1);
  record.run_id = row.Int(2);
  record.workload_key = row.Bytes(3);
  if (row.IsNull(4)) return Damage("its workload is missing");
  record.workload = row.Bytes(4);
  if (static_cast<uint64_t>(row.Int(36)) != Fnv1a(record.workload))
    return Damage("its workload's checksum does not match");
  record.task_name = row.Bytes(5);
  record.target = row.Bytes(6);
  record.device_model = row.Bytes(7);
  record.device_uuid = row.Bytes(8);
  record.rewrite = row.Bytes(9);
  record.sketch = row.Bytes(10);
  record.schedule = row.Bytes(11);
  std::optional<std::vector<int32_t>> configuration = JsonInt32List(ParseJson(row.Bytes(12)));
  if (!configuration.has_value()) return Damage("its decisions are no list of 32-bit integers");
  record.configuration = *std::move(configuration);
  record.configuration_hash = static_cast<uint64_t>(row.Int(13));
  if (row.IsNull(20)) {
    ASSIGN_OR_RETURN(record.outcome, ReadTiming(row, 14));
  } else {
    ASSIGN_OR_RETURN(record.outcome, ReadError(row, 20, 21, 22));
  }
  if (!row.IsNull(23)) record.predicted = row.Real(23);
  record.seed = static_cast<uint64_t>(row.Int(24));
  record.trial = row.Int(25);
  record.clocks = {static_cast<int32_t>(row.Int(26)), static_cast<int32_t>(row.Int(27)),
                   static_cast<int32_t>(row.Int(28))};
  record.driver = row.Bytes(29);
  record.compiler = row.Bytes(30);
  record.created_at = row.Int(31);
  const std::optional<Verified> verified = ParseVerified(row.Bytes(32));
  if (!verified.has_value()) return Damage("its verification is none of unknown, ok, failed and wrong_in_network");
  record.verified = *verified;
  if (!row.IsNull(33)) record.max_error = row.Real(33);
  record.verify_text = row.Bytes(34);
  if (static_cast<uint64_t>(row.Int(35)) != RecordChecksum(record)) return Damage("its checksum does not match");
  return record;
}

absl::StatusOr<TuningRecord> ReadRecordOf(const Database& db, const Statement& row) {
  absl::StatusOr<TuningRecord> record = ReadRecord(row);
  if (record.ok()) return record;
  return db.Damaged(absl::StrCat("record ", row.Int(0), ": ", std::string(record.status().message())));
}

absl::StatusOr<int64_t> InsertRecord(Statement& insert, const TuningRecord& record) {
  insert.BindText(1, record.uuid);
  if (record.run_id != 0) insert.BindInt(2, record.run_id);
  insert.BindText(3, record.workload_key);
  insert.BindText(4, record.task_name);
  insert.BindText(5, record.target);
  insert.BindText(6, record.device_model);
  insert.BindText(7, record.device_uuid);
  insert.BindText(8, record.rewrite);
  insert.BindText(9, record.sketch);
  insert.BindBlob(10, record.schedule);
  insert.BindText(11, JsonText(record.configuration));
  insert.BindInt(12, static_cast<int64_t>(record.configuration_hash));
  BindOutcome(insert, record.outcome, 13);
  if (record.predicted.has_value()) insert.BindReal(22, *record.predicted);
  insert.BindInt(23, static_cast<int64_t>(record.seed));
  insert.BindInt(24, record.trial);
  insert.BindInt(25, record.clocks.sm_mhz);
  insert.BindInt(26, record.clocks.memory_mhz);
  insert.BindInt(27, record.clocks.cpu_mhz);
  insert.BindText(28, record.driver);
  insert.BindText(29, record.compiler);
  insert.BindInt(30, record.created_at);
  insert.BindText(31, VerifiedName(record.verified));
  if (record.max_error.has_value()) insert.BindReal(32, *record.max_error);
  insert.BindText(33, record.verify_text);
  insert.BindInt(34, static_cast<int64_t>(RecordChecksum(record)));
  return insert.RunForInt();
}

const char* const kUpdateTiming =
    "UPDATE records SET median = ?, samples = ?, raced_out = ?, checksum = ? WHERE id = ?";

absl::Status UpdateTiming(Statement& update, const TuningRecord& record) {
  const Timing& timing = *record.timing();
  update.BindReal(1, MedianSeconds(timing));
  update.BindText(2, JsonText(timing.samples));
  update.BindInt(3, timing.stopped_early ? 1 : 0);
  update.BindInt(4, static_cast<int64_t>(RecordChecksum(record)));
  update.BindInt(5, record.id);
  return update.Run();
}

absl::Status ValidateRecord(const TuningRecord& record) {
  if (!IsUuid(record.uuid)) return absl::InvalidArgumentError("its uuid is not of 32 hexadecimal digits");
  if (record.workload_key.empty()) return absl::InvalidArgumentError("it has no workload key");
  if (record.target.empty()) return absl::InvalidArgumentError("it has no target");
  if (record.device_model.empty()) return absl::InvalidArgumentError("it has no device model");
  if (record.predicted.has_value() && !std::isfinite(*record.predicted))
    return absl::InvalidArgumentError("its predicted score is not finite");
  if (const Timing* timing = record.timing()) return ValidateTiming(*timing);
  return absl::OkStatus();
}

void NormaliseRecord(TuningRecord& record) {
  for (std::string* text :
       {&record.workload_key, &record.task_name, &record.target, &record.device_model, &record.device_uuid,
        &record.rewrite, &record.sketch, &record.driver, &record.compiler, &record.verify_text}) {
    *text = CleanUtf8(*text);
  }
  if (auto* error = std::get_if<MeasureError>(&record.outcome)) error->text = CleanUtf8(error->text);
  if (record.max_error.has_value() && std::isnan(*record.max_error))
    record.max_error = std::numeric_limits<double>::infinity();
  // SQLite has no negative zero; adding zero makes it a positive one.
  if (record.predicted.has_value()) *record.predicted += 0.0;
  if (record.max_error.has_value()) *record.max_error += 0.0;
  if (auto* timing = std::get_if<Timing>(&record.outcome)) {
    timing->build_seconds += 0.0;
    timing->run_seconds += 0.0;
  }
}

uint64_t RecordChecksum(const TuningRecord& record) {
  Fingerprint print;
  for (const std::string* text :
       {&record.uuid, &record.workload_key, &record.task_name, &record.target, &record.device_model,
        &record.device_uuid, &record.rewrite, &record.sketch, &record.schedule, &record.driver, &record.compiler}) {
    print.Add(*text);
  }
  print.Add(static_cast<uint64_t>(record.configuration.size()));
  for (int32_t value : record.configuration) print.Add(int64_t{value});
  print.Add(record.configuration_hash);
  AddOutcome(print, record.outcome);
  print.Add(uint64_t{record.predicted.has_value()});
  print.Add(record.predicted.value_or(0));
  print.Add(record.seed);
  print.Add(record.trial);
  for (int32_t clock : {record.clocks.sm_mhz, record.clocks.memory_mhz, record.clocks.cpu_mhz})
    print.Add(int64_t{clock});
  print.Add(record.created_at);
  return print.Hash();
}

const char* VerifiedName(Verified verified) {
  switch (verified) {
    case Verified::kOk: return "ok";
    case Verified::kFailed: return "failed";
    case Verified::kWrongInNetwork: return "wrong_in_network";
    case Verified::kUnknown: break;
  }
  return "unknown";
}

std::optional<Verified> ParseVerified(const std::string& name) {
  for (Verified verified : {Verified::kUnknown, Verified::kOk, Verified::kFailed, Verified::kWrongInNetwork})
    if (name == VerifiedName(verified)) return verified;
  return std::nullopt;
}

}  // namespace diapason
