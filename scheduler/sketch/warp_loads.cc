#include "scheduler/sketch/warp_loads.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

// Of tensor cores, whose lanes are not those of the loops: eight rows of 16 bytes where k is innermost and rows are
// aligned (ldmatrix; of 16 bits also where it is not), else elements k = lane % 4 and column or row lane / 4. Over what
// a window slides, rows begin a step of it apart and overlap.
WarpLoad LoadOfFragment(const Skeleton& skeleton, const Bounds& bounds, const Access& access) {
  const StageBounds& producer = bounds.stages[access.producer];
  const StageState& stage = skeleton.state().stage(access.reader);
  if (producer.core_row > 0) return {1, 32};  // what they are laid out for
  const size_t spatial = stage.op.axes.size();
  bool k_innermost = false;
  int64_t row = producer.buffer.back() + producer.row_padding, step = 0;
  for (const auto& [axis, coefficient] : access.dims.back().axes) {
    if (static_cast<size_t>(axis) >= spatial) k_innermost = true;
    for (const Term& t : bounds.stages[access.reader].axis_terms[axis])
      if (t.stage == access.reader && t.loop == stage.tensor_n) step = coefficient * t.coefficient;
  }
  if (k_innermost && step > 0) row = step;
  const TensorIntrinsic& intrinsic = TensorIntrinsicOf(stage.tensor);
  const bool matrices = (k_innermost || intrinsic.transposes()) && row % intrinsic.row() == 0;
  row /= intrinsic.factors_per_register();  // in banks of 4 bytes
  int64_t known[32];
  int banks[32] = {0}, worst = 1;
  for (int lane = 0; lane < (matrices ? 8 : 32); ++lane) {
    known[lane] = matrices ? lane * row : k_innermost ? lane / 4 * row + lane % 4 : lane % 4 * row + lane / 4;
    if (std::find(known, known + lane, known[lane]) == known + lane) worst = std::max(worst, ++banks[known[lane] % 32]);
  }
  return {static_cast<double>(worst), 32};
}

}  // namespace

WarpLoad LoadOfWarp(const Skeleton& skeleton, TargetKind kind, const Bounds& bounds, const Access& access) {
  const State& state = skeleton.state();
  const StageBounds& producer = bounds.stages[access.producer];
  if (state.stage(access.reader).tensor != TensorMode::kNone && kind == TargetKind::kCuda)
    return LoadOfFragment(skeleton, bounds, access);
  IndexTerms terms;
  // Address coefficients of each thread loop's parts.
  struct Part {
    int64_t extent, address;
  };
  absl::InlinedVector<Part, 8> parts;
  int64_t stride = 1;
  for (size_t d = access.dims.size(); d-- > 0;) {
    if (!producer.region[d].full && skeleton.SplitIndex(bounds, access, static_cast<int>(d), &terms)) {
      for (const Term& t : terms.inner) {
        if (!skeleton.is_thread(t.stage, t.loop)) continue;
        int64_t compact = 0;
        LevelOf(producer.region[d], t.coefficient, &compact);
        // Lane stride of this part within the fused thread loop.
        const StageState& stage = state.stage(t.stage);
        const int fused = stage.loops[t.loop].fused_into;
        int64_t lane = 1;
        if (fused >= 0) {
          const std::vector<int>& all = stage.loops[fused].fused;
          for (size_t i = all.size(); i-- > 0 && all[i] != t.loop;) lane *= bounds.stages[t.stage].extent[all[i]];
        }
        parts.push_back({bounds.stages[t.stage].extent[t.loop], compact * stride});
        parts.push_back({lane, 0});
      }
    }
    stride *= producer.buffer[d] + (d + 1 == access.dims.size() ? producer.row_padding : 0);
  }
  if (parts.empty()) return {1, 1};
  int64_t address[32];
  int banks[32] = {0}, worst = 1, different = 0;
  for (int lane = 0; lane < 32; ++lane) {
    address[lane] = 0;
    for (size_t i = 0; i < parts.size(); i += 2)
      address[lane] += lane / parts[i + 1].extent % parts[i].extent * parts[i].address;
    bool seen = false;
    for (int before = 0; before < lane && !seen; ++before) seen = address[before] == address[lane];
    if (seen) continue;
    ++different;
    worst = std::max(worst, ++banks[((address[lane] % 32) + 32) % 32]);
  }
  return {static_cast<double>(worst), static_cast<double>(different)};
}

double LanesOfLoad(const Skeleton& skeleton, const Bounds& bounds, const Access& access, int body) {
  const StageBounds& producer = bounds.stages[access.producer];
  if (access.dims.empty() || !access.dims.back().affine) return 1;
  int64_t run = 1;
  for (const auto& [axis, coefficient] : access.dims.back().axes)
    for (const Term& t : bounds.stages[access.reader].axis_terms[axis])
      if (t.stage == access.reader && skeleton.position(t.stage, t.loop) >= body && coefficient * t.coefficient == 1)
        run = std::max(run, bounds.stages[t.stage].extent[t.loop]);
  const int64_t row = producer.buffer.back() + producer.row_padding;
  for (int64_t lanes : {4, 2})
    if (run % lanes == 0 && row % lanes == 0) return static_cast<double>(lanes);
  return 1;
}

}  // namespace diapason
