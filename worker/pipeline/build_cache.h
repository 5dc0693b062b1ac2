// Programs that builders made, by all that they depend on: confirmations, verifications and networks ask again for what
// was built as a candidate.
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
  double seconds = 0;  // that building took
};

class BuildCache {
 public:
  // Keeps what was used last, of at most so many bytes (keys included).
  explicit BuildCache(size_t most_bytes) : programs_(most_bytes) {}

  // Null if it is not known. Holds until the next Put.
  const BuiltProgram* Find(const std::string& key) { return programs_.Find(key); }
  void Put(const std::string& key, BuiltProgram built) {
    const size_t bytes = built.program->size();
    programs_.Put(key, std::move(built), bytes);
  }

 private:
  LruCache<BuiltProgram> programs_;
};

}  // namespace diapason
