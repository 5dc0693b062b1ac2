// A cache of limited size that evicts the least recently used values.
#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace diapason {

// Not thread-safe.
template <class Value>
class LruCache {
 public:
  // Keys count as well. The last value that was put is never evicted, however large it is.
  explicit LruCache(size_t most_bytes) : most_bytes_(most_bytes) {}

  // Null if it is not there. Valid until the next Put.
  const Value* Find(const std::string& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->value;
  }

  // `bytes`: of the value.
  void Put(const std::string& key, Value value, size_t bytes) {
    if (const auto known = places_.find(key); known != places_.end()) Erase(known->second);
    entries_.push_front({key, std::move(value), bytes + 2 * key.size()});
    places_[key] = entries_.begin();
    bytes_ += entries_.front().bytes;
    while (bytes_ > most_bytes_ && entries_.size() > 1) Erase(std::prev(entries_.end()));
  }

 private:
  struct Entry {
    std::string key;
    Value value;
    size_t bytes;
  };
  using Place = typename std::list<Entry>::iterator;

  void Erase(Place place) {
    bytes_ -= place->bytes;
    places_.erase(place->key);
    entries_.erase(place);
  }

  const size_t most_bytes_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // used last in front
  std::unordered_map<std::string, Place> places_;
};

}  // namespace diapason
