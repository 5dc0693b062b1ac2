#include "service/record_collection.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/tensor/serialize.h"
#include "compiler/tensor/target.h"

namespace diapason {
namespace {

constexpr double kOtherModel = 1;

// REQUIRES: both are of the same kind.
std::optional<double> GpuDistance(const Target& recorded, const Target& wanted, bool same_model) {
  if (recorded.arch != wanted.arch || (wanted.strict_fp32 && !recorded.strict_fp32) || recorded.tf32 > wanted.tf32)
    return std::nullopt;
  // What an OpenCL device is good at, its target does not say.
  if (recorded.kind == TargetKind::kOpenCl && !same_model) return std::nullopt;
  const auto offered = [&](const std::string& lib) {
    return std::find(wanted.libs.begin(), wanted.libs.end(), lib) != wanted.libs.end();
  };
  if (!std::all_of(recorded.libs.begin(), recorded.libs.end(), offered)) return std::nullopt;
  return same_model ? 0 : kOtherModel;
}

std::optional<double> CpuDistance(const Target& recorded, const ResolvedTarget& wanted, bool same_model) {
  // "native" says nothing of the machine but its model.
  const bool native = recorded.mcpu == Target().mcpu;
  if (native && (!same_model || wanted.target.mcpu != recorded.mcpu)) return std::nullopt;
  if (!native && DefaultFacts(recorded).vector_bytes != wanted.facts.vector_bytes) return std::nullopt;
  const double cores = std::max(recorded.num_cores, 1), here = std::max(wanted.facts.num_cores, 1);
  return (same_model ? 0 : kOtherModel) + std::abs(std::log2(cores / here));
}

std::vector<Tuned> WorthHandingOn(const std::vector<const TuningRecord*>& ranked) {
  FewTuned few;
  for (size_t i = 0; i < ranked.size() && !few.full(); ++i) few.Offer(ranked[i]->sketch, ranked[i]->configuration);
  return few.tuned();
}

// By workload, the best for `wanted` first; of the workloads in `keys`, or of all where there are none.
std::map<std::string, std::vector<const TuningRecord*>> Ranked(const std::vector<RecordCollection::Entry>& entries,
                                                               const ResolvedTarget& wanted,
                                                               const std::set<std::string>& keys = {}) {
  using Place = std::tuple<double, bool, double>;
  std::map<std::string, std::vector<std::pair<Place, const TuningRecord*>>> places;
  for (const RecordCollection::Entry& entry : entries) {
    const TuningRecord& record = entry.record;
    if (!keys.empty() && !keys.contains(record.workload_key)) continue;
    const std::optional<double> distance = DeviceDistance(record, wanted);
    if (!distance.has_value()) continue;
    places[record.workload_key].push_back(
        {{*distance, record.timing()->stopped_early, MedianSeconds(*record.timing())}, &record});
  }
  std::map<std::string, std::vector<const TuningRecord*>> ranked;
  for (auto& [key, records] : places) {
    std::stable_sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [place, record] : records) ranked[key].push_back(record);
  }
  return ranked;
}

}  // namespace

std::optional<double> DeviceDistance(const TuningRecord& record, const ResolvedTarget& wanted) {
  const absl::StatusOr<Target> recorded = Target::Parse(record.target);
  if (!recorded.ok() || recorded->kind != wanted.target.kind || recorded->caches != wanted.target.caches)
    return std::nullopt;
  const bool same_model = record.device_model == wanted.facts.model;
  return recorded->is_gpu() ? GpuDistance(*recorded, wanted.target, same_model)
                            : CpuDistance(*recorded, wanted, same_model);
}

std::string ShippedRecordsFolder(const std::string& program) {
  if (const char* named = std::getenv("DIAPASON_RECORDS")) return named;
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(program, error);
  if (error) return "";
  const std::filesystem::path folder = file.parent_path().parent_path() / "share" / "diapason" / "records";
  return std::filesystem::is_directory(folder, error) ? folder.string() : "";
}

std::vector<std::string> RecordFiles(const std::string& folder, const std::string& kind) {
  std::vector<std::string> files;
  std::error_code error;
  std::filesystem::directory_iterator entry(std::filesystem::path(folder) / kind, error), end;
  for (; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".jsonl") files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  return files;
}

absl::Status ReadUsableRecords(std::istream& in, const std::string& name,
                               const std::function<void(HistoryLine line, const std::string& text)>& take) {
  std::string text;
  int64_t number = 0;
  std::map<std::string, TuningRun> runs;  // of headers, by uuid
  const auto damaged = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("line ", number, " of '", name, "' is damaged (", why,
                                                   "); correct or remove the line, or name another file"));
  };
  for (GotLine got = ReadHistoryLine(in, text); got != GotLine::kEnd; got = ReadHistoryLine(in, text)) {
    ++number;
    if (got == GotLine::kTooLong) return damaged("it is too long");
    if (got == GotLine::kUnreadable) return UnreadableLines(name);
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<HistoryLine> line = ParseHistoryLine(text);
    if (!line.ok()) return damaged(line.status().message());
    for (TuningRun& run : line->runs) runs[run.uuid] = std::move(run);
    if (const auto run = runs.find(line->run_uuid); run != runs.end()) line->run = run->second;
    if (!line->record.has_value() || line->record->timing() == nullptr) continue;
    if (line->record->verified == Verified::kOk) take(*std::move(line), text);
  }
  return absl::OkStatus();
}

absl::StatusOr<RecordCollection> RecordCollection::Shipped(const std::string& folder, const ResolvedTarget& wanted) {
  RecordCollection shipped;
  if (folder.empty()) return shipped;
  const std::string text = wanted.target.ToString();
  for (const std::string& file : RecordFiles(folder, text.substr(0, text.find(' ')))) {
    std::ifstream in(file, std::ios::binary);
    if (!in)
      return absl::PermissionDeniedError(absl::StrCat(
          "the records in '", file, "' cannot be read; let this user read them, or give --no-shipped-records"));
    RETURN_IF_ERROR(shipped.Read(in, file));
  }
  shipped.Keep(wanted);
  return shipped;
}

absl::Status RecordCollection::Read(std::istream& in, const std::string& name) {
  return ReadUsableRecords(in, name, [&](HistoryLine line, const std::string&) {
    Entry entry{*std::move(line.record), std::move(line.networks), std::move(line.run)};
    entry.record.workload = std::move(line.workload);
    entry.record.id = static_cast<int64_t>(entries_.size()) + 1;
    entries_.push_back(std::move(entry));
  });
}

void RecordCollection::Keep(const ResolvedTarget& wanted) {
  std::erase_if(entries_, [&](const Entry& entry) { return !DeviceDistance(entry.record, wanted).has_value(); });
}

void RecordCollection::Remove(const std::string& uuid) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.record.uuid == uuid; });
}

RecordsByWorkload RecordCollection::Best(const std::vector<std::string>& workload_keys,
                                         const ResolvedTarget& wanted) const {
  RecordsByWorkload best;
  if (workload_keys.empty()) return best;
  for (const auto& [key, records] : Ranked(entries_, wanted, {workload_keys.begin(), workload_keys.end()}))
    best.emplace(key, *records.front());
  return best;
}

std::vector<TuningRecord> RecordCollection::OfNearestDevice(const std::vector<std::string>& workload_keys,
                                                            const ResolvedTarget& wanted) const {
  std::vector<TuningRecord> nearest;
  if (workload_keys.empty()) return nearest;
  for (const auto& [key, records] : Ranked(entries_, wanted, {workload_keys.begin(), workload_keys.end()}))
    for (const TuningRecord* record : records)
      if (DeviceDistance(*record, wanted) == DeviceDistance(*records.front(), wanted)) nearest.push_back(*record);
  return nearest;
}

std::vector<TunedWorkload> RecordCollection::ForSearch(const ResolvedTarget& wanted) const {
  std::vector<TunedWorkload> workloads;
  for (const auto& [key, records] : Ranked(entries_, wanted)) {
    const absl::StatusOr<ComputeDag> dag = ParseDag(records.front()->workload);
    if (dag.ok()) workloads.push_back({ShapeOf(*dag), WorthHandingOn(records), key});  // else: of a newer version
  }
  return workloads;
}

}  // namespace diapason
