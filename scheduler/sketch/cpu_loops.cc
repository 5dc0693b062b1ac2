#include "scheduler/sketch/cpu_loops.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace diapason {
namespace {

constexpr double kLineBytes = 64;
constexpr int64_t kPageBytes = 4096;  // lines of the first cache are found by their place in one

}  // namespace

CpuLoops::CpuLoops(const Source& source, int id, const std::vector<int>& accesses, int cores) {
  const State& state = source.skeleton.state();
  FindBody(source, id);
  for (int at = id; state.stage(at).attach == StageState::Attach::kAt;) {
    const int up = state.stage(at).attach_stage;
    for (int p = source.bounds.stages[at].attach_position; p >= 0; --p) AddLoop(source, up, state.stage(up).order[p]);
    at = up;
  }
  CountGuards(source, id);
  ShareAmongCores(source, cores);
  for (int a : accesses) AddOperand(source, source.skeleton.accesses(id)[a]);
  bool again = false;  // a loop that reduces is around those that hold sums
  for (size_t i = held_; i < loops_.size(); ++i) again |= loops_[i].stage == id && !loops_[i].moves_result;
  if (held_ > 0 && again) AddSums(source, id);
}

void CpuLoops::AddLoop(const Source& source, int stage, int loop) {
  const diapason::Loop& l = source.skeleton.state().stage(stage).loops[loop];
  for (size_t i = l.fused.size(); i-- > 0;) AddLoop(source, stage, l.fused[i]);
  const auto extent = static_cast<double>(source.bounds.stages[stage].extent[loop]);
  if (l.fused.empty() && extent > 1) loops_.push_back({stage, loop, extent, !l.reduce});
}

// The stage's own loops, and which of them are unrolled and which hold sums, as lowering decides it
// (LoopValues::MarkUnrolled, StageLoops::RegisterPosition).
void CpuLoops::FindBody(const Source& source, int id) {
  const StageState& stage = source.skeleton.state().stage(id);
  const std::vector<int64_t>& extents = source.bounds.stages[id].extent;
  const int64_t limit = stage.unroll.Eval(source.configuration);
  int64_t product = 1;
  bool straight = true, holds = stage.op.reduces();
  for (size_t p = stage.order.size(); p-- > 0;) {
    const int loop = stage.order[p];
    const Annotation annotation = stage.loops[loop].annotation;
    if (annotation == Annotation::kNone || annotation == Annotation::kUnroll) product *= extents[loop];
    const bool unrolled = annotation == Annotation::kUnroll || annotation == Annotation::kVectorize ||
                          (annotation == Annotation::kNone && product <= limit);
    straight &= unrolled || extents[loop] == 1;
    holds &= unrolled || extents[loop] == 1 || stage.loops[loop].reduce;
    if (annotation == Annotation::kVectorize && p + 1 == stage.order.size())
      lanes_ = static_cast<double>(std::max<int64_t>(1, extents[loop]));
    AddLoop(source, id, loop);
    if (straight) body_ = loops_.size();
    if (holds) held_ = loops_.size();
  }
}

// Each core has its share of the iterations of the parallel loop: of its outermost parts.
void CpuLoops::ShareAmongCores(const Source& source, int cores) {
  const State& state = source.skeleton.state();
  double left = cores;
  for (size_t i = loops_.size(); i-- > 0 && left > 1;) {
    const StageState& stage = state.stage(loops_[i].stage);
    const int leaf =
        stage.loops[loops_[i].loop].fused_into >= 0 ? stage.loops[loops_[i].loop].fused_into : loops_[i].loop;
    if (stage.loops[leaf].annotation != Annotation::kParallel) break;
    const double part = std::min(left, loops_[i].extent);
    loops_[i].extent /= part;
    left /= part;
    cores_ *= part;
  }
}

int CpuLoops::PlaceOf(int stage, int loop) const {
  for (size_t i = 0; i < loops_.size(); ++i)
    if (loops_[i].loop == loop && loops_[i].stage == stage) return static_cast<int>(i);
  return -1;
}

void CpuLoops::AddOperand(const Source& source, const Access& access) {
  const StageState& producer = source.skeleton.state().stage(access.producer);
  const bool attached = producer.attach == StageState::Attach::kAt;
  const int64_t most = attached ? source.bounds.stages[access.producer].elements() : producer.op.elements();
  Operand operand{
      LaneAccess::kSame, 0, static_cast<double>(BytesOf(producer.op.dtype)), static_cast<double>(most), 0, {}, false};
  for (size_t d = 0; d < access.dims.size(); ++d) {
    operand.dims.push_back({access.dims[d].affine, static_cast<double>(producer.op.axes[d].extent), {}});
    AddSteps(source, access, d, &operand);
  }
  if (operand.quotients && operand.lanes == LaneAccess::kSame) operand.lanes = LaneAccess::kApart;
  double rows = 1;
  int64_t distance = 0, stride = 1;  // of the innermost dimension that moves in a pass, and of dimensions
  for (size_t d = operand.dims.size(); d-- > 0;) {
    const double count = CountOf(operand.dims[d], body_);
    if (count > 1 && d + 1 < operand.dims.size()) {
      if (distance == 0) distance = stride * static_cast<int64_t>(operand.bytes);
      rows *= count;
    }
    // Bounds of a stage that no kernel computes are left over from another sketch.
    stride *= attached ? source.bounds.stages[access.producer].buffer[d] : static_cast<int64_t>(operand.dims[d].whole);
  }
  // Places that divisions make lie behind each other as a rule.
  const bool affine = std::all_of(operand.dims.begin(), operand.dims.end(), [](const Dim& dim) { return dim.affine; });
  if (affine && distance > 0) operand.crowd = rows * static_cast<double>(std::gcd(distance, kPageBytes)) / kPageBytes;
  operands_.push_back(std::move(operand));
}

// The loops that move a dimension of an operand.
void CpuLoops::AddSteps(const Source& source, const Access& access, size_t d, Operand* operand) const {
  const Access::Dim& dim = access.dims[d];
  const bool last = d + 1 == access.dims.size();
  const auto add = [&](int axis, int64_t coefficient) {
    for (const Term& t : source.bounds.stages[access.reader].axis_terms[axis]) {
      const int place = PlaceOf(t.stage, t.loop);
      if (place < 0) continue;
      const double distance = std::abs(static_cast<double>(coefficient * t.coefficient));
      operand->dims[d].steps.push_back({place, distance});
      operand->moved_by |= uint64_t{1} << std::min(place, 63);
      if (lanes_ <= 1 || place > 0) continue;
      // Quotients and remainders of the lanes are neighbours as a rule, if the last dimension moves with them.
      if (!last && !dim.affine) {
        operand->quotients = true;
        continue;
      }
      const bool neighbours = last && (distance == 1 || !dim.affine) && operand->lanes == LaneAccess::kSame;
      operand->lanes = neighbours ? LaneAccess::kNeighbours : LaneAccess::kApart;
    }
  };
  for (const auto& [axis, coefficient] : dim.axes)
    if (dim.affine) add(axis, coefficient);
  for (int axis : dim.moved_by) add(axis, 1);
}

void CpuLoops::AddSums(const Source& source, int id) {
  const StageState& stage = source.skeleton.state().stage(id);
  sums_.emplace(Operand{LaneAccess::kNeighbours,
                        0,
                        static_cast<double>(BytesOf(stage.op.dtype)),
                        static_cast<double>(source.bounds.stages[id].elements()),
                        0,
                        {},
                        false});
  for (size_t a = 0; a < stage.op.axes.size(); ++a) {
    Dim dim{true, static_cast<double>(source.bounds.stages[id].buffer[a]), {}};
    for (const Term& t : source.bounds.stages[id].axis_terms[a]) {
      const int place = PlaceOf(t.stage, t.loop);
      if (place < 0 || t.stage != id) continue;
      dim.steps.push_back({place, 1});
      sums_->moved_by |= uint64_t{1} << std::min(place, 63);
    }
    sums_->dims.push_back(std::move(dim));
  }
}

void CpuLoops::CountGuards(const Source& source, int id) {
  const StageState& stage = source.skeleton.state().stage(id);
  for (size_t a = 0; a < stage.op.axes.size(); ++a) {
    int64_t last = 0;
    double rows = 1;
    bool lanes = false;
    for (const Term& t : source.bounds.stages[id].axis_terms[a]) {
      const int place = PlaceOf(t.stage, t.loop);
      const int64_t extent = source.bounds.stages[t.stage].extent[t.loop];
      if (t.coefficient > 0) last += t.coefficient * (extent - 1);
      const bool lane = lanes_ > 1 && place == 0;
      lanes |= lane;
      if (place >= 0 && place < static_cast<int>(body_) && !lane) rows *= static_cast<double>(extent);
    }
    if (last < stage.op.axes[a].extent) continue;
    lanes_beyond_ |= lanes && stage.op.axes[a].extent % static_cast<int64_t>(lanes_) != 0;
    rows_beyond_ |= !lanes;
    guards_ += rows * std::min(1.0, rows / static_cast<double>(stage.op.axes[a].extent));
  }
}

double CpuLoops::Iterations(size_t loops) const {
  double product = 1;
  for (size_t i = 0; i < loops; ++i) product *= loops_[i].extent;
  return product;
}

double CpuLoops::Results(size_t loops) const {
  double product = 1;
  for (size_t i = 0; i < loops; ++i) product *= loops_[i].moves_result ? loops_[i].extent : 1;
  return product;
}

double CpuLoops::CountOf(const Dim& dim, size_t loops) const {
  double span = 1, count = 1;
  for (const Step& step : dim.steps) {
    if (step.place >= static_cast<int>(loops)) continue;
    span += step.distance * (loops_[step.place].extent - 1);
    count *= loops_[step.place].extent;
  }
  return dim.affine ? std::min({span, count, dim.whole}) : std::min(count, dim.whole);
}

double CpuLoops::Reads(const Operand& operand, size_t loops) const {
  double product = 1;
  for (size_t i = 0; i < loops; ++i)
    if (operand.moved_by >> std::min<size_t>(i, 63) & 1) product *= loops_[i].extent;
  return std::min(product, operand.most);
}

double CpuLoops::Elements(size_t access, size_t loops) const {
  const Operand& operand = operands_[access];
  double product = 1;
  for (const Dim& dim : operand.dims) product *= CountOf(dim, loops);
  return std::min(product, Reads(operand, loops));
}

double CpuLoops::Divided() const {
  double elements = 0;
  for (size_t a = 0; a < operands_.size(); ++a) {
    const auto& dims = operands_[a].dims;
    const bool divided = std::any_of(dims.begin(), dims.end(), [](const Dim& dim) { return !dim.affine; });
    if (divided && operands_[a].lanes == LaneAccess::kSame) elements += Elements(a, body_);
  }
  return elements;
}

// Rows that are read as a whole lie behind each other.
double CpuLoops::Lines(const Operand& operand, size_t loops, double most_rows) const {
  double run = 1, runs = 1;
  bool together = true;
  for (size_t d = operand.dims.size(); d-- > 0;) {
    const double count = CountOf(operand.dims[d], loops);
    (together ? run : runs) *= count;
    together &= count >= operand.dims[d].whole;
  }
  const double elements = std::min(run * runs, Reads(operand, loops));
  if (operand.crowd > most_rows) return elements * kLineBytes;
  run = std::min(run, elements);
  const double lines = elements / run * std::ceil(run * operand.bytes / kLineBytes) * kLineBytes;
  return std::min(lines, std::max(kLineBytes, operand.most * operand.bytes));
}

double CpuLoops::Traffic(double capacity, double first) const {
  // `ways`: in which sums move.
  const auto footprint = [this](size_t loops, double ways, double most_rows) {
    double bytes = sums_ ? ways * Lines(*sums_, loops, most_rows) : 0;
    for (const Operand& operand : operands_) bytes += Lines(operand, loops, most_rows);
    return bytes;
  };
  constexpr double kAny = 1e30;
  size_t fits = body_;
  while (fits < size() && footprint(fits + 1, 1, kAny) <= capacity) ++fits;
  const size_t kept = std::min(fits + 1, size());
  return footprint(kept, 2, first > 0 ? first / kPageBytes : kAny) * (Iterations(size()) / Iterations(kept));
}

}  // namespace diapason
