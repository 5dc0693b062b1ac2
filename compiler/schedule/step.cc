#include "compiler/schedule/step.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "diapason/v1/program.pb.h"

namespace diapason {
namespace {

constexpr int kScheduleVersion = 1;

// Null for numbers that are no kind: those that a schedule may have are those that have a name.
const char* KindName(StepKind kind) {
  switch (kind) {
    case StepKind::kSplit: return "split";
    case StepKind::kFuse: return "fuse";
    case StepKind::kReorder: return "reorder";
    case StepKind::kAnnotate: return "annotate";
    case StepKind::kComputeAt: return "compute_at";
    case StepKind::kInline: return "inline";
    case StepKind::kCacheWrite: return "cache_write";
    case StepKind::kCacheRead: return "cache_read";
    case StepKind::kRfactor: return "rfactor";
    case StepKind::kPadRows: return "pad_rows";
    case StepKind::kUnroll: return "unroll";
    case StepKind::kPack: return "pack";
    case StepKind::kSetScope: return "set_scope";
    case StepKind::kPipeline: return "pipeline";
    case StepKind::kTensorize: return "tensorize";
    case StepKind::kOverlap: return "overlap";
    case StepKind::kAlignRows: return "align_rows";
    case StepKind::kCoreMatrices: return "core_matrices";
    case StepKind::kBulkCopy: return "bulk_copy";
    case StepKind::kGroupBlocks: return "group_blocks";
    case StepKind::kAsyncCopy: return "async_copy";
    case StepKind::kTensorCopy: return "tensor_copy";
    case StepKind::kProducer: return "producer";
    case StepKind::kCarry: return "carry";
    case StepKind::kReplicate: return "replicate";
    case StepKind::kRoundFactors: return "round_factors";
    case StepKind::kRecurrence: return "recurrence";
    case StepKind::kLibrary: return "library";
    case StepKind::kOddRows: return "odd_rows";
  }
  return nullptr;
}

bool IsKnown(int kind) {
  return kind >= 0 && kind <= std::numeric_limits<uint8_t>::max() && KindName(static_cast<StepKind>(kind)) != nullptr;
}

}  // namespace

Factor Factor::operator*(const Factor& other) const {
  Factor result = *this;
  result.value *= other.value;
  size_t used = 0;
  while (used < result.parameters.size() && result.parameters[used] >= 0) ++used;
  for (int16_t parameter : other.parameters) {
    if (parameter < 0) break;
    DIAPASON_CHECK_MSG(used < result.parameters.size(), "a factor has too many parameters");
    result.parameters[used++] = parameter;
  }
  return result;
}

std::string DagRewrite::ToString() const {
  return params.empty() ? name : absl::StrCat(name, "(", absl::StrJoin(params, ","), ")");
}

std::vector<Step> Instantiate(const std::vector<Step>& steps, absl::Span<const int32_t> configuration) {
  std::vector<Step> result = steps;
  for (Step& step : result)
    for (Factor& factor : step.factors) factor = Factor::Of(static_cast<int32_t>(factor.Eval(configuration)));
  return result;
}

std::string ToString(const Step& step) {
  const char* const name = KindName(step.kind);
  std::string text = absl::StrCat(name != nullptr ? name : "unknown", " stage ", step.stage);
  if (!step.loops.empty()) absl::StrAppend(&text, " loops ", absl::StrJoin(step.loops, ","));
  if (step.target >= 0) absl::StrAppend(&text, " target ", step.target);
  if (!step.factors.empty()) {
    absl::StrAppend(&text, " factors ", absl::StrJoin(step.factors, ",", [](std::string* out, const Factor& f) {
      absl::StrAppend(out, f.value);
      for (int16_t parameter : f.parameters)
        if (parameter >= 0) absl::StrAppend(out, "*h", parameter);
    }));
  }
  if (!step.ints.empty()) absl::StrAppend(&text, " ints ", absl::StrJoin(step.ints, ","));
  return text;
}

std::string SerializeSchedule(const Schedule& schedule) {
  v1::Schedule proto;
  proto.set_version(kScheduleVersion);
  proto.mutable_rewrite()->set_name(schedule.rewrite.name);
  for (int64_t param : schedule.rewrite.params) proto.mutable_rewrite()->add_params(param);
  proto.set_sketch(schedule.sketch);
  for (const Step& step : schedule.steps) {
    v1::Step* out = proto.add_steps();
    out->set_kind(static_cast<int>(step.kind));
    out->set_stage(step.stage);
    for (int loop : step.loops) out->add_loops(loop);
    for (const Factor& factor : step.factors) {
      DIAPASON_CHECK_MSG(factor.is_constant(), "a schedule with open parameters cannot be stored");
      out->add_factors()->set_value(factor.value);
    }
    out->set_target(step.target);
    for (int value : step.ints) out->add_ints(value);
  }
  for (int value : schedule.configuration) proto.add_configuration(value);
  return proto.SerializeAsString();
}

absl::StatusOr<Schedule> ParseSchedule(const std::string& bytes) {
  v1::Schedule proto;
  if (!proto.ParseFromString(bytes)) return absl::DataLossError("the schedule is damaged: it does not parse");
  if (proto.version() != kScheduleVersion)
    return absl::FailedPreconditionError(absl::StrCat("the schedule has version ", proto.version(),
                                                      ", this program reads ", kScheduleVersion,
                                                      "; use the program that wrote it"));
  Schedule schedule;
  schedule.rewrite.name = proto.rewrite().name();
  schedule.rewrite.params.assign(proto.rewrite().params().begin(), proto.rewrite().params().end());
  schedule.sketch = proto.sketch();
  for (const v1::Step& in : proto.steps()) {
    if (!IsKnown(in.kind()))
      return absl::DataLossError(absl::StrCat("the schedule has a step of unknown kind ", in.kind()));
    Step step{static_cast<StepKind>(in.kind()), in.stage(), {}, {}, in.target(), {}};
    step.loops.assign(in.loops().begin(), in.loops().end());
    for (const v1::Factor& factor : in.factors()) step.factors.push_back(Factor::Of(factor.value()));
    step.ints.assign(in.ints().begin(), in.ints().end());
    schedule.steps.push_back(std::move(step));
  }
  schedule.configuration.assign(proto.configuration().begin(), proto.configuration().end());
  return schedule;
}

}  // namespace diapason
