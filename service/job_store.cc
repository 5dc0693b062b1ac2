#include "service/job_store.h"

#include "base/check.h"
#include "db/sqlite.h"
#include "diapason/v1/tuning.pb.h"

namespace diapason {
namespace {

constexpr int64_t kJobsApplicationId = 0x44706a62;  // "Dpjb"
constexpr int64_t kJobsVersion = 1;
constexpr char kWhat[] = "job list";
constexpr std::chrono::milliseconds kBusy{3000};

}  // namespace

JobStore::JobStore(std::unique_ptr<SqliteDatabase> db) : db_(std::move(db)) {}
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
  return std::unique_ptr<JobStore>(new JobStore(std::move(db)));
}

absl::StatusOr<std::vector<v1::Job>> JobStore::Load() {
  ASSIGN_OR_RETURN(Statement select, db_->Prepare("SELECT id, job FROM jobs ORDER BY id"));
  std::vector<v1::Job> jobs;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return jobs;
    v1::Job& job = jobs.emplace_back();
    if (!job.ParseFromString(select.Bytes(1))) {
      return absl::DataLossError(std::string(kWhat) + " '" + db_->path() + "' is damaged (job " +
                                 std::to_string(select.Int(0)) +
                                 " does not parse); move it away to start with a fresh one");
    }
    job.set_id(select.Int(0));
  }
}

absl::Status JobStore::Put(v1::Job& job) {
  ASSIGN_OR_RETURN(Statement put, db_->Prepare(job.id() == 0 ? "INSERT INTO jobs(key, job) VALUES(?,?)"
                                                             : "UPDATE jobs SET key=?, job=? WHERE id=?"));
  put.BindText(1, job.key());
  put.BindBlob(2, job.SerializeAsString());
  if (job.id() != 0) put.BindInt(3, job.id());
  RETURN_IF_ERROR(put.Run());
  if (job.id() == 0) job.set_id(db_->last_id());
  return absl::OkStatus();
}

absl::Status JobStore::Erase(int64_t id) {
  ASSIGN_OR_RETURN(Statement erase, db_->Prepare("DELETE FROM jobs WHERE id=?"));
  erase.BindInt(1, id);
  return erase.Run();
}

}  // namespace diapason
