#include "scheduler/sketch/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>

#include "scheduler/sketch/feature_names.h"
#include "scheduler/sketch/gpu_estimate.h"
#include "scheduler/sketch/warp_loads.h"

namespace diapason {
namespace {

// A choice among literals by loop variables (a constant matrix): it vanishes when the loops are unrolled.
bool IsConstantTable(const ExprNode& e) {
  if (e.kind == ExprKind::kFloatImm) return true;
  return e.kind == ExprKind::kSelect && IsConstantTable(*e.args[1]) && IsConstantTable(*e.args[2]);
}

// Share of the iterations of a product with a constant matrix that is left when its zeros are folded away.
double ShareOfIterations(const StageState& stage) {
  double share = 1;
  Visit(stage.op.body, [&](const ExprNode& e) {
    if (e.kind == ExprKind::kSelect && IsConstantTable(e)) share = 0.12;
  });
  return share;
}

double OperationsOf(const StageState& stage) {
  double count = 0;
  Visit(stage.op.body, [&](const ExprNode& e) {
    if (!IsFloat(e.dtype) || IsConstantTable(e)) return;
    switch (e.kind) {
      case ExprKind::kAdd:
      case ExprKind::kSub:
      case ExprKind::kMul:
      case ExprKind::kMin:
      case ExprKind::kMax:
      case ExprKind::kSelect: count += 1; break;
      case ExprKind::kDiv: count += 4; break;
      case ExprKind::kCall: count += 16; break;
      default: break;
    }
  });
  return count + (stage.op.reduces() ? 1 : 0);
}

// Accesses of a body, each kind once: a choice between multiples of an element has it written once a multiple, and
// compilers load it once.
std::vector<int> DistinctAccesses(const std::vector<Access>& accesses) {
  auto same = [](const Access& a, const Access& b) {
    if (a.producer != b.producer) return false;
    for (size_t d = 0; d < a.dims.size(); ++d) {
      const Access::Dim &x = a.dims[d], &y = b.dims[d];
      if (!x.affine || !y.affine || x.constant != y.constant || x.axes != y.axes) return false;
    }
    return true;
  };
  std::vector<int> distinct;
  for (size_t i = 0; i < accesses.size(); ++i)
    if (std::none_of(distinct.begin(), distinct.end(), [&](int j) { return same(accesses[i], accesses[j]); }))
      distinct.push_back(static_cast<int>(i));
  return distinct;
}

bool IsQuotientOf(const ExprNode* var, const Expr& e) {
  if (e->kind == ExprKind::kFloorDiv && UsesVar(e->args[0], var)) return true;
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& arg) { return IsQuotientOf(var, arg); });
}

// The greatest common divisor of the numbers by which an expression divides a variable; 0 if it does not. A quotient
// that is divided again changes no more often.
int64_t DivisorOf(const ExprNode* var, const Expr& e) {
  const bool divides = (e->kind == ExprKind::kFloorDiv || e->kind == ExprKind::kFloorMod) &&
                       e->args[1]->kind == ExprKind::kIntImm && UsesVar(e->args[0], var);
  if (divides && !IsQuotientOf(var, e->args[0])) return e->args[1]->value;
  int64_t divisor = 0;
  for (const Expr& arg : e->args) divisor = std::gcd(divisor, DivisorOf(var, arg));
  return divisor;
}

// Elements that a copy finds side by side, and at multiples of as many, along its last axis; 0: any number. Vectors of
// another length read places that divisions compute one by one.
int64_t ElementsInARow(const StageState& stage) {
  if (stage.op.axes.empty() || stage.op.reduces() || stage.op.body == nullptr) return 0;
  return DivisorOf(stage.op.axes.back().var.get(), stage.op.body);
}

bool Unrolled(const StageState& stage, size_t position) {
  const Annotation a = stage.loops[stage.order[position]].annotation;
  return a == Annotation::kUnroll || a == Annotation::kVectorize;
}

}  // namespace

MetricsModel::MetricsModel(const Skeleton* skeleton, const Target& target, const DeviceFacts& facts)
    : skeleton_(skeleton), target_(target), facts_(facts) {
  const State& state = skeleton_->state();
  operations_.assign(state.size(), 0);
  in_a_row_.assign(state.size(), 0);
  share_.assign(state.size(), 1);
  summed_.assign(state.size(), -1);
  is_maximum_.assign(state.size(), 0);
  held_.assign(state.size(), 0);
  distinct_.resize(state.size());
  for (int id : state.topological()) {
    const StageState& stage = state.stage(id);
    if (!stage.computes()) continue;
    for (int loop : stage.order) {
      const Annotation a = stage.loops[loop].annotation;
      if ((a == Annotation::kCluster || a == Annotation::kThreadSet) && stage.loops[loop].reduce &&
          stage.attach_stage >= 0)
        summed_[stage.attach_stage] = id;
    }
    if (stage.carry.maximum >= 0) is_maximum_[stage.carry.maximum] = true;
    operations_[id] = OperationsOf(stage);
    in_a_row_[id] = ElementsInARow(stage);
    distinct_[id] = DistinctAccesses(skeleton_->accesses(id));
    if (stage.attach == StageState::Attach::kAt && stage.memory == Memory::kLocal && !stage.op.reduces())
      for (int producer : state.Producers(id)) held_[id] |= state.stage(producer).memory == Memory::kShared;
    share_[id] = ShareOfIterations(stage);
    if (stage.attach == StageState::Attach::kRoot && !stage.prologue) roots_.push_back(id);
  }
  members_.resize(roots_.size());
  for (int id : state.topological())
    for (size_t r = 0; r < roots_.size(); ++r)
      if (state.stage(id).computes() && skeleton_->root_of(id) == roots_[r]) members_[r].push_back(id);
}

MetricsModel::Resources MetricsModel::ResourcesOf(const Bounds& bounds, int kernel) const {
  ResourceCount count(skeleton_->state(), target_.kind, roots_[kernel]);
  for (int id : members_[kernel])
    count.Add(id, bounds.stages[id], {.is_maximum = is_maximum_[id] != 0, .holds_parts = summed_[id] >= 0});
  return count.Total();
}

void MetricsModel::ResourcesOf(const Bounds& bounds, std::vector<Resources>* kernels) const {
  kernels->clear();
  for (size_t k = 0; k < roots_.size(); ++k) kernels->push_back(ResourcesOf(bounds, static_cast<int>(k)));
}

// Partial results of an element that a stage holds, one of each block of the cluster and set of threads; 1 for all
// other stages.
int64_t MetricsModel::PartsOf(const Bounds& bounds, int id) const {
  if (summed_[id] < 0) return 1;
  const StageState& reduction = skeleton_->state().stage(summed_[id]);
  int64_t blocks = 1;
  for (int loop : reduction.order)
    if (reduction.loops[loop].annotation == Annotation::kCluster) blocks = bounds.stages[summed_[id]].extent[loop];
  return blocks * bounds.stages[id].thread_sets;
}

// How often the blocks of a cluster compute a stage again that they do not share: once each. 1 for all other stages.
int64_t MetricsModel::RepeatsInCluster(const Bounds& bounds, int id) const {
  const State& state = skeleton_->state();
  const auto rank_of = [&](int stage) {
    for (int loop : state.stage(stage).order)
      if (state.stage(stage).loops[loop].annotation == Annotation::kCluster) return bounds.stages[stage].extent[loop];
    return int64_t{0};
  };
  if (state.stage(id).attach == StageState::Attach::kRoot) return 1;
  int at = id;
  for (; state.stage(at).attach == StageState::Attach::kAt; at = state.stage(at).attach_stage)
    if (summed_[at] >= 0 || rank_of(at) > 0) return 1;
  return std::max<int64_t>(1, rank_of(at));
}

double MetricsModel::Executions(const Bounds& bounds, int id) const {
  const State& state = skeleton_->state();
  double product = static_cast<double>(PartsOf(bounds, id) * RepeatsInCluster(bounds, id));
  bool own_threads = state.stage(id).bulk;  // a block copies them, not each thread
  for (int loop : state.stage(id).order) {
    product *= static_cast<double>(bounds.stages[id].extent[loop]);
    own_threads |= state.stage(id).loops[loop].annotation == Annotation::kThreadX;
  }
  for (int at = id; state.stage(at).attach == StageState::Attach::kAt;) {
    const int up = state.stage(at).attach_stage;
    const int last = bounds.stages[at].attach_position;
    const StageState& parent = state.stage(up);
    bool threads = own_threads;  // all loops over threads are the one over those of the block
    for (int p = 0; p <= last; ++p) {
      const int loop = parent.order[p];
      const bool over_threads = parent.loops[loop].annotation == Annotation::kThreadX;
      threads |= over_threads;
      if (own_threads && over_threads) continue;
      product *= static_cast<double>(bounds.stages[up].extent[loop]);
    }
    own_threads = threads;
    at = up;
  }
  return product;
}

// Distinct elements that an access touches while the reader's loops at and inside a position run.
double MetricsModel::Footprint(const Bounds& bounds, const Access& access, int from) const {
  const State& state = skeleton_->state();
  const StageBounds& reader = bounds.stages[access.reader];
  const StageState& producer = state.stage(access.producer);
  const StageState& stage = state.stage(access.reader);
  double iterations = 1, product = 1;
  for (size_t p = std::max(from, 0); p < stage.order.size(); ++p)
    iterations *= static_cast<double>(reader.extent[stage.order[p]]);
  for (size_t d = 0; d < access.dims.size(); ++d) {
    const double whole = static_cast<double>(producer.op.axes[d].extent);
    const Access::Dim& dim = access.dims[d];
    // floordiv and floormod of fused axes: no more than the iterations, nor than the dimension.
    double span = whole, count = iterations;
    if (dim.affine) {
      span = count = 1;
      for (const auto& [axis, coefficient] : dim.axes) {
        for (const Term& t : reader.axis_terms[axis]) {
          if (t.stage != access.reader || skeleton_->position(t.stage, t.loop) < from) continue;
          const double steps = static_cast<double>(bounds.stages[t.stage].extent[t.loop]) - 1;
          span += std::abs(static_cast<double>(coefficient * t.coefficient)) * steps;
          count *= steps + 1;
        }
      }
    }
    product *= std::min({span, count, whole});
  }
  // Each iteration reads one element, whatever each dimension by itself allows.
  return std::min(product, iterations);
}

int MetricsModel::BodyPosition(const StageState& stage) {
  int position = static_cast<int>(stage.order.size());
  while (position > 0 && Unrolled(stage, position - 1)) --position;
  return position;
}

void MetricsModel::StageWork(const Bounds& bounds, int id, Work* work) const {
  const State& state = skeleton_->state();
  const StageState& stage = state.stage(id);
  const StageBounds& b = bounds.stages[id];
  work->executions = Executions(bounds, id);
  work->operations = operations_[id];
  const int body = BodyPosition(stage);
  for (size_t p = body; p < stage.order.size(); ++p) work->body *= static_cast<double>(b.extent[stage.order[p]]);
  int vector_loop = -1;
  if (!stage.order.empty() && stage.loops[stage.order.back()].annotation == Annotation::kVectorize) {
    vector_loop = stage.order.back();
    work->lanes = static_cast<double>(b.extent[vector_loop]);
  }
  int last = -1;  // producer of the access before: parts of it that are read apart are all of it together
  for (int a : distinct_[id]) {
    const Access& access = skeleton_->accesses(id)[a];
    const StageState& producer = state.stage(access.producer);
    const double touched = Footprint(bounds, access, body);
    work->operand_loads += touched;
    if (producer.attach == StageState::Attach::kAt) {
      if (producer.memory == Memory::kShared) {
        const WarpLoad load = LoadOfWarp(*skeleton_, target_.kind, bounds, access);
        const double lanes = LanesOfLoad(*skeleton_, bounds, access, body);
        work->conflict = std::max(work->conflict, load.conflict);
        work->shared_loads += touched / lanes;
        // A wavefront brings 128 bytes.
        work->wavefronts += touched / lanes * (lanes > 1 ? std::max(1.0, load.different * lanes / 32) : load.conflict);
      } else if (!held_[access.producer]) {
        work->other_loads += touched;
      }
    } else {
      work->other_loads += touched;
      const double bytes = BytesOf(producer.op.dtype);
      work->bytes += work->executions / std::max(1.0, work->body) * touched * bytes;
      if (access.producer != last) work->unique_bytes += static_cast<double>(producer.op.elements()) * bytes;
      last = access.producer;
    }
    if (vector_loop < 0) continue;
    // Lane stride: 0 a broadcast, 1 a vector load, else a gather.
    bool last_unit = !access.dims.empty() && !access.dims.back().affine, other = false;
    for (size_t d = 0; d < access.dims.size(); ++d) {
      if (!access.dims[d].affine) continue;
      for (const auto& [axis, coefficient] : access.dims[d].axes)
        for (const Term& t : b.axis_terms[axis])
          if (t.stage == id && t.loop == vector_loop) {
            if (d + 1 == access.dims.size() && coefficient * t.coefficient == 1)
              last_unit = true;
            else
              other = true;
          }
    }
    if (last_unit && !other) work->vector_loads += touched / work->lanes;
    if (other) work->vector_ok = 0;
  }
  if (!stage.op.axes.empty()) work->contiguous = static_cast<double>(b.buffer.back());
}

double MetricsModel::GpuSeconds(const Bounds& bounds, const Resources& kernel, float* features) const {
  GpuEstimate estimate(skeleton_->state(), target_.kind, facts_, kernel);
  for (int id : MembersOf(kernel)) {
    Work work;
    StageWork(bounds, id, &work);
    estimate.Add({.id = id, .share = share_[id], .held = held_[id] != 0}, bounds.stages[id], work);
  }
  return estimate.Seconds(features);
}

void MetricsModel::Evaluate(const Bounds& bounds, absl::Span<const int32_t> configuration,
                            const std::vector<Resources>& kernels, Metrics* metrics) const {
  std::memset(metrics->features, 0, sizeof(metrics->features));
  metrics->legal = std::all_of(kernels.begin(), kernels.end(), [this](const Resources& k) { return WithinLimits(k); });
  metrics->seconds = 0;
  float current[kKernelFeatures];
  double slowest = -1, second = -1;
  for (const Resources& kernel : kernels) {
    std::memset(current, 0, sizeof(current));
    const double seconds =
        target_.is_gpu() ? GpuSeconds(bounds, kernel, current) : CpuSeconds(bounds, configuration, kernel, current);
    metrics->seconds += seconds;
    if (seconds > slowest) {
      std::memcpy(metrics->features + kKernelFeatures, metrics->features, sizeof(current));
      std::memcpy(metrics->features, current, sizeof(current));
      second = slowest;
      slowest = seconds;
    } else if (seconds > second) {
      std::memcpy(metrics->features + kKernelFeatures, current, sizeof(current));
      second = seconds;
    }
  }
  int64_t cluster = 0;
  for (const Resources& kernel : kernels)
    if (kernel.cluster > 1) cluster = std::max(cluster, kernel.cluster);
  float* totals = metrics->features + kTotalFeaturesAt;
  const double values[] = {static_cast<double>(kernels.size()), Log2(metrics->seconds * 1e9),
                           second > 0 ? second / slowest : 0, static_cast<double>(cluster)};
  static_assert(std::size(values) == std::size(kTotalFeatureNames));
  std::copy(std::begin(values), std::end(values), totals);
  // The configuration itself tells apart what the numbers above do not (unrolling, padding, attach points).
  const size_t told = std::min<size_t>(configuration.size(), kParameterFeatures);
  for (size_t i = 0; i < told; ++i) metrics->features[kParameterFeaturesAt + i] = static_cast<float>(configuration[i]);
}

}  // namespace diapason
