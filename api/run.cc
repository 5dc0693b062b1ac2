#include "diapason/run.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "api/compare_file.h"
#include "api/import.h"
#include "api/tensor_file.h"
#include "base/check.h"
#include "compiler/build/bench_package.h"
#include "compiler/build/check_package.h"
#include "compiler/build/open_package.h"
#include "compiler/build/package.h"
#include "compiler/build/plans.h"
#include "compiler/build/random_inputs.h"

namespace diapason::api {
namespace {

using Arrays = std::map<std::string, Array>;

// Files of float64 are what a model takes whose inputs have become float32.
absl::StatusOr<Arrays> ReadInputs(const RunOptions& options, const Package& package) {
  Arrays inputs;
  for (const auto& [name, file] : options.inputs) {
    ASSIGN_OR_RETURN(inputs[name], ReadTensorFile(file));
  }
  for (const PackagePort& port : package.manifest().inputs) {
    const auto given = inputs.find(port.name);
    if (given == inputs.end()) continue;
    // NumPy has no bfloat16.
    const bool narrows = (port.dtype == DType::kFloat32 && given->second.dtype == DType::kFloat64) ||
                         (port.dtype == DType::kBfloat16 && IsFloat(given->second.dtype));
    if (narrows) given->second = CastArray(given->second, port.dtype);
  }
  return inputs;
}

// Random values for all inputs, replaced by those that are given.
Arrays WithRandomInputs(const RunOptions& options, const PackageManifest& plan, const SymbolSizes& given,
                        const Arrays& files) {
  Arrays inputs = RandomInputs(plan, given, options.seed);
  for (const auto& [name, value] : files) inputs[name] = value;
  return inputs;
}

// The sizes that one symbol is run with.
absl::StatusOr<std::vector<int64_t>> SizesToRun(const Package& package, const std::string& symbol,
                                                const DimChoices& asked, const SymbolSizes& of_inputs) {
  const auto of_input = of_inputs.find(symbol);
  const auto of_dim = asked.sizes.find(symbol);
  if (of_input != of_inputs.end()) {
    if (of_dim != asked.sizes.end() && of_dim->second != std::vector<int64_t>{of_input->second})
      return absl::InvalidArgumentError(absl::StrCat("the inputs have ", symbol, "=", of_input->second,
                                                     ", and --dim says otherwise: leave --dim out"));
    return std::vector<int64_t>{of_input->second};
  }
  if (of_dim != asked.sizes.end()) return of_dim->second;
  std::set<int64_t> all;
  for (const PackageManifest& plan : package.plans()) all.insert(plan.sizes.at(symbol));
  if (all.size() > 1 && !of_inputs.empty())
    return absl::InvalidArgumentError(absl::StrCat("the inputs that are given do not say how large '", symbol,
                                                   "' is: give --dim ", symbol, "=", *all.begin(),
                                                   ", or an input that has it"));
  return std::vector<int64_t>(all.begin(), all.end());
}

// What is run: the sizes of the inputs, those of --dim, and else of all plans.
absl::StatusOr<std::vector<SymbolSizes>> CombinationsToRun(const RunOptions& options, const Package& package,
                                                           const Arrays& files) {
  Model sized;
  sized.dims = options.dims;
  ASSIGN_OR_RETURN(const DimChoices asked, DimsOf(sized));
  ASSIGN_OR_RETURN(const SymbolSizes of_inputs, SizesOfInputs(package, files));
  DimChoices all;
  for (const auto& [symbol, sizes] : asked.sizes)  // ChoosePlan refuses symbols that the package does not have
    if (!package.manifest().sizes.contains(symbol)) all.sizes[symbol] = sizes;
  for (const auto& [symbol, size] : package.manifest().sizes) {
    ASSIGN_OR_RETURN(all.sizes[symbol], SizesToRun(package, symbol, asked, of_inputs));
  }
  RETURN_IF_ERROR(CheckDimChoices(all));
  std::vector<SymbolSizes> combinations;
  for (const DimCombination& combination : CombinationsOf(all)) combinations.push_back(combination.sizes);
  const char* const of_one_run = !options.output_dir.empty() ? "--output-dir"
                                 : !options.compare.empty()  ? "--compare"
                                                             : nullptr;
  if (combinations.size() > 1 && of_one_run != nullptr)
    return absl::InvalidArgumentError(absl::StrCat(of_one_run, " takes the outputs of one run, and there would be ",
                                                   combinations.size(), ": choose the sizes with --dim or inputs"));
  return combinations;
}

// "a/b" would be a folder.
std::string FileNameOf(const std::string& output) { return absl::StrReplaceAll(output, {{"/", "_"}}) + ".npy"; }

absl::Status WriteOutputs(const std::string& folder, const std::vector<PackagePort>& ports,
                          const std::vector<Array>& outputs) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("the folder ", folder, " cannot be made (", error.message(), "); name another with --output-dir"));
  }
  for (size_t i = 0; i < ports.size(); ++i) {
    RETURN_IF_ERROR(WriteNpyFile(folder + "/" + FileNameOf(ports[i].name), outputs[i]));
  }
  return absl::OkStatus();
}

RunBench BenchOf(const PackageBench& bench) {
  const RunStatistics d = StatisticsOf(bench.runs);
  RunBench result;
  result.latency = {static_cast<int64_t>(bench.runs.size()),
                    d.mean * 1e6,
                    d.std * 1e6,
                    d.min * 1e6,
                    d.max * 1e6,
                    d.p50 * 1e6,
                    d.p90 * 1e6,
                    d.p99 * 1e6};
  result.runs_per_s = bench.RunsPerSecond();
  result.runs_per_sample = bench.back_to_back.number;
  for (const double sample : bench.back_to_back.samples) result.samples_us.push_back(sample * 1e6);
  return result;
}

absl::Status Measure(const RunOptions& options, PackageRunner& runner, const Arrays& inputs, PlanRun& run) {
  if (options.bench.has_value()) {
    const BenchOptions& wanted = *options.bench;
    ASSIGN_OR_RETURN(const PackageBench bench,
                     BenchPackage(runner, {wanted.warm_up_ms * 1e-3, wanted.seconds, wanted.iterations, wanted.repeat,
                                           wanted.min_repeat_ms}));
    run.bench = BenchOf(bench);
  }
  if (options.check) {
    ASSIGN_OR_RETURN(const CheckResult check, CheckPackage(runner, inputs));
    run.check = {check.ok, check.max_abs_error, check.max_rel_error, check.tolerance, check.worst};
  }
  return absl::OkStatus();
}

// The plan for these sizes, run, timed and checked as the options say.
absl::StatusOr<PlanRun> RunPlan(const RunOptions& options, PlanRunner& plans, const SymbolSizes& given,
                                const Arrays& files) {
  ASSIGN_OR_RETURN(const PlanChoice choice, ChoosePlan(plans.package(), given));
  ASSIGN_OR_RETURN(PackageRunner* const runner, plans.Runner(choice.plan));
  const PackageManifest& plan = runner->manifest();
  ASSIGN_OR_RETURN(const Arrays inputs, PadInputs(plan, WithRandomInputs(options, plan, given, files)));
  RETURN_IF_ERROR(runner->SetInputs(inputs));
  RETURN_IF_ERROR(runner->Run());
  ASSIGN_OR_RETURN(std::vector<Array> outputs, runner->Outputs());
  outputs = CutOutputs(plan, given, std::move(outputs));
  std::vector<PackagePort> ports = plan.outputs;
  PlanRun run;
  run.sizes = plan.sizes;
  run.input_sizes = given;
  for (size_t i = 0; i < outputs.size(); ++i) {
    ports[i].shape = outputs[i].shape;
    run.outputs.push_back({ports[i].name, NameOf(ports[i].dtype), ports[i].shape});
  }
  run.paths = runner->paths();
  run.prefetched_bytes = runner->prefetched_bytes();
  if (const double seconds = plan.estimated_seconds(); seconds > 0) run.tasks_us = seconds * 1e6;
  if (plan.latency_seconds > 0) run.estimated_us = plan.latency_seconds * 1e6;
  if (!options.output_dir.empty()) RETURN_IF_ERROR(WriteOutputs(options.output_dir, ports, outputs));
  ASSIGN_OR_RETURN(run.comparisons, CompareWithFiles(options.compare, ports, outputs, options.tolerance));
  RETURN_IF_ERROR(Measure(options, *runner, inputs, run));
  return run;
}

}  // namespace

absl::StatusOr<std::vector<PlanRun>> Run(const RunOptions& options) {
  ASSIGN_OR_RETURN(Package package, OpenPackage(options.package));
  ASSIGN_OR_RETURN(const std::unique_ptr<PlanRunner> plans, PlanRunner::Load(std::move(package)));
  ASSIGN_OR_RETURN(const Arrays files, ReadInputs(options, plans->package()));
  ASSIGN_OR_RETURN(const std::vector<SymbolSizes> combinations, CombinationsToRun(options, plans->package(), files));
  std::vector<PlanRun> runs;
  for (const SymbolSizes& given : combinations) {
    ASSIGN_OR_RETURN(runs.emplace_back(), RunPlan(options, *plans, given, files));
  }
  return runs;
}

}  // namespace diapason::api
