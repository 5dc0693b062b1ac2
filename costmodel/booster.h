// A C++ interface to XGBoost's C library, with owned handles and absl::Status. No other file includes XGBoost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace diapason {

// Rows of features with labels, for training.
struct TrainingMatrix {
  int num_features = 0;
  std::vector<float> features;        // row after row, finite
  std::vector<float> labels;          // one a row
  std::vector<float> weights;         // one a row, or one a group when there are groups
  std::vector<uint32_t> group_sizes;  // rank objectives only: rows of each group, which lie together
  int rows() const { return static_cast<int>(labels.size()); }
};

struct BoosterOptions {
  std::string objective = "reg:squarederror";
  int max_depth = 6;
  double learning_rate = 0.1;
  int threads = 1;
  uint64_t seed = 0;
};

// A forest of boosted trees. Immutable; Predict is safe from any thread.
class Booster {
 public:
  // Trains `trees` trees. `keep_on`, if given, is called before each of them; Cancelled if it returns false.
  static absl::StatusOr<std::unique_ptr<Booster>> Train(const TrainingMatrix& matrix, const BoosterOptions& options,
                                                        int trees, const std::function<bool()>& keep_on = nullptr);
  // The number of trees, at most `trees`, with the smallest error on `held_out`; stops after 20 trees without
  // improvement. REQUIRES: an objective whose metric is an error.
  static absl::StatusOr<int> BestTrees(const TrainingMatrix& matrix, const TrainingMatrix& held_out,
                                       const BoosterOptions& options, int trees,
                                       const std::function<bool()>& keep_on = nullptr);
  // Bytes that Serialize gave. REQUIRES: undamaged (XGBoost trusts them).
  static absl::StatusOr<std::unique_ptr<Booster>> Parse(const std::string& bytes);
  ~Booster();
  Booster(const Booster&) = delete;
  Booster& operator=(const Booster&) = delete;

  // One output a row. REQUIRES: features.size() == out.size() * num_features.
  void Predict(absl::Span<const float> features, int num_features, absl::Span<float> out) const;
  absl::StatusOr<std::string> Serialize() const;

 private:
  explicit Booster(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace diapason
