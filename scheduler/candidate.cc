#include "scheduler/candidate.h"

#include "scheduler/random.h"
#include "scheduler/space.h"

namespace diapason {
namespace {

// The configuration as Clamp leaves it; none if it is none of that space.
std::optional<std::vector<int32_t>> Clamped(const TaskSpace& spaces, int space,
                                            absl::Span<const int32_t> configuration) {
  if (space < 0 || static_cast<int>(configuration.size()) != spaces.space(space).size()) return std::nullopt;
  std::vector<int32_t> clamped(configuration.begin(), configuration.end());
  spaces.space(space).Clamp(0, absl::MakeSpan(clamped));
  return clamped;
}

}  // namespace

uint64_t CandidateHash(const std::string& space, absl::Span<const int32_t> configuration) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : space) hash = (hash ^ c) * 0x100000001b3u;
  for (int32_t value : configuration) hash = Mix(hash ^ static_cast<uint32_t>(value));
  return Mix(hash ^ configuration.size());
}

bool IsCandidate(const TaskSpace& spaces, int space, absl::Span<const int32_t> configuration) {
  const std::optional<std::vector<int32_t>> clamped = Clamped(spaces, space, configuration);
  return clamped && *clamped == configuration;
}

std::optional<std::vector<int32_t>> CandidateLike(const TaskSpace& spaces, int space,
                                                  absl::Span<const int32_t> configuration) {
  std::optional<std::vector<int32_t>> clamped = Clamped(spaces, space, configuration);
  if (!clamped || *clamped == configuration) return clamped;
  // Clamp changes a legal configuration only to one that makes the same program.
  Metrics before, after;
  spaces.space(space).Evaluate(configuration, &before);
  spaces.space(space).Evaluate(*clamped, &after);
  if (!before.legal || before.seconds != after.seconds) return std::nullopt;
  return clamped;
}

}  // namespace diapason
