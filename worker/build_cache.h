// Programs that builders made, by all that they depend on: confirmations, verifications and networks ask again for what was
// built as a candidate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

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
  explicit BuildCache(size_t most_bytes) : most_bytes_(most_bytes) {}

  // Null if it is not known. Holds until the next Put.
  const BuiltProgram* Find(const std::string& key);
  void Put(const std::string& key, BuiltProgram built);

 private:
  struct Entry {
    std::string key;
    BuiltProgram built;
    size_t bytes() const { return 2 * key.size() + built.program->size(); }
  };

  const size_t most_bytes_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // used last in front
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
};

}  // namespace diapason
