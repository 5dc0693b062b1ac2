// The end of `tune`'s report after the table: the next command, and warnings about the result.
#pragma once

#include <string>
#include <vector>

#include "cli/tune_flags.h"
#include "compiler/runtime/outcome.h"
#include "scheduler/progress.h"

namespace diapason {

// The spread of the samples of measurements. Not thread-safe.
class SpreadMeter {
 public:
  // Measurements that were stopped early or have one sample are ignored.
  void Add(const Timing& timing);
  // (largest - smallest sample) / median sample, the median over all measurements; 0 if there are fewer than five.
  double Typical() const;

 private:
  std::vector<double> spreads_;
};

// The command `diapason build ...` for what was tuned, quoted for a shell.
std::string BuildCommand(const TuneFlags& flags);

// Warnings of one sentence, with advice: tasks that were not timed, and timings that spread by more than 20%.
std::vector<std::string> TuneDoubts(const TuneReport& report, const TuneSpec& spec, double spread);

}  // namespace diapason
