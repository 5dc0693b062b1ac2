#include "db/sqlite.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

// Paths go to SQLite as URIs, since a bare "" or ":memory:" would not be a file.
std::string FileUri(const std::string& path, bool immutable) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::error_code ignored;
  const std::string absolute = std::filesystem::absolute(path, ignored).string();
  std::string uri = "file://";
  for (unsigned char c : absolute) {
    if (std::isalnum(c) || std::strchr("/-_.~", c) != nullptr) {
      uri += static_cast<char>(c);
    } else {
      uri += '%';
      uri += kHex[c >> 4];
      uri += kHex[c & 15];
    }
  }
  return immutable ? uri + "?immutable=1" : uri;
}

std::string Seconds(std::chrono::milliseconds time) {
  return absl::StrCat(static_cast<double>(time.count()) / 1e3, " s");
}

bool NoRoom(int code, int system_errno) {
  if ((code & 0xff) == SQLITE_FULL) return true;
  return (code & 0xff) == SQLITE_IOERR && (system_errno == ENOSPC || system_errno == EDQUOT || system_errno == EFBIG);
}

bool Busy(int code) { return (code & 0xff) == SQLITE_BUSY || (code & 0xff) == SQLITE_LOCKED; }

void Harden(sqlite3* db) {
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_FKEY, 1, nullptr);
}

}  // namespace

absl::Status DamagedError(const std::string& path, const std::string& how) {
  return absl::DataLossError(absl::StrCat("history '", path, "' is damaged (", how,
                                          "); restore a copy of it, or save what can still be read with 'diapason "
                                          "history export --skip-damaged ",
                                          path, "' and import that into a new file"));
}

absl::Status ReadOnlyError(const std::string& path) {
  return absl::PermissionDeniedError(
      absl::StrCat("history '", path,
                   "' cannot be written; give yourself write permission for the file and "
                   "its folder, or name another file"));
}

namespace {

class SqliteStatement final : public Statement::Impl {
 public:
  SqliteStatement(const SqliteDatabase* db, sqlite3_stmt* stmt) : db_(db), stmt_(stmt) {}

  void BindInt(int parameter, int64_t value) override { sqlite3_bind_int64(stmt_.get(), parameter, value); }
  void BindReal(int parameter, double value) override { sqlite3_bind_double(stmt_.get(), parameter, value); }
  void BindBytes(int parameter, std::string_view bytes, bool text, bool borrowed) override {
    const sqlite3_destructor_type lifetime = borrowed ? SQLITE_STATIC : SQLITE_TRANSIENT;
    if (text) {
      sqlite3_bind_text64(stmt_.get(), parameter, bytes.data(), bytes.size(), lifetime, SQLITE_UTF8);
    } else {
      sqlite3_bind_blob64(stmt_.get(), parameter, bytes.data(), bytes.size(), lifetime);
    }
  }
  void BindNull(int parameter) override { sqlite3_bind_null(stmt_.get(), parameter); }

  absl::StatusOr<bool> Step() override {
    errno = 0;
    code_ = sqlite3_step(stmt_.get());
    if (code_ == SQLITE_ROW) return true;
    if (code_ == SQLITE_DONE) return false;
    return db_->Error(code_);
  }
  void Reset() override {
    sqlite3_reset(stmt_.get());
    sqlite3_clear_bindings(stmt_.get());
  }
  int parameters() const override { return sqlite3_bind_parameter_count(stmt_.get()); }
  Statement::Broken broken() const override {
    if (code_ == SQLITE_CONSTRAINT_UNIQUE) return Statement::Broken::kUnique;
    return code_ == SQLITE_CONSTRAINT_FOREIGNKEY ? Statement::Broken::kForeignKey : Statement::Broken::kNone;
  }
  std::string why() const override { return sqlite3_errstr(code_); }

  int64_t Int(int column) const override { return sqlite3_column_int64(stmt_.get(), column); }
  double Real(int column) const override { return sqlite3_column_double(stmt_.get(), column); }
  std::string Bytes(int column) const override {
    const void* data = sqlite3_column_blob(stmt_.get(), column);
    const int size = sqlite3_column_bytes(stmt_.get(), column);
    return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
  }
  bool IsNull(int column) const override { return sqlite3_column_type(stmt_.get(), column) == SQLITE_NULL; }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* stmt) const { sqlite3_finalize(stmt); }
  };
  const SqliteDatabase* db_;
  std::unique_ptr<sqlite3_stmt, Finalize> stmt_;
  int code_ = SQLITE_OK;
};

}  // namespace

namespace {

// By name and not by a descriptor: closing one would give up the locks that other connections of this process have. The
// logs get the mode of the file from SQLite. What fails shows when SQLite opens it.
void MakePrivate(const std::string& path) {
  if (mknod(path.c_str(), S_IFREG | 0600, 0) == 0) return;
  for (const char* ending : {"", "-wal", "-shm", "-journal"}) {
    struct stat info {};
    const std::string file = path + ending;
    const bool ours = lstat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
    if (ours && (info.st_mode & 077) != 0) chmod(file.c_str(), info.st_mode & 0700);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::OpenUri(const std::string& path, const std::string& uri,
                                                                        int flags,
                                                                        std::chrono::milliseconds busy_timeout,
                                                                        const std::string& what) {
  std::unique_ptr<SqliteDatabase> db(new SqliteDatabase(path, what, busy_timeout));
  sqlite3* handle = nullptr;
  errno = 0;
  const int code = sqlite3_open_v2(uri.c_str(), &handle,
                                   flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI | SQLITE_OPEN_EXRESCODE, nullptr);
  db->db_.reset(handle);
  if (code != SQLITE_OK) return db->Error(code);
  sqlite3_busy_timeout(handle, static_cast<int>(busy_timeout.count()));
  Harden(handle);
  return db;
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path, Access access,
                                                                     std::chrono::milliseconds busy_timeout,
                                                                     const std::string& what) {
  int flags = access == Access::kImmutable ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  if (access == Access::kCreate || access == Access::kCreatePrivate) flags |= SQLITE_OPEN_CREATE;
  if (access == Access::kCreatePrivate) MakePrivate(path);
  return OpenUri(path, FileUri(path, access == Access::kImmutable), flags, busy_timeout, what);
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::OpenInMemory(const std::string& path,
                                                                             std::chrono::milliseconds busy_timeout) {
  return OpenUri(path, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, busy_timeout, kHistory);
}

absl::Status SqliteDatabase::CopyTo(SqliteDatabase& target) {
  sqlite3_backup* backup = sqlite3_backup_init(target.handle(), "main", handle(), "main");
  if (backup == nullptr) return target.Error(sqlite3_extended_errcode(target.handle()));
  int code = SQLITE_BUSY;
  const auto deadline = std::chrono::steady_clock::now() + busy_;
  while (Busy(code) && std::chrono::steady_clock::now() < deadline) code = sqlite3_backup_step(backup, -1);
  const int finished = sqlite3_backup_finish(backup);
  if (code != SQLITE_DONE) return target.Error(finished != SQLITE_OK ? finished : code);
  return absl::OkStatus();
}

absl::Status SqliteDatabase::Exec(const std::string& sql) {
  errno = 0;
  const int code = sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<Statement> SqliteDatabase::Prepare(const std::string& sql) {
  sqlite3_stmt* stmt = nullptr;
  const int code = sqlite3_prepare_v2(db_.get(), sql.c_str(), static_cast<int>(sql.size()), &stmt, nullptr);
  if (code != SQLITE_OK) return Error(code);
  return Statement(std::make_unique<SqliteStatement>(this, stmt));
}

absl::StatusOr<int64_t> SqliteDatabase::Bytes() {
  // Of the pages: the size of the file once its log is written back.
  ASSIGN_OR_RETURN(const int64_t pages, QueryInt("PRAGMA page_count"));
  ASSIGN_OR_RETURN(const int64_t page_bytes, QueryInt("PRAGMA page_size"));
  return pages * page_bytes;
}

absl::Status SqliteDatabase::Compact() {
  RETURN_IF_ERROR(Exec("VACUUM"));
  (void)Exec("PRAGMA wal_checkpoint(TRUNCATE)");  // gives the room back now, unless a reader needs the log
  return absl::OkStatus();
}

void SqliteDatabase::CheckStorage(size_t most, const std::function<void(const std::string&)>& problem) {
  const auto for_each = [&](const std::string& sql, const char* what, const auto& visit) {
    absl::StatusOr<Statement> query = Prepare(sql);
    absl::StatusOr<bool> row = query.ok() ? query->Step() : absl::StatusOr<bool>(query.status());
    for (; row.ok() && *row; row = query->Step()) visit(*query);
    if (!row.ok()) problem(absl::StrCat(what, " cannot be read: ", sqlite3_errmsg(handle())));
  };
  for_each(absl::StrCat("PRAGMA integrity_check(", most, ")"), "the database", [&](const Statement& row) {
    std::string line = row.Bytes(0);
    for (char& c : line)
      if (c == '\n') c = ' ';
    if (line != "ok") problem(absl::StrCat("the database: ", line));
  });
  for_each("PRAGMA foreign_key_check", "the links between tables", [&](const Statement& row) {
    problem(
        absl::StrCat("row ", row.Int(1), " of ", row.Bytes(0), " names one of ", row.Bytes(2), " that is not there"));
  });
}

absl::Status SqliteDatabase::Begin(bool for_writing) {
  // A deferred BEGIN takes no lock; reading the schema's version does, and fixes the snapshot.
  const char* sql = for_writing ? "BEGIN IMMEDIATE" : "BEGIN; PRAGMA schema_version";
  const auto deadline = std::chrono::steady_clock::now() + busy_;
  while (true) {
    errno = 0;
    const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
    if (code == SQLITE_OK) return absl::OkStatus();
    absl::Status error = Error(code);
    if (in_transaction()) sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
    if (!Busy(code) || std::chrono::steady_clock::now() >= deadline) return error;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

absl::Status SqliteDatabase::Damaged(const std::string& how) const {
  if (salvaging_)
    return absl::DataLossError(absl::StrCat(what_, " '", path_, "' is damaged (", how, "); restore a copy of it"));
  if (what_ == kHistory) return DamagedError(path_, how);
  return absl::DataLossError(
      absl::StrCat(what_, " '", path_, "' is damaged (", how, "); move it away to start with a fresh one"));
}

absl::Status SqliteDatabase::ReadCutFile() {
  // SQLite reads a file with fewer pages than its header says only where the schema may be edited, which defensive mode
  // does not allow. query_only keeps it from being edited.
  RETURN_IF_ERROR(Exec("PRAGMA query_only=ON"));
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_DEFENSIVE, 0, nullptr);
  return Exec("PRAGMA writable_schema=ON");
}

absl::Status SqliteDatabase::Error(int code) const {
  const int last_errno = errno;  // SQLite does not keep that of every failed write
  int system_errno = db_ == nullptr ? 0 : sqlite3_system_errno(db_.get());
  if (system_errno == 0) system_errno = last_errno;
  const char* text = db_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db_.get());
  if (NoRoom(code, system_errno)) {
    return absl::ResourceExhaustedError(absl::StrCat("there is no room to write ", what_, " '", path_,
                                                     "'; free space on its disk and try again: everything reported "
                                                     "before is kept"));
  }
  if (Busy(code)) {
    return absl::UnavailableError(absl::StrCat(what_, " '", path_, "' was locked by another process for ",
                                               Seconds(busy_), "; wait for that process or stop it, then try again"));
  }
  switch (code & 0xff) {
    case SQLITE_NOTADB:
      return absl::FailedPreconditionError(
          absl::StrCat("'", path_, "' is not a Diapason ", what_, " (it is no SQLite database); name another file"));
    case SQLITE_CORRUPT:
    case SQLITE_ERROR:  // our own statements are right: the tables are not those of the version that the file claims
      return Damaged(text);
    case SQLITE_READONLY:
      return absl::PermissionDeniedError(absl::StrCat(
          what_, " '", path_,
          "' cannot be written; give yourself write permission for the file and its folder, or name another file"));
    case SQLITE_NOMEM:
      return absl::ResourceExhaustedError(
          absl::StrCat("memory ran out while using ", what_, " '", path_, "'; free memory and try again"));
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(absl::StrCat(
          what_, " '", path_, "' cannot be opened (", system_errno != 0 ? std::strerror(system_errno) : text,
          "); give yourself permission for the file and its folder, or name another file"));
    default:
      return absl::InternalError(absl::StrCat(what_, " '", path_, "' failed (", text,
                                              system_errno != 0 ? absl::StrCat(": ", std::strerror(system_errno)) : "",
                                              "); check its disk and try again"));
  }
}

}  // namespace diapason
