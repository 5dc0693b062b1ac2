#include "scheduler/candidate.h"

#include <algorithm>
#include <utility>

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

std::optional<std::vector<int32_t>> CandidateLike(const TaskSpace& spaces, int space,
                                                  absl::Span<const int32_t> configuration) {
  if (space < 0 || static_cast<int>(configuration.size()) != spaces.space(space).size()) return std::nullopt;
  std::vector<int32_t> clamped(configuration.begin(), configuration.end());
  spaces.space(space).Clamp(0, absl::MakeSpan(clamped));
  if (std::equal(clamped.begin(), clamped.end(), configuration.begin())) return clamped;
  // A legal one is only left for another one that makes its program.
  Metrics metrics, stands_for;
  spaces.space(space).Evaluate(configuration, &metrics);
  spaces.space(space).Evaluate(clamped, &stands_for);
  const bool same = metrics.legal && metrics.seconds == stands_for.seconds;
  return same ? std::optional(std::move(clamped)) : std::nullopt;
}

}  // namespace diapason
