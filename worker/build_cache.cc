#include "worker/build_cache.h"

#include <utility>

namespace diapason {

const BuiltProgram* BuildCache::Find(const std::string& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &found->second->built;
}

void BuildCache::Put(const std::string& key, BuiltProgram built) {
  if (const auto known = places_.find(key); known != places_.end()) {
    bytes_ -= known->second->bytes();
    entries_.erase(known->second);
    places_.erase(known);
  }
  entries_.push_front({key, std::move(built)});
  places_[key] = entries_.begin();
  bytes_ += entries_.front().bytes();
  while (bytes_ > most_bytes_ && entries_.size() > 1) {
    bytes_ -= entries_.back().bytes();
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace diapason
