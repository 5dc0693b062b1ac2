// What a tuning run makes small: a function of the latencies of the networks that its tasks belong to (Ansor, OSDI
// 2020, table 2).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace diapason {

// How often a network holds a task.
struct NetworkWeight {
  std::string network;
  double weight = 1;
};

class Objective {
 public:
  // "sum": the latencies of all networks together. "targets:resnet-18=5ms,mobilenet=800us": as the sum, but a network
  // gains nothing below its target; units s, ms, us. `weights` has an entry a task. InvalidArgument names what is
  // wrong.
  static absl::StatusOr<Objective> Parse(const std::string& text,
                                         const std::vector<std::vector<NetworkWeight>>& weights);

  // REQUIRES: a positive latency in seconds for each task.
  double Value(absl::Span<const double> seconds) const;
  // How much Value falls when task i gets one second faster, at these latencies; 0 when its networks have reached their
  // targets.
  double Slope(int task, absl::Span<const double> seconds) const;

 private:
  struct Network {
    std::string name;
    double target = 0;                            // seconds; 0: none
    std::vector<std::pair<int, double>> weights;  // task, times it occurs
    double Latency(absl::Span<const double> seconds) const;
  };
  std::vector<Network> networks_;
};

}  // namespace diapason
