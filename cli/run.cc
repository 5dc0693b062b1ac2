// diapason run: runs a package, checks it against the naive evaluation of its network, and times it.
#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "cli/tensor_file.h"
#include "compiler/build/check_package.h"
#include "compiler/build/open_package.h"
#include "compiler/build/package.h"
#include "compiler/build/plans.h"
#include "compiler/build/random_inputs.h"
#include "compiler/graph/passes/constants.h"
#include "compiler/tensor/check.h"

namespace diapason {
namespace {

using Json = nlohmann::ordered_json;

struct RunFlags {
  std::string package, output_dir;
  std::vector<std::string> inputs;  // NAME=FILE
  std::vector<std::string> dims;    // SYMBOL=SIZES
  int64_t random_seed = 0, repeat = 10;
  double min_repeat_ms = 100;
  bool check = false, bench = false, json = false;
};

struct Latency {
  double mean = 0, median = 0, std = 0;
  std::vector<double> samples;  // all in seconds
};

Latency LatencyOf(const Timing& timing) {
  Latency latency;
  latency.samples = timing.samples;
  latency.median = MedianSeconds(timing);
  const double count = static_cast<double>(timing.samples.size());
  latency.mean = std::accumulate(timing.samples.begin(), timing.samples.end(), 0.0) / count;
  double squares = 0;
  for (double sample : timing.samples) squares += (sample - latency.mean) * (sample - latency.mean);
  latency.std = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  return latency;
}

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
    if (given != inputs.end() && port.dtype == DType::kFloat32 && given->second.dtype == DType::kFloat64)
      given->second = CastArray(given->second, DType::kFloat32);
  }
  return inputs;
}

// Random values for all inputs, replaced by those that are given.
std::map<std::string, Array> WithRandomInputs(const RunFlags& flags, const PackageManifest& plan, const SymbolSizes& given,
                                              const std::map<std::string, Array>& files) {
  std::map<std::string, Array> inputs = RandomInputs(plan, given, static_cast<uint64_t>(flags.random_seed));
  for (const auto& [name, value] : files) inputs[name] = value;
  return inputs;
}

// The sizes that one symbol is run with.
absl::StatusOr<std::vector<int64_t>> SizesToRun(const Package& package, const std::string& symbol, const DimChoices& asked,
                                                const SymbolSizes& of_inputs) {
  const auto of_input = of_inputs.find(symbol);
  const auto of_dim = asked.sizes.find(symbol);
  if (of_input != of_inputs.end()) {
    if (of_dim != asked.sizes.end() && of_dim->second != std::vector<int64_t>{of_input->second})
      return absl::InvalidArgumentError(absl::StrCat("the inputs have ", symbol, "=", of_input->second, ", and --dim says otherwise: leave --dim out"));
    return std::vector<int64_t>{of_input->second};
  }
  if (of_dim != asked.sizes.end()) return of_dim->second;
  std::set<int64_t> all;
  for (const PackageManifest& plan : package.plans()) all.insert(plan.sizes.at(symbol));
  if (all.size() > 1 && !of_inputs.empty())
    return absl::InvalidArgumentError(absl::StrCat("the inputs that are given do not say how large '", symbol, "' is: give --dim ", symbol, "=",
                                                   *all.begin(), ", or an input that has it"));
  return std::vector<int64_t>(all.begin(), all.end());
}

// What is run: the sizes of the inputs, those of --dim, and else of all plans.
absl::StatusOr<std::vector<SymbolSizes>> CombinationsToRun(const RunFlags& flags, const Package& package, const std::map<std::string, Array>& files) {
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
  if (combinations.size() > 1 && !flags.output_dir.empty())
    return absl::InvalidArgumentError(absl::StrCat("--output-dir takes the outputs of one run, and there would be ", combinations.size(),
                                                   ": choose the sizes with --dim or inputs"));
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
  int paths = 1;  // on which kernels run side by side
  double tasks_seconds = 0, expected_seconds = 0;  // 0: not known
  std::optional<Latency> latency;
  std::optional<CheckResult> check;
};

Json JsonOf(const RunReport& report) {
  Json outputs = Json::array();
  for (const PackagePort& port : report.outputs) {
    outputs.push_back({{"name", port.name}, {"shape", port.shape}, {"dtype", NameOf(port.dtype)}});
  }
  Json json;
  if (!report.sizes.empty()) json = {{"sizes", report.sizes}, {"given", report.given}};
  json["outputs"] = outputs;
  json["paths"] = report.paths;
  if (report.latency.has_value()) {
    const Latency& l = *report.latency;
    Json samples = Json::array();
    for (double sample : l.samples) samples.push_back(sample * 1e6);
    json["latency_us"] = {{"mean", l.mean * 1e6}, {"median", l.median * 1e6}, {"std", l.std * 1e6}, {"samples", samples}};
  }
  if (report.tasks_seconds > 0) json["tasks_us"] = report.tasks_seconds * 1e6;
  if (report.expected_seconds > 0) json["estimated_us"] = report.expected_seconds * 1e6;
  if (report.check.has_value()) {
    const CheckResult& c = *report.check;
    json["check"] = {{"ok", c.ok}, {"max_abs_error", Finite(c.max_abs_error)}, {"max_rel_error", Finite(c.max_rel_error)},
                     {"tolerance", c.tolerance}, {"worst", c.worst}};
  }
  return json;
}

void PrintJson(std::ostream& out, const std::vector<RunReport>& reports) {
  if (reports.front().sizes.empty()) {
    out << JsonOf(reports.front()).dump(2) << "\n";
    return;
  }
  Json plans = Json::array();
  for (const RunReport& report : reports) plans.push_back(JsonOf(report));
  out << Json{{"plans", plans}}.dump(2) << "\n";
}

void PrintText(std::ostream& out, const RunReport& report) {
  if (!report.sizes.empty()) {
    out << "plan " << SizesText(report.sizes)
        << (report.given == report.sizes ? std::string() : absl::StrCat(" for inputs with ", SizesText(report.given), ", padded")) << "\n";
  }
  for (const PackagePort& port : report.outputs) out << "output " << port.name << ": " << port.TypeText() << "\n";
  if (report.check.has_value()) {
    out << "check " << (report.check->ok ? "ok" : "FAILED") << absl::StrFormat(": largest error %.3g, ", report.check->max_abs_error)
        << absl::StrFormat("%.3g of the output's magnitude (allowed: %.3g)\n", report.check->max_rel_error, report.check->tolerance);
  }
  if (report.latency.has_value()) {
    const Latency& l = *report.latency;
    if (report.paths > 1) out << "independent kernels run side by side, on " << report.paths << " paths\n";
    out << "latency mean " << Duration(l.mean) << ", median " << Duration(l.median) << ", std " << Duration(l.std) << " of "
        << Count(l.samples.size(), "sample") << "\n";
    if (report.expected_seconds > 0) out << "estimated latency " << Duration(report.expected_seconds) << "\n";
    if (report.tasks_seconds > 0) out << "sum of the tasks' measured times " << Duration(report.tasks_seconds) << "\n";
  }
}

// The plan for these sizes, run, timed and checked as the flags say.
absl::StatusOr<RunReport> RunPlan(const RunFlags& flags, PlanRunner& plans, const SymbolSizes& given, const std::map<std::string, Array>& files) {
  ASSIGN_OR_RETURN(const PlanChoice choice, ChoosePlan(plans.package(), given));
  ASSIGN_OR_RETURN(PackageRunner* const runner, plans.Runner(choice.plan));
  const PackageManifest& plan = runner->manifest();
  const std::map<std::string, Array> inputs = PadInputs(plan, WithRandomInputs(flags, plan, given, files));
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
  report.tasks_seconds = plan.estimated_seconds();
  report.expected_seconds = plan.latency_seconds;
  if (!flags.output_dir.empty()) RETURN_IF_ERROR(WriteOutputs(flags.output_dir, report.outputs, outputs));
  if (flags.bench) {
    TimingOptions timing;
    timing.repeat = static_cast<int>(flags.repeat);
    timing.min_repeat_ms = flags.min_repeat_ms;
    timing.max_seconds = std::numeric_limits<double>::infinity();
    ASSIGN_OR_RETURN(const Timing measured, runner->Bench(timing));
    report.latency = LatencyOf(measured);
  }
  if (flags.check) {
    ASSIGN_OR_RETURN(report.check, CheckPackage(*runner, inputs));
  }
  return report;
}

absl::Status RunRun(const RunFlags& flags, Session& session) {
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
  for (const RunReport& report : reports) {
    if (!report.check.has_value() || report.check->ok) continue;
    const std::string with = report.sizes.empty() ? "" : absl::StrCat(" with ", SizesText(report.sizes));
    return absl::DataLossError(absl::StrCat(flags.package, " computes a wrong result", with, " (", report.check->worst,
                                            "); build it again, and report a bug if that does not help"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddRun(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("run", "Run a package, check it and time it");
  command->footer(
      "A package that was built with --dim has several plans. The sizes of the inputs choose one; inputs between the sizes are padded where the "
      "build has shown that to be harmless, outputs are cut back, and other sizes are refused.");
  auto flags = std::make_shared<RunFlags>();
  command->add_option("DIR", flags->package, "Package that `diapason build` made")->required()->type_name("");
  command->add_option("--input", flags->inputs, "Contents of an input, NAME=FILE with a .npy or ONNX .pb tensor; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME=FILE");
  AddDimFlag(command, &flags->dims,
             "Sizes of the random inputs, where no file says them, and so the plan of a package that has several: seq=100 or, one run after the "
             "other, seq=16,100 (default: those of all plans)");
  AddWhole(command, "--random-seed", &flags->random_seed, 0, std::numeric_limits<int64_t>::max(),
           "Seed of the inputs that no file is given for (default 0)");
  command->add_option("--output-dir", flags->output_dir, "Folder for the outputs, as NAME.npy")->type_name("DIR");
  command->add_flag("--check", flags->check, "Compare the outputs with the naive evaluation of the network");
  command->add_flag("--bench", flags->bench, "Measure the latency");
  AddWhole(command, "--repeat", &flags->repeat, 1, 100'000, "Samples of --bench (default 10)");
  AddNumber(command, "--min-repeat-ms", &flags->min_repeat_ms, 0, "Length of a sample in ms, at least (default 100)");
  command->add_flag("--json", flags->json, "One JSON document instead of text");
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunRun(*flags, session); }; });
}

}  // namespace diapason
