#include "scheduler/candidate.h"

#include "scheduler/random.h"

namespace diapason {

uint64_t CandidateHash(const std::string& space, absl::Span<const int32_t> decisions) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : space) hash = (hash ^ c) * 0x100000001b3u;
  for (int32_t decision : decisions) hash = Mix(hash ^ static_cast<uint32_t>(decision));
  return Mix(hash ^ decisions.size());
}

}  // namespace diapason
