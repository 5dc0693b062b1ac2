// What the analytic estimate takes a processor's work to cost.
#pragma once

namespace diapason {

// bench/fit_estimate says how well these fit what a history holds, and which would fit better; docs/lab-notes.md has
// how the first two were chosen.
struct CpuCosts {
  // share of the shorter of arithmetic and loads of a stage that is not hidden behind the longer one
  double core_overlap = 0.1;
  double memory_overlap = 0.1;   // the same of what caches take to bring operands, beside these two
  double l1_bytes = 24;          // that come into the first cache in a cycle
  double l2_bytes = 10;          // that come into the second
  double pass_cycles = 2;        // of a loop around an unrolled body, each time
  double spill_loads = 2;        // of an accumulator that has no register, each time it is added to
  double scalar_cycles = 0.5;    // of an operation that is not vectorised
  double gather_cycles = 10;     // of a byte that is copied from a place of its own
  double latency = 4;            // cycles of an addition that the next one waits for
  double guard = 8;              // cycles of a body's condition on a row or column beyond the tensor, each time
  double kernel_seconds = 3e-6;  // of a launch
};

// For programs that fit them; all estimates of the process change with it. Not safe while others estimate.
CpuCosts& MutableCpuCosts();

}  // namespace diapason
