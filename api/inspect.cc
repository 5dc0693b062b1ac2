#include "diapason/inspect.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/import.h"
#include "base/check.h"
#include "compiler/build/open_package.h"
#include "compiler/build/output_growth.h"
#include "compiler/build/package_archive.h"
#include "service/target.h"

namespace diapason::api {
namespace {

PortInfo InfoOf(const DescribedPort& port) { return {port.name, port.dtype, port.has_shape, port.shape, port.symbols}; }

// Symbols of an output are those along which it grows alone: "batch", "2*seq".
PortInfo InfoOf(const PackagePort& port, const std::vector<PortGrowth>& grows) {
  PortInfo info{port.name, NameOf(port.dtype), true, port.shape, port.symbols};
  info.symbols.resize(port.shape.size());
  for (const PortGrowth& growth : grows)
    info.symbols[growth.axis] = growth.block == 1 ? growth.symbol : absl::StrCat(growth.block, "*", growth.symbol);
  return info;
}

// How often each task runs is in the steps: those of equal plans share tasks.
absl::StatusOr<PackagePlanInfo> InfoOf(const Package& package) {
  const PackageManifest& manifest = package.manifest();
  PackagePlanInfo info;
  info.sizes = {manifest.sizes.begin(), manifest.sizes.end()};
  for (const auto& [symbol, padding] : manifest.padding)
    if (padding.why_not.empty()) info.padded[symbol] = padding.least;
  info.arena_bytes = manifest.arena_bytes;
  if (manifest.latency_seconds > 0) info.estimated_us = manifest.latency_seconds * 1e6;
  std::vector<int64_t> runs(manifest.tasks.size());
  for (const PackageStep& step : manifest.steps) ++runs[step.task];
  for (size_t i = 0; i < manifest.tasks.size(); ++i) {
    const PackageTask& task = manifest.tasks[i];
    ASSIGN_OR_RETURN(const ::diapason::Program program, package.ReadProgram(static_cast<int>(i)));
    PackageTaskInfo one;
    one.name = task.name;
    one.workload = task.workload;
    one.count = runs[i];
    one.kernel_count = static_cast<int64_t>(program.kernels.size());
    one.record_source = task.record_source;
    one.record = task.record_id();
    one.record_uuid = task.record_uuid;
    one.schedule = task.schedule;
    if (task.estimated_seconds > 0) one.estimated_us = task.estimated_seconds * 1e6;
    info.kernel_count += one.count * one.kernel_count;
    info.tasks.push_back(std::move(one));
  }
  return info;
}

}  // namespace

std::string PortInfo::TypeText() const {
  std::vector<std::string> extents;
  for (size_t d = 0; d < shape.size(); ++d)
    extents.push_back(!symbols[d].empty() ? symbols[d] : shape[d] > 0 ? absl::StrCat(shape[d]) : "?");
  const std::string text = !has_shape ? "of any shape" : extents.empty() ? "scalar" : absl::StrJoin(extents, "x");
  return absl::StrCat(dtype.empty() ? "?" : dtype, " ", text);
}

absl::StatusOr<ModelInfo> InspectModel(const Model& model, const Hooks& hooks) {
  ASSIGN_OR_RETURN(ModelOptions options, ModelOptionsOf(model));
  ASSIGN_OR_RETURN(const DimChoices dims, DimsOf(model));
  const std::vector<DimCombination> combinations = CombinationsOf(dims);
  if (combinations.size() > 1)
    return absl::InvalidArgumentError(
        "a model is shown with one size for each symbolic dimension; give one, or none to see the symbols");
  options.dims = combinations.front().sizes;
  ImportRequest request{model.source, options, LimitsOf(model), false, hooks.stop};
  ASSIGN_OR_RETURN(const ModelDescription described, DescribeModelFile(request));
  ModelInfo info{described.name,       described.opset,        {}, {}, described.operators,
                 described.parameters, described.weights_bytes};
  for (const DescribedPort& port : described.inputs) info.inputs.push_back(InfoOf(port));
  for (const DescribedPort& port : described.outputs) info.outputs.push_back(InfoOf(port));
  return info;
}

bool IsPackage(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) || IsArchiveName(path);
}

absl::StatusOr<PackageInfo> InspectPackage(const std::string& path) {
  ASSIGN_OR_RETURN(const Package package, OpenPackage(path));
  const PackageManifest& manifest = package.manifest();
  PackageInfo info;
  info.path = path;
  info.network = manifest.network;
  info.target = manifest.target.ToString();
  info.device = DeviceTitle(manifest.target.kind, manifest.device);
  info.arch = manifest.device.arch;
  for (const Library library : manifest.libraries) info.libraries.push_back(NameOf(library));
  info.weights_bytes = manifest.weights_bytes;
  info.mask = manifest.mask;
  for (const PackagePort& port : manifest.inputs) info.inputs.push_back(InfoOf(port, {}));
  for (size_t i = 0; i < manifest.outputs.size(); ++i)
    info.outputs.push_back(InfoOf(manifest.outputs[i], GrowthOfOutput(package.plans(), i)));
  std::set<std::string> programs;
  for (size_t i = 0; i < package.plans().size(); ++i) {
    ASSIGN_OR_RETURN(info.plans.emplace_back(), InfoOf(package.WithPlan(static_cast<int>(i))));
    for (const PackageTask& task : package.plans()[i].tasks) programs.insert(task.file);
  }
  info.programs = static_cast<int64_t>(programs.size());
  return info;
}

}  // namespace diapason::api
