#include "cli/waiting.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/table.h"

namespace diapason {
namespace {

std::string KindOf(const std::string& target) { return target.substr(0, target.find(' ')); }

std::string LabelsText(const std::map<std::string, std::string>& labels) {
  return absl::StrJoin(labels, ",", absl::PairFormatter("="));
}

// "--devices cuda:*" of the worker that is missing.
std::string StartOne(const WaitingJob& job, const std::string& kind) {
  std::string labels = LabelsText(job.labels);
  if (!labels.empty()) labels = " --labels " + labels;
  const std::string devices = kind == "cpu" ? "cpu" : kind == "opencl" ? "opencl:0" : absl::StrCat("'", kind, ":*'");
  return absl::StrCat("start one with `diapason worker --tracker ", job.tracker, " --devices ", devices, labels, "`");
}

bool Carries(const api::FleetStatus::Device& device, const std::map<std::string, std::string>& labels) {
  return std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
    const auto found = device.labels.find(label.first);
    return found != device.labels.end() && found->second == label.second;
  });
}

// Of the devices that would do, none measures.
std::optional<std::string> WhyUnfit(const std::vector<const api::FleetStatus::Device*>& fitting) {
  for (const api::FleetStatus::Device* device : fitting)
    if (device->state == "ready" && !device->excluded) return std::nullopt;
  const api::FleetStatus::Device& one = *fitting.front();
  const std::string which = absl::StrCat(one.name, " of worker ", one.worker);
  const std::string see = "; see `diapason fleet status`";
  if (one.state != "ready")
    return absl::StrCat(which, " is ", one.state, one.reason.empty() ? "" : absl::StrCat(" (", one.reason, ")"), see);
  return absl::StrCat(which, " is excluded, since its reference kernel takes ", Digits(one.drift),
                      " times as long as its peers'", see);
}

std::optional<std::string> WhyNoDevice(const WaitingJob& job, const api::FleetStatus& fleet) {
  const std::string kind = KindOf(job.target);
  std::vector<const api::FleetStatus::Device*> of_kind, of_model, fitting;
  for (const api::FleetStatus::Device& device : fleet.devices)
    if (KindOf(device.target) == kind) of_kind.push_back(&device);
  if (of_kind.empty()) return absl::StrCat("no ", kind, " device is registered; ", StartOne(job, kind));
  for (const api::FleetStatus::Device* device : of_kind)
    if (job.device.empty() || device->model == job.device) of_model.push_back(device);
  if (of_model.empty()) {
    std::set<std::string> models;
    for (const api::FleetStatus::Device* device : of_kind) models.insert(absl::StrCat("'", device->model, "'"));
    return absl::StrCat("no ", kind, " device '", job.device, "' is registered, which --device asks for; there is ",
                        absl::StrJoin(models, ", "));
  }
  for (const api::FleetStatus::Device* device : of_model)
    if (Carries(*device, job.labels)) fitting.push_back(device);
  if (fitting.empty())
    return absl::StrCat("no ", kind, " device of a worker with the labels ", LabelsText(job.labels), " is registered; ",
                        StartOne(job, kind));
  return WhyUnfit(fitting);
}

}  // namespace

std::optional<std::string> WhyWaiting(const WaitingJob& job, const std::optional<api::FleetStatus>& fleet) {
  if (job.queued && job.running_jobs > 0)
    return absl::StrCat("the job waits for its turn behind ", Count(job.running_jobs, "job"),
                        job.running_jobs == 1 ? " that runs" : " that run", "; `diapason jobs list` shows them");
  return fleet.has_value() ? WhyNoDevice(job, *fleet) : std::nullopt;
}

}  // namespace diapason
