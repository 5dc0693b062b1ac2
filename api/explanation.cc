#include "api/explanation.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "api/documents.h"
#include "base/check.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "compiler/schedule/rewrite.h"
#include "scheduler/sketch/feature_names.h"

namespace diapason::api {
namespace {

constexpr char kParameter[] = "parameter ";  // begins the names of features that are values of parameters

void ExplainNumbers(const ExplainedSchedule& of, Explanation* e) {
  const std::vector<int32_t>& configuration = of.schedule.configuration;
  for (size_t i = 0; i < configuration.size(); ++i) {
    const std::string name =
        of.space != nullptr ? of.space->parameter_name(static_cast<int>(i)) : absl::StrCat(kParameter, i);
    e->configuration.emplace_back(name, configuration[i]);
  }
  if (of.space == nullptr) return;
  Metrics metrics;
  of.space->Evaluate(configuration, &metrics);
  e->analytic_us = metrics.seconds * 1e6;
  const std::vector<std::string> names = FeatureNames(of.target);
  for (int i = 0; i < kNumFeatures; ++i) {
    const int parameter = i - kParameterFeaturesAt;
    if (names[i].empty() || parameter >= of.space->size()) continue;
    e->features.emplace_back(parameter < 0 ? names[i] : absl::StrCat(kParameter, of.space->parameter_name(parameter)),
                             metrics.features[i]);
  }
}

absl::Status ExplainProgram(const ExplainedSchedule& of, Explanation* e) {
  ASSIGN_OR_RETURN(const LoweredProgram lowered, Lower(of.dag, of.schedule, of.target, of.facts));
  for (const auto* kernels : {&lowered.prologue, &lowered.kernels}) {
    for (const KernelFunc& kernel : *kernels) absl::StrAppend(&e->loops, ToString(kernel), "\n");
  }
  e->source = PrintSource(lowered, of.target);
  return absl::OkStatus();
}

}  // namespace

void ExplainSchedule(const ExplainedSchedule& of, Explanation* e) {
  e->algorithm = of.schedule.rewrite.ToString();
  e->sketch = of.schedule.sketch;
  e->computation = of.dag.ToString();
  if (const auto rewritten = ApplyRewrite(of.dag, of.schedule.rewrite); rewritten.ok()) {
    e->rewrite = rewritten->ToString();
    if (e->rewrite == e->computation) e->rewrite.clear();
  }
  for (const Step& step : of.schedule.steps) absl::StrAppend(&e->steps, ToString(step), "\n");
  ExplainNumbers(of, e);
  e->problem = std::string(ExplainProgram(of, e).message());
}

std::string ExplanationJson(const Explanation& explanation) {
  return DocumentText({"explanation", 2}, ExplanationFields(explanation));
}

}  // namespace diapason::api
