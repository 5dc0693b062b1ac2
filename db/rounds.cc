#include "db/rounds.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/tensor/check.h"
#include "db/sqlite.h"

namespace diapason {
namespace {

constexpr int64_t kRoundsApplicationId = 0x44707264;  // "Dprd"
constexpr int64_t kRoundsVersion = 1;
constexpr char kWhat[] = "list of proposals";
constexpr std::chrono::milliseconds kBusy{30000};
// A task has one or two rounds under way; what was lost to faults of workers comes back within these.
constexpr int64_t kRoundsKept = 4;

constexpr char kTable[] = R"(
CREATE TABLE trials(
  id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, workload_key TEXT NOT NULL, target TEXT NOT NULL,
  device_model TEXT NOT NULL, round INTEGER NOT NULL, sketch TEXT NOT NULL, decisions TEXT NOT NULL, predicted REAL
) STRICT;
CREATE INDEX trials_by_run ON trials(run, workload_key, round);
)";

std::optional<std::vector<int32_t>> ParseDecisions(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return std::nullopt;
  std::vector<int32_t> decisions;
  for (const auto& number : json) {
    if (!number.is_number_integer()) return std::nullopt;
    decisions.push_back(number.get<int32_t>());
  }
  return decisions;
}

}  // namespace

RoundStore::RoundStore(std::unique_ptr<Database> db) : db_(std::move(db)) {}
RoundStore::~RoundStore() = default;

absl::StatusOr<std::unique_ptr<RoundStore>> RoundStore::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Database::Open(path, Database::Access::kCreate, kBusy, kWhat));
  RETURN_IF_ERROR(db->Exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"));
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(db.get(), /*for_writing=*/true));
  ASSIGN_OR_RETURN(const int64_t id, db->QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, db->QueryInt("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t tables, db->QueryInt("SELECT count(*) FROM sqlite_master"));
  if (tables == 0) {
    RETURN_IF_ERROR(db->Exec(absl::StrCat(kTable, "PRAGMA application_id=", kRoundsApplicationId,
                                          "; PRAGMA user_version=", kRoundsVersion)));
  } else if (id != kRoundsApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' is not a Diapason ", kWhat, "; name another history"));
  } else if (version != kRoundsVersion) {
    return absl::FailedPreconditionError(absl::StrCat(kWhat, " '", path, "' is of version ", version,
                                                      " and this program writes version ", kRoundsVersion,
                                                      "; run the program that wrote it, or remove the file"));
  }
  RETURN_IF_ERROR(transaction.Commit());
  return std::unique_ptr<RoundStore>(new RoundStore(std::move(db)));
}

absl::Status RoundStore::Add(const std::string& run, const std::vector<ProposedTrial>& trials) {
  if (trials.empty()) return absl::OkStatus();
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(db_.get(), /*for_writing=*/true));
  ASSIGN_OR_RETURN(Statement old, db_->Prepare("DELETE FROM trials WHERE run=? AND workload_key=? AND round<=?"));
  old.BindText(1, run);
  old.BindText(2, trials.front().workload_key);
  old.BindInt(3, trials.front().round - kRoundsKept);
  RETURN_IF_ERROR(old.Run());
  ASSIGN_OR_RETURN(Statement add,
                   db_->Prepare("INSERT INTO trials(run, workload_key, target, device_model, round, sketch, decisions,"
                                " predicted) VALUES(?,?,?,?,?,?,?,?)"));
  for (const ProposedTrial& trial : trials) {
    add.BindText(1, run);
    add.BindText(2, trial.workload_key);
    add.BindText(3, trial.target);
    add.BindText(4, trial.device_model);
    add.BindInt(5, trial.round);
    add.BindText(6, trial.sketch);
    add.BindText(7, nlohmann::json(trial.decisions).dump());
    if (trial.predicted.has_value()) add.BindReal(8, *trial.predicted);
    RETURN_IF_ERROR(add.Run());
  }
  return transaction.Commit();
}

absl::StatusOr<std::vector<ProposedTrial>> RoundStore::Load(const std::string& run) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Statement select, db_->Prepare("SELECT workload_key, target, device_model, round, sketch, decisions,"
                                                  " predicted FROM trials WHERE run=? ORDER BY id"));
  select.BindText(1, run);
  std::vector<ProposedTrial> trials;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return trials;
    ProposedTrial& trial = trials.emplace_back();
    trial.workload_key = select.Bytes(0);
    trial.target = select.Bytes(1);
    trial.device_model = select.Bytes(2);
    trial.round = select.Int(3);
    trial.sketch = select.Bytes(4);
    std::optional<std::vector<int32_t>> decisions = ParseDecisions(select.Bytes(5));
    if (!decisions.has_value()) {
      return absl::DataLossError(absl::StrCat(kWhat, " '", db_->path(),
                                              "' is damaged (decisions are no list of integers); remove the file: what "
                                              "was measured is in the history"));
    }
    trial.decisions = *std::move(decisions);
    if (!select.IsNull(6)) trial.predicted = select.Real(6);
  }
}

absl::Status RoundStore::Forget(const std::string& run) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Statement erase, db_->Prepare("DELETE FROM trials WHERE run=?"));
  erase.BindText(1, run);
  return erase.Run();
}

}  // namespace diapason
