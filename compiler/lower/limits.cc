#include "compiler/lower/limits.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/lower/early_start.h"
#include "compiler/lower/tensor_copies.h"
#include "compiler/schedule/tensor_of_copy.h"

namespace diapason {
namespace {

constexpr int64_t kMaxTiles = int64_t{1} << 44;  // product of all tile factors of a stage
constexpr int64_t kMaxNumber = 65536;            // of padding, unrolling
constexpr int64_t kMaxSlots = 64;                // of a pipeline
constexpr int64_t kMostReplicas = 32;            // the lanes of a warp
constexpr int64_t kMostRecurrent = 1024;         // blocks, lanes and units of a recurrence
constexpr double kMaxIterations = static_cast<double>(int64_t{1} << 52);
constexpr double kMaxLanes = 1024;
constexpr double kMaxUnrolled = 65536;  // iterations of one stage that are written out

struct Range {
  int64_t least, most;
};

Range RangeOf(StepKind kind) {
  switch (kind) {
    case StepKind::kSplit:
    case StepKind::kPack: return {1, kMaxTiles};
    case StepKind::kGroupBlocks:
    case StepKind::kAlignRows: return {1, kMaxNumber};
    case StepKind::kPadRows:
    case StepKind::kOddRows:
    case StepKind::kUnroll: return {0, kMaxNumber};
    case StepKind::kReplicate: return {1, kMostReplicas};
    case StepKind::kPipeline:
    case StepKind::kBulkCopy: return {1, kMaxSlots};
    case StepKind::kRecurrence: return {0, kMostRecurrent};
    case StepKind::kProducer: return {0, static_cast<int64_t>(Producer::kConstantsFirst)};
    case StepKind::kOverlap: return {0, static_cast<int64_t>(EarlyStart::kBehindSums)};
    default: return {INT32_MIN, INT32_MAX};
  }
}

absl::Status TooMany(const StageState& stage, const char* what, double number, double limit) {
  return absl::FailedPreconditionError(
      absl::StrCat("stage ", stage.op.name, " has ", number, " ", what, ", the most are ", limit));
}

// Iterations that are written out: of unrolled loops and of vectors, and of the innermost serial ones up to the stage's
// own limit (as LoopValues marks them).
double Unrolled(const StageState& stage, const StageBounds& bounds) {
  const double limit = static_cast<double>(stage.unroll.Eval({}));
  double written = 1, product = 1;
  for (size_t p = stage.order.size(); p-- > 0;) {
    const Annotation annotation = stage.loops[stage.order[p]].annotation;
    const double extent = static_cast<double>(bounds.extent[stage.order[p]]);
    if (annotation == Annotation::kVectorize) written *= extent;
    if (annotation != Annotation::kNone && annotation != Annotation::kUnroll) continue;
    product *= extent;
    if (annotation == Annotation::kUnroll || product <= limit) written *= extent;
  }
  return written;
}

// Position, among the loops of its target, of the one at which the stage is computed; -1 when that is no loop any more.
int AttachPosition(const State& state, int id) {
  const StageState& stage = state.stage(id);
  const int loop = stage.attach_loops[stage.attach_choice.Eval({})];
  const std::vector<int>& order = state.stage(stage.attach_stage).order;
  const auto found = std::find(order.begin(), order.end(), loop);
  return found == order.end() ? -1 : static_cast<int>(found - order.begin());
}

bool IsAttached(const StageState& stage) { return stage.attach == StageState::Attach::kAt; }

// Whether what runs for `reader` runs inside the loop at which `id` is computed.
bool IsInside(const State& state, int reader, int id) {
  const int target = state.stage(id).attach_stage;
  for (int up = reader; up >= 0; up = state.stage(up).attach_stage) {
    if (up == target) return true;
    if (!IsAttached(state.stage(up))) return false;
    if (state.stage(up).attach_stage == target) return AttachPosition(state, up) >= AttachPosition(state, id);
  }
  return false;
}

class BufferScan {
 public:
  explicit BufferScan(const KernelFunc& kernel) {
    for (const BufferDecl& param : kernel.params) live_.insert(param.id);
    Scan(kernel.body);
  }
  int unknown() const { return unknown_; }

 private:
  void Use(int buffer) {
    if (live_.count(buffer) == 0) unknown_ = buffer;
  }
  void Scan(const Expr& e) {
    if (!e) return;
    Visit(e, [this](const ExprNode& node) {
      if (node.kind == ExprKind::kLoad) Use(node.buffer);
    });
  }
  void Scan(const Stmt& stmt) {
    if (!stmt) return;
    const bool allocates = stmt->kind == StmtKind::kAlloc && live_.insert(stmt->decl.id).second;
    if (stmt->buffer >= 0) Use(stmt->buffer);
    for (const Expr& e : {stmt->index, stmt->value, stmt->condition}) Scan(e);
    for (const Expr& e : stmt->operands) Scan(e);
    for (const Stmt& child : stmt->body) Scan(child);
    if (allocates) live_.erase(stmt->decl.id);
  }

  std::set<int> live_;
  int unknown_ = -1;
};

absl::Status Wrong(const StageState& stage, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, " ", why));
}

// What State::Tensorize saw, and that the lanes' loops run around the product.
bool IsTensorizable(const State& state, int id) {
  const StageState& stage = state.stage(id);
  const std::vector<int> innermost = {stage.tensor_k, stage.tensor_m, stage.tensor_n};
  const std::vector<int>& order = stage.order;
  if (order.size() < 3 || !std::equal(innermost.begin(), innermost.end(), order.end() - 3)) return false;
  int up = id;
  while (up != stage.lane_stage && IsAttached(state.stage(up))) up = state.stage(up).attach_stage;
  return up == stage.lane_stage && stage.lane_m != stage.lane_n;
}

// What State::BulkCopy made: tiles of a constant, and the copy that reads them alone.
bool IsImage(const State& state, int id) {
  const StageState& stage = state.stage(id);
  const StageState& copy = state.stage(stage.image_of);
  return stage.prologue && stage.attach == StageState::Attach::kRoot && stage.layout_factors.empty() &&
         !stage.core_matrices && !stage.op.reduces() && copy.bulk && IsAttached(copy) && copy.op.body &&
         copy.op.body->kind == ExprKind::kLoad && copy.op.body->buffer == id &&
         state.Consumers(id) == std::vector<int>{stage.image_of};
}

bool IsBulkCopy(const State& state, int id) {
  const StageState& stage = state.stage(id);
  return IsAttached(stage) && stage.memory == Memory::kShared && stage.op.body->kind == ExprKind::kLoad &&
         state.stage(stage.op.body->buffer).image_of == id;
}

// A copy of what is in memory, made for a block.
bool IsAsyncCopy(const State& state, int id) {
  const StageState& stage = state.stage(id);
  if (!IsAttached(stage) || stage.memory != Memory::kShared || stage.op.reduces() || stage.bulk) return false;
  const std::vector<int> producers = state.Producers(id);
  const StageState& target = state.stage(stage.attach_stage);
  return (target.attach == StageState::Attach::kRoot || target.carry.is_carried_by(stage.attach_stage)) &&
         std::all_of(producers.begin(), producers.end(),
                     [&](int producer) { return state.stage(producer).attach == StageState::Attach::kRoot; });
}

bool IsSerialReduceLoop(const StageState& stage, int loop) {
  return loop >= 0 && loop < static_cast<int>(stage.loops.size()) && stage.loops[loop].is_leaf() &&
         stage.loops[loop].reduce && stage.loops[loop].annotation == Annotation::kNone;
}

// What State::Apply saw of a carried reduction, and that its target carries itself.
bool IsCarried(const State& state, int id) {
  const Carry& carry = state.stage(id).carry;
  const StageState& target = state.stage(carry.target);
  return IsSerialReduceLoop(state.stage(id), carry.loop) && IsSerialReduceLoop(target, carry.target_loop) &&
         target.carry.is_carried_by(carry.target) && target.carry.loop == carry.target_loop && IsAttached(target) &&
         target.memory == Memory::kLocal &&
         (id == carry.target || state.IsComputedAt(id, carry.target, carry.target_loop)) &&
         (carry.maximum < 0 || state.IsComputedAt(carry.maximum, carry.target, carry.target_loop));
}

}  // namespace

absl::Status CheckStructure(const State& state) {
  for (int id = 0; id < state.size(); ++id) {
    const StageState& stage = state.stage(id);
    if (!stage.computes() || stage.recurrence != nullptr) continue;
    if (stage.carry.is_carried() && !IsCarried(state, id))
      return Wrong(stage, "is carried by a loop that has changed since, or that carries no sum of its own");
    // What a call fuses is part of the call, though the body still reads it.
    for (int read : stage.library != nullptr ? stage.library_operands : state.Producers(id)) {
      const StageState& producer = state.stage(read);
      if (producer.attach == StageState::Attach::kInlined)
        return Wrong(stage, absl::StrCat("reads ", producer.op.name, ", which is inlined"));
      // What a loop carried is read behind it.
      const int at = producer.carry.is_carried() ? producer.carry.target : read;
      if (IsAttached(producer) && !IsInside(state, id, at))
        return Wrong(stage, absl::StrCat("reads ", producer.op.name, " outside of the loop at which it is computed"));
    }
    if (stage.tensor != TensorMode::kNone && !IsTensorizable(state, id))
      return Wrong(stage, "has a product on tensor cores that is not innermost, or not inside the loops of its lanes");
    if (stage.core_matrices && (!IsAttached(stage) || stage.memory != Memory::kShared || stage.op.reduces()))
      return Wrong(stage, "is laid out in core matrices, and no copy in shared memory");
    if (stage.bulk && !IsBulkCopy(state, id))
      return Wrong(stage, "is copied a tile at a time, and no plain copy of tiles in shared memory");
    if (stage.tensor_copy && (!stage.core_matrices || stage.bulk || LoadOfCopy(stage.op) == nullptr))
      return Wrong(stage, "is made by tensor copies, and no plain copy in core matrices");
    if (stage.async_copy && !IsAsyncCopy(state, id))
      return Wrong(stage, "is copied asynchronously, and no copy into shared memory made for a block");
    if (stage.image_of >= 0 && !IsImage(state, id)) return Wrong(stage, "holds tiles that nobody copies");
    if (!IsAttached(stage)) continue;
    const StageState& target = state.stage(stage.attach_stage);
    if (!target.computes() || target.library != nullptr)
      return Wrong(stage, absl::StrCat("is computed inside ", target.op.name, ", which has no loops"));
    if (AttachPosition(state, id) < 0)
      return Wrong(stage, absl::StrCat("is computed at a loop of ", target.op.name, " that was split or fused since"));
    if (stage.library != nullptr || state.is_output(id)) return Wrong(stage, "cannot be computed inside another");
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(const std::vector<Step>& steps) {
  std::map<int, double> tiles;  // by stage
  for (size_t s = 0; s < steps.size(); ++s) {
    const Step& step = steps[s];
    const auto refuse = [&](int64_t number) {
      return absl::InvalidArgumentError(
          absl::StrCat("schedule step ", s, " (", ToString(step), "): ", number, " is out of range"));
    };
    const Range range = RangeOf(step.kind);
    for (const Factor& factor : step.factors) {
      const int64_t number = factor.Eval({});
      if (number < range.least || number > range.most) return refuse(number);
      if (step.kind != StepKind::kSplit && step.kind != StepKind::kPack) continue;
      double& product = tiles.try_emplace(step.stage, 1).first->second;
      product *= static_cast<double>(number);
      if (product > static_cast<double>(kMaxTiles)) return refuse(number);
    }
    if (step.kind != StepKind::kComputeAt || step.factors.size() != 1) continue;
    const int64_t choice = step.factors[0].Eval({});
    if (choice < 0 || choice >= static_cast<int64_t>(step.loops.size())) return refuse(choice);
  }
  return absl::OkStatus();
}

absl::Status CheckBuffers(const KernelFunc& kernel) {
  const int unknown = BufferScan(kernel).unknown();
  if (unknown < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("kernel ", kernel.name, " uses buffer ", unknown, " outside of the place where it lives"));
}

absl::Status CheckLoops(const State& state, const Bounds& bounds) {
  for (int id = 0; id < state.size(); ++id) {
    const StageState& stage = state.stage(id);
    if (!stage.computes() || stage.library != nullptr) continue;
    const StageBounds& b = bounds.stages[id];
    double iterations = 1;
    for (int loop : stage.order) {
      const double extent = static_cast<double>(b.extent[loop]);
      iterations *= extent;
      if (stage.loops[loop].annotation == Annotation::kVectorize && extent > kMaxLanes)
        return TooMany(stage, "lanes of a vector", extent, kMaxLanes);
    }
    if (stage.carry.is_carried() && stage.carry.target != id &&
        b.steps != bounds.stages[stage.carry.target].extent[stage.carry.target_loop])
      return Wrong(stage, absl::StrCat("is carried over ", b.steps, " steps by a loop of ",
                                       bounds.stages[stage.carry.target].extent[stage.carry.target_loop]));
    if (iterations > kMaxIterations) return TooMany(stage, "iterations", iterations, kMaxIterations);
    if (const double unrolled = Unrolled(stage, b); unrolled > kMaxUnrolled)
      return TooMany(stage, "unrolled iterations", unrolled, kMaxUnrolled);
  }
  return absl::OkStatus();
}

}  // namespace diapason
