// Cache of built programs. The key contains everything that a program depends on, so that confirmations, verifications
// and checks of networks reuse what was built for a candidate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/lru_cache.h"

namespace diapason {

struct BuiltProgram {
  std::shared_ptr<const std::string> program;  // serialized
  std::string compiler;
  std::vector<int32_t> registers, spill_bytes;
  double seconds = 0;  // time that the build took
};

class BuildCache {
 public:
  // Keeps the most recently used programs, up to this total size including keys.
  explicit BuildCache(size_t most_bytes) : programs_(most_bytes) {}

  // Null if there is none. The pointer is valid until the next Put.
  const BuiltProgram* Find(const std::string& key) { return programs_.Find(key); }
  void Put(const std::string& key, BuiltProgram built) {
    const size_t bytes = built.program->size();
    programs_.Put(key, std::move(built), bytes);
  }

 private:
  LruCache<BuiltProgram> programs_;
};

}  // namespace diapason
