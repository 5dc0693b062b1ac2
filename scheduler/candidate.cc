#include "scheduler/candidate.h"

#include <algorithm>

#include "scheduler/random.h"
#include "scheduler/space.h"

namespace diapason {

uint64_t CandidateHash(const std::string& space, absl::Span<const int32_t> configuration) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : space) hash = (hash ^ c) * 0x100000001b3u;
  for (int32_t value : configuration) hash = Mix(hash ^ static_cast<uint32_t>(value));
  return Mix(hash ^ configuration.size());
}

bool IsCandidate(const TaskSpace& spaces, int space, absl::Span<const int32_t> configuration) {
  if (space < 0 || static_cast<int>(configuration.size()) != spaces.space(space).size()) return false;
  std::vector<int32_t> clamped(configuration.begin(), configuration.end());
  spaces.space(space).Clamp(0, absl::MakeSpan(clamped));
  return std::equal(clamped.begin(), clamped.end(), configuration.begin());
}

}  // namespace diapason
