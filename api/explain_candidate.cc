// Candidates of a network's task in readable form.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/explanation.h"
#include "api/import.h"
#include "base/check.h"
#include "base/nearest.h"
#include "db/history.h"
#include "diapason/explain.h"
#include "scheduler/space.h"
#include "service/target.h"
#include "service/tune_spec.h"

namespace diapason::api {
namespace {

absl::StatusOr<::diapason::Task> FindTask(const std::vector<::diapason::Task>& tasks, const std::string& text) {
  int64_t id = 0;
  if (absl::SimpleAtoi(text, &id) && id >= 1 && id <= static_cast<int64_t>(tasks.size())) return tasks[id - 1];
  const auto named =
      std::find_if(tasks.begin(), tasks.end(), [&](const ::diapason::Task& task) { return task.name == text; });
  if (named != tasks.end()) return *named;
  std::vector<std::string> names;
  for (const ::diapason::Task& task : tasks) names.push_back(task.name);
  return absl::InvalidArgumentError(absl::StrCat("there is no task '", text, "'; ", DidYouMean(text, names),
                                                 "give a number from 1 to ", tasks.size(),
                                                 ", or a name, of `diapason tasks`"));
}

// The default configuration with some values of the caller's; parameters behind one of these move to the nearest legal
// value.
absl::StatusOr<std::vector<int32_t>> Configure(const Space& space, std::map<std::string, int32_t> wanted) {
  std::vector<int32_t> configuration = space.Default();
  std::vector<std::string> names;
  for (int i = 0; i < space.size(); ++i) {
    names.push_back(space.parameter_name(i));
    const auto value = wanted.find(names.back());
    if (value == wanted.end()) continue;
    std::vector<int32_t> domain;
    space.Domain(i, configuration, &domain);
    if (std::find(domain.begin(), domain.end(), value->second) == domain.end())
      return absl::InvalidArgumentError(absl::StrCat("--parameter ", value->first, "=", value->second,
                                                     " is not legal here; give ", absl::StrJoin(domain, ", ")));
    configuration[i] = value->second;
    if (i + 1 < space.size()) space.Clamp(i + 1, absl::MakeSpan(configuration));
    wanted.erase(value);
  }
  if (wanted.empty()) return configuration;
  const std::string& unknown = wanted.begin()->first;
  return absl::InvalidArgumentError(absl::StrCat("the sketch ", space.name(), " has no parameter '", unknown, "'; ",
                                                 DidYouMean(unknown, names), "it has ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<Schedule> Choose(const TaskSpace& spaces, const CandidateChoice& choice) {
  const Schedule fallback = spaces.DefaultSchedule();
  const std::string sketch = choice.sketch.empty() ? fallback.sketch : choice.sketch;
  const int index = spaces.Find(sketch);
  if (index < 0) {
    std::vector<std::string> names;
    for (int i = 0; i < spaces.size(); ++i) names.push_back(spaces.space(i).name());
    return absl::InvalidArgumentError(absl::StrCat("the task has no sketch '", sketch, "'; ", DidYouMean(sketch, names),
                                                   "it has ", absl::StrJoin(names, ", ")));
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> configuration, Configure(spaces.space(index), choice.parameters));
  return spaces.space(index).Instantiate(configuration);
}

}  // namespace

absl::StatusOr<Explanation> ExplainCandidate(const Model& model, const CandidateChoice& choice, const Hooks& hooks) {
  ASSIGN_OR_RETURN(const ResolvedTarget resolved, ResolveTarget(choice.target));
  ASSIGN_OR_RETURN(std::vector<ImportedPlan> plans, LoadPlans(model, resolved, /*with_network=*/false, hooks));
  const TuneWork work = MergePlans(NetworkName(model.source), std::move(plans), resolved.target.ToString());
  ASSIGN_OR_RETURN(const ::diapason::Task task, FindTask(work.partition.tasks, choice.task));
  ASSIGN_OR_RETURN(const std::unique_ptr<TaskSpace> spaces,
                   TaskSpace::Create(task.dag, resolved.target, resolved.facts));
  ASSIGN_OR_RETURN(const Schedule schedule, Choose(*spaces, choice));
  Explanation e;
  e.workload = task.workload_key;
  e.task = task.name;
  e.target = resolved.target.ToString();
  e.verification = VerifiedName(Verified::kUnknown);
  for (int i = 0; i < spaces->size(); ++i) {
    Metrics metrics;
    spaces->space(i).Evaluate(spaces->space(i).Default(), &metrics);
    e.sketch_times.emplace_back(spaces->space(i).name(), metrics.seconds * 1e6);
  }
  std::stable_sort(e.sketch_times.begin(), e.sketch_times.end(),
                   [](const auto& a, const auto& b) { return a.second < b.second; });
  const int index = spaces->Find(schedule.sketch);
  const Space* space = index < 0 ? nullptr : &spaces->space(index);
  ExplainSchedule({task.dag, schedule, resolved.target, resolved.facts, space}, &e);
  return e;
}

}  // namespace diapason::api
