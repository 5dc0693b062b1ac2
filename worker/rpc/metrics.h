// Metrics for Prometheus over HTTP.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace diapason {

// A histogram of durations.
class Distribution {
 public:
  static constexpr std::array<double, 12> kBounds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
  void Add(double seconds);
  uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  // Number of values of at most kBounds[i].
  uint64_t up_to(size_t i) const { return cumulative_[i]; }

 private:
  std::array<uint64_t, kBounds.size()> cumulative_{};
  uint64_t count_ = 0;
  double sum_ = 0;
};

// A metric and its values by labels. Names and units follow Prometheus: diapason_..._total counts, ..._seconds are
// seconds.
struct Metric {
  enum class Type { kGauge, kCounter, kHistogram };
  using Labels = std::vector<std::pair<std::string, std::string>>;
  struct Value {
    Labels labels;
    double number = 0;
    Distribution distribution;  // kHistogram
  };
  std::string name, help;
  Type type = Type::kGauge;
  std::vector<Value> values;

  static Metric Gauge(const std::string& name, const std::string& help, double number) {
    return {name, help, Type::kGauge, {{{}, number, {}}}};
  }
  static Metric Counter(const std::string& name, const std::string& help, double number) {
    return {name, help, Type::kCounter, {{{}, number, {}}}};
  }
};

class MetricsServer {
 public:
  // Serves the results of `collect`, which is called from any thread, at http://ADDRESS/metrics. Unavailable: cannot
  // listen on the address; the message names it.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              std::function<std::vector<Metric>()> collect);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // With the actual port.
  const std::string& address() const;

 private:
  class Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
