// What sketch rules ask of the stages of a schedule.
#pragma once

#include <string>
#include <vector>

#include "compiler/schedule/state.h"

namespace diapason {

// Axes of a stage as loops before any step (their numbers are those of the axes).
std::vector<int> SpatialAxes(const State& state, int stage);
std::vector<int> ReduceAxes(const State& state, int stage);
int LongestReduceAxis(const State& state, int stage);  // the first of equal ones; -1 without a reduction
const std::string& AxisName(const State& state, int stage, int axis);
int LastLoop(const State& state, int stage);  // the one made last

bool NeedsTiling(const State& state, int stage);  // data reuse exists (Ansor's needs_multi_level_tiling)
bool IsInjective(const State& state, int stage);  // computed, without reduction
// The dimension of a stage along which neighbours are neighbours in memory: the last one, unless the stage moves
// elements and is computed where it is read.
int DimensionAlongMemory(const State& state, int stage);
bool IsExpensive(const State& state, int stage);  // calls a function or chooses by condition
// Says where a reader's loads lie (the samples of regions, the points of a grid), takes a long expression to do so,
// and is read many times: computed where it is read, it would be most of the kernel.
bool IsLongPlace(const State& state, int stage);
bool IsBound(const State& state, int stage);  // has block, thread or parallel loops
// True if a window moves by this axis over the last dimension of a stage that is read.
bool IsRowOfWindow(const State& state, int stage, int axis);
// By spatial axis of a reduction: whether each operand uses it, although every operand is reused along some other axis.
// `gemm_like`: whether each operand is reused along an axis of the other; if not, none is a batch axis.
std::vector<bool> BatchAxes(const State& state, int stage, bool* gemm_like);
// The only consumer, if it reads the stage point by point and is still free: a root without bound loops; else -1.
int ElementwiseConsumer(const State& state, int stage);

}  // namespace diapason
