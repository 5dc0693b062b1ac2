#include "service/job_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "compiler/tensor/check.h"
#include "db/sqlite.h"
#include "diapason/v1/tuning.pb.h"
#include "service/sha256.h"

namespace diapason {
namespace {

constexpr int64_t kJobsApplicationId = 0x44706a62;  // "Dpjb"
constexpr int64_t kJobsVersion = 1;
constexpr char kWhat[] = "job list";
constexpr std::chrono::milliseconds kBusy{3000};

absl::Status WriteError(const std::string& path) {
  return absl::ResourceExhaustedError("cannot write '" + path + "' (" + std::strerror(errno) +
                                      "): free some space on the service's disk and try again");
}

}  // namespace

JobStore::JobStore(std::unique_ptr<Database> db) : db_(std::move(db)) {}
JobStore::~JobStore() = default;

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Database::Open(path, Database::Access::kCreate, kBusy, kWhat));
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
  if (job.id() == 0) job.set_id(sqlite3_last_insert_rowid(db_->handle()));
  return absl::OkStatus();
}

absl::Status JobStore::Erase(int64_t id) {
  ASSIGN_OR_RETURN(Statement erase, db_->Prepare("DELETE FROM jobs WHERE id=?"));
  erase.BindInt(1, id);
  return erase.Run();
}

// ---- models

struct ModelStore::Writer::State {
  std::string hash, path, temporary;
  uint64_t announced = 0, written = 0;
  int fd = -1;
  Sha256 sum;
};

ModelStore::Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ModelStore::Writer::~Writer() {
  if (state_->fd >= 0) close(state_->fd);
  std::error_code ignored;
  std::filesystem::remove(state_->temporary, ignored);
}

bool ModelStore::IsHash(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool ModelStore::Has(const std::string& hash) const { return IsHash(hash) && std::filesystem::exists(PathOf(hash)); }

absl::StatusOr<std::unique_ptr<ModelStore::Writer>> ModelStore::Begin(const std::string& hash, uint64_t bytes) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  static std::atomic<int> number{0};
  auto state = std::make_unique<Writer::State>();
  state->hash = hash;
  state->path = PathOf(hash);
  state->temporary = state->path + ".part-" + std::to_string(getpid()) + "-" + std::to_string(number++);
  state->announced = bytes;
  state->fd = open(state->temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (state->fd < 0) return WriteError(state->temporary);
  return std::unique_ptr<Writer>(new Writer(std::move(state)));
}

absl::Status ModelStore::Writer::Add(const std::string& data) {
  if (state_->written + data.size() > state_->announced) {
    return absl::InvalidArgumentError("the model has more than the " + std::to_string(state_->announced) +
                                      " bytes that were announced");
  }
  for (size_t done = 0; done < data.size();) {
    ssize_t n = write(state_->fd, data.data() + done, data.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WriteError(state_->temporary);
    done += static_cast<size_t>(n);
  }
  state_->written += data.size();
  state_->sum.Add(data.data(), data.size());
  return absl::OkStatus();
}

absl::Status ModelStore::Writer::Finish() {
  if (state_->sum.Hex() != state_->hash) {
    return absl::InvalidArgumentError("the model's content, " + std::to_string(state_->written) +
                                      " bytes, is not what its hash says: send it again");
  }
  if (fsync(state_->fd) != 0) return WriteError(state_->temporary);
  if (rename(state_->temporary.c_str(), state_->path.c_str()) != 0) return WriteError(state_->path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> HashOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return absl::NotFoundError("cannot read '" + path + "' (" + std::strerror(errno) + "): name an .onnx file");
  Sha256 sum;
  std::string chunk(1 << 20, '\0');
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0)
    sum.Add(chunk.data(), static_cast<size_t>(file.gcount()));
  return sum.Hex();
}

}  // namespace diapason
