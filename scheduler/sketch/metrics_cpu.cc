// The analytic estimate and the features of a kernel on a processor.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "compiler/tensor/processor.h"
#include "scheduler/sketch/cpu_costs.h"
#include "scheduler/sketch/cpu_loops.h"
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

// A term of a reduction that is left out where it is neutral (padding), by a branch (compiler/lower/reductions.cc).
bool HasBranch(const StageState& stage) {
  if (!stage.op.reduces()) return false;
  const Expr& body = stage.op.body;
  const auto chooses = [](const Expr& e) { return e->kind == ExprKind::kSelect; };
  return chooses(body) || (body->kind == ExprKind::kMul && std::any_of(body->args.begin(), body->args.end(), chooses));
}

// What the estimate knows of a stage beside its loops.
struct CpuStage {
  const StageState& state;
  const DeviceFacts& facts;
  double operations;  // of one execution
  double share;       // of its iterations that are left after constants are folded
  int64_t in_a_row;   // MetricsModel::in_a_row_
};

// Cycles and instructions of one stage, of a core.
struct CpuStageWork {
  double compute = 0, loads = 0;  // cycles
  double passes = 0, body = 1;    // over the straight code; vectors of one
  double lanes = 1, scalar = 0, accumulators = 0, body_loads = 0;
  double memory1 = 0, memory2 = 0;  // bytes that come into the caches
};

class CpuStageModel {
 public:
  CpuStageModel(const CpuStage& stage, const CpuLoops& loops)
      : stage_(stage), loops_(loops), native_(stage.facts.vector_bytes / 4.0), lanes_(loops.lanes()) {}

  CpuStageWork Work() {
    w_.lanes = lanes_;
    w_.passes = loops_.Iterations(loops_.size()) / loops_.Iterations(loops_.body());
    w_.body = loops_.Iterations(loops_.body()) / lanes_;
    Compute();
    if (stage_.state.op.reduces()) HoldSums();
    w_.compute *= stage_.share;
    w_.loads *= stage_.share;
    w_.memory1 =
        loops_.Traffic(static_cast<double>(stage_.facts.l1_bytes) * 0.7, static_cast<double>(stage_.facts.l1_bytes));
    w_.memory2 = loops_.Traffic(static_cast<double>(stage_.facts.l2_bytes) * 0.7, 0);
    if (stage_.state.attach == StageState::Attach::kRoot)
      w_.memory2 += loops_.Results(loops_.size()) * static_cast<double>(BytesOf(stage_.state.op.dtype));
    return w_;
  }

 private:
  // Vector instructions for each vector of the loops.
  double Parts() const { return std::ceil(lanes_ / native_); }
  double PerCycle() const {
    const double cores = std::max(1, stage_.facts.num_cores);
    return std::max(0.25, stage_.facts.flops / cores / stage_.facts.clock_hz / 2 / native_);
  }

  void Compute() {
    const CpuCosts& costs = MutableCpuCosts();
    const double all = loops_.Iterations(loops_.size()), dot = DotBytes(stage_.state);
    const bool reduces = stage_.state.op.reduces(), branch = HasBranch(stage_.state);
    const double operations = stage_.operations - (branch ? 1 : 0);
    const double ops = std::max(1.0, reduces ? operations / 2 : operations);
    w_.compute = all / lanes_ * Parts() / dot * ops / PerCycle();
    // A vector that is never whole is computed lane by lane.
    bool apart = loops_.guards_lanes() ||
                 (!stage_.state.op.axes.empty() && static_cast<double>(stage_.state.op.axes.back().extent) < lanes_);
    for (size_t a = 0; a < loops_.accesses(); ++a) {
      const double elements = loops_.Elements(a, loops_.body());
      apart |= loops_.LanesOf(a) == LaneAccess::kApart;
      w_.body_loads += loops_.LanesOf(a) == LaneAccess::kNeighbours ? elements / lanes_ * Parts() : elements;
    }
    w_.body_loads /= dot;
    w_.loads = w_.passes * w_.body_loads / 2;
    if (!reduces) w_.loads += all / lanes_ * Parts();  // stores
    if (branch) w_.loads += all / lanes_ * costs.branch;
    if (apart || lanes_ <= 1) {
      w_.compute = all * ops * costs.scalar_cycles;
      w_.loads = all;
      w_.scalar = all;
    }
    if (stage_.in_a_row % static_cast<int64_t>(lanes_) != 0) w_.compute = all * costs.gather_cycles;
  }

  // Vectors of operands that a step of the reduction uses more than once.
  double OperandRegisters(double results, double steps) const {
    double registers = 0;
    for (size_t a = 0; a < loops_.accesses(); ++a) {
      if (loops_.LanesOf(a) != LaneAccess::kNeighbours) continue;
      const double vectors = loops_.Elements(a, loops_.body()) / lanes_ * Parts() / steps;
      if (vectors < results) registers += std::max(1.0, vectors);
    }
    return registers;
  }

  void HoldSums() {
    const CpuCosts& costs = MutableCpuCosts();
    const double held = loops_.Results(loops_.held()) / lanes_ * Parts();
    const double results = loops_.Results(loops_.body()) / lanes_ * Parts();
    const double steps = w_.body * Parts() / results;
    w_.accumulators = held;
    if (steps > 1) w_.loads += w_.passes * std::max(0.0, w_.body * Parts() - costs.long_code) * costs.long_code_cycles;
    // Compilers load the operands of unrolled steps early.
    const double needed = held * (steps > 1 ? costs.unrolled_registers : 1) + OperandRegisters(results, steps) + 1;
    const double missing = needed - stage_.facts.num_vector_registers;
    if (missing > 0)
      w_.loads += w_.passes * steps * missing * costs.spill_loads * std::min(1.0, missing / costs.many_spilled);
    // Sums begin in registers, and come in and out of memory where loops around them reduce as well.
    const double all = loops_.Iterations(loops_.size()), runs = all / loops_.Iterations(loops_.held());
    const bool once = loops_.Results(loops_.size()) / loops_.Results(loops_.held()) * 1.001 >= runs;
    w_.loads += runs * held * (once ? 1 : 3);
    // Few sums are a chain of dependent additions that cannot fill the pipeline, as far as the next tile's do not,
    // which the processor begins while this one's are under way.
    const double run = loops_.Iterations(loops_.held()) / lanes_ * Parts() * (1 + w_.body_loads / (w_.body * Parts()));
    const double chains = held * std::max(1.0, costs.window / run);
    w_.compute *= std::max(1.0, costs.latency * PerCycle() / std::max(1.0, chains));
  }

  const CpuStage& stage_;
  const CpuLoops& loops_;
  const double native_, lanes_;
  CpuStageWork w_;
};

}  // namespace

double MetricsModel::CpuSeconds(const Bounds& bounds, absl::Span<const int32_t> configuration, const Resources& kernel,
                                float* f) const {
  const CpuCosts& costs = MutableCpuCosts();
  const double cores = std::max(1, facts_.num_cores);
  const double blocks = static_cast<double>(kernel.blocks);
  const double balance = std::ceil(blocks / cores) * cores / blocks;
  CpuStageWork sum;
  double cycles = 0, operations = 0, unique = 0, constants = 0, loads_per_op = 0;
  for (int id : MembersOf(kernel)) {
    const StageState& stage = skeleton_->state().stage(id);
    const CpuLoops loops({*skeleton_, bounds, configuration}, id, distinct_[id], facts_.num_cores);
    const CpuStage about{stage, facts_, operations_[id], share_[id], in_a_row_[id]};
    const CpuStageWork w = CpuStageModel(about, loops).Work();
    const double used = loops.cores();
    const double core = Together(w.compute, w.loads, costs.core_overlap);
    const double memory = w.memory1 / costs.l1_bytes + w.memory2 / costs.l2_bytes;
    cycles += used * (Together(core, memory, costs.memory_overlap) +
                      w.passes * (costs.pass_cycles + costs.guard * loops.Guards() + costs.place * loops.Divided()));
    sum.compute += used * w.compute;
    sum.loads += used * w.loads;
    sum.memory1 += used * w.memory1;
    sum.memory2 += used * w.memory2;
    sum.scalar += used * w.scalar;
    sum.passes += used * w.passes;
    operations += used * loops.Iterations(loops.size()) * operations_[id];
    const Operands operands = OperandsOf(id);
    unique += operands.bytes;
    constants += operands.constant_bytes;
    if (!stage.op.reduces()) continue;
    sum.accumulators = std::max(sum.accumulators, w.accumulators);
    sum.body = std::max(sum.body, w.body);
    sum.lanes = std::max(sum.lanes, w.lanes);
    loads_per_op = std::max(loads_per_op, w.body_loads / std::max(1.0, w.body));
  }
  // Weights are not in a cache: those of other layers were read since.
  const double seconds =
      costs.kernel_seconds + Together(cycles / facts_.clock_hz / cores * balance * (1 + costs.tail * cores / blocks),
                                      constants / (facts_.bandwidth * costs.weights_rate), costs.weights_overlap);
  const double values[] = {Log2(blocks),
                           balance,
                           Log2(sum.compute),
                           Log2(sum.loads),
                           Log2(sum.memory1),
                           Log2(sum.memory2),
                           Log2(operations),
                           Log2(unique),
                           sum.accumulators,
                           loads_per_op,
                           Log2(sum.scalar),
                           Log2(sum.body),
                           Log2(sum.passes * 3),
                           sum.lanes,
                           Log2(kernel.local_bytes),
                           Log2(kernel.unrolled),
                           Log2(seconds * 1e9),
                           Log2(cycles),
                           operations / std::max(1.0, cycles),
                           sum.memory1 / std::max(1.0, operations),
                           sum.memory2 / std::max(1.0, operations)};
  static_assert(std::size(values) == std::size(kCpuFeatureNames));
  std::copy(std::begin(values), std::end(values), f);
  return seconds;
}

MetricsModel::Operands MetricsModel::OperandsOf(int id) const {
  Operands operands;
  int last = -1;
  for (int a : distinct_[id]) {
    const int producer = skeleton_->accesses(id)[a].producer;
    const StageState& read = skeleton_->state().stage(producer);
    if (read.attach == StageState::Attach::kAt || producer == last) continue;
    const auto bytes = static_cast<double>(read.op.elements() * BytesOf(read.op.dtype));
    operands.bytes += bytes;
    if (read.prologue || read.op.constant) operands.constant_bytes += bytes;
    last = producer;
  }
  return operands;
}

}  // namespace diapason
