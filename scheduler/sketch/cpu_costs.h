// What the analytic estimate takes a processor's work to cost.
#pragma once

namespace diapason {

// bench/fit_estimate says how well these fit what a history holds, and which would fit better; docs/lab-notes.md has
// how the first two were chosen.
struct CpuCosts {
  // share of the shorter of arithmetic and loads of a stage that is not hidden behind the longer one
  double core_overlap = 0.12;
  double memory_overlap = 0.02;  // the same of what caches take to bring operands, beside these two
  double l1_bytes = 48;          // that come into the first cache in a cycle
  double l2_bytes = 20;          // that come into the second
  double pass_cycles = 0.3;      // of a loop around an unrolled body, each time
  double spill_loads =
      2;  // of an accumulator that has no register, where there are many such, each time it is added to
  double many_spilled = 12;          // of fewer, most are operands that are read again
  double unrolled_registers = 1.15;  // for an accumulator where steps of the reduction are unrolled
  double long_code = 128;            // vectors of unrolled steps from which on compilers spill operands,
  double long_code_cycles = 0.3;     // which costs so much for each more
  double scalar_cycles = 3;          // of an operation that is not vectorised
  double gather_cycles = 10;         // of a byte that is copied from a place of its own
  double latency = 4;                // cycles of an addition that the next one waits for
  double window = 350;               // instructions that are under way at once
  double guard = 1;                  // cycles of a body's condition on a row or column beyond the tensor, each time
  double place = 0.5;                // of a place that is a quotient or remainder, of an element for all lanes
  double branch = 0;                 // of a condition around a term (padding that is folded), each time
  double tail = 0.02;                // of a block that a core waits for in the mean, at the end
  double weights_rate = 1.4;         // of memory's bandwidth that reading constants reaches
  double weights_overlap = 0.9;      // share of the shorter of that and all else that is not hidden behind the longer
  double kernel_seconds = 4e-6;      // of a launch
};

// For programs that fit them; all estimates of the process change with it. Not safe while others estimate.
CpuCosts& MutableCpuCosts();

}  // namespace diapason
