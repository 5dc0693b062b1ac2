#include "compiler/build/check_network.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "compiler/build/random_inputs.h"

namespace diapason {
namespace {

std::string WhichRun(const NetworkReferences& references, size_t input, int replay) {
  return absl::StrCat("inputs of seed ", references.seeds[input], ", run ", replay + 1);
}

// The first element whose bytes differ, as text; empty when there is none.
std::string FirstDifference(const std::vector<PackagePort>& ports, const std::vector<Array>& got,
                            const std::vector<Array>& first) {
  for (size_t o = 0; o < ports.size(); ++o) {
    if (got[o].data == first[o].data) continue;
    const size_t width = BytesOf(got[o].dtype);
    size_t byte = 0;
    while (got[o].data[byte] == first[o].data[byte]) ++byte;
    const auto at = static_cast<int64_t>(byte / width);
    return absl::StrFormat("'%s' at element %d: %.9g instead of %.9g", ports[o].name, at, got[o].at(at),
                           first[o].at(at));
  }
  return "";
}

class RepeatedCheck {
 public:
  RepeatedCheck(PackageRunner& runner, const NetworkReferences& references)
      : runner_(runner), references_(references), first_(references.inputs.size()) {
    verdict_.ok = true;
  }

  absl::StatusOr<NetworkVerdict> Run(const ReplayOptions& options) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.most_seconds);
    RETURN_IF_ERROR(runner_.Poison());
    const auto ends = [&](int replay, size_t input) {
      const bool needed = replay == 0 || (replay == 1 && input == 0);
      return !verdict_.ok || replay >= options.replays || (!needed && std::chrono::steady_clock::now() > until);
    };
    for (int replay = 0; !ends(replay, 0); ++replay) {
      for (size_t input = 0; input < first_.size() && !ends(replay, input); ++input)
        RETURN_IF_ERROR(RunOnce(input, replay));
      runner_.UseOtherPlan();
    }
    return verdict_;
  }

 private:
  absl::Status RunOnce(size_t input, int replay) {
    RETURN_IF_ERROR(runner_.SetInputs(references_.inputs[input]));
    // Now and then several without a pause, where the next one might begin before the one in front has ended.
    RETURN_IF_ERROR(replay % 4 == 3 ? runner_.RunTimes(3) : runner_.Run());
    ASSIGN_OR_RETURN(std::vector<Array> got, runner_.Outputs());
    ++verdict_.runs;
    const std::vector<PackagePort>& ports = runner_.manifest().outputs;
    const bool by_tolerance = replay == 0 || !runner_.manifest().libraries.empty();
    const bool has_reference = input < references_.outputs.size();
    if (!has_reference && by_tolerance) {
      if (replay == 0) first_[input] = std::move(got);
    } else if (by_tolerance) {
      Compare(ResultOf(input, got), WhichRun(references_, input, replay));
      first_[input] = std::move(got);
    } else if (const std::string difference = FirstDifference(ports, got, first_[input]); !difference.empty()) {
      const ExpectedOutputs first = {first_[input], std::vector<Tolerance>(ports.size())};
      const CheckResult result = CompareOutputs(ports, got, has_reference ? references_.outputs[input] : first);
      verdict_.ok = false;
      verdict_.max_abs_error = std::max(verdict_.max_abs_error, result.max_abs_error);
      verdict_.max_rel_error = std::max(verdict_.max_rel_error, result.max_rel_error);
      verdict_.text = absl::StrCat("output ", difference, " in the first run of the same inputs (",
                                   WhichRun(references_, input, replay), ")");
    }
    return absl::OkStatus();
  }

  // Once a result has exceeded an input's tolerances, all others are held to the wider ones.
  CheckResult ResultOf(size_t input, const std::vector<Array>& got) {
    const std::vector<PackagePort>& ports = runner_.manifest().outputs;
    if (const auto known = widened_.find(input); known != widened_.end())
      return CompareOutputs(ports, got, known->second);
    const CheckResult result = CompareOutputs(ports, got, references_.outputs[input]);
    if (result.ok || references_.widen == nullptr) return result;
    ExpectedOutputs wider = references_.outputs[input];
    if (!references_.widen(input, &wider).ok()) return result;  // such as for lack of memory
    return CompareOutputs(ports, got, widened_.emplace(input, std::move(wider)).first->second);
  }

  void Compare(const CheckResult& result, const std::string& run) {
    verdict_.max_abs_error = std::max(verdict_.max_abs_error, result.max_abs_error);
    if (result.max_rel_error >= verdict_.max_rel_error) verdict_.tolerance = result.tolerance;
    verdict_.max_rel_error = std::max(verdict_.max_rel_error, result.max_rel_error);
    if (result.ok) return;
    verdict_.ok = false;
    verdict_.text = absl::StrFormat("output %s; the relative error is %.3g where %.3g is allowed (%s)", result.worst,
                                    result.max_rel_error, result.tolerance, run);
  }

  PackageRunner& runner_;
  const NetworkReferences& references_;
  std::vector<std::vector<Array>> first_;  // by input: the outputs of its first run
  std::map<size_t, ExpectedOutputs> widened_;
  NetworkVerdict verdict_;
};

}  // namespace

NetworkReferences InputsWithoutReferences(const PackageManifest& manifest, const NetworkCheckOptions& options) {
  DIAPASON_CHECK(options.seeds >= 1);
  NetworkReferences references;
  for (int i = 0; i < options.seeds; ++i) {
    references.seeds.push_back(options.seed + i);
    references.inputs.push_back(RandomInputs(manifest, references.seeds.back()));
  }
  return references;
}

absl::StatusOr<NetworkReferences> MakeReferences(const Package& package, Device& device,
                                                 const NetworkCheckOptions& options,
                                                 std::vector<Program> reference_programs) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ReferenceNetwork> network,
                   ReferenceNetwork::Create(package, device, reference_programs));
  NetworkReferences references = InputsWithoutReferences(package.manifest(), options);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.most_seconds);
  for (const auto& inputs : references.inputs) {
    if (!references.outputs.empty() && std::chrono::steady_clock::now() > until) break;
    ASSIGN_OR_RETURN(ExpectedOutputs outputs, network->Run(inputs));
    references.outputs.push_back(std::move(outputs));
  }
  const size_t inputs = std::max(references.outputs.size(), std::min<size_t>(references.inputs.size(), 2));
  references.seeds.resize(inputs);
  references.inputs.resize(inputs);
  // Made anew, since few networks need it and its tensors take memory.
  references.widen = [package, &device, reference_programs = std::move(reference_programs), seeds = references.seeds](
                         size_t input, ExpectedOutputs* outputs) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<ReferenceNetwork> network,
                     ReferenceNetwork::Create(package, device, reference_programs));
    return network->WidenTolerances(RandomInputs(package.manifest(), seeds.at(input)), outputs);
  };
  return references;
}

bool AllFinite(const std::vector<Array>& outputs) {
  for (const Array& output : outputs) {
    if (!IsFloat(output.dtype)) continue;
    for (int64_t i = 0, n = output.elements(); i < n; ++i)
      if (!std::isfinite(output.at(i))) return false;
  }
  return true;
}

absl::StatusOr<NetworkVerdict> CheckRepeatedly(PackageRunner& runner, const NetworkReferences& references,
                                               const ReplayOptions& options) {
  return RepeatedCheck(runner, references).Run(options);
}

}  // namespace diapason
