// The jobs of a coordinator service on disk: what it goes on with after a restart, planned or not.
//
// One SQLite file (H.db.jobs) with a table `jobs`: id, key (unique), the Job of tuning.proto. Models lie beside it in
// the folder H.db.models, each named by the SHA-256 of its content. A change that Put has returned OK for survives the
// death of the process and a power cut.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

class Database;
namespace v1 {
class Job;
}

// One thread at a time.
class JobStore {
 public:
  // Makes the file when there is none. FailedPrecondition: another file, or of another version. Unavailable: another
  // service has it.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& path);
  ~JobStore();

  // All jobs, by id.
  absl::StatusOr<std::vector<v1::Job>> Load();
  // Gives `job` an id when it has none, and writes it.
  absl::Status Put(v1::Job& job);
  // OK for an id that is not there. The id is not given again.
  absl::Status Erase(int64_t id);

 private:
  explicit JobStore(std::unique_ptr<Database> db);
  std::unique_ptr<Database> db_;
};

// Models by content, in a folder. Safe from any thread, and from several processes.
class ModelStore {
 public:
  explicit ModelStore(std::string folder) : folder_(std::move(folder)) {}

  // 64 hexadecimal digits.
  static bool IsHash(const std::string& text);
  bool Has(const std::string& hash) const;
  // Of a model that is there.
  std::string PathOf(const std::string& hash) const { return folder_ + "/" + hash + ".onnx"; }

  // A model on its way in. What was not finished is removed.
  class Writer {
   public:
    ~Writer();
    // InvalidArgument when more comes than was announced; ResourceExhausted when the disk is full.
    absl::Status Add(const std::string& data);
    // InvalidArgument when the content is not what the hash says. The model is there afterwards.
    absl::Status Finish();

   private:
    friend class ModelStore;
    struct State;
    explicit Writer(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };
  // REQUIRES: IsHash(hash).
  absl::StatusOr<std::unique_ptr<Writer>> Begin(const std::string& hash, uint64_t bytes);

 private:
  const std::string folder_;
};

// Of a file's content. NotFound when it cannot be read.
absl::StatusOr<std::string> HashOfFile(const std::string& path);

}  // namespace diapason
