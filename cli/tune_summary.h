// The end of `tune`'s report after the table: the next command, and warnings about the result.
#pragma once

#include <string>
#include <vector>

#include "cli/tune_flags.h"
#include "diapason/tuner.h"

namespace diapason {

// `diapason build ...` of what was tuned, as a shell takes it.
std::string BuildCommand(const TuneFlags& flags);

// One sentence each, with what to do: tasks that have no time, timings that spread by more than 20%, and a network
// whose latency is larger than the sum of its tasks' times by 30% or more (if these are times as in a network: the
// target says no other -caches).
std::vector<std::string> TuneDoubts(const api::TuneResult& result, const std::string& target);

}  // namespace diapason
