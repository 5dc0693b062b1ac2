// diapason run: runs a package, checks it against the reference implementation of its network and against files, and
// times it.
#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/compare_file.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "cli/tensor_file.h"
#include "compiler/build/bench_package.h"
#include "compiler/build/check_package.h"
#include "compiler/build/open_package.h"
#include "compiler/build/package.h"
#include "compiler/build/plans.h"
#include "compiler/build/random_inputs.h"

namespace diapason {
namespace {

constexpr DocumentSchema kRunSchema{"run", 2};

struct RunFlags {
  std::string package, output_dir;
  std::vector<std::string> inputs;       // NAME=FILE
  std::vector<std::string> dims;         // SYMBOL=SIZES
  std::vector<std::string> comparisons;  // OUTPUT=FILE
  int64_t random_seed = 0, iterations = 10, repeat = 10;
  double tolerance = -1;  // below 0: not given
  double duration = 3, warm_up_ms = 200, min_repeat_ms = 100;
  bool check = false, bench = false, json = false;
};

// Files of float64 are what a model takes whose inputs have become float32.
absl::StatusOr<std::map<std::string, Array>> ReadInputs(const RunFlags& flags, const Package& package) {
  std::map<std::string, Array> inputs;
  for (const std::string& pair : flags.inputs) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size()) {
      return absl::InvalidArgumentError(absl::StrCat("--input ", pair, " is not understood; write it as NAME=FILE"));
    }
    ASSIGN_OR_RETURN(inputs[pair.substr(0, equals)], ReadTensorFile(pair.substr(equals + 1)));
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
std::map<std::string, Array> WithRandomInputs(const RunFlags& flags, const PackageManifest& plan,
                                              const SymbolSizes& given, const std::map<std::string, Array>& files) {
  std::map<std::string, Array> inputs = RandomInputs(plan, given, static_cast<uint64_t>(flags.random_seed));
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
absl::StatusOr<std::vector<SymbolSizes>> CombinationsToRun(const RunFlags& flags, const Package& package,
                                                           const std::map<std::string, Array>& files) {
  ASSIGN_OR_RETURN(const DimChoices asked, DimsOf(flags.dims));
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
  const char* const of_one_run = !flags.output_dir.empty()    ? "--output-dir"
                                 : !flags.comparisons.empty() ? "--compare"
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

// JSON has no infinity.
Json Finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

struct RunReport {
  SymbolSizes sizes, given;  // of the plan and of the inputs; empty: the package has one plan
  std::vector<PackagePort> outputs;
  int paths = 1;                                   // on which kernels run side by side
  int64_t prefetched_bytes = 0;                    // of a run
  double tasks_seconds = 0, expected_seconds = 0;  // 0: not known
  std::optional<PackageBench> bench;
  std::optional<CheckResult> check;
  std::vector<FileComparison> comparisons;
};

Json LatencyJson(const PackageBench& bench) {
  const RunStatistics d = StatisticsOf(bench.runs);
  return {{"runs", bench.runs.size()}, {"mean_us", d.mean * 1e6}, {"median_us", d.p50 * 1e6},
          {"std_us", d.std * 1e6},     {"min_us", d.min * 1e6},   {"max_us", d.max * 1e6},
          {"p50_us", d.p50 * 1e6},     {"p90_us", d.p90 * 1e6},   {"p99_us", d.p99 * 1e6}};
}

Json ThroughputJson(const PackageBench& bench) {
  Json samples = Json::array();
  for (double sample : bench.back_to_back.samples) samples.push_back(sample * 1e6);
  return {
      {"runs_per_s", bench.RunsPerSecond()}, {"runs_per_sample", bench.back_to_back.number}, {"samples_us", samples}};
}

Json ComparisonsJson(const std::vector<FileComparison>& comparisons) {
  Json list = Json::array();
  for (const FileComparison& one : comparisons) {
    const Comparison& c = one.comparison;
    list.push_back({{"output", one.output},
                    {"file", one.file},
                    {"ok", c.ok},
                    {"elements", one.elements},
                    {"differing", one.differing},
                    {"max_abs_error", Finite(c.max_abs_error)},
                    {"max_rel_error", Finite(c.max_rel_error)},
                    {"tolerance", c.tolerance},
                    {"worst", one.worst}});
  }
  return list;
}

Json JsonOf(const RunReport& report) {
  Json outputs = Json::array();
  for (const PackagePort& port : report.outputs) {
    outputs.push_back({{"name", port.name}, {"shape", port.shape}, {"dtype", NameOf(port.dtype)}});
  }
  Json json;
  if (!report.sizes.empty()) json = {{"sizes", report.sizes}, {"input_sizes", report.given}};
  json["outputs"] = outputs;
  json["paths"] = report.paths;
  json["prefetched_bytes"] = report.prefetched_bytes;
  if (report.bench.has_value()) {
    json["latency"] = LatencyJson(*report.bench);
    json["throughput"] = ThroughputJson(*report.bench);
  }
  if (report.tasks_seconds > 0) json["tasks_us"] = report.tasks_seconds * 1e6;
  if (report.expected_seconds > 0) json["estimated_us"] = report.expected_seconds * 1e6;
  if (report.check.has_value()) {
    const CheckResult& c = *report.check;
    json["check"] = {{"ok", c.ok},
                     {"max_abs_error", Finite(c.max_abs_error)},
                     {"max_rel_error", Finite(c.max_rel_error)},
                     {"tolerance", c.tolerance},
                     {"worst", c.worst}};
  }
  if (!report.comparisons.empty()) json["compare"] = ComparisonsJson(report.comparisons);
  return json;
}

void PrintJson(std::ostream& out, const std::vector<RunReport>& reports) {
  if (reports.front().sizes.empty()) {
    WriteDocument(out, kRunSchema, JsonOf(reports.front()));
    return;
  }
  Json plans = Json::array();
  for (const RunReport& report : reports) plans.push_back(JsonOf(report));
  WriteDocument(out, kRunSchema, {{"plans", plans}});
}

void PrintBench(std::ostream& out, const RunReport& report) {
  const RunStatistics d = StatisticsOf(report.bench->runs);
  if (report.prefetched_bytes > 0)
    out << "weights are brought to the cache ahead of their kernels: " << Bytes(report.prefetched_bytes) << " a run\n";
  if (report.paths > 1) out << "independent kernels run side by side, on " << report.paths << " paths\n";
  out << "latency p50 " << Duration(d.p50) << ", p90 " << Duration(d.p90) << ", p99 " << Duration(d.p99) << " (mean "
      << Duration(d.mean) << ", min " << Duration(d.min) << ", max " << Duration(d.max) << ") of "
      << Count(static_cast<int64_t>(report.bench->runs.size()), "run") << "\n"
      << "throughput " << Digits(report.bench->RunsPerSecond()) << " runs/s back to back\n";
  if (report.expected_seconds > 0) out << "estimated latency " << Duration(report.expected_seconds) << "\n";
  if (report.tasks_seconds > 0) out << "sum of task latencies " << Duration(report.tasks_seconds) << "\n";
}

void PrintText(std::ostream& out, const RunReport& report) {
  if (!report.sizes.empty()) {
    out << "plan " << SizesText(report.sizes)
        << (report.given == report.sizes ? std::string()
                                         : absl::StrCat(" for inputs with ", SizesText(report.given), ", padded"))
        << "\n";
  }
  for (const PackagePort& port : report.outputs) out << "output " << port.name << ": " << port.TypeText() << "\n";
  if (report.check.has_value()) {
    out << "check " << (report.check->ok ? "ok" : "FAILED")
        << absl::StrFormat(": largest error %.3g, ", report.check->max_abs_error)
        << absl::StrFormat("%.3g of the output's magnitude (allowed: %.3g)\n", report.check->max_rel_error,
                           report.check->tolerance);
  }
  for (const FileComparison& one : report.comparisons) out << VerdictText(one) << "\n";
  if (report.bench.has_value()) PrintBench(out, report);
}

// The plan for these sizes, run, timed and checked as the flags say.
absl::StatusOr<RunReport> RunPlan(const RunFlags& flags, PlanRunner& plans, const SymbolSizes& given,
                                  const std::map<std::string, Array>& files) {
  ASSIGN_OR_RETURN(const PlanChoice choice, ChoosePlan(plans.package(), given));
  ASSIGN_OR_RETURN(PackageRunner* const runner, plans.Runner(choice.plan));
  const PackageManifest& plan = runner->manifest();
  using Inputs = std::map<std::string, Array>;
  ASSIGN_OR_RETURN(const Inputs inputs, PadInputs(plan, WithRandomInputs(flags, plan, given, files)));
  RETURN_IF_ERROR(runner->SetInputs(inputs));
  RETURN_IF_ERROR(runner->Run());
  ASSIGN_OR_RETURN(std::vector<Array> outputs, runner->Outputs());
  outputs = CutOutputs(plan, given, std::move(outputs));
  RunReport report;
  report.sizes = plan.sizes;
  report.given = given;
  report.outputs = plan.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) report.outputs[i].shape = outputs[i].shape;
  report.paths = runner->paths();
  report.prefetched_bytes = runner->prefetched_bytes();
  report.tasks_seconds = plan.estimated_seconds();
  report.expected_seconds = plan.latency_seconds;
  if (!flags.output_dir.empty()) RETURN_IF_ERROR(WriteOutputs(flags.output_dir, report.outputs, outputs));
  ASSIGN_OR_RETURN(const auto files_to_compare, ParseComparisons(flags.comparisons));
  ASSIGN_OR_RETURN(report.comparisons, CompareWithFiles(files_to_compare, report.outputs, outputs, flags.tolerance));
  if (flags.bench) {
    ASSIGN_OR_RETURN(report.bench, BenchPackage(*runner, {flags.warm_up_ms * 1e-3, flags.duration, flags.iterations,
                                                          static_cast<int>(flags.repeat), flags.min_repeat_ms}));
  }
  if (flags.check) {
    ASSIGN_OR_RETURN(report.check, CheckPackage(*runner, inputs));
  }
  return report;
}

// What was compared and differs is an error of the command.
absl::Status StatusOf(const RunFlags& flags, const RunReport& report) {
  const std::string with = report.sizes.empty() ? "" : absl::StrCat(" with ", SizesText(report.sizes));
  if (report.check.has_value() && !report.check->ok)
    return absl::DataLossError(absl::StrCat(flags.package, " computes a wrong result", with, " (", report.check->worst,
                                            "); build it again, and report a bug if that does not help"));
  for (const FileComparison& one : report.comparisons) {
    if (one.comparison.ok) continue;
    return absl::DataLossError(absl::StrCat("output '", one.output, "'", with, " differs from ", one.file, " in ",
                                            one.differing, " of ", Count(one.elements, "element"), " (", one.worst,
                                            "); --check compares with the network itself, --tolerance allows more"));
  }
  return absl::OkStatus();
}

absl::Status RunRun(const RunFlags& flags, Session& session) {
  RETURN_IF_ERROR(ParseComparisons(flags.comparisons).status());
  ASSIGN_OR_RETURN(Package package, OpenPackage(flags.package));
  ASSIGN_OR_RETURN(const std::unique_ptr<PlanRunner> plans, PlanRunner::Load(std::move(package)));
  ASSIGN_OR_RETURN(const auto files, ReadInputs(flags, plans->package()));
  ASSIGN_OR_RETURN(const std::vector<SymbolSizes> combinations, CombinationsToRun(flags, plans->package(), files));
  std::vector<RunReport> reports;
  for (const SymbolSizes& given : combinations) {
    ASSIGN_OR_RETURN(RunReport report, RunPlan(flags, *plans, given, files));
    reports.push_back(std::move(report));
  }
  if (flags.json) PrintJson(session.out, reports);
  for (const RunReport& report : reports) {
    if (!flags.json) PrintText(session.out, report);
  }
  for (const RunReport& report : reports) RETURN_IF_ERROR(StatusOf(flags, report));
  return absl::OkStatus();
}

// Each of them asks for the measurement.
void AddBenchFlags(CLI::App* command, RunFlags* flags) {
  const std::string group = "Measuring";
  command
      ->add_flag("--bench", flags->bench,
                 "Measure latency (percentiles of runs one by one) and throughput (runs back to back)")
      ->group(group);
  const auto bench = [flags](const std::string&) { flags->bench = true; };
  AddNumber(command, "--duration", &flags->duration, 0, "Seconds to measure runs one by one (default 3)")
      ->group(group)
      ->each(bench);
  AddWhole(command, "--iterations", &flags->iterations, {1, 1'000'000'000}, "Runs one by one, at least (default 10)")
      ->group(group)
      ->each(bench);
  AddNumber(command, "--warm-up-ms", &flags->warm_up_ms, 0,
            "Length of the runs before, which do not count (default 200)")
      ->group(group)
      ->each(bench);
  AddWhole(command, "--repeat", &flags->repeat, {1, 100'000}, "Samples of runs back to back (default 10)")
      ->group(group);
  AddNumber(command, "--min-repeat-ms", &flags->min_repeat_ms, 0,
            "Length of such a sample in ms, at least (default 100)")
      ->group(group);
}

}  // namespace

void AddRun(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("run", "Run a package, check it and time it");
  command->footer(
      "A package that was built with --dim has several plans. The sizes of the inputs choose one; inputs between the "
      "sizes are padded where the "
      "build has shown that to be harmless, outputs are cropped, and other sizes are rejected.");
  auto flags = std::make_shared<RunFlags>();
  command->add_option("PACKAGE", flags->package, "Package that `diapason build` made, a folder or a .dpk file")
      ->required()
      ->type_name("");
  command
      ->add_option("--input", flags->inputs,
                   "Contents of an input, NAME=FILE with a .npy or ONNX .pb tensor; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME=FILE");
  AddDimFlag(command, &flags->dims,
             "Sizes of the random inputs, where no file says them, and so the plan of a package that has several: "
             "seq=100 or, one run after the "
             "other, seq=16,100 (default: those of all plans)");
  AddWhole(command, "--random-seed", &flags->random_seed, {0, std::numeric_limits<int64_t>::max()},
           "Seed of the inputs that no file is given for (default 0)");
  command->add_option("--output-dir", flags->output_dir, "Folder for the outputs, as NAME.npy")->type_name("DIR");
  command->add_flag("--check", flags->check, "Compare the outputs with the reference implementation of the network");
  command
      ->add_option(
          "--compare", flags->comparisons,
          "Compare an output with a file, OUTPUT=FILE with a .npy or ONNX .pb tensor; may be repeated. The exit "
          "status is 0 only if all agree")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("OUTPUT=FILE");
  AddNumber(command, "--tolerance", &flags->tolerance, 0,
            "What --compare allows: an error of so much of the larger of the element and the output's root mean square "
            "(default 0.001, 0.01 for "
            "float16, 0.05 for bfloat16); integers must be equal");
  AddBenchFlags(command, flags.get());
  AddJsonFlag(command, &flags->json);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunRun(*flags, session); }; });
}

}  // namespace diapason
