#include "scheduler/space.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/rewrite.h"
#include "compiler/schedule/rewrite_strassen.h"
#include "scheduler/parallel.h"
#include "scheduler/sketch/library_space.h"
#include "scheduler/sketch/recurrence_space.h"
#include "scheduler/sketch/rule.h"
#include "scheduler/sketch/sketch_space.h"

namespace diapason {

namespace {

bool Has(const Draft& draft, StepKind kind) {
  return std::any_of(draft.steps().begin(), draft.steps().end(), [&](const Step& step) { return step.kind == kind; });
}

bool OnTensorCores(const Draft& draft) { return Has(draft, StepKind::kTensorize); }

// Exponentials that scale their differences save a multiplication where scores stay in registers.
bool HoldsScoresInLanes(const Draft& draft) {
  return OnTensorCores(draft) && std::any_of(draft.steps().begin(), draft.steps().end(), [](const Step& step) {
           return step.kind == StepKind::kSetScope &&
                  step.ints == std::vector<int32_t>{static_cast<int32_t>(Memory::kLanes)};
         });
}

// Weights along k are for tensor cores. (Slices of a reduction in kernels of their own have enough alternatives.)
bool ReadsAlongK(const Draft& draft) { return OnTensorCores(draft) && !Has(draft, StepKind::kRfactor); }

// Registers are loaded by vectors; other sketches copy into shared memory or lay columns out by tiles.
bool Streams(const Draft& draft) { return draft.traits().preferred_fallback; }

// Extents of more than one element, in order.
std::vector<int64_t> Extents(const std::vector<Axis>& axes) {
  std::vector<int64_t> extents;
  for (const Axis& axis : axes)
    if (axis.extent > 1) extents.push_back(axis.extent);
  return extents;
}

// Whether a rewrite leaves all stages as they are, but for axes of one element.
bool ChangesNothing(const ComputeDag& dag, const ComputeDag& rewritten) {
  if (dag.size() != rewritten.size()) return false;
  for (int id = 0; id < dag.size(); ++id) {
    const Stage &before = dag.stage(id), &after = rewritten.stage(id);
    if (before.placeholder != after.placeholder || Extents(before.axes) != Extents(after.axes) ||
        Extents(before.reduce_axes) != Extents(after.reduce_axes))
      return false;
  }
  return true;
}

using Spaces = std::vector<std::unique_ptr<Space>>;

// A climb of a task with several tiled stages takes a tenth of a second, and such a task has a sketch for each
// combination of theirs (256 for regions of interest): where there are many, only those that start best climb.
constexpr size_t kManySketches = 96, kMostClimbs = 16;

// The sketches of a rewrite, or those that `wanted` takes, as far as the device has any candidate.
absl::StatusOr<Spaces> SketchesOf(const ComputeDag& dag, const DagRewrite& rewrite, const SketchContext& context,
                                  const SketchRules& rules, const std::function<bool(const Draft&)>& wanted) {
  std::vector<std::unique_ptr<SketchSpace>> sketches;
  ASSIGN_OR_RETURN(const ComputeDag rewritten, ApplyRewrite(dag, rewrite));
  ASSIGN_OR_RETURN(const std::vector<Draft> drafts, GenerateSketches(rewritten, context, rules));
  for (const Draft& draft : drafts) {
    if (wanted && !wanted(draft)) continue;
    const std::string name = absl::StrCat(rewrite.ToString(), "/", draft.name());
    sketches.push_back(std::make_unique<SketchSpace>(name, rewrite, draft));
  }
  std::vector<std::pair<double, size_t>> estimates(sketches.size());
  const auto find = [&](int i) {
    estimates[i] = {sketches[i]->FindDefault(sketches.size() <= kManySketches), static_cast<size_t>(i)};
  };
  ParallelFor(static_cast<int>(std::thread::hardware_concurrency()), static_cast<int>(sketches.size()), find);
  if (sketches.size() > kManySketches) {
    std::vector<std::pair<double, size_t>> order = estimates;
    std::partial_sort(order.begin(), order.begin() + kMostClimbs, order.end());
    for (size_t k = 0; k < kMostClimbs; ++k)
      estimates[order[k].second].first = sketches[order[k].second]->FindDefault(true);
  }
  Spaces spaces;
  // A sketch whose least candidate exceeds a limit of the device has no candidate at all.
  for (const auto& [seconds, i] : estimates)
    if (std::isfinite(seconds)) spaces.push_back(std::move(sketches[i]));
  return spaces;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TaskSpace>> TaskSpace::Create(const ComputeDag& dag, const Target& target,
                                                             const DeviceFacts& facts) {
  return CreateWithout(dag, target, facts, {});
}

absl::StatusOr<std::unique_ptr<TaskSpace>> TaskSpace::CreateWithout(const ComputeDag& dag, const Target& target,
                                                                    const DeviceFacts& facts,
                                                                    const std::vector<std::string>& without) {
  Spaces spaces;
  const SketchRules rules = RulesFor(target);
  const SketchContext context{target, facts};
  if (absl::StatusOr<Recurrence> recurrence = FindRecurrence(dag); recurrence.ok()) {
    ASSIGN_OR_RETURN(std::unique_ptr<Space> space, RecurrenceSpace::Create({dag, *std::move(recurrence)}, context));
    spaces.push_back(std::move(space));
    return std::make_unique<TaskSpace>(dag, std::move(spaces));
  }
  const auto add = [&](const DagRewrite& rewrite, const std::function<bool(const Draft&)>& wanted) -> absl::Status {
    ASSIGN_OR_RETURN(Spaces more, SketchesOf(dag, rewrite, context, rules, wanted));
    std::move(more.begin(), more.end(), std::back_inserter(spaces));
    return absl::OkStatus();
  };
  const absl::StatusOr<ComputeDag> gemm = ApplyRewrite(dag, DagRewrite{"gemm", {}});
  const bool gemm_is_direct = gemm.ok() && ChangesNothing(dag, *gemm);
  for (const DagRewrite& rewrite : RewritesOf(dag)) {
    if (std::find(without.begin(), without.end(), rewrite.name) != without.end()) continue;
    if (rewrite.name == "attention") {  // made for tensor cores
      if (target.is_gpu()) RETURN_IF_ERROR(add(rewrite, rewrite.params.empty() ? OnTensorCores : HoldsScoresInLanes));
      continue;
    }
    if (rewrite.name == "halves") {  // made for tensor cores
      if (target.is_gpu() && !target.strict_fp32) RETURN_IF_ERROR(add(rewrite, OnTensorCores));
      continue;
    }
    if (rewrite.name == "rows" && !target.is_gpu()) continue;  // made for copies into shared memory
    if (rewrite.name == "padded") {
      if (target.is_gpu()) RETURN_IF_ERROR(add(rewrite, Streams));
      continue;
    }
    if (rewrite.name == "strassen" && !StrassenMayPay(dag, rewrite.params[0], facts.flops / facts.bandwidth)) continue;
    if (rewrite.name != "gemm" || !gemm_is_direct) RETURN_IF_ERROR(add(rewrite, nullptr));
    const std::optional<DagRewrite> along_k = target.is_gpu() ? WithWeightsAlongK(dag, rewrite) : std::nullopt;
    if (along_k) RETURN_IF_ERROR(add(*along_k, ReadsAlongK));
  }
  if (spaces.empty())
    return absl::FailedPreconditionError(absl::StrCat("no schedule of task ", dag.workload_key(), " fits the device ",
                                                      facts.model, " (target ", target.ToString(), ")"));
  for (std::unique_ptr<Space>& space : LibrarySpaces(dag, context)) spaces.push_back(std::move(space));
  return std::make_unique<TaskSpace>(dag, std::move(spaces), gemm_is_direct);
}

absl::StatusOr<Schedule> DefaultSchedule(const ComputeDag& dag, const Target& target, const DeviceFacts& facts) {
  ASSIGN_OR_RETURN(const std::unique_ptr<TaskSpace> task, TaskSpace::Create(dag, target, facts));
  return task->DefaultSchedule();
}

Schedule TaskSpace::DefaultSchedule() const {
  int best = -1;
  double seconds = 0;
  std::vector<int32_t> configuration;
  // By what matters most: digits, since a network may amplify errors (a check of it finds out where tuning went too
  // far; a fallback has nobody to ask), then what rules know, then the estimate.
  const auto rank = [&](int i, double estimate) {
    return std::tuple(space(i).loses_digits(), !space(i).preferred_fallback(), estimate);
  };
  for (int i = 0; i < size(); ++i) {
    if (space(i).external()) continue;
    Metrics metrics;
    std::vector<int32_t> own = space(i).Default();
    space(i).Evaluate(own, &metrics);
    const bool better = best < 0 || rank(i, metrics.seconds) < rank(best, seconds);
    if (!better) continue;
    best = i;
    seconds = metrics.seconds;
    configuration = std::move(own);
  }
  return space(best).Instantiate(configuration);
}

}  // namespace diapason
