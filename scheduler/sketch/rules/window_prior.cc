#include "scheduler/sketch/rules/window_prior.h"

namespace diapason {
namespace {

// Multiply-adds of an unrolled row of a window for one output, at most.
constexpr int64_t kMostRowOfWindow = 32;

// Axes of a convolution's output.
constexpr int kColumns = 2, kChannels = 3;

enum class Window { kNone, kRows, kChannels };

Window WindowOf(const Draft& draft, int id) {
  const Stage& op = draft.state().stage(id).op;
  if (op.axes.size() != 4 || op.reduce_axes.size() < 2 || op.reduce_axes.size() > 3) return Window::kNone;
  const int64_t row = op.terms() / op.reduce_axes[0].extent;
  if (row > kMostRowOfWindow || row == 1) return Window::kNone;
  if (IsRowOfWindow(draft.state(), id, ReduceAxes(draft.state(), id).back())) return Window::kRows;
  const int64_t channels = op.reduce_axes.back().extent;
  return op.reduce_axes.size() == 3 && (channels == 4 || channels > 7) ? Window::kChannels : Window::kNone;
}

// Rows of the window all at once or one by one, each whole.
void DeclareReduction(Draft* draft, int stage, Window window, const ReduceTiles& reduce) {
  for (const ReduceTiles::Axis& axis : reduce.axes) {
    const int64_t extent = draft->state().stage(stage).axis(axis.axis).extent;
    const bool outermost = axis.axis == reduce.axes.front().axis;
    draft->parameters().Prior(axis.r1, outermost && window == Window::kRows ? extent : 1);
    draft->parameters().Prior(axis.r2, outermost ? 1 : extent);
  }
  draft->parameters().Prior(reduce.stages, window == Window::kRows ? 1 : 3);
}

}  // namespace

bool DeclareWindowPrior(Draft* draft, int stage, const std::vector<GpuTile>& tiles, const ReduceTiles& reduce) {
  const Window window = WindowOf(*draft, stage);
  if (window == Window::kNone) return false;
  const bool rows = window == Window::kRows;
  for (int axis = 0; axis < static_cast<int>(tiles.size()); ++axis) {
    const GpuTile& tile = tiles[axis];
    const bool channels = axis == kChannels;
    draft->parameters().Prior(tile.threads, channels ? (rows ? 16 : 8) : 4);
    draft->parameters().Prior(tile.vthreads, 1);
    draft->parameters().Prior(tile.s3, 1);
    draft->parameters().Prior(tile.s4, axis == kColumns ? 4 : channels ? (rows ? 2 : 4) : 1);
  }
  DeclareReduction(draft, stage, window, reduce);
  return rows;
}

bool DeclareWindowPrior(Draft* draft, int stage, const std::vector<TensorTile>& tiles, const ReduceTiles& reduce) {
  const Window window = WindowOf(*draft, stage);
  if (window != Window::kRows) return false;
  for (int axis = 0; axis < static_cast<int>(tiles.size()); ++axis) {
    draft->parameters().Prior(tiles[axis].warps, axis == kColumns || axis == kChannels ? 1 : 4);
    draft->parameters().Prior(tiles[axis].tiles, axis == kChannels ? 1 : 2);
  }
  DeclareReduction(draft, stage, window, reduce);
  return true;
}

}  // namespace diapason
