#include "api/record_sources.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/endpoint.h"
#include "api/import.h"
#include "base/check.h"
#include "db/history.h"
#include "db/history_name.h"
#include "service/fetch.h"
#include "service/records.h"

namespace diapason::api {
namespace {

constexpr size_t kMostFetched = size_t{256} << 20;

// JSON lines begin with an object; a history is a database.
bool IsJsonLines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char first = 0;
  return file >> first && first == '{';
}

// The records of a history; none where there is no such file.
class HistorySource : public RecordSource {
 public:
  explicit HistorySource(std::string path) : path_(std::move(path)) {}
  std::string kind() const override { return "history"; }

  absl::StatusOr<RecordsByWorkload> Read(const std::vector<std::string>& keys, const ResolvedTarget& target,
                                         bool may_differ) override {
    if (!MayBeThere(path_)) return RecordsByWorkload();
    ASSIGN_OR_RETURN(const Opened opened, Open(target, may_differ));
    return RecordsForBuild(*opened.history, keys, opened.device_model, target.target.ToString());
  }

  absl::StatusOr<std::vector<TuningRecord>> Fast(const std::vector<std::string>& keys, const ResolvedTarget& target,
                                                 bool may_differ) override {
    if (!MayBeThere(path_)) return std::vector<TuningRecord>();
    ASSIGN_OR_RETURN(const Opened opened, Open(target, may_differ));
    std::vector<TuningRecord> fast;
    for (const std::string& key : keys) {
      ASSIGN_OR_RETURN(std::vector<TuningRecord> of_key,
                       FastRecords(*opened.history, key, opened.device_model, target.target.ToString()));
      std::move(of_key.begin(), of_key.end(), std::back_inserter(fast));
    }
    return fast;
  }

  std::string Mark(const TuningRecord& record, double max_error, const std::string& evidence) override {
    const absl::StatusOr<std::unique_ptr<::diapason::History>> history =
        ::diapason::History::Open(path_, HistoryMode::kReadWrite);
    const absl::Status marked =
        history.ok() ? (*history)->MarkWrongInNetwork(record.id, max_error, evidence) : history.status();
    return marked.ok() ? "" : absl::StrCat("record ", record.id, " is not marked in the history: ", marked.message());
  }

 private:
  struct Opened {
    std::unique_ptr<::diapason::History> history;
    std::string device_model;  // whose records a build uses
  };
  absl::StatusOr<Opened> Open(const ResolvedTarget& target, bool may_differ) const {
    Opened opened;
    ASSIGN_OR_RETURN(opened.history, ::diapason::History::Open(path_, HistoryMode::kReadOnly));
    ASSIGN_OR_RETURN(opened.device_model,
                     ModelForBuild(*opened.history, target.target.ToString(), target.facts.model, may_differ));
    return opened;
  }

  const std::string path_;
};

// Those of a service, which cannot be marked from here.
class ServedRecords : public RecordSource {
 public:
  explicit ServedRecords(Endpoint service) : service_(std::move(service)) {}
  std::string kind() const override { return "service"; }

  absl::StatusOr<RecordsByWorkload> Read(const std::vector<std::string>& keys, const ResolvedTarget& target,
                                         bool may_differ) override {
    RETURN_IF_ERROR(Connect());
    return client_->ForBuild(keys, target.target.ToString(), target.facts.model, may_differ);
  }

  // Those of the device alone: of another one, the best has to do.
  absl::StatusOr<std::vector<TuningRecord>> Fast(const std::vector<std::string>& keys, const ResolvedTarget& target,
                                                 bool) override {
    RETURN_IF_ERROR(Connect());
    const std::string name = target.target.ToString();
    std::vector<TuningRecord> fast;
    for (const std::string& key : keys) {
      ASSIGN_OR_RETURN(std::vector<TuningRecord> of_key,
                       client_->Query({name, key, target.facts.model, ""}, kFastRecords));
      KeepTarget(name, of_key);
      std::move(of_key.begin(), of_key.end(), std::back_inserter(fast));
    }
    return fast;
  }

  std::string Mark(const TuningRecord& record, double, const std::string&) override {
    return absl::StrCat("record ", record.id,
                        " is the service's and cannot be marked from here; `diapason submit` of the network "
                        "has the service check and mark it");
  }

 private:
  absl::Status Connect() {
    if (client_ != nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(client_, ConnectService(service_));
    return absl::OkStatus();
  }

  const Endpoint service_;
  std::unique_ptr<ServiceClient> client_;
};

// The records of files, which are only read.
class CollectionSource : public RecordSource {
 public:
  CollectionSource(std::string kind, std::string what) : kind_(std::move(kind)), what_(std::move(what)) {}
  CollectionSource(std::string kind, std::string what, RecordCollection records)
      : kind_(std::move(kind)), what_(std::move(what)), records_(std::move(records)) {}
  std::string kind() const override { return kind_; }

  absl::StatusOr<RecordsByWorkload> Read(const std::vector<std::string>& keys, const ResolvedTarget& target,
                                         bool) override {
    RETURN_IF_ERROR(LoadOnce(target));
    return records_->Best(keys, target);
  }

  absl::StatusOr<std::vector<TuningRecord>> Fast(const std::vector<std::string>& keys, const ResolvedTarget& target,
                                                 bool) override {
    RETURN_IF_ERROR(LoadOnce(target));
    return records_->OfNearestDevice(keys, target);
  }

  std::string Mark(const TuningRecord& record, double, const std::string&) override {
    records_->Remove(record.uuid);  // so that the next best takes its place
    return absl::StrCat("record ", record.uuid, " of ", record.task_name, " ", what_);
  }

 private:
  // What the first Read begins with, of a source that was made without records.
  virtual absl::StatusOr<RecordCollection> Load(const ResolvedTarget&) { return RecordCollection(); }
  absl::Status LoadOnce(const ResolvedTarget& target) {
    if (records_.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(records_, Load(target));
    return absl::OkStatus();
  }

  const std::string kind_, what_;
  std::optional<RecordCollection> records_;
};

// Read when a workload has no record in the sources before.
class ShippedRecords : public CollectionSource {
 public:
  ShippedRecords()
      : CollectionSource("shipped",
                         "comes with Diapason and cannot be marked; this build does without it, please report it") {}

 private:
  absl::StatusOr<RecordCollection> Load(const ResolvedTarget& target) override {
    return RecordCollection::Shipped(ShippedRecordsFolder(Program()), target);
  }
};

absl::StatusOr<std::unique_ptr<RecordSource>> FileSource(std::istream& in, const std::string& name) {
  RecordCollection records;
  RETURN_IF_ERROR(records.Read(in, name));
  return std::make_unique<CollectionSource>(
      "file", absl::StrCat("is of ", name, ", where it cannot be marked; this build does without it"),
      std::move(records));
}

}  // namespace

bool IsHistory(const std::string& history) {
  return !IsWebAddress(history) && (IsPostgresUri(history) || !IsJsonLines(history));
}

absl::StatusOr<std::unique_ptr<RecordSource>> OpenRecordSource(const std::string& history) {
  if (IsWebAddress(history)) {
    ASSIGN_OR_RETURN(std::string content, FetchUrl(history, kMostFetched));
    std::istringstream in(std::move(content));
    return FileSource(in, ShownAddress(history));
  }
  if (!IsJsonLines(history)) return std::make_unique<HistorySource>(history);
  std::ifstream in(history, std::ios::binary);
  return FileSource(in, history);
}

std::unique_ptr<RecordSource> ServiceSource(const Endpoint& service) {
  return std::make_unique<ServedRecords>(service);
}

std::unique_ptr<RecordSource> ShippedSource() { return std::make_unique<ShippedRecords>(); }

absl::StatusOr<RecordsByWorkload> RecordSources::Read(const std::vector<std::string>& workload_keys,
                                                      const ResolvedTarget& target, bool may_differ,
                                                      const std::set<std::string>& refuted) {
  RecordsByWorkload found;
  std::vector<std::string> missing = workload_keys;
  for (const std::unique_ptr<RecordSource>& source : sources_) {
    if (missing.empty()) break;
    ASSIGN_OR_RETURN(const RecordsByWorkload records, source->Read(missing, target, may_differ));
    for (const auto& [key, record] : records) {
      if (refuted.contains(record.uuid)) continue;
      source_of_.emplace(record.uuid, source.get());
      // One that was not verified stands in for none, so that the user is warned.
      const auto [known, added] = found.emplace(key, record);
      if (!added && record.verified == Verified::kOk) known->second = record;
    }
    std::erase_if(missing, [&](const std::string& key) {
      const auto known = found.find(key);
      return known != found.end() && known->second.verified == Verified::kOk;
    });
  }
  return found;
}

absl::StatusOr<ContendersByWorkload> RecordSources::Contenders(const RecordsByWorkload& best,
                                                               const ResolvedTarget& target, bool may_differ,
                                                               const std::set<std::string>& refuted) {
  std::vector<std::string> keys;
  for (const auto& [key, record] : best) keys.push_back(key);
  std::map<std::string, std::vector<TuningRecord>> fast;
  for (const std::unique_ptr<RecordSource>& source : sources_) {
    ASSIGN_OR_RETURN(std::vector<TuningRecord> records, source->Fast(keys, target, may_differ));
    for (TuningRecord& one : records) {
      if (one.verified != Verified::kOk || refuted.contains(one.uuid)) continue;
      source_of_.emplace(one.uuid, source.get());
      fast[one.workload_key].push_back(std::move(one));
    }
  }
  ContendersByWorkload contenders;
  for (const auto& [key, record] : best) contenders.emplace(key, ContendersOf(record, std::move(fast[key])));
  return contenders;
}

}  // namespace diapason::api
