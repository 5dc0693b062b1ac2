// A set of numbers that are mostly given in order, kept as ranges: a queue that has done a million requests takes the
// room of a few.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace diapason {

class IdSet {
 public:
  void Insert(uint64_t id) {
    if (Contains(id)) return;
    ++size_;
    auto next = ranges_.upper_bound(id);
    bool joins_next = next != ranges_.end() && next->first == id + 1;
    auto previous = next == ranges_.begin() ? ranges_.end() : std::prev(next);
    bool joins_previous = previous != ranges_.end() && previous->second + 1 == id;
    uint64_t last = joins_next ? next->second : id;
    if (joins_next) ranges_.erase(next);
    joins_previous ? previous->second = last : ranges_[id] = last;
  }
  bool Contains(uint64_t id) const {
    auto next = ranges_.upper_bound(id);
    return next != ranges_.begin() && std::prev(next)->second >= id;
  }
  // Forgets the lowest numbers until there are at most so many ranges; size() still counts them.
  void KeepRanges(size_t most) {
    while (ranges_.size() > most) ranges_.erase(ranges_.begin());
  }
  uint64_t size() const { return size_; }
  size_t ranges() const { return ranges_.size(); }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // first to last, both inclusive
  uint64_t size_ = 0;
};

}  // namespace diapason
