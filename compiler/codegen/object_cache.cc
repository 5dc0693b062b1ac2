#include "compiler/codegen/object_cache.h"

#include <utility>

#include "base/check.h"

namespace diapason {

ObjectCache::Answer ObjectCache::Ask(const std::string& key) {
  MutexLock lock(mutex_);
  if (const Object* made = made_.Find(key)) return {State::kKnown, *made};
  return {under_way_.insert(key).second ? State::kClaimed : State::kBusy, nullptr};
}

void ObjectCache::Put(const std::string& key, Object object) {
  MutexLock lock(mutex_);
  DIAPASON_CHECK(under_way_.erase(key) == 1 && object != nullptr);
  const size_t bytes = object->size();
  made_.Put(key, std::move(object), bytes);
  changed_.NotifyAll();
}

void ObjectCache::GiveUp(const std::string& key) {
  MutexLock lock(mutex_);
  under_way_.erase(key);
  changed_.NotifyAll();
}

ObjectCache::Object ObjectCache::Wait(const std::string& key) {
  MutexLock lock(mutex_);
  changed_.Wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !under_way_.contains(key); });
  const Object* made = made_.Find(key);
  return made == nullptr ? nullptr : *made;
}

}  // namespace diapason
