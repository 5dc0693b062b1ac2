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

// An alternative to the default fusion is taken only if it takes less than this share of the default's time: a smaller
// difference is as likely noise, and every additional kernel costs a launch.
inline constexpr double kWorthAnotherAlternative = 0.97;

// A choice point of a network, where it runs the tasks of one of several fusion alternatives
// (compiler/graph/fusion_choices.h). The weights of tasks that Objective::Parse gets hold the first one, the default.
struct NetworkChoice {
  std::string network;
  std::vector<std::vector<std::pair<int, double>>> alternatives;  // by alternative: task, count
};

// At each choice point, a network's latency includes the fastest alternative of those whose tasks all have a time; the
// default if there is none.
class Objective {
 public:
  // `text` is "sum", the sum of the networks' latencies, or "targets:resnet-18=5ms,mobilenet=800us", the same sum in
  // which a network counts as at its target once it is below it (units: s, ms, us). `weights` has, for each task, the
  // networks with it. InvalidArgument says what is wrong with `text`. REQUIRES: networks of choices are among those of
  // `weights`.
  static absl::StatusOr<Objective> Parse(const std::string& text,
                                         const std::vector<std::vector<NetworkWeight>>& weights,
                                         const std::vector<NetworkChoice>& choices = {});

  // In all of these, `seconds` has the time of each task. REQUIRES: it is positive for tasks that are not optional; for
  // optional ones it may be 0, which means unknown.

  // What is to be minimized.
  double Value(absl::Span<const double> seconds) const;
  // How much Value falls when the task gets one second faster; 0 if its networks have reached their targets. A task of
  // an alternative that is not clearly slower than the fastest counts as if its alternative were the fastest.
  double Slope(int task, absl::Span<const double> seconds) const;
  // How often all networks together run the task.
  double Weight(int task, absl::Span<const double> seconds) const;
  // Whether the task belongs only to alternatives to the default fusion.
  bool IsOptional(int task) const;
  // By choice point: the index of the alternative that counts.
  std::vector<int> BestAlternatives(absl::Span<const double> seconds) const;

 private:
  struct Network {
    std::string name;
    double target = 0;                            // seconds; 0: none
    std::vector<std::pair<int, double>> weights;  // task, times it occurs outside of choices
    std::vector<int> choices;
  };
  double Latency(const Network& network, absl::Span<const double> seconds) const;
  int BestAlternative(const NetworkChoice& choice, absl::Span<const double> seconds) const;

  std::vector<Network> networks_;
  std::vector<NetworkChoice> choices_;
};

}  // namespace diapason
