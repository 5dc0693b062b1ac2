// Ways to cut a network other than PartitionNetwork's, at boundaries where it may matter: a residual addition in the
// epilogue of one branch, of the other, or by itself; element-wise operators computed wherever a convolution reads
// them, or once; a concatenation in place or by a kernel. Their tasks are measured like any other, and a build takes at
// each boundary the way whose tasks take least time together.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/grouping.h"
#include "compiler/graph/network.h"
#include "compiler/graph/partition.h"

namespace diapason {

// One way at a boundary.
struct CutWay {
  std::string name;                        // for people: "usual", "add apart"
  Ways ways;                               // what differs from the usual
  std::vector<std::pair<int, int>> tasks;  // tasks that the boundary's nodes then are, and how often, in order
  bool writes_in_place = false;  // one of them writes a part of a larger tensor, which calls of libraries cannot
};

// Boundaries are independent: they have no node in common.
struct Boundary {
  std::string name;          // of its node: "layer1.0.add"
  std::vector<CutWay> ways;  // the usual one first; at least two
};

struct Cuts {
  // The default. Its tasks are followed by those that only alternatives have, with count 0: first those of ways that
  // may win.
  Partition partition;
  size_t usual_tasks = 0;       // tasks that it has itself
  size_t worthwhile_tasks = 0;  // with those of ways that may win (WaysThatMayWin)
  Ways usual;
  std::vector<Boundary> boundaries;  // in order of nodes
  // Occurrences of each task outside of all boundaries.
  std::vector<int> fixed;
  int groupings = 0;  // how often the whole network was grouped in order to find the boundaries: what the search costs
};

// REQUIRES: as PartitionNetwork.
absl::StatusOr<Cuts> FindCuts(const Network& network);

// Those of its ways that can be best whatever tasks take: a way that runs all that another one runs, and more, is left
// out. Indices, in order; the usual one is always there.
std::vector<int> WaysThatMayWin(const Boundary& boundary);

// The network cut as `chosen` says: a way for each boundary.
absl::StatusOr<Partition> PartitionAs(const Network& network, const Cuts& cuts, const std::vector<int>& chosen);

// For compiler/graph.
absl::StatusOr<Partition> PartitionInWays(const Network& network, const Ways& ways);

// The way of least time at each boundary. `seconds` has the time of each task, 0 where it is unknown: a way counts when
// all of its tasks are known and `able(way)`; among equals, and where no way counts, the first one that is able is
// taken. Other ways must take less than the usual one times `worth`.
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
