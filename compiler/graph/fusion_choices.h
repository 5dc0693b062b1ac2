// Fusion alternatives: how a network may be partitioned into tasks other than by the default fusion (PartitionNetwork).
//
// A choice point is a place where it matters: a residual addition in the epilogue of one branch, of the
// other, or in a kernel of its own (in that of the normalization, where one alone reads it); element-wise operators
// computed wherever a convolution reads them, or once; a concatenation in place or by a kernel; a recurrence step by
// step or in one kernel, beside which no other option that meets it is offered. Each has alternatives, the first of
// which is the default. The tasks of all alternatives are measured like any other, and a build takes at each choice
// point the alternative whose tasks take least time together.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/factor_bounds.h"
#include "compiler/graph/grouping.h"
#include "compiler/graph/network.h"
#include "compiler/graph/partition.h"

namespace diapason {

// One alternative at a choice point.
struct FusionAlternative {
  std::string name;                        // for people: "default", "add apart"
  FusionModes modes;                       // how it groups nodes differently from the default
  std::vector<std::pair<int, int>> tasks;  // task, count: what the choice point's nodes become, in order
  bool writes_in_place = false;  // one of them writes a part of a larger tensor, which calls of libraries cannot
};

// A choice point. Choice points are independent: they have no node in common.
struct ChoicePoint {
  std::string name;                             // of its node: "layer1.0.add"
  std::vector<FusionAlternative> alternatives;  // the default first; at least two
};

struct FusionChoices {
  // By the default fusion. Its own tasks come first, then those that only alternatives have, with count 0: of these,
  // first the tasks of alternatives that may be fastest (AlternativesThatMayWin).
  Partition partition;
  size_t default_tasks = 0;                // how many tasks the default fusion has
  size_t worthwhile_tasks = 0;             // these and the tasks of alternatives that may be fastest
  FusionModes default_modes;               // how the default fusion groups nodes
  std::vector<ChoicePoint> choice_points;  // in order of nodes
  std::vector<int> fixed;                  // by task: its count outside of all choice points
  FactorBounds factor_bounds;              // with which tasks were made; empty: none was asked for
  // How often the whole network was grouped to find the choice points: the cost of FindFusionChoices.
  int groupings = 0;
};

// What the default fusion of a target prefers.
struct FusionPreferences {
  // All steps of a recurrence are one kernel if its weights have at most so many bytes.
  int64_t whole_recurrence_bytes = 0;
  // The attention of one query to kOneQueryKeys keys or more is two kernels, which spread the keys over all blocks.
  bool one_query_apart = false;
  // Tasks of products have the ranges of their factors, so that their rewrites may rely on them (factor_bounds.h).
  bool find_factor_bounds = false;
  // Normalizations of at most so many rows are deferred (DeferNorms) by whoever reads the network. 0: none.
  int64_t deferred_norm_rows = 0;

  friend bool operator==(const FusionPreferences&, const FusionPreferences&) = default;
};
inline constexpr int64_t kOneQueryKeys = 256;

// By default what the preferences say; the other form of a recurrence, or of an attention, is the alternative.
// REQUIRES: as PartitionNetwork.
absl::StatusOr<FusionChoices> FindFusionChoices(const Network& network, const FusionPreferences& preferences = {});

// Indices, ascending, of the alternatives that can be fastest for some times of their tasks: one that runs everything
// that another one runs, and more, is left out. The default is always among them.
std::vector<int> AlternativesThatMayWin(const ChoicePoint& point);

// The partition that takes alternative chosen[i] at choice point i. REQUIRES: an entry for each choice point.
absl::StatusOr<Partition> PartitionAs(const Network& network, const FusionChoices& fusion,
                                      const std::vector<int>& chosen);

// The partition of the network of `facts` whose nodes are grouped as `modes` say. For compiler/graph.
absl::StatusOr<Partition> PartitionByModes(const GroupingFacts& facts, const FusionModes& modes,
                                           const FactorBounds& bounds = {});

// By choice point: the index of the alternative whose tasks take least time together. `seconds` has the time of each
// task, 0 where it is not known. Considered are alternatives with `able(alternative)` whose tasks all have a time; the
// others must take less than the default's time times `worth`. Of equal ones, and where none can be considered, the
// first with `able(alternative)` is taken; where there is none, the default.
template <typename Able>
std::vector<int> FastestAlternatives(const FusionChoices& fusion, const std::vector<double>& seconds, double worth,
                                     Able able) {
  std::vector<int> chosen;
  for (const ChoicePoint& point : fusion.choice_points) {
    int best = -1, first = -1;
    double least = 0;
    for (int w = 0; w < static_cast<int>(point.alternatives.size()); ++w) {
      const FusionAlternative& alternative = point.alternatives[w];
      if (!able(alternative)) continue;
      if (first < 0) first = w;
      double sum = 0;
      bool known = true;
      for (const auto& [task, count] : alternative.tasks) {
        known = known && seconds[task] > 0;
        sum += count * seconds[task];
      }
      if (w == 0) sum *= worth;
      if (!known || (best >= 0 && sum >= least)) continue;
      best = w;
      least = sum;
    }
    chosen.push_back(best >= 0 ? best : first >= 0 ? first : 0);
  }
  return chosen;
}

}  // namespace diapason
