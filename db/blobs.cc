#include "db/blobs.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/text.h"

namespace diapason {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

}  // namespace

BlobStore::BlobStore(std::unique_ptr<Database> db) : db_(std::move(db)) {}
BlobStore::~BlobStore() = default;

absl::Status BlobStore::Put(const std::string& name, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read '", path, "' (", std::strerror(errno), ")"));
  const std::string content = RandomUuid();
  std::string data(kChunkBytes, '\0');
  int64_t number = 0, bytes = 0;
  while (file.read(data.data(), static_cast<std::streamsize>(kChunkBytes)) || file.gcount() > 0) {
    const std::string_view chunk(data.data(), static_cast<size_t>(file.gcount()));
    RETURN_IF_ERROR(db_.Writing([&](Database& db, bool) -> absl::Status {
      ASSIGN_OR_RETURN(Statement put, db.Prepare("INSERT INTO service_chunks(content, number, data) VALUES(?,?,?) "
                                                 "ON CONFLICT DO NOTHING"));
      put.BindText(1, content);
      put.BindInt(2, number);
      put.BindBorrowed(3, chunk, /*text=*/false);
      return put.Run();
    }));
    ++number;
    bytes += static_cast<int64_t>(chunk.size());
  }
  if (file.bad()) return absl::NotFoundError(absl::StrCat("cannot read '", path, "' (", std::strerror(errno), ")"));
  return db_.Writing([&](Database& db, bool) -> absl::Status {
    ASSIGN_OR_RETURN(Statement old, db.Prepare("DELETE FROM service_chunks WHERE content IN (SELECT content FROM "
                                               "service_blobs WHERE name=?1 AND content<>?2)"));
    old.BindText(1, name);
    old.BindText(2, content);
    RETURN_IF_ERROR(old.Run());
    ASSIGN_OR_RETURN(Statement put,
                     db.Prepare("INSERT INTO service_blobs(name, content, bytes, used_at) VALUES(?,?,?,"
                                "clock_timestamp()) ON CONFLICT(name) DO UPDATE SET content=excluded.content, "
                                "bytes=excluded.bytes, used_at=excluded.used_at"));
    put.BindText(1, name);
    put.BindText(2, content);
    put.BindInt(3, bytes);
    return put.Run();
  });
}

absl::StatusOr<bool> BlobStore::ReadChunk(const std::string& content, int64_t number, std::string& data) {
  return db_.Reading([&](Database& db) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(Statement select, db.Prepare("SELECT data FROM service_chunks WHERE content=? AND number=?"));
    select.BindText(1, content);
    select.BindInt(2, number);
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (row) data = select.Bytes(0);
    return row;
  });
}

absl::Status BlobStore::Get(const std::string& name, const std::function<absl::Status(std::string_view)>& take) {
  std::string content;
  int64_t bytes = 0;
  RETURN_IF_ERROR(db_.Reading([&](Database& db) -> absl::Status {
    ASSIGN_OR_RETURN(Statement select, db.Prepare("SELECT content, bytes FROM service_blobs WHERE name=?"));
    select.BindText(1, name);
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return absl::NotFoundError(absl::StrCat("history '", db.path(), "' has no file '", name, "'"));
    content = select.Bytes(0);
    bytes = select.Int(1);
    return absl::OkStatus();
  }));
  std::string data;
  for (int64_t number = 0; bytes > 0; ++number) {
    ASSIGN_OR_RETURN(const bool there, ReadChunk(content, number, data));
    if (!there) return absl::NotFoundError(absl::StrCat("file '", name, "' was replaced or removed meanwhile"));
    RETURN_IF_ERROR(take(data));
    bytes -= static_cast<int64_t>(data.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> BlobStore::Use(const std::string& name) {
  bool there = false;
  RETURN_IF_ERROR(db_.Writing([&](Database& db, bool) -> absl::Status {
    ASSIGN_OR_RETURN(Statement use,
                     db.Prepare("UPDATE service_blobs SET used_at=clock_timestamp() WHERE name=? RETURNING 1"));
    use.BindText(1, name);
    ASSIGN_OR_RETURN(const int64_t one, use.RunForInt());
    there = one == 1;
    return absl::OkStatus();
  }));
  return there;
}

absl::StatusOr<std::vector<BlobStore::Blob>> BlobStore::List() {
  return db_.Reading([&](Database& db) -> absl::StatusOr<std::vector<Blob>> {
    ASSIGN_OR_RETURN(Statement select,
                     db.Prepare("SELECT name, bytes, CAST(1000 * EXTRACT(EPOCH FROM clock_timestamp() - used_at) AS "
                                "BIGINT) FROM service_blobs ORDER BY used_at, name"));
    std::vector<Blob> blobs;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, select.Step());
      if (!row) return blobs;
      blobs.push_back({select.Bytes(0), select.Int(1), std::chrono::milliseconds(select.Int(2))});
    }
  });
}

absl::Status BlobStore::Erase(const std::string& name) {
  return db_.Writing([&](Database& db, bool) -> absl::Status {
    for (const char* sql :
         {"DELETE FROM service_chunks WHERE content IN (SELECT content FROM service_blobs WHERE name=?)",
          "DELETE FROM service_blobs WHERE name=?"}) {
      ASSIGN_OR_RETURN(Statement erase, db.Prepare(sql));
      erase.BindText(1, name);
      RETURN_IF_ERROR(erase.Run());
    }
    return absl::OkStatus();
  });
}

absl::Status BlobStore::RemoveIncomplete() {
  return db_.Writing([&](Database& db, bool) -> absl::Status {
    return db.Exec("DELETE FROM service_chunks WHERE content NOT IN (SELECT content FROM service_blobs)");
  });
}

}  // namespace diapason
