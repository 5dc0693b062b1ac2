// Fusion alternatives: how a network may be partitioned into tasks other than by the default fusion (PartitionNetwork).
//
// A choice point ("boundary") is a place where it matters: a residual addition in the epilogue of one branch, of the
// other, or in a kernel of its own; element-wise operators computed wherever a convolution reads them, or once; a
// concatenation in place or by a kernel. Each has alternatives ("ways"), the first of which is the default. The tasks
// of all alternatives are measured like any other, and a build takes at each choice point the alternative whose tasks
// take least time together.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/grouping.h"
#include "compiler/graph/network.h"
#include "compiler/graph/partition.h"

namespace diapason {

// One alternative at a choice point.
struct CutWay {
  std::string name;                        // for people: "usual", "add apart"
  Ways ways;                               // how it groups nodes differently from the default
  std::vector<std::pair<int, int>> tasks;  // task, count: what the choice point's nodes become, in order
  bool writes_in_place = false;  // one of them writes a part of a larger tensor, which calls of libraries cannot
};

// A choice point. Choice points are independent: they have no node in common.
struct Boundary {
  std::string name;          // of its node: "layer1.0.add"
  std::vector<CutWay> ways;  // the default first; at least two
};

struct Cuts {
  // By the default fusion. Its own tasks come first, then those that only alternatives have, with count 0: of these,
  // first the tasks of alternatives that may be fastest (WaysThatMayWin).
  Partition partition;
  size_t usual_tasks = 0;            // how many tasks the default fusion has
  size_t worthwhile_tasks = 0;       // these and the tasks of alternatives that may be fastest
  Ways usual;                        // how the default fusion groups nodes
  std::vector<Boundary> boundaries;  // in order of nodes
  std::vector<int> fixed;            // by task: its count outside of all choice points
  int groupings = 0;  // how often the whole network was grouped to find the choice points: the cost of FindCuts
};

// REQUIRES: as PartitionNetwork.
absl::StatusOr<Cuts> FindCuts(const Network& network);

// Indices, ascending, of the alternatives that can be fastest for some times of their tasks: one that runs everything
// that another one runs, and more, is left out. The default is always among them.
std::vector<int> WaysThatMayWin(const Boundary& boundary);

// The partition that takes alternative chosen[i] at choice point i. REQUIRES: an entry for each choice point.
absl::StatusOr<Partition> PartitionAs(const Network& network, const Cuts& cuts, const std::vector<int>& chosen);

// The partition of a network whose nodes are grouped as `ways` says. For compiler/graph.
absl::StatusOr<Partition> PartitionInWays(const Network& network, const Ways& ways);

// By choice point: the index of the alternative whose tasks take least time together. `seconds` has the time of each
// task, 0 where it is not known. Considered are alternatives with `able(way)` whose tasks all have a time; the others
// must take less than the default's time times `worth`. Of equal ones, and where none can be considered, the first with
// `able(way)` is taken; where there is none, the default.
template <typename Able>
std::vector<int> BestWays(const Cuts& cuts, const std::vector<double>& seconds, double worth, Able able) {
  std::vector<int> chosen;
  for (const Boundary& boundary : cuts.boundaries) {
    int best = -1, first = -1;
    double least = 0;
    for (int w = 0; w < static_cast<int>(boundary.ways.size()); ++w) {
      const CutWay& way = boundary.ways[w];
      if (!able(way)) continue;
      if (first < 0) first = w;
      double sum = 0;
      bool known = true;
      for (const auto& [task, count] : way.tasks) {
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
