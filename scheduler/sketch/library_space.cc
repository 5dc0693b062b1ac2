#include "scheduler/sketch/library_space.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "scheduler/sketch/feature_names.h"

namespace diapason {
namespace {

// Share of the peak rate that a library is expected to reach: only ranks the library among the spaces before it is
// measured.
constexpr double kExpectedShare = 0.4;

bool Names(const Target& target, Library library) {
  return std::find(target.libs.begin(), target.libs.end(), NameOf(library)) != target.libs.end();
}

// Stages that are neither the call nor constant: element-wise ones become one kernel each, or part of their readers.
// Nothing when there is a stage of another kind.
bool ScheduleRest(Draft* draft) {
  const State& state = draft->state();
  std::vector<int> operands;
  for (int id : state.topological())
    if (state.stage(id).library != nullptr) operands = state.stage(id).library_operands;
  const std::vector<int> order = state.topological();
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const StageState& stage = state.stage(*it);
    if (!stage.computes() || stage.library != nullptr || stage.prologue) continue;
    if (stage.op.reduces()) return false;
    const bool read_by_call = std::find(operands.begin(), operands.end(), *it) != operands.end();
    if (!read_by_call && !state.is_output(*it)) draft->Do({StepKind::kInline, *it, {}, {}, -1, {}});
  }
  for (int id : order) {
    const StageState& stage = state.stage(id);
    if (!stage.computes() || stage.library != nullptr) continue;
    BindElementwise(draft, id, stage.op.name, false);
  }
  return true;
}

std::unique_ptr<Space> SpaceFor(const ComputeDag& dag, const SketchContext& context, Library library, bool fused) {
  const absl::StatusOr<LibraryMatch> match = MatchLibrary(dag, library, fused);
  if (!match.ok()) return nullptr;
  Draft draft(State(dag), context);
  std::vector<int32_t> algorithms;
  for (int algorithm : AlgorithmsOf(match->call)) algorithms.push_back(algorithm);
  const int32_t preferred = algorithms.front();
  std::sort(algorithms.begin(), algorithms.end());
  const Factor algorithm = draft.OptionParameter("algorithm", std::move(algorithms), preferred);
  draft.Do({StepKind::kLibrary, match->last, {}, {algorithm}, match->anchor, {static_cast<int32_t>(library), fused}});
  if (!ScheduleRest(&draft)) return nullptr;
  DIAPASON_CHECK_MSG(draft.status().ok(), std::string(draft.status().message()));
  std::string name = absl::StrCat("library/", NameOf(library), fused ? ".fused" : "");
  return std::make_unique<LibrarySpace>(std::move(name), draft, *match);
}

}  // namespace

LibrarySpace::LibrarySpace(std::string name, const Draft& draft, const LibraryMatch& match)
    : SketchSpace(std::move(name), DagRewrite{"library", {}}, draft),
      algorithms_(AlgorithmsOf(match.call)),
      chooses_(algorithms_.size() > 1) {
  const DeviceFacts& facts = draft.context().facts;
  const State& state = draft.state();
  double flops = 2, bytes = 0;
  const Stage& anchor = state.stage(match.anchor).op;
  for (const auto* axes : {&anchor.axes, &anchor.reduce_axes})
    for (const Axis& axis : *axes) flops *= static_cast<double>(axis.extent);
  for (const LibraryCall::Operand& operand : match.call.Operands())
    bytes += static_cast<double>(operand.elements) * BytesOf(operand.dtype);
  seconds_ = std::max(flops / (kExpectedShare * facts.flops), bytes / facts.bandwidth) + facts.launch_seconds;
  kernels_ = 1;
  for (int id : state.topological()) {
    const StageState& stage = state.stage(id);
    const bool kernel = stage.computes() && !stage.prologue && stage.library == nullptr;
    if (!kernel) continue;
    ++kernels_;
    // What it reads and writes comes from the second-level cache, mostly.
    seconds_ += facts.launch_seconds +
                2.0 * static_cast<double>(stage.op.elements() * BytesOf(stage.op.dtype)) / facts.l2_bandwidth;
  }
}

std::vector<std::vector<int32_t>> LibrarySpace::Priors() const {
  std::vector<std::vector<int32_t>> priors;
  for (int algorithm : algorithms_) {
    priors.push_back(Default());
    if (chooses_) priors.back()[0] = algorithm;
  }
  return priors;
}

void LibrarySpace::Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const {
  std::memset(metrics->features, 0, sizeof(metrics->features));
  metrics->legal = true;
  metrics->seconds = seconds_;
  metrics->features[kTotalFeaturesAt] = static_cast<float>(kernels_);
  metrics->features[kTotalFeaturesAt + 1] = static_cast<float>(std::log2(1 + metrics->seconds * 1e9));
  const size_t told = std::min<size_t>(configuration.size(), kParameterFeatures);
  for (size_t i = 0; i < told; ++i) metrics->features[kParameterFeaturesAt + i] = static_cast<float>(configuration[i]);
}

std::vector<std::unique_ptr<Space>> LibrarySpaces(const ComputeDag& dag, const SketchContext& context) {
  std::vector<std::unique_ptr<Space>> spaces;
  for (bool fused : {true, false}) {
    for (Library library : AllLibraries()) {
      if (!Names(context.target, library)) continue;
      if (std::unique_ptr<Space> space = SpaceFor(dag, context, library, fused)) spaces.push_back(std::move(space));
    }
  }
  return spaces;
}

}  // namespace diapason
