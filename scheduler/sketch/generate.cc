#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "scheduler/sketch/rule.h"

namespace diapason {
namespace {

// The computed stage that comes before `stage` in the order of the draft; -1 if there is none.
int StageBefore(const Draft& draft, int stage) {
  const std::vector<int>& order = draft.state().topological();
  auto place = std::find(order.begin(), order.end(), stage);
  return place == order.begin() ? -1 : *(place - 1);
}

// Root stages that no rule has bound: element-wise stages and what is left of constants' stages.
void BindRoots(Draft* draft) {
  for (int id : std::vector<int>(draft->state().topological())) {
    const StageState& stage = draft->state().stage(id);
    if (!stage.computes() || stage.attach != StageState::Attach::kRoot || IsBound(draft->state(), id)) continue;
    if (static_cast<int>(stage.loops.size()) != stage.axis_count()) continue;
    BindElementwise(draft, id, stage.op.name, false);
  }
}

// Whether kernels start before those that they depend on have ended is a parameter like any other, from Hopper on.
void MayOverlap(Draft* draft) {
  if (draft->context().target.kind != TargetKind::kCuda || !draft->context().HasCapability(90)) return;
  const Factor overlap = draft->OptionParameter("overlap", {0, 1, 2}, 0);
  draft->Do({StepKind::kOverlap, draft->state().outputs()[0], {}, {overlap}, -1, {}});
}

absl::Status CheckDraft(const SketchRule& rule, const Draft& draft) {
  if (draft.status().ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sketch rule '", rule.name(), "' takes a step that does not apply (",
                                                 draft.status().message(), "): correct the rule, or leave it out"));
}

// What rules leave for the end must be as our own steps need it.
absl::Status CheckComplete(const Draft& draft) {
  if (draft.status().ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sketch '", draft.name(), "' cannot be completed (",
                                                 draft.status().message(), "): correct the rules that it was made by"));
}

}  // namespace

absl::StatusOr<std::vector<Draft>> GenerateSketches(const ComputeDag& dag, const SketchContext& context,
                                                    const SketchRules& rules) {
  struct Item {
    Draft draft;
    int stage;
  };
  std::vector<Item> work;
  std::vector<Draft> done;
  State start(dag);
  const int last = start.topological().back();
  work.push_back({Draft(std::move(start), context), last});
  while (!work.empty()) {
    Item item = std::move(work.back());
    work.pop_back();
    if (item.stage < 0) {
      BindRoots(&item.draft);
      MayOverlap(&item.draft);
      RETURN_IF_ERROR(CheckComplete(item.draft));
      done.push_back(std::move(item.draft));
      continue;
    }
    std::vector<Item> derived;
    for (const auto& rule : rules) {
      const SketchRule::Answer answer = rule->Condition(item.draft, item.stage);
      if (answer == SketchRule::Answer::kSkip) continue;
      for (SketchRule::Derived& d : rule->Apply(item.draft, item.stage)) {
        RETURN_IF_ERROR(CheckDraft(*rule, d.draft));
        const int next = d.again ? item.stage : StageBefore(d.draft, item.stage);
        derived.push_back({std::move(d.draft), next});
      }
      if (answer == SketchRule::Answer::kApplyAndSkipRest) break;
    }
    for (size_t i = derived.size(); i-- > 0;) work.push_back(std::move(derived[i]));
  }
  std::set<std::string> names;
  for (Draft& draft : done) {
    const std::string base = draft.name().empty() ? "plain" : draft.name();
    std::string name = base;
    for (int n = 2; !names.insert(name).second; ++n) name = absl::StrCat(base, "-", n);
    if (name != draft.name()) draft.Name(name == base ? "plain" : absl::StrCat("v", name.substr(base.size() + 1)));
  }
  return done;
}

}  // namespace diapason
