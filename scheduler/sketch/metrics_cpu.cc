// The analytic estimate and the features of a kernel on a processor.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "compiler/tensor/processor.h"
#include "scheduler/sketch/cpu_costs.h"
#include "scheduler/sketch/feature_names.h"
#include "scheduler/sketch/metrics.h"

namespace diapason {

CpuCosts& MutableCpuCosts() {
  static CpuCosts costs;
  return costs;
}

namespace {

// The longest takes its time, of the others what is not hidden behind it.
double Together(double a, double b, double not_hidden) { return std::max(a, b) + not_hidden * std::min(a, b); }

// Multiply-adds of one instruction along the reduction: the innermost loop of it, where that is a dot product of bytes
// (rules/byte_dots.h).
double DotBytes(const StageState& stage) {
  const size_t loops = stage.order.size();
  if (loops < 2 || !stage.op.reduces() || stage.op.dtype != DType::kInt32 || stage.op.body->kind != ExprKind::kMul ||
      ByteFactor(stage.op.body->args[0]) == nullptr || ByteFactor(stage.op.body->args[1]) == nullptr)
    return 1;
  const Loop& inner = stage.loops[stage.order[loops - 2]];
  const bool vectors = stage.loops[stage.order[loops - 1]].annotation == Annotation::kVectorize;
  return vectors && inner.reduce && inner.annotation == Annotation::kUnroll ? kDotBytes : 1;
}

}  // namespace

// Conditions of one pass over a stage's unrolled body, in the mean: on rows or columns of it that may lie beyond the
// tensor. Whole tiles have none.
double MetricsModel::GuardsOfBody(const Bounds& bounds, int id) const {
  const StageState& stage = skeleton_->state().stage(id);
  const StageBounds& b = bounds.stages[id];
  const size_t body = static_cast<size_t>(BodyPosition(stage));
  double guards = 0;
  for (size_t a = 0; a < stage.op.axes.size(); ++a) {
    int64_t last = 0;
    double rows = 1;
    for (const Term& t : b.axis_terms[a]) {
      const int64_t extent = bounds.stages[t.stage].extent[t.loop];
      if (t.coefficient > 0) last += t.coefficient * (extent - 1);
      const int position = t.stage == id ? skeleton_->position(t.stage, t.loop) : -1;
      if (position >= static_cast<int>(body) && stage.loops[t.loop].annotation != Annotation::kVectorize)
        rows *= static_cast<double>(extent);
    }
    const auto extent = static_cast<double>(stage.op.axes[a].extent);
    if (last >= stage.op.axes[a].extent) guards += rows * std::min(1.0, rows / extent);
  }
  return guards;
}

// Bytes that a stage's operands bring into a cache of that capacity: the loops whose footprint fits run from the cache,
// each pass over them fetches it anew.
double MetricsModel::CacheTraffic(const Bounds& bounds, int id, double capacity) const {
  const State& state = skeleton_->state();
  const StageState& stage = state.stage(id);
  const double total = Executions(bounds, id);
  double inner = 1, traffic = 0;
  for (int from = static_cast<int>(stage.order.size()); from >= 0; --from) {
    if (from < static_cast<int>(stage.order.size()))
      inner *= static_cast<double>(bounds.stages[id].extent[stage.order[from]]);
    double footprint = 0;
    for (int a : distinct_[id]) {
      const Access& access = skeleton_->accesses(id)[a];
      footprint += Footprint(bounds, access, from) * BytesOf(state.stage(access.producer).op.dtype);
    }
    if (footprint > capacity && from < static_cast<int>(stage.order.size())) break;
    traffic = total / inner * footprint;
  }
  return traffic;
}

double MetricsModel::CpuSeconds(const Bounds& bounds, const Resources& kernel, float* f) const {
  const State& state = skeleton_->state();
  const CpuCosts& costs = MutableCpuCosts();
  const double cores = std::max(1, facts_.num_cores);
  const double native = facts_.vector_bytes / 4.0;
  const double fma_per_cycle = std::max(0.25, facts_.flops / cores / facts_.clock_hz / 2 / native);
  const double blocks = static_cast<double>(kernel.blocks);
  const double balance = std::ceil(blocks / cores) * cores / blocks;
  double cycles = 0, compute = 0, loads = 0, l1 = 0, l2 = 0, operations = 0, unique = 0, accumulators = 0,
         loads_per_op = 0;
  double scalar = 0, body = 1, overhead = 0, vector = 1;
  for (int id : MembersOf(kernel)) {
    const StageState& stage = state.stage(id);
    Work w;
    StageWork(bounds, id, &w);
    const double lanes = std::max(1.0, w.lanes);
    const double dot = DotBytes(stage);
    const double vectors = w.executions / lanes * std::ceil(lanes / native) / dot;
    const double ops = std::max(1.0, stage.op.reduces() ? w.operations / 2 : w.operations);
    double stage_compute = vectors * ops / fma_per_cycle;
    const double passes = w.executions / w.body;
    double body_loads =
        (w.vector_loads * std::ceil(lanes / native) + std::max(0.0, w.operand_loads - w.vector_loads * lanes)) / dot;
    double stage_loads = passes * body_loads / 2;
    if (!w.vector_ok || w.lanes <= 1) {
      stage_compute = w.executions * ops * costs.scalar_cycles;
      stage_loads = w.executions;
      scalar += w.executions;
    }
    if (in_a_row_[id] % static_cast<int64_t>(lanes) != 0) stage_compute = w.executions * costs.gather_cycles;
    if (stage.op.reduces()) {
      double held = w.body / lanes * std::ceil(lanes / native);
      // Accumulators of the body stay in registers if they fit beside the operands.
      // Lanes of a vector that share a result have one each.
      for (size_t p = BodyPosition(stage); p < stage.order.size(); ++p)
        if (stage.loops[stage.order[p]].reduce && stage.loops[stage.order[p]].annotation != Annotation::kVectorize)
          held /= static_cast<double>(bounds.stages[id].extent[stage.order[p]]);
      accumulators = std::max(accumulators, held);
      if (held + 3 > facts_.num_vector_registers)
        stage_loads += vectors * costs.spill_loads * (1 - (facts_.num_vector_registers - 3) / held);
      // Every pass over the innermost reduce loops brings the accumulators in and out, unless it is the only one.
      double chain = w.body;
      int p = BodyPosition(stage);
      while (p > 0 && stage.loops[stage.order[p - 1]].reduce)
        chain *= static_cast<double>(bounds.stages[id].extent[stage.order[--p]]);
      stage_loads += w.executions / chain * held;
      // A short chain of dependent additions cannot fill the pipeline of latency 4.
      stage_compute *= std::max(1.0, costs.latency * fma_per_cycle / std::max(1.0, held));
      loads_per_op = std::max(loads_per_op, body_loads / std::max(1.0, w.body / lanes));
      body = std::max(body, w.body / lanes);
      vector = std::max(vector, lanes);
    }
    overhead += passes * 3;
    const double bytes1 = CacheTraffic(bounds, id, facts_.l1_bytes * 0.7),
                 bytes2 = CacheTraffic(bounds, id, facts_.l2_bytes * 0.7);
    l1 += bytes1;
    l2 += bytes2;
    const double core = Together(stage_compute * share_[id], stage_loads * share_[id], costs.core_overlap);
    const double memory = bytes1 / costs.l1_bytes + bytes2 / costs.l2_bytes;
    cycles += Together(core, memory, costs.memory_overlap) +
              passes * (costs.pass_cycles + costs.guard * GuardsOfBody(bounds, id));
    compute += stage_compute;
    loads += stage_loads;
    operations += w.executions * w.operations;
    unique += w.unique_bytes;
  }
  const double seconds = costs.kernel_seconds + cycles / facts_.clock_hz / cores * balance;
  const double values[] = {Log2(blocks),
                           balance,
                           Log2(compute),
                           Log2(loads),
                           Log2(l1),
                           Log2(l2),
                           Log2(operations),
                           Log2(unique),
                           accumulators,
                           loads_per_op,
                           Log2(scalar),
                           Log2(body),
                           Log2(overhead),
                           vector,
                           Log2(kernel.local_bytes),
                           Log2(kernel.unrolled),
                           Log2(seconds * 1e9),
                           Log2(cycles),
                           operations / std::max(1.0, cycles),
                           l1 / std::max(1.0, operations),
                           l2 / std::max(1.0, operations)};
  static_assert(std::size(values) == std::size(kCpuFeatureNames));
  std::copy(std::begin(values), std::end(values), f);
  return seconds;
}

}  // namespace diapason
