#include "db/rounds.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "db/service_tables.h"
#include "db/sqlite.h"

namespace diapason {
namespace {

constexpr int64_t kRoundsApplicationId = 0x44707264;  // "Dprd"
constexpr int64_t kRoundsVersion = 2;
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
// New in version 2.
constexpr char kSearchTables[] = R"(
CREATE TABLE searches(
  run TEXT NOT NULL, workload_key TEXT NOT NULL, target TEXT NOT NULL, device_model TEXT NOT NULL, memory TEXT NOT NULL,
  PRIMARY KEY(run, workload_key, target, device_model)) STRICT;
CREATE TABLE begun(
  run TEXT PRIMARY KEY NOT NULL, workload_key TEXT NOT NULL, target TEXT NOT NULL, device_model TEXT NOT NULL,
  asked INTEGER NOT NULL, known INTEGER NOT NULL, trained INTEGER NOT NULL) STRICT;
CREATE TABLE runs(run TEXT PRIMARY KEY NOT NULL, began INTEGER NOT NULL) STRICT;
)";

// {"rounds": 3, "exhausted": false, "sketches": ["direct/a"], "samples": [[0, 4, 8]], "listed": ["direct/a"], "large":
// []}: of a sample the place of its sketch, and its configuration.
std::string MemoryText(const SearchMemory& memory) {
  std::vector<std::string> sketches;
  Json samples = Json::array();
  for (const auto& [sketch, configuration] : memory.samples) {
    const auto place = std::find(sketches.begin(), sketches.end(), sketch) - sketches.begin();
    if (place == static_cast<std::ptrdiff_t>(sketches.size())) sketches.push_back(sketch);
    Json sample = {place};
    for (int32_t value : configuration) sample.push_back(value);
    samples.push_back(std::move(sample));
  }
  return JsonText({{"rounds", memory.rounds},
                   {"exhausted", memory.exhausted},
                   {"sketches", sketches},
                   {"samples", samples},
                   {"listed", memory.listed},
                   {"large", memory.large}});
}

// False for what MemoryText never wrote.
bool ParseMemory(const std::string& text, SearchMemory* memory) {
  const Json json = ParseJson(text);
  const auto names = [&](const char* key, std::vector<std::string>* all) {
    if (!json.contains(key) || !json[key].is_array()) return false;
    for (const auto& name : json[key]) {
      if (!name.is_string()) return false;
      all->push_back(name.get<std::string>());
    }
    return true;
  };
  std::vector<std::string> sketches;
  if (!json.is_object() || !names("sketches", &sketches) || !names("listed", &memory->listed) ||
      !names("large", &memory->large) || !json.contains("rounds") || !JsonInt(json["rounds"]) ||
      !json.contains("exhausted") || !json["exhausted"].is_boolean() || !json.contains("samples") ||
      !json["samples"].is_array())
    return false;
  memory->rounds = *JsonInt(json["rounds"]);
  memory->exhausted = json["exhausted"].get<bool>();
  for (const auto& sample : json["samples"]) {
    std::optional<std::vector<int32_t>> numbers = JsonInt32List(sample);
    if (!numbers.has_value() || numbers->empty() || (*numbers)[0] < 0 ||
        static_cast<size_t>((*numbers)[0]) >= sketches.size())
      return false;
    memory->samples.emplace_back(sketches[static_cast<size_t>((*numbers)[0])],
                                 std::vector<int32_t>(numbers->begin() + 1, numbers->end()));
  }
  return true;
}

}  // namespace

RoundStore::RoundStore(std::unique_ptr<Database> db, std::string prefix)
    : prefix_(std::move(prefix)), db_(std::move(db)) {}
RoundStore::~RoundStore() = default;

absl::StatusOr<std::unique_ptr<RoundStore>> RoundStore::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> db,
                   SqliteDatabase::Open(path, SqliteDatabase::Access::kCreatePrivate, kBusy, kWhat));
  std::unique_ptr<RoundStore> store(new RoundStore(std::move(db), /*prefix=*/""));
  RETURN_IF_ERROR(store->Prepare());
  return store;
}

std::unique_ptr<RoundStore> RoundStore::OpenShared(std::unique_ptr<Database> db) {
  return std::unique_ptr<RoundStore>(new RoundStore(std::move(db), kServicePrefix));
}

absl::Status RoundStore::Damaged(const Database& db, const char* how) const {
  return absl::DataLossError(
      absl::StrCat(kWhat, " '", db.path(), "' is damaged (", how, "); ",
                   prefix_.empty() ? std::string("remove the file")
                                   : absl::StrCat("delete the rows of ", prefix_, "trials and ", prefix_, "searches"),
                   ": what was measured is in the history"));
}

absl::Status RoundStore::Prepare() {
  MutexLock lock(db_.mu);
  Database& db = *db_.db;
  RETURN_IF_ERROR(db.Exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"));
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&db, /*for_writing=*/true));
  ASSIGN_OR_RETURN(const int64_t id, db.QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t tables, db.QueryInt("SELECT count(*) FROM sqlite_master"));
  const std::string up_to_date = absl::StrCat(kSearchTables, "PRAGMA application_id=", kRoundsApplicationId,
                                              "; PRAGMA user_version=", kRoundsVersion);
  if (tables == 0) {
    RETURN_IF_ERROR(db.Exec(absl::StrCat(kTable, up_to_date)));
  } else if (id != kRoundsApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", db.path(), "' is not a Diapason ", kWhat, "; name another history"));
  } else if (version == 1) {
    RETURN_IF_ERROR(db.Exec(up_to_date));
  } else if (version != kRoundsVersion) {
    return absl::FailedPreconditionError(absl::StrCat(kWhat, " '", db.path(), "' is of version ", version,
                                                      " and this program writes version ", kRoundsVersion,
                                                      "; run the program that wrote it, or remove the file"));
  }
  return transaction.Commit();
}

// In a transaction. A search proposes a candidate once.
absl::Status RoundStore::AddTrials(Database& db, const std::string& run, const std::vector<ProposedTrial>& trials,
                                   bool again) {
  if (trials.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Statement old, db.Prepare(absl::StrCat("DELETE FROM ", prefix_,
                                                          "trials WHERE run=? AND workload_key=? AND round<=?")));
  old.BindText(1, run);
  old.BindText(2, trials.front().workload_key);
  old.BindInt(3, trials.front().round - kRoundsKept);
  RETURN_IF_ERROR(old.Run());
  ASSIGN_OR_RETURN(Statement known,
                   db.Prepare(absl::StrCat("SELECT COUNT(*) FROM ", prefix_,
                                           "trials WHERE run=? AND workload_key=? AND target=? AND device_model=? AND "
                                           "round=? AND sketch=? AND decisions=?")));
  ASSIGN_OR_RETURN(Statement add,
                   db.Prepare(absl::StrCat("INSERT INTO ", prefix_,
                                           "trials(run, workload_key, target, device_model, round, sketch, decisions,"
                                           " predicted) VALUES(?,?,?,?,?,?,?,?)")));
  for (const ProposedTrial& trial : trials) {
    for (Statement* statement : {&known, &add}) {
      statement->BindText(1, run);
      statement->BindText(2, trial.workload_key);
      statement->BindText(3, trial.target);
      statement->BindText(4, trial.device_model);
      statement->BindInt(5, trial.round);
      statement->BindText(6, trial.sketch);
      statement->BindText(7, JsonText(trial.configuration));
    }
    if (again) {
      ASSIGN_OR_RETURN(const int64_t there, known.RunForInt());
      if (there > 0) continue;
    }
    if (trial.predicted.has_value()) add.BindReal(8, *trial.predicted);
    RETURN_IF_ERROR(add.Run());
  }
  return absl::OkStatus();
}

absl::Status RoundStore::Add(const std::string& run, const std::vector<ProposedTrial>& trials) {
  return db_.Writing([&](Database& db, bool again) { return AddTrials(db, run, trials, again); });
}

absl::Status RoundStore::End(const std::string& run, const std::vector<ProposedTrial>& trials,
                             const SearchMemory& memory) {
  return db_.Writing([&](Database& db, bool again) -> absl::Status {
    RETURN_IF_ERROR(AddTrials(db, run, trials, again));
    ASSIGN_OR_RETURN(Statement put,
                     db.Prepare(absl::StrCat("INSERT INTO ", prefix_,
                                             "searches(run, workload_key, target, device_model, memory) "
                                             "VALUES(?,?,?,?,?) ON CONFLICT(run, workload_key, target, device_model) "
                                             "DO UPDATE SET memory=excluded.memory")));
    put.BindText(1, run);
    put.BindText(2, memory.workload_key);
    put.BindText(3, memory.target);
    put.BindText(4, memory.device_model);
    put.BindText(5, MemoryText(memory));
    RETURN_IF_ERROR(put.Run());
    ASSIGN_OR_RETURN(Statement ended, db.Prepare(absl::StrCat("DELETE FROM ", prefix_, "begun WHERE run=?")));
    ended.BindText(1, run);
    return ended.Run();
  });
}

absl::Status RoundStore::Begin(const std::string& run, const BegunSearch& search) {
  return db_.Writing([&](Database& db, bool) -> absl::Status {
    ASSIGN_OR_RETURN(Statement ended, db.Prepare(absl::StrCat("DELETE FROM ", prefix_, "begun WHERE run=?")));
    ended.BindText(1, run);
    RETURN_IF_ERROR(ended.Run());
    ASSIGN_OR_RETURN(Statement put,
                     db.Prepare(absl::StrCat("INSERT INTO ", prefix_,
                                             "begun(run, workload_key, target, device_model, asked, known, trained) "
                                             "VALUES(?,?,?,?,?,?,?)")));
    put.BindText(1, run);
    put.BindText(2, search.workload_key);
    put.BindText(3, search.target);
    put.BindText(4, search.device_model);
    put.BindInt(5, search.asked);
    put.BindInt(6, search.known);
    put.BindInt(7, search.trained);
    return put.Run();
  });
}

absl::StatusOr<int64_t> RoundStore::Began(const std::string& run, int64_t now) {
  int64_t began = now;
  RETURN_IF_ERROR(db_.Writing([&](Database& db, bool) -> absl::Status {
    ASSIGN_OR_RETURN(Statement put, db.Prepare(absl::StrCat("INSERT INTO ", prefix_,
                                                            "runs(run, began) VALUES(?,?) ON CONFLICT DO NOTHING")));
    put.BindText(1, run);
    put.BindInt(2, now);
    RETURN_IF_ERROR(put.Run());
    ASSIGN_OR_RETURN(Statement select, db.Prepare(absl::StrCat("SELECT began FROM ", prefix_, "runs WHERE run=?")));
    select.BindText(1, run);
    ASSIGN_OR_RETURN(began, select.RunForInt());
    return absl::OkStatus();
  }));
  return began;
}

absl::StatusOr<std::optional<BegunSearch>> RoundStore::LoadBegun(const std::string& run) {
  return db_.Reading([&](Database& db) -> absl::StatusOr<std::optional<BegunSearch>> {
    ASSIGN_OR_RETURN(Statement select,
                     db.Prepare(absl::StrCat("SELECT workload_key, target, device_model, asked, known, trained FROM ",
                                             prefix_, "begun WHERE run=?")));
    select.BindText(1, run);
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return std::nullopt;
    return BegunSearch{select.Bytes(0), select.Bytes(1), select.Bytes(2), select.Int(3), select.Int(4), select.Int(5)};
  });
}

absl::StatusOr<std::vector<SearchMemory>> RoundStore::LoadMemories(const std::string& run) {
  return db_.Reading([&](Database& db) -> absl::StatusOr<std::vector<SearchMemory>> {
    ASSIGN_OR_RETURN(Statement select,
                     db.Prepare(absl::StrCat("SELECT workload_key, target, device_model, memory FROM ", prefix_,
                                             "searches WHERE run=?")));
    select.BindText(1, run);
    std::vector<SearchMemory> memories;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, select.Step());
      if (!row) return memories;
      SearchMemory& memory = memories.emplace_back();
      memory.workload_key = select.Bytes(0);
      memory.target = select.Bytes(1);
      memory.device_model = select.Bytes(2);
      if (!ParseMemory(select.Bytes(3), &memory)) return Damaged(db, "what a search remembers does not parse");
    }
  });
}

absl::StatusOr<std::vector<ProposedTrial>> RoundStore::Load(const std::string& run) {
  return db_.Reading([&](Database& db) -> absl::StatusOr<std::vector<ProposedTrial>> {
    ASSIGN_OR_RETURN(Statement select,
                     db.Prepare(absl::StrCat("SELECT workload_key, target, device_model, round, sketch, decisions,"
                                             " predicted FROM ",
                                             prefix_, "trials WHERE run=? ORDER BY id")));
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
      std::optional<std::vector<int32_t>> configuration = JsonInt32List(ParseJson(select.Bytes(5)));
      if (!configuration.has_value()) return Damaged(db, "decisions are no list of integers");
      trial.configuration = *std::move(configuration);
      if (!select.IsNull(6)) trial.predicted = select.Real(6);
    }
  });
}

absl::Status RoundStore::Forget(const std::string& run) {
  return db_.Writing([&](Database& db, bool) -> absl::Status {
    for (const char* table : {"trials", "searches", "begun", "runs"}) {
      ASSIGN_OR_RETURN(Statement erase, db.Prepare(absl::StrCat("DELETE FROM ", prefix_, table, " WHERE run=?")));
      erase.BindText(1, run);
      RETURN_IF_ERROR(erase.Run());
    }
    return absl::OkStatus();
  });
}

}  // namespace diapason
