#include "compiler/codegen/object_cache.h"

#include <utility>

#include "compiler/tensor/check.h"

namespace diapason {

ObjectCache::Answer ObjectCache::Ask(const std::string& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto [it, added] = entries_.try_emplace(key);
  if (added) return {State::kClaimed, nullptr};
  Entry& entry = it->second;
  if (entry.object == nullptr) return {State::kBusy, nullptr};
  used_.splice(used_.begin(), used_, entry.use);
  return {State::kKnown, entry.object};
}

void ObjectCache::Put(const std::string& key, Object object) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_.at(key);
  DIAPASON_CHECK(entry.object == nullptr && object != nullptr);
  bytes_ += 2 * key.size() + object->size();
  entry.object = std::move(object);
  used_.push_front(key);
  entry.use = used_.begin();
  while (bytes_ > most_bytes_ && used_.size() > 1) {
    const auto oldest = entries_.find(used_.back());
    bytes_ -= 2 * oldest->first.size() + oldest->second.object->size();
    entries_.erase(oldest);
    used_.pop_back();
  }
  changed_.notify_all();
}

void ObjectCache::GiveUp(const std::string& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  entries_.erase(key);
  changed_.notify_all();
}

ObjectCache::Object ObjectCache::Wait(const std::string& key) {
  std::unique_lock<std::mutex> lock(mutex_);
  Object object;
  changed_.wait(lock, [&] {
    const auto it = entries_.find(key);
    if (it == entries_.end()) return true;
    object = it->second.object;
    return object != nullptr;
  });
  return object;
}

}  // namespace diapason
