// Models by content, in the folder H.db.models: each is named by the SHA-256 of its content.
//
// What is kept is bounded. Where a new model needs the room, those go that were used longest ago and that no unfinished
// job needs; where that is not enough, it is refused.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

struct ModelStoreLimits {
  int64_t bytes = int64_t{64} << 30;
  int64_t models = 1000;
  // A model that was asked for is not removed for so long: its job may be on the way.
  std::chrono::seconds grace{60};
};

// Safe from any thread; one for a folder.
class ModelStore {
 public:
  explicit ModelStore(std::string folder, ModelStoreLimits limits = {}) : folder_(std::move(folder)), limits_(limits) {}

  // 64 hexadecimal digits.
  static bool IsHash(const std::string& text);
  // Counts as a use.
  bool Has(const std::string& hash) const;
  // Of a model that is there.
  std::string PathOf(const std::string& hash) const { return folder_ + "/" + hash + ".onnx"; }

  // Removes what uploads left that a service before did not see the end of. Before the first Begin.
  void RemoveStale();
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
    // InvalidArgument when the content is not what the hash says. The model is there afterwards.
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
  std::vector<File> Files() const;
  absl::Status MakeRoom(int64_t bytes, const std::set<std::string>& needed);

  const std::string folder_;
  const ModelStoreLimits limits_;
  mutable std::mutex mutex_;  // guards the rest, and removals
  int64_t uploads_ = 0, uploading_bytes_ = 0;
};

// Of a file's content. NotFound when it cannot be read.
absl::StatusOr<std::string> HashOfFile(const std::string& path);

}  // namespace diapason
