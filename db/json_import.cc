// Reading the JSON lines that export writes; docs/history.md describes the fields.
#include <algorithm>
#include <istream>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json_int.h"
#include "db/history_impl.h"
#include "db/text.h"
#include "nlohmann/json.hpp"

namespace diapason {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
// No record comes near it; a file without line ends must not fill the memory.
constexpr size_t kMaxLineBytes = size_t{256} << 20;

// What a line holds: a record with its workload, run and links, or a part of these.
struct Line {
  std::optional<TuningRecord> record;
  std::optional<TuningRun> run;
  std::string workload_key, workload;
  std::vector<NetworkTask> networks;
};

// The members of a JSON object; keeps the first complaint.
class Fields {
 public:
  Fields(const Json& json, std::string* complaint) : json_(json), complaint_(complaint) {
    if (!json.is_object()) Complain("it is no JSON object");
  }

  bool Has(const char* name) const { return json_.is_object() && json_.contains(name); }

  std::string Text(const char* name) {
    const Json* value = Find(name, &Json::is_string, "a text");
    return value == nullptr ? "" : value->get<std::string>();
  }
  int64_t Int(const char* name, int64_t min = std::numeric_limits<int64_t>::min(),
              int64_t max = std::numeric_limits<int64_t>::max()) {
    const Json* value = Find(name, &Json::is_number_integer, "an integer");
    if (value == nullptr) return 0;
    const std::optional<int64_t> number = JsonInt(*value, min, max);
    if (!number.has_value()) Complain(absl::StrCat("'", name, "' is out of range"));
    return number.value_or(0);
  }
  uint64_t Unsigned(const char* name) {
    const Json* value = Find(name, &Json::is_number_unsigned, "an unsigned integer");
    return value == nullptr ? 0 : value->get<uint64_t>();
  }
  double Real(const char* name) {
    const Json* value = Find(name, &Json::is_number, "a number");
    return value == nullptr ? 0 : value->get<double>();
  }
  double RealOrInfinity(const char* name) {
    if (!Has(name) || !json_[name].is_string()) return Real(name);
    const std::string text = Text(name);
    if (text != "inf" && text != "-inf") Complain(absl::StrCat("'", name, "' is no number"));
    return text == "-inf" ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  }
  bool Bool(const char* name) {
    const Json* value = Find(name, &Json::is_boolean, "true or false");
    return value != nullptr && value->get<bool>();
  }
  std::string Binary(const char* name) {
    std::optional<std::string> bytes = Base64Decode(Text(name));
    if (!bytes.has_value()) Complain(absl::StrCat("'", name, "' is no base64"));
    return bytes.value_or("");
  }
  uint64_t Hex(const char* name) {
    const std::string text = Text(name);
    if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
      Complain(absl::StrCat("'", name, "' is not of 16 hexadecimal digits"));
      return 0;
    }
    return std::stoull(text, nullptr, 16);
  }
  // The elements of a list; none when it is missing.
  const Json& List(const char* name) {
    static const Json* const none = new Json(Json::array());
    const Json* value = Find(name, &Json::is_array, "a list");
    return value == nullptr ? *none : *value;
  }
  Fields Object(const char* name) {
    static const Json* const none = new Json(Json::object());
    const Json* value = Find(name, &Json::is_object, "an object");
    return Fields(value == nullptr ? *none : *value, complaint_);
  }
  void Complain(const std::string& complaint) {
    if (complaint_->empty()) *complaint_ = complaint;
  }

 private:
  const Json* Find(const char* name, bool (Json::*is)() const noexcept, const char* what) {
    if (Has(name) && (json_[name].*is)()) return &json_[name];
    Complain(absl::StrCat("'", name, "' is ", Has(name) ? "not " : "missing; it is ", what));
    return nullptr;
  }
  const Json& json_;
  std::string* complaint_;
};

Timing ParseTiming(Fields fields) {
  Timing timing;
  for (const Json& sample : fields.List("samples")) {
    if (!sample.is_number()) fields.Complain("'samples' holds something that is no number");
    timing.samples.push_back(sample.is_number() ? sample.get<double>() : 0);
  }
  timing.number = fields.Int("number");
  timing.raced_out = fields.Bool("raced_out");
  timing.build_seconds = fields.Real("build_seconds");
  timing.run_seconds = fields.Real("run_seconds");
  return timing;
}

MeasureError ParseError(Fields fields) {
  MeasureError error;
  const std::optional<ErrorKind> kind = ParseErrorKind(fields.Text("kind"));
  const std::optional<MeasureStage> stage = ParseStage(fields.Text("stage"));
  if (!kind.has_value()) fields.Complain(absl::StrCat("error kind '", fields.Text("kind"), "' is not known"));
  if (!stage.has_value()) fields.Complain(absl::StrCat("error stage '", fields.Text("stage"), "' is not known"));
  error.kind = kind.value_or(ErrorKind::kUnknown);
  error.stage = stage.value_or(MeasureStage::kUnknown);
  error.text = fields.Text("text");
  return error;
}

TuningRun ParseRun(Fields fields) {
  TuningRun run;
  run.uuid = fields.Text("uuid");
  if (!IsUuid(run.uuid)) fields.Complain("the run's 'uuid' is not of 32 hexadecimal digits");
  run.command_line = fields.Text("command_line");
  run.seed = fields.Unsigned("seed");
  run.host = fields.Text("host");
  run.version = fields.Text("version");
  run.started_at = fields.Int("started_at");
  run.ended_at = fields.Int("ended_at");
  return run;
}

void ParseClocks(Fields fields, Clocks& clocks) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  clocks.sm_mhz = static_cast<int32_t>(fields.Int("sm_mhz", 0, kMax));
  clocks.memory_mhz = static_cast<int32_t>(fields.Int("memory_mhz", 0, kMax));
  clocks.cpu_mhz = static_cast<int32_t>(fields.Int("cpu_mhz", 0, kMax));
}

void ParseDecisions(Fields& fields, std::vector<int32_t>& decisions) {
  for (const Json& item : fields.List("decisions")) {
    const std::optional<int64_t> value =
        JsonInt(item, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    if (!value.has_value()) return fields.Complain("'decisions' holds something that is no 32-bit integer");
    decisions.push_back(static_cast<int32_t>(*value));
  }
}

void ParseVerification(Fields& fields, TuningRecord& record) {
  const std::optional<Verified> verified = ParseVerified(fields.Text("verified"));
  if (!verified.has_value()) fields.Complain("'verified' is none of unknown, ok, failed and wrong_in_network");
  record.verified = verified.value_or(Verified::kUnknown);
  if (fields.Has("max_error")) record.max_error = fields.RealOrInfinity("max_error");
  if (fields.Has("verify_text")) record.verify_text = fields.Text("verify_text");
}

TuningRecord ParseRecord(Fields& fields) {
  TuningRecord record;
  record.uuid = fields.Text("uuid");
  record.workload_key = fields.Text("workload_key");
  record.task_name = fields.Text("task_name");
  record.target = fields.Text("target");
  record.device_model = fields.Text("device_model");
  record.device_uuid = fields.Text("device_uuid");
  record.view = fields.Text("view");
  record.sketch = fields.Text("sketch");
  ParseDecisions(fields, record.decisions);
  record.decision_hash = fields.Hex("decision_hash");
  if (fields.Has("timing") == fields.Has("error")) fields.Complain("it has not one of 'timing' and 'error'");
  if (fields.Has("timing")) record.outcome = ParseTiming(fields.Object("timing"));
  if (fields.Has("error")) record.outcome = ParseError(fields.Object("error"));
  if (fields.Has("predicted")) record.predicted = fields.Real("predicted");
  record.seed = fields.Unsigned("seed");
  record.trial = fields.Int("trial");
  ParseClocks(fields.Object("clocks"), record.clocks);
  record.driver = fields.Text("driver");
  record.compiler = fields.Text("compiler");
  record.created_at = fields.Int("created_at");
  ParseVerification(fields, record);
  record.schedule = fields.Binary("schedule");
  NormaliseRecord(record);
  if (fields.Has("checksum") && fields.Hex("checksum") != RecordChecksum(record))
    fields.Complain("its checksum does not match: it was changed");
  return record;
}

void ParseNetworks(Fields& fields, Line& line) {
  for (const Json& item : fields.List("networks")) {
    std::string complaint;
    Fields link(item, &complaint);
    NetworkTask task{link.Text("network"), line.workload_key, "", link.Text("task_name"), link.Real("weight")};
    if (!complaint.empty()) return fields.Complain(complaint);
    line.networks.push_back(std::move(task));
  }
}

// InvalidArgument with the reason alone.
absl::StatusOr<Line> ParseLine(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("it is no JSON");
  std::string complaint;
  Fields fields(json, &complaint);
  if (const int64_t format = fields.Int("format"); format != kFormat)
    fields.Complain(absl::StrCat("its format is ", format, " and this program reads ", kFormat));
  Line line;
  if (fields.Has("workload_key")) {
    line.workload_key = CleanUtf8(fields.Text("workload_key"));
    line.workload = fields.Binary("workload");
    if (line.workload_key.empty() || line.workload.empty()) fields.Complain("its workload is empty");
    if (fields.Has("networks")) ParseNetworks(fields, line);
  }
  if (fields.Has("run")) line.run = ParseRun(fields.Object("run"));
  if (fields.Has("uuid") && complaint.empty()) line.record = ParseRecord(fields);
  if (!fields.Has("uuid") && !fields.Has("run") && !fields.Has("workload_key"))
    fields.Complain("it holds neither a record nor a run nor a workload");
  if (!complaint.empty()) return absl::InvalidArgumentError(complaint);
  if (line.record.has_value()) RETURN_IF_ERROR(ValidateRecord(*line.record));
  return line;
}

// Whether `longer` is the same record as `shorter` after History::AddSamples.
bool Continues(const TuningRecord& longer, TuningRecord shorter) {
  const Timing *more = longer.timing(), *less = shorter.timing();
  if (more == nullptr || less == nullptr || more->samples.size() <= less->samples.size() || more->raced_out)
    return false;
  if (!std::equal(less->samples.begin(), less->samples.end(), more->samples.begin()) || more->number != less->number)
    return false;
  shorter.outcome = longer.outcome;
  return RecordChecksum(shorter) == RecordChecksum(longer);
}

class Importer {
 public:
  static absl::StatusOr<std::unique_ptr<Importer>> Create(Database* db) {
    ASSIGN_OR_RETURN(RecordWriter writer, RecordWriter::Create(db));
    ASSIGN_OR_RETURN(Statement find, db->Prepare("SELECT id, verified, checksum FROM records WHERE uuid = ?"));
    ASSIGN_OR_RETURN(Statement verify, db->Prepare("UPDATE records SET verified = ?, max_error = ?, verify_text = ? "
                                                   "WHERE id = ?"));
    ASSIGN_OR_RETURN(Statement link, db->Prepare("INSERT INTO networks(network, workload_key, task_name, weight) "
                                                 "VALUES(?, ?, ?, ?) ON CONFLICT DO NOTHING"));
    return std::unique_ptr<Importer>(
        new Importer(db, std::move(writer), std::move(find), std::move(verify), std::move(link)));
  }

  // InvalidArgument with the reason alone for a line that contradicts the history; nothing is changed then.
  absl::Status Add(Line& line, ImportReport& report) {
    int64_t known = 0;
    if (line.record.has_value()) {
      ASSIGN_OR_RETURN(known, FindRecord(*line.record, report));
    }
    if (!line.workload_key.empty()) RETURN_IF_ERROR(writer_.StoreWorkload(line.workload_key, line.workload));
    for (const NetworkTask& task : line.networks) RETURN_IF_ERROR(Link(task));
    int64_t run_id = 0;
    if (line.run.has_value()) {
      ASSIGN_OR_RETURN(run_id, FindOrAddRun(*line.run));
    }
    if (!line.record.has_value() || known != 0) return absl::OkStatus();
    line.record->run_id = run_id;
    ++report.added;
    return writer_.Insert(*line.record).status();
  }

 private:
  Importer(Database* db, RecordWriter writer, Statement find, Statement verify, Statement link)
      : db_(db),
        writer_(std::move(writer)),
        find_(std::move(find)),
        verify_(std::move(verify)),
        link_(std::move(link)) {}

  // Its id here, 0 if none. Passes on the verification, and samples that it got since.
  absl::StatusOr<int64_t> FindRecord(const TuningRecord& record, ImportReport& report) {
    find_.Reset();
    find_.BindText(1, record.uuid);
    ASSIGN_OR_RETURN(const bool row, find_.Step());
    const int64_t id = row ? find_.Int(0) : 0;
    const std::string here = row ? find_.Bytes(1) : "";
    const bool same = row && static_cast<uint64_t>(find_.Int(2)) == RecordChecksum(record);
    find_.Reset();
    if (!row) return 0;
    bool gains_samples = false;
    if (!same) {
      ASSIGN_OR_RETURN(gains_samples, GainsSamples(id, record));
    }
    ++report.known;
    const bool first = here == VerifiedName(Verified::kUnknown) && record.verified != Verified::kUnknown;
    // What was found in a network is newer than the verification of the record alone.
    const bool refuted = here == VerifiedName(Verified::kOk) && record.verified == Verified::kWrongInNetwork;
    report.updated += gains_samples || first || refuted ? 1 : 0;
    if (!first && !refuted) return id;
    verify_.BindText(1, VerifiedName(record.verified));
    if (record.max_error.has_value()) verify_.BindReal(2, *record.max_error);
    verify_.BindText(3, record.verify_text);
    verify_.BindInt(4, id);
    RETURN_IF_ERROR(verify_.Run());
    return id;
  }

  // Of a record that differs from the one here: takes its samples if they go on from those here; false if it is the
  // other way round.
  absl::StatusOr<bool> GainsSamples(int64_t id, const TuningRecord& record) {
    TuningRecord here;
    {
      ASSIGN_OR_RETURN(Statement query, db_->Prepare(SelectRecords("WHERE r.id = ?1")));
      query.BindInt(1, id);
      ASSIGN_OR_RETURN(const bool row, query.Step());
      DIAPASON_CHECK(row);
      ASSIGN_OR_RETURN(here, ReadRecordOf(db_->path(), query));
    }
    if (Continues(here, record)) return false;
    if (!Continues(record, here)) return absl::InvalidArgumentError("the history has a different record with its uuid");
    here.outcome = record.outcome;
    ASSIGN_OR_RETURN(Statement update, db_->Prepare(kUpdateTiming));
    RETURN_IF_ERROR(UpdateTiming(update, here));
    return true;
  }

  absl::Status Link(const NetworkTask& task) {
    link_.BindText(1, CleanUtf8(task.network));
    link_.BindText(2, task.workload_key);
    link_.BindText(3, CleanUtf8(task.task_name));
    link_.BindReal(4, task.weight);
    return link_.Run();
  }

  absl::StatusOr<int64_t> FindOrAddRun(const TuningRun& run) {
    const auto cached = runs_.find(run.uuid);
    if (cached != runs_.end()) return cached->second;
    ASSIGN_OR_RETURN(Statement query, db_->Prepare("SELECT id, ended_at FROM runs WHERE uuid = ?"));
    query.BindText(1, run.uuid);
    ASSIGN_OR_RETURN(const bool row, query.Step());
    int64_t id = row ? query.Int(0) : 0;
    const bool gains_end = row && query.Int(1) == 0 && run.ended_at != 0;
    query.Reset();
    if (!row) {
      ASSIGN_OR_RETURN(id, InsertRun(*db_, run));
    }
    if (gains_end)
      RETURN_IF_ERROR(db_->Exec(absl::StrCat("UPDATE runs SET ended_at = ", run.ended_at, " WHERE id = ", id)));
    runs_[run.uuid] = id;
    return id;
  }

  Database* db_;
  RecordWriter writer_;
  Statement find_, verify_, link_;
  std::map<std::string, int64_t> runs_;  // by uuid
};

enum class GotLine { kEnd, kLine, kTooLong };

GotLine NextLine(std::istream& in, std::string& text) {
  text.clear();
  std::streambuf* buffer = in.rdbuf();
  constexpr int kEof = std::char_traits<char>::eof();
  int c = buffer->sbumpc();
  if (c == kEof) return GotLine::kEnd;
  for (; c != kEof && c != '\n'; c = buffer->sbumpc()) {
    if (text.size() == kMaxLineBytes) return GotLine::kTooLong;
    text += static_cast<char>(c);
  }
  return GotLine::kLine;
}

}  // namespace

absl::StatusOr<ImportReport> History::ImportJson(std::istream& in, const std::string& name,
                                                 const ImportOptions& options) {
  absl::MutexLock lock(&impl_->mu);
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(impl_->db.get(), /*for_writing=*/true));
  ASSIGN_OR_RETURN(std::unique_ptr<Importer> importer, Importer::Create(impl_->db.get()));
  ImportReport report;
  std::string text;
  for (GotLine got = NextLine(in, text); got != GotLine::kEnd; got = NextLine(in, text)) {
    ++report.lines;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<Line> line =
        got == GotLine::kTooLong ? absl::InvalidArgumentError("it is too long") : ParseLine(text);
    absl::Status status = line.ok() ? importer->Add(*line, report) : line.status();
    if (status.ok()) continue;
    if (!absl::IsInvalidArgument(status)) return status;
    const std::string problem = absl::StrCat("line ", report.lines, " of '", name, "' is damaged (",
                                             OneLine(std::string(status.message())), ")");
    if (!options.skip_damaged || got == GotLine::kTooLong) {
      return absl::InvalidArgumentError(
          absl::StrCat(problem, "; nothing was imported: correct or remove the line, or give --skip-damaged"));
    }
    report.damaged.push_back(problem);
  }
  RETURN_IF_ERROR(transaction.Commit());
  return report;
}

}  // namespace diapason
