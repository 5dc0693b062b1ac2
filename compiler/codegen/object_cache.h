// Objects that the C compiler made in this process, by all that they depend on: candidates of one task share most of
// their kernels, and so do the tasks of one network.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_set>

#include "base/lru_cache.h"
#include "base/mutex.h"

namespace diapason {

// Of two threads that need the same object, one makes it. Safe from several threads.
class ObjectCache {
 public:
  using Object = std::shared_ptr<const std::string>;

  // Keeps what was used last, of at most so many bytes (keys included).
  explicit ObjectCache(size_t most_bytes) : made_(most_bytes) {}

  enum class State {
    kKnown,    // here it is
    kClaimed,  // the caller is to make it, then to call Put or GiveUp
    kBusy,     // another thread makes it: do other things, then Wait
  };
  struct Answer {
    State state;
    Object object;
  };
  Answer Ask(const std::string& key);
  // REQUIRES: the caller has claimed the key.
  void Put(const std::string& key, Object object);
  void GiveUp(const std::string& key);
  // Until the other thread is done. Null if it gave up: Ask again.
  Object Wait(const std::string& key);

 private:
  Mutex mutex_;
  CondVar changed_;
  LruCache<Object> made_ ABSL_GUARDED_BY(mutex_);
  std::unordered_set<std::string> under_way_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace diapason
