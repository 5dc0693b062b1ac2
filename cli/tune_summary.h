// What `tune` says at its end besides the table: what to do next, and what is doubtful about the result.
#pragma once

#include <string>
#include <vector>

#include "cli/tune_flags.h"
#include "compiler/runtime/outcome.h"
#include "scheduler/progress.h"

namespace diapason {

// How far the samples of measurements lie apart. One thread at a time.
class SpreadMeter {
 public:
  // Of a measurement in full: those stopped early, or of one sample, tell nothing.
  void Add(const Timing& timing);
  // Largest less least sample over the median, of the median measurement; 0: there are fewer than five.
  double Typical() const;

 private:
  std::vector<double> spreads_;
};

// `diapason build ...` of what was tuned, as a shell takes it.
std::string BuildCommand(const TuneFlags& flags);

// One sentence each, with what to do: tasks that have no time, and timings that spread by more than 20%.
std::vector<std::string> TuneDoubts(const TuneReport& report, const TuneSpec& spec, double spread);

}  // namespace diapason
