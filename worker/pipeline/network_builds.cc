#include "worker/pipeline/network_builds.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace diapason::pipeline {
namespace {

constexpr uint32_t kMostSeeds = 16, kMostReplays = 100'000;

}  // namespace

absl::Status CheckNetworkRequest(const v1::NetworkCheck& check) {
  const v1::NetworkPlan& plan = check.plan();
  if (plan.programs().empty() || check.schedules_size() != plan.programs_size())
    return absl::InvalidArgumentError("a network needs programs, and a schedule for each of them");
  for (const v1::PlannedProgram& program : plan.programs())
    if (program.task() >= static_cast<uint32_t>(plan.tasks_size()))
      return absl::InvalidArgumentError("a program of the network is of no task");
  if (check.seeds() > kMostSeeds || check.replays() > kMostReplays)
    return absl::InvalidArgumentError(
        absl::StrCat("a network is run on at most ", kMostSeeds, " inputs and ", kMostReplays, " times on each"));
  return absl::OkStatus();
}

std::vector<BuildTask> NetworkTasks(const JobPtr& job) {
  const v1::NetworkCheck& check = job->request.network();
  job->network = std::make_unique<NetworkBuild>();
  job->network->programs.resize(check.plan().programs_size());
  job->network->reference.resize(check.plan().tasks_size());
  std::vector<BuildTask> tasks;
  std::set<int> used;
  for (int i = 0; i < check.plan().programs_size(); ++i) {
    BuildTask build{job, nullptr};
    build.network_program = i;
    tasks.push_back(build);
    used.insert(static_cast<int>(check.plan().programs(i).task()));
  }
  for (int task : used) {
    BuildTask build{job, nullptr};
    build.network_task = task;
    tasks.push_back(build);
  }
  job->network->missing = tasks.size();
  return tasks;
}

void FillNetworkBuild(const BuildTask& task, v1::BuildJob& build) {
  const v1::NetworkCheck& check = task.job->request.network();
  const v1::NetworkPlan& plan = check.plan();
  build.set_reference(task.network_task >= 0);
  if (task.network_task >= 0) {
    build.set_workload(plan.tasks(task.network_task));
    build.clear_schedule();
    return;
  }
  const v1::PlannedProgram& program = plan.programs(task.network_program);
  build.set_workload(plan.tasks(static_cast<int>(program.task())));
  build.set_schedule(check.schedules(task.network_program));
  if (program.has_place()) *build.mutable_place() = program.place();
}

std::string NetworkTaskName(const BuildTask& task) {
  const v1::NetworkPlan& plan = task.job->request.network().plan();
  const int id =
      task.network_task >= 0 ? task.network_task : static_cast<int>(plan.programs(task.network_program).task());
  return id < plan.task_names_size() ? plan.task_names(id) : absl::StrCat(id + 1);
}

void TakeNetworkProgram(const BuildTask& task, const ProgramPtr& program) {
  NetworkBuild& network = *task.job->network;
  auto& place = task.network_task >= 0 ? network.reference[task.network_task] : network.programs[task.network_program];
  if (place == nullptr) --network.missing;
  place = program;
}

void FillNetworkRun(const Job& job, int64_t tensor_bytes, v1::RunJob& run) {
  v1::NetworkRun& network = *run.mutable_network();
  *network.mutable_check() = job.request.network();
  network.mutable_check()->clear_schedules();
  for (const auto& program : job.network->programs) network.add_programs(*program);
  for (const auto& reference : job.network->reference)
    network.add_reference_programs(reference == nullptr ? std::string() : *reference);
  network.set_tensor_bytes(tensor_bytes);
}

}  // namespace diapason::pipeline
