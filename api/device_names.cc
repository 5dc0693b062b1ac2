#include "api/device_names.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "api/import.h"
#include "base/check.h"
#include "compiler/tensor/target.h"
#include "worker/process/child_process.h"
#include "worker/process/scratch.h"

namespace diapason::api {
namespace {

constexpr std::chrono::seconds kLookTimeout{60};

absl::Status NotUnderstood(const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat("--devices ", name.empty() ? "\"\"" : name,
                   " is not understood; give names such as cpu, opencl:0, cuda:0 or cuda:*, with commas between them"));
}

// Targets of all devices here, asked in a process that may hang.
absl::StatusOr<std::vector<std::string>> ListTargets() {
  ASSIGN_OR_RETURN(const std::unique_ptr<ScratchFolder> scratch, ScratchFolder::Create());
  ChildOptions options;
  options.program = Program();
  options.args = {"diapason", "internal-devices"};
  options.scratch = scratch->path();
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> child, ChildProcess::Spawn(options));
  const auto until = std::chrono::steady_clock::now() + kLookTimeout;
  std::optional<int> status;
  while (!(status = child->Reap()).has_value()) {
    if (std::chrono::steady_clock::now() > until) {
      return absl::DeadlineExceededError(absl::StrCat("looking for devices took longer than ", kLookTimeout.count(),
                                                      " s: a driver hangs; name the devices one by one"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (*status != 0)
    return absl::UnavailableError(
        absl::StrCat("looking for devices failed: the process ", DescribeWaitStatus(*status)));
  const std::string text = child->OutputTail(1 << 20);
  std::vector<std::string> targets = absl::StrSplit(text, '\n');
  std::erase(targets, "");
  return targets;
}

absl::Status AddAll(const std::string& kind, std::vector<std::string>* targets) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all, ListTargets());
  const size_t before = targets->size();
  for (const std::string& text : all) {
    if (text.substr(0, text.find(' ')) == kind) targets->push_back(text);
  }
  if (targets->size() > before) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("--devices ", kind, ":* finds no ", kind,
                                          " device on this host; `diapason devices` lists those there are"));
}

absl::Status AddDevice(const std::string& name, std::vector<std::string>* targets) {
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  if (colon == std::string::npos || name.find(' ') != std::string::npos) {
    absl::StatusOr<Target> target = Target::Parse(name);
    if (!target.ok()) return NotUnderstood(name);
    targets->push_back(target->ForKernels().ToString());  // each request says what caches hold
    return absl::OkStatus();
  }
  if (kind != "cpu" && kind != "opencl" && kind != "cuda") return NotUnderstood(name);
  const std::string number = name.substr(colon + 1);
  if (number == "*") return AddAll(kind, targets);
  Target target = Target::Parse(kind).value();
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(number, &target.device) || (kind == "cpu" && target.device != 0)) {
    return NotUnderstood(name);
  }
  targets->push_back(target.ToString());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> DeviceTargets(const std::string& list) {
  std::vector<std::string> targets;
  for (const std::string& name : static_cast<std::vector<std::string>>(absl::StrSplit(list, ','))) {
    RETURN_IF_ERROR(AddDevice(name, &targets));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (std::count(targets.begin(), targets.end(), targets[i]) == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--devices ", list, " names the device \"", targets[i], "\" twice; give each once"));
  }
  return targets;
}

}  // namespace diapason::api
