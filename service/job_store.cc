#include "service/job_store.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/database.h"
#include "db/service_tables.h"
#include "db/sqlite.h"
#include "diapason/v1/tuning.pb.h"

namespace diapason {
namespace {

constexpr int64_t kJobsApplicationId = 0x44706a62;  // "Dpjb"
constexpr int64_t kJobsVersion = 1;
constexpr char kWhat[] = "job list";
constexpr std::chrono::milliseconds kBusy{3000};

}  // namespace

JobStore::JobStore(std::unique_ptr<Database> db, const std::string& prefix)
    : table_(prefix + "jobs"), db_(std::move(db)) {}
JobStore::~JobStore() = default;

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> db,
                   SqliteDatabase::Open(path, SqliteDatabase::Access::kCreatePrivate, kBusy, kWhat));
  RETURN_IF_ERROR(db->Exec("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"));
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(db.get(), /*for_writing=*/true));
  ASSIGN_OR_RETURN(const int64_t id, db->QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, db->QueryInt("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t tables, db->QueryInt("SELECT count(*) FROM sqlite_master"));
  if (tables == 0) {
    RETURN_IF_ERROR(db->Exec(
        "CREATE TABLE jobs(id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, job BLOB NOT NULL) STRICT;"
        "PRAGMA application_id=" +
        std::to_string(kJobsApplicationId) + "; PRAGMA user_version=" + std::to_string(kJobsVersion)));
  } else if (id != kJobsApplicationId) {
    return absl::FailedPreconditionError("'" + path + "' is not a Diapason job list; name another history");
  } else if (version != kJobsVersion) {
    return absl::FailedPreconditionError("job list '" + path + "' is of version " + std::to_string(version) +
                                         " and this program writes version " + std::to_string(kJobsVersion) +
                                         "; run the program that wrote it");
  }
  RETURN_IF_ERROR(transaction.Commit());
  return std::unique_ptr<JobStore>(new JobStore(std::move(db), /*prefix=*/""));
}

std::unique_ptr<JobStore> JobStore::OpenShared(std::unique_ptr<Database> db) {
  return std::unique_ptr<JobStore>(new JobStore(std::move(db), kServicePrefix));
}

absl::StatusOr<std::vector<v1::Job>> JobStore::Load() {
  return ReadTransaction(*db_, [&]() -> absl::StatusOr<std::vector<v1::Job>> {
    ASSIGN_OR_RETURN(Statement select, db_->Prepare(absl::StrCat("SELECT id, job FROM ", table_, " ORDER BY id")));
    std::vector<v1::Job> jobs;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, select.Step());
      if (!row) return jobs;
      v1::Job& job = jobs.emplace_back();
      if (!job.ParseFromString(select.Bytes(1))) {
        return absl::DataLossError(absl::StrCat(kWhat, " '", db_->path(), "' is damaged (job ", select.Int(0),
                                                " does not parse); ",
                                                std::string(table_ == "jobs" ? "move it away to start with a fresh one"
                                                                             : "delete its row of service_jobs")));
      }
      job.set_id(select.Int(0));
    }
  });
}

absl::Status JobStore::Put(v1::Job& job) {
  int64_t id = job.id();
  RETURN_IF_ERROR(WriteTransaction(*db_, [&](bool again) -> absl::Status {
    if (again && job.id() == 0) {
      ASSIGN_OR_RETURN(Statement known, db_->Prepare(absl::StrCat("SELECT id FROM ", table_, " WHERE key=?")));
      known.BindText(1, job.key());
      ASSIGN_OR_RETURN(id, known.RunForInt());
    }
    const bool is_new = id == 0;
    ASSIGN_OR_RETURN(Statement put,
                     db_->Prepare(is_new ? absl::StrCat("INSERT INTO ", table_, "(key, job) VALUES(?,?) RETURNING id")
                                         : absl::StrCat("UPDATE ", table_, " SET key=?, job=? WHERE id=?")));
    put.BindText(1, job.key());
    put.BindBlob(2, job.SerializeAsString());
    if (!is_new) put.BindInt(3, id);
    ASSIGN_OR_RETURN(const int64_t given, put.RunForInt());
    if (is_new) id = given;
    return absl::OkStatus();
  }));
  job.set_id(id);
  return absl::OkStatus();
}

absl::Status JobStore::Erase(int64_t id) {
  return WriteTransaction(*db_, [&](bool) -> absl::Status {
    ASSIGN_OR_RETURN(Statement erase, db_->Prepare(absl::StrCat("DELETE FROM ", table_, " WHERE id=?")));
    erase.BindInt(1, id);
    return erase.Run();
  });
}

}  // namespace diapason
