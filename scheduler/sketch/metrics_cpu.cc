// The analytic estimate and the features of a kernel on a processor.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "scheduler/sketch/feature_names.h"
#include "scheduler/sketch/metrics.h"

namespace diapason {

// Bytes that a stage's operands bring into a cache of that capacity: the loops whose footprint fits run from the cache, each
// pass over them fetches it anew.
double MetricsModel::CacheTraffic(const Bounds& bounds, int id, double capacity) const {
  const State& state = skeleton_->state();
  const StageState& stage = state.stage(id);
  const double total = Executions(bounds, id);
  double inner = 1, traffic = 0;
  for (int from = static_cast<int>(stage.order.size()); from >= 0; --from) {
    if (from < static_cast<int>(stage.order.size())) inner *= static_cast<double>(bounds.stages[id].extent[stage.order[from]]);
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
  const double cores = std::max(1, facts_.num_cores);
  const double native = facts_.vector_bytes / 4.0;
  const double fma_per_cycle = std::max(0.25, facts_.flops / cores / facts_.clock_hz / 2 / native);
  const double blocks = static_cast<double>(kernel.blocks);
  const double balance = std::ceil(blocks / cores) * cores / blocks;
  double cycles = 0, compute = 0, loads = 0, l1 = 0, l2 = 0, operations = 0, unique = 0, accumulators = 0, loads_per_op = 0;
  double scalar = 0, body = 1, overhead = 0, vector = 1;
  for (int id : MembersOf(kernel)) {
    const StageState& stage = state.stage(id);
    Work w;
    StageWork(bounds, id, &w);
    const double lanes = std::max(1.0, w.lanes);
    const double vectors = w.executions / lanes * std::ceil(lanes / native);
    const double ops = std::max(1.0, stage.op.reduces() ? w.operations / 2 : w.operations);
    double stage_compute = vectors * ops / fma_per_cycle;
    const double passes = w.executions / w.body;
    double body_loads = w.vector_loads * std::ceil(lanes / native) + std::max(0.0, w.operand_loads - w.vector_loads * lanes);
    double stage_loads = passes * body_loads / 2;
    if (!w.vector_ok || w.lanes <= 1) {
      stage_compute = w.executions * ops / 2;
      stage_loads = w.executions;
      scalar += w.executions;
    }
    if (stage.op.reduces()) {
      double held = w.body / lanes * std::ceil(lanes / native);
      // Accumulators of the body stay in registers if they fit beside the operands.
      // Lanes of a vector that share a result have one each.
      for (size_t p = BodyPosition(stage); p < stage.order.size(); ++p)
        if (stage.loops[stage.order[p]].reduce && stage.loops[stage.order[p]].annotation != Annotation::kVectorize) held /= static_cast<double>(bounds.stages[id].extent[stage.order[p]]);
      accumulators = std::max(accumulators, held);
      if (held + 3 > facts_.num_vector_registers) stage_loads += vectors * 2 * (1 - (facts_.num_vector_registers - 3) / held);
      // Every pass over the innermost reduce loops brings the accumulators in and out, unless it is the only one.
      double chain = w.body;
      int p = BodyPosition(stage);
      while (p > 0 && stage.loops[stage.order[p - 1]].reduce) chain *= static_cast<double>(bounds.stages[id].extent[stage.order[--p]]);
      stage_loads += w.executions / chain * held;
      // A short chain of dependent additions cannot fill the pipeline of latency 4.
      stage_compute *= std::max(1.0, 4 * fma_per_cycle / std::max(1.0, held));
      loads_per_op = std::max(loads_per_op, body_loads / std::max(1.0, w.body / lanes));
      body = std::max(body, w.body / lanes);
      vector = std::max(vector, lanes);
    }
    overhead += passes * 3;
    const double bytes1 = CacheTraffic(bounds, id, facts_.l1_bytes * 0.7), bytes2 = CacheTraffic(bounds, id, facts_.l2_bytes * 0.7);
    l1 += bytes1;
    l2 += bytes2;
    cycles += std::max({stage_compute * share_[id], stage_loads * share_[id], bytes1 / 24, bytes2 / 10}) + passes * 2;
    compute += stage_compute;
    loads += stage_loads;
    operations += w.executions * w.operations;
    unique += w.unique_bytes;
  }
  const double seconds = 3e-6 + cycles / facts_.clock_hz / cores * balance;
  const double values[] = {Log2(blocks), balance, Log2(compute), Log2(loads), Log2(l1), Log2(l2), Log2(operations), Log2(unique),
                       accumulators, loads_per_op, Log2(scalar), Log2(body), Log2(overhead), vector,
                       Log2(kernel.local_bytes), Log2(kernel.unrolled), Log2(seconds * 1e9), Log2(cycles),
                       operations / std::max(1.0, cycles), l1 / std::max(1.0, operations), l2 / std::max(1.0, operations)};
  static_assert(std::size(values) == std::size(kCpuFeatureNames));
  std::copy(std::begin(values), std::end(values), f);
  return seconds;
}

}  // namespace diapason
