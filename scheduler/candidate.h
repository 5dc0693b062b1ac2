// What a search proposes and what it learns from measurements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace diapason {

class TaskSpace;

// Names a candidate within its task: of the space's name and the configuration, so that it means the same in every
// process and for as long as the space keeps its name. Stored in histories: never changes.
uint64_t CandidateHash(const std::string& space, absl::Span<const int32_t> configuration);

struct Candidate {
  int space = 0;  // index in the TaskSpace
  std::vector<int32_t> configuration;
  uint64_t hash = 0;
  double analytic_seconds = 0;
  double predicted_seconds = 0;  // by the model that chose it; the analytic estimate before there is one
};

// Whether this is a configuration that space number `space` (below 0: none) would make today: what another version
// recorded may be out of its domains.
bool IsCandidate(const TaskSpace& spaces, int space, absl::Span<const int32_t> configuration);
// The candidate that makes the program of such a configuration: itself, or one that stands for equal ones. None if the
// space would make no such program.
std::optional<std::vector<int32_t>> CandidateLike(const TaskSpace& spaces, int space,
                                                  absl::Span<const int32_t> configuration);

}  // namespace diapason
