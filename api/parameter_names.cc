#include "api/parameter_names.h"

#include "compiler/runtime/device.h"
#include "compiler/tensor/serialize.h"
#include "compiler/tensor/target.h"

namespace diapason::api {
namespace {

std::unique_ptr<TaskSpace> MakeSpaces(const TuningRecord& record) {
  const auto dag = ParseDag(record.workload);
  const auto target = Target::Parse(record.target);
  if (!dag.ok() || !target.ok()) return nullptr;
  auto spaces = TaskSpace::Create(*dag, *target, ResolveFacts(*target));
  return spaces.ok() ? *std::move(spaces) : nullptr;
}

}  // namespace

const Space* SpaceOf(const TaskSpace& spaces, const Schedule& schedule, const TuningRecord& record) {
  for (const std::string& name : {schedule.sketch, record.sketch, record.rewrite + "/" + record.sketch}) {
    const int index = spaces.Find(name);
    if (index >= 0 && spaces.space(index).size() == static_cast<int>(schedule.configuration.size()))
      return &spaces.space(index);
  }
  return nullptr;
}

std::vector<std::string> ParameterNames::Of(const TuningRecord& record) {
  const TaskSpace* spaces = SpacesOf(record);
  if (spaces == nullptr) return {};
  Schedule schedule = ParseSchedule(record.schedule).value_or(Schedule());
  schedule.configuration = record.configuration;
  const Space* space = SpaceOf(*spaces, schedule, record);
  if (space == nullptr) return {};
  std::vector<std::string> names;
  for (int i = 0; i < space->size(); ++i) names.push_back(space->parameter_name(i));
  return names;
}

const TaskSpace* ParameterNames::SpacesOf(const TuningRecord& record) {
  const auto [found, is_new] = spaces_.try_emplace({record.workload_key, record.target});
  if (is_new) found->second = MakeSpaces(record);
  return found->second.get();
}

}  // namespace diapason::api
