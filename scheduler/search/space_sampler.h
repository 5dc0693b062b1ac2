// Candidates of each space by sampling, for the first generation of a round.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "db/rounds.h"
#include "scheduler/population.h"
#include "scheduler/search/round.h"
#include "scheduler/space.h"

namespace diapason {

// Draws samples and keeps those of the last rounds: drawing one costs several times as much as a mutation. A space that
// keeps giving what was seen before is listed whole instead if it is small. Not safe from several threads.
class SpaceSampler {
 public:
  // Keeps up to `most_kept` samples. `spaces` must outlive this.
  SpaceSampler(const TaskSpace* spaces, int most_kept);

  // Adds all candidates of the listed spaces, and the samples kept, to the population; evaluates nothing.
  void AddKept(Population* population) const;
  // Adds new samples of all spaces that are not listed, by their shares, and evaluates and keeps them.
  SearchStats AddSamples(const SearchRound& round, const std::vector<double>& shares, Population* population);
  // Lists every space that is small.
  void ListSmall();

  // Samples, listed and large spaces: fills in these fields of `memory`, or continues from them. What the spaces do not
  // have is left out.
  void Save(SearchMemory* memory) const;
  void Restore(const SearchMemory& memory);

 private:
  struct Sample {
    int space;
    std::vector<int32_t> configuration;
  };
  struct SpaceList {
    bool listed = false;       // `all` holds every candidate
    bool large = false;        // it has too many
    std::vector<int32_t> all;  // one behind the other
  };

  void ListIfSmall(int space);

  const TaskSpace* const spaces_;
  const int most_kept_;
  std::deque<Sample> kept_;  // of the last rounds, the oldest first
  std::vector<SpaceList> lists_;
};

}  // namespace diapason
