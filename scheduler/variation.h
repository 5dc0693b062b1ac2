// Ways to make a configuration: sampling, mutation, crossover, enumeration. All results are legal by construction.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/random.h"
#include "scheduler/space.h"

namespace diapason {

// `values` is scratch space, kept by the caller so that no call allocates.

// Each parameter uniformly from its domain, in order.
void SampleConfiguration(const Space& space, Random* random, absl::Span<int32_t> configuration,
                         std::vector<int32_t>* values);

// Redraws one parameter that has a choice (half the time a neighbouring value, else any other) and clamps those behind
// it. False, and nothing changed, when no parameter has a choice.
bool Mutate(const Space& space, Random* random, absl::Span<int32_t> configuration, std::vector<int32_t>* values);

// Takes into `configuration` some parameters of `other`: those behind a cut, or each with a chance of a half.
void Crossover(const Space& space, Random* random, absl::Span<const int32_t> other, absl::Span<int32_t> configuration);

// All configurations one behind the other, if there are at most `limit`; else false.
bool Enumerate(const Space& space, int limit, std::vector<int32_t>* out);

}  // namespace diapason
