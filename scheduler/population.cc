#include "scheduler/population.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "scheduler/candidate.h"
#include "scheduler/parallel.h"

namespace diapason {
namespace {

// Rows that are predicted together, at most: 200 KB of features stay in a core's second-level cache. At least: fewer
// cost more than another thread gains.
constexpr int kMostRows = 512, kLeastRows = 64;

}  // namespace

Population::Population(const TaskSpace* spaces) : spaces_(spaces) {
  for (int i = 0; i < spaces->size(); ++i) {
    parameters_.push_back(spaces->space(i).size());
    stride_ = std::max(stride_, parameters_.back());
  }
}

void Population::Clear() {
  space_.clear();
  configuration_.clear();
  hash_.clear();
  analytic_.clear();
  score_.clear();
  seen_.clear();
}

void Population::Extend(int count) {
  const size_t size = space_.size() + static_cast<size_t>(count);
  space_.resize(size, -1);
  configuration_.resize(size * static_cast<size_t>(stride_));
  hash_.resize(size);
  analytic_.resize(size);
  score_.resize(size, -std::numeric_limits<double>::infinity());
}

void Population::Set(int slot, int space, absl::Span<const int32_t> configuration) {
  space_[slot] = space;
  int32_t* to = configuration_.data() + static_cast<size_t>(slot) * stride_;
  if (to != configuration.data()) std::copy(configuration.begin(), configuration.end(), to);
  hash_[slot] = CandidateHash(spaces_->space(space).name(), configuration);
}

void Population::Compact(int first) {
  int to = first;
  for (int from = first; from < size(); ++from) {
    if (space_[from] < 0 || !seen_.insert(hash_[from]).second) continue;
    if (to != from) {
      space_[to] = space_[from];
      hash_[to] = hash_[from];
      std::copy_n(configuration_.begin() + static_cast<std::ptrdiff_t>(from) * stride_, stride_,
                  configuration_.begin() + static_cast<std::ptrdiff_t>(to) * stride_);
    }
    ++to;
  }
  space_.resize(to);
  configuration_.resize(static_cast<size_t>(to) * stride_);
  hash_.resize(to);
  analytic_.resize(to);
  score_.resize(to);
}

void Population::EvaluateChunk(int begin, int end, const Ranker* ranker, uint64_t task) {
  thread_local std::vector<float> features;
  thread_local std::vector<double> scores;
  const int rows = end - begin;
  features.resize(static_cast<size_t>(rows) * kNumFeatures);
  scores.resize(rows);
  std::vector<bool> legal(rows);
  Metrics metrics;
  for (int row = 0; row < rows; ++row) {
    const int i = begin + row;
    spaces_->space(space_[i]).Evaluate(configuration(i), &metrics);
    std::memcpy(features.data() + static_cast<size_t>(row) * kNumFeatures, metrics.features, sizeof metrics.features);
    legal[row] = metrics.legal && metrics.seconds > 0 && std::isfinite(metrics.seconds);
    analytic_[i] = legal[row] ? metrics.seconds : 1;
  }
  const absl::Span<const double> analytic(analytic_.data() + begin, rows);
  if (ranker != nullptr) {
    ranker->Predict(task, features, analytic, absl::MakeSpan(scores));
  } else {
    for (int row = 0; row < rows; ++row) scores[row] = -std::log(analytic[row]);
  }
  for (int row = 0; row < rows; ++row)
    score_[begin + row] = legal[row] ? scores[row] : -std::numeric_limits<double>::infinity();
}

void Population::Evaluate(int first, const Ranker* ranker, uint64_t task, int threads) {
  Compact(first);
  const int rows = size() - first;
  const int batch = std::clamp((rows + threads - 1) / std::max(1, threads), kLeastRows, kMostRows);
  ParallelFor(threads, (rows + batch - 1) / batch, [&](int chunk) {
    const int begin = first + chunk * batch;
    EvaluateChunk(begin, std::min(begin + batch, size()), ranker, task);
  });
}

}  // namespace diapason
