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

// The factor by which estimates of a network's latency are corrected when it took `measured` seconds where `estimated`
// were expected. Within [0.5, 2]: what is further off was measured under other conditions, or is wrong.
double Correction(double measured, double estimated);

// How often a network holds a task.
struct NetworkWeight {
  std::string network;
  double weight = 1;
};

// Another alternative than the default fusion is taken when it takes less than this share of its time: of two times
// that are nearly the same the smaller is as often luck, and each kernel more costs a start.
inline constexpr double kWorthAnotherWay = 0.97;

// A place at which a network may run one set of tasks or another (compiler/graph/cuts.h). `weights` of its tasks hold
// the first set, the usual one.
struct NetworkChoice {
  std::string network;
  std::vector<std::vector<std::pair<int, double>>> ways;  // task, times
};

// At each choice a network counts with the way of least time among those whose tasks all have a time; with the first
// one where there is none.
class Objective {
 public:
  // "sum": the latencies of all networks together. "targets:resnet-18=5ms,mobilenet=800us": as the sum, but a network
  // gains nothing below its target; units s, ms, us. `weights` has an entry a task. InvalidArgument names what is
  // wrong. REQUIRES: networks of choices are among those of `weights`.
  static absl::StatusOr<Objective> Parse(const std::string& text,
                                         const std::vector<std::vector<NetworkWeight>>& weights,
                                         const std::vector<NetworkChoice>& choices = {});

  // Latencies are in seconds by task. REQUIRES: a positive one for each that is not optional; 0 for others that have
  // none.
  double Value(absl::Span<const double> seconds) const;
  // How much Value falls when task i gets one second faster, at these latencies; 0 when its networks have reached their
  // targets. A way that is not clearly behind the best counts as if it were that.
  double Slope(int task, absl::Span<const double> seconds) const;
  // How often all networks together run it, at these latencies.
  double Weight(int task, absl::Span<const double> seconds) const;
  // It is part of alternatives to the default fusion only.
  bool IsOptional(int task) const;
  // By choice: the way that counts.
  std::vector<int> BestWays(absl::Span<const double> seconds) const;

 private:
  struct Network {
    std::string name;
    double target = 0;                            // seconds; 0: none
    std::vector<std::pair<int, double>> weights;  // task, times it occurs outside of choices
    std::vector<int> choices;
  };
  double Latency(const Network& network, absl::Span<const double> seconds) const;
  int BestWay(const NetworkChoice& choice, absl::Span<const double> seconds) const;

  std::vector<Network> networks_;
  std::vector<NetworkChoice> choices_;
};

}  // namespace diapason
