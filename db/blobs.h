// Files of a coordinator service in its history's database (db/service_tables.h): models and cost models, by name, in
// chunks of 1 MiB. A file is there when all of it is, and is replaced at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/locked_database.h"

namespace diapason {

// Safe from any thread; one service at a time writes.
class BlobStore {
 public:
  struct Blob {
    std::string name;
    int64_t bytes = 0;
    std::chrono::milliseconds unused{0};  // since it was stored or used
  };

  // REQUIRES: `db` is OpenServiceTables'.
  explicit BlobStore(std::unique_ptr<Database> db);
  ~BlobStore();

  // Stores the content of a file. NotFound when the file cannot be read.
  absl::Status Put(const std::string& name, const std::string& path);
  // Hands the content to `take`, a chunk at a time. NotFound where there is none of this name; the errors of `take`.
  absl::Status Get(const std::string& name, const std::function<absl::Status(std::string_view)>& take);
  // Whether it is there; notes that it is used.
  absl::StatusOr<bool> Use(const std::string& name);
  // Those used longest ago first.
  absl::StatusOr<std::vector<Blob>> List();
  // OK for a name that is not there.
  absl::Status Erase(const std::string& name);
  // Removes chunks of files that an earlier service did not finish storing. Before the first Put.
  absl::Status RemoveIncomplete();

 private:
  // A chunk, when there is one.
  absl::StatusOr<bool> ReadChunk(const std::string& content, int64_t number, std::string& data);

  LockedDatabase db_;
};

}  // namespace diapason
