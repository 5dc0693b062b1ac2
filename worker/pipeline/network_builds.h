// The programs of a network that is checked: built like candidates, by all builders, and run together.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/pipeline/job.h"

namespace diapason::pipeline {

// InvalidArgument when there is no such network.
absl::Status CheckNetworkRequest(const v1::NetworkCheck& check);
// All that is to be built for the job, which gets room for it. REQUIRES: its network was checked.
std::vector<BuildTask> NetworkTasks(const JobPtr& job);
void FillNetworkBuild(const BuildTask& task, v1::BuildJob& build);
void TakeNetworkProgram(const BuildTask& task, const ProgramPtr& program);
void FillNetworkRun(const Job& job, int64_t tensor_bytes, v1::RunJob& run);
// For error texts: the task of the network.
std::string NetworkTaskName(const BuildTask& task);

}  // namespace diapason::pipeline
