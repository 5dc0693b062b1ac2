// Models by content, in the folder H.db.models: each is named by the SHA-256 of its content.
//
// A service whose history is in PostgreSQL keeps them there (db/blobs.h), for the service that takes over from it; the
// folder then holds copies of those that it needed so far. A model is there when the database has all of it.
//
// What is kept is bounded. Where a new model needs the room, those go that were used longest ago and that no unfinished
// job needs; where that is not enough, it is refused.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace diapason {

class BlobStore;

struct ModelStoreLimits {
  int64_t bytes = int64_t{64} << 30;
  int64_t models = 1000;
  // A model that was asked for is not removed for so long: its job may be on the way.
  std::chrono::seconds grace{60};
};

// Safe from any thread; one for a folder.
class ModelStore {
 public:
  // `shared`, which outlives it: where the models are when not in the folder alone.
  explicit ModelStore(std::string folder, ModelStoreLimits limits = {}, BlobStore* shared = nullptr)
      : folder_(std::move(folder)), limits_(limits), shared_(shared) {}

  // 64 hexadecimal digits.
  static bool IsHash(const std::string& text);
  // Counts as a use. Errors: those of the database.
  absl::StatusOr<bool> Has(const std::string& hash) const;
  // Where a model is, or would be, in the folder.
  std::string PathOf(const std::string& hash) const { return folder_ + "/" + hash + ".onnx"; }
  // Brings a model that is there into the folder. Errors: of the database and the disk; NotFound; DataLoss when its
  // content is not what its hash says.
  absl::Status Bring(const std::string& hash) const;

  // Removes what uploads left that a service before did not see the end of, and copies of models that are not there any
  // more. Before the first Begin.
  absl::Status RemoveStale();
  struct Contents {
    int64_t models = 0, bytes = 0;
  };
  Contents contents() const;

  // A model on its way in. What was not finished is removed.
  class Writer {
   public:
    ~Writer();
    // InvalidArgument when more comes than was announced; ResourceExhausted when the disk is full.
    absl::Status Add(const std::string& data);
    // InvalidArgument when the content is not what the hash says. The model is there afterwards. Also errors of the
    // database.
    absl::Status Finish();

   private:
    friend class ModelStore;
    struct State;
    explicit Writer(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };
  // Makes room for so many bytes without removing models that are `needed`, and keeps it until the writer is gone.
  // ResourceExhausted when there is not so much. REQUIRES: IsHash(hash); the store outlives the writer.
  absl::StatusOr<std::unique_ptr<Writer>> Begin(const std::string& hash, uint64_t bytes,
                                                const std::set<std::string>& needed);

 private:
  struct File;
  void MakeFolder() const;
  std::string TemporaryOf(const std::string& hash) const;
  std::vector<File> LocalFiles() const;
  absl::StatusOr<std::vector<File>> Files() const;
  absl::Status Remove(const std::string& hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeRoom(int64_t bytes, const std::set<std::string>& needed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;
  const ModelStoreLimits limits_;
  BlobStore* const shared_;  // self-locking; null: the folder alone
  mutable Mutex mutex_;      // also held while models are removed
  int64_t uploads_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t uploading_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Of a file's content. NotFound when it cannot be read.
absl::StatusOr<std::string> HashOfFile(const std::string& path);

}  // namespace diapason
