#include "db/json_line.h"

#include <istream>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "db/history_database.h"
#include "db/text.h"

namespace diapason {
namespace {

// No record comes near it; a file without line ends must not fill the memory.
constexpr size_t kMaxLineBytes = size_t{256} << 20;

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
  timing.stopped_early = fields.Bool("raced_out");
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

void ParseConfiguration(Fields& fields, std::vector<int32_t>& configuration) {
  std::optional<std::vector<int32_t>> list = JsonInt32List(fields.List("decisions"));
  if (!list.has_value()) return fields.Complain("'decisions' holds something that is no 32-bit integer");
  configuration = *std::move(list);
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
  record.rewrite = fields.Text("view");
  record.sketch = fields.Text("sketch");
  ParseConfiguration(fields, record.configuration);
  record.configuration_hash = fields.Hex("decision_hash");
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

void ParseRuns(Fields& fields, HistoryLine& line) {
  for (const Json& item : fields.List("runs")) {
    std::string complaint;
    TuningRun run = ParseRun(Fields(item, &complaint));
    if (!complaint.empty()) return fields.Complain(complaint);
    line.runs.push_back(std::move(run));
  }
}

void ParseNetworks(Fields& fields, HistoryLine& line) {
  for (const Json& item : fields.List("networks")) {
    std::string complaint;
    Fields link(item, &complaint);
    NetworkTask task{link.Text("network"), line.workload_key, "", link.Text("task_name"), link.Real("weight")};
    if (!complaint.empty()) return fields.Complain(complaint);
    line.networks.push_back(std::move(task));
  }
}

}  // namespace

absl::StatusOr<HistoryLine> ParseHistoryLine(const std::string& text) {
  const Json json = ParseJson(text);
  if (json.is_discarded()) return absl::InvalidArgumentError("it is no JSON");
  std::string complaint;
  Fields fields(json, &complaint);
  const int64_t format = fields.Int("format");
  if (format != kLineFormat && format != kHeaderFormat)
    fields.Complain(
        absl::StrCat("its format is ", format, " and this program reads ", kLineFormat, " and ", kHeaderFormat));
  HistoryLine line;
  if (fields.Has("workload_key")) {
    line.workload_key = CleanUtf8(fields.Text("workload_key"));
    line.workload = fields.Binary("workload");
    if (line.workload_key.empty() || line.workload.empty()) fields.Complain("its workload is empty");
    if (fields.Has("networks")) ParseNetworks(fields, line);
  }
  if (fields.Has("runs")) ParseRuns(fields, line);
  if (fields.Has("run") && format == kHeaderFormat) {
    line.run_uuid = fields.Text("run");
    if (!IsUuid(line.run_uuid)) fields.Complain("'run' is not of 32 hexadecimal digits");
  } else if (fields.Has("run")) {
    line.run = ParseRun(fields.Object("run"));
  }
  if (fields.Has("uuid") && complaint.empty()) line.record = ParseRecord(fields);
  if (!fields.Has("uuid") && !fields.Has("run") && !fields.Has("runs") && !fields.Has("workload_key"))
    fields.Complain("it holds neither a record nor a run nor a workload");
  if (!complaint.empty()) return absl::InvalidArgumentError(complaint);
  if (line.record.has_value()) RETURN_IF_ERROR(ValidateRecord(*line.record));
  return line;
}

GotLine ReadHistoryLine(std::istream& in, std::string& text) {
  text.clear();
  std::streambuf* buffer = in.rdbuf();
  constexpr int kEof = std::char_traits<char>::eof();
  try {
    int c = buffer->sbumpc();
    if (c == kEof) return GotLine::kEnd;
    for (; c != kEof && c != '\n'; c = buffer->sbumpc()) {
      if (text.size() == kMaxLineBytes) return GotLine::kTooLong;
      text += static_cast<char>(c);
    }
  } catch (const std::ios_base::failure&) {  // of a file's buffer
    return GotLine::kUnreadable;
  }
  return GotLine::kLine;
}

absl::Status UnreadableLines(const std::string& name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' cannot be read to its end: it is a folder, or its disk has an error; name a file of records"));
}

}  // namespace diapason
