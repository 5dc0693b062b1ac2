// diapason run: runs a package, checks it against the reference implementation of its network and against files, and
// times it.
#include "diapason/run.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/table.h"

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

absl::StatusOr<std::map<std::string, std::string>> ParseComparisons(const std::vector<std::string>& pairs) {
  std::map<std::string, std::string> files;
  for (const std::string& pair : pairs) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size())
      return absl::InvalidArgumentError(
          absl::StrCat("--compare ", pair, " is not understood; write it as OUTPUT=FILE"));
    if (!files.emplace(pair.substr(0, equals), pair.substr(equals + 1)).second)
      return absl::InvalidArgumentError(
          absl::StrCat("--compare names the output '", pair.substr(0, equals), "' twice; give it once"));
  }
  return files;
}

// "NAME=FILE" by name, the last of a name.
absl::StatusOr<std::map<std::string, std::string>> ParseInputs(const std::vector<std::string>& pairs) {
  std::map<std::string, std::string> files;
  for (const std::string& pair : pairs) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size())
      return absl::InvalidArgumentError(absl::StrCat("--input ", pair, " is not understood; write it as NAME=FILE"));
    files[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return files;
}

// "compare scores ok: ..." or "compare scores FAILED: ...", one line.
std::string VerdictText(const api::FileComparison& one) {
  const api::OutputErrors& c = one.errors;
  const std::string all = Count(one.elements, "element");
  if (c.worst.empty())
    return absl::StrCat("compare ", one.output, " ok: ", all, one.elements == 1 ? " is" : " are all", " equal to ",
                        one.file);
  const std::string errors = absl::StrCat(
      "largest error ",
      absl::StrFormat("%.3g, %.3g of the magnitude (allowed: %.3g)", c.max_abs_error, c.max_rel_error, c.tolerance));
  if (c.ok) return absl::StrCat("compare ", one.output, " ok: ", all, " agree with ", one.file, ", ", errors);
  return absl::StrCat("compare ", one.output, " FAILED: ", one.differing, " of ", all, " differ from ", one.file, ", ",
                      errors, "; ", c.worst);
}

// JSON has no infinity.
Json Finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json LatencyJson(const api::RunLatency& d) {
  return {{"runs", d.runs},     {"mean_us", d.mean_us}, {"median_us", d.p50_us},
          {"std_us", d.std_us}, {"min_us", d.min_us},   {"max_us", d.max_us},
          {"p50_us", d.p50_us}, {"p90_us", d.p90_us},   {"p99_us", d.p99_us}};
}

Json ThroughputJson(const api::RunBench& bench) {
  return {
      {"runs_per_s", bench.runs_per_s}, {"runs_per_sample", bench.runs_per_sample}, {"samples_us", bench.samples_us}};
}

Json ComparisonsJson(const std::vector<api::FileComparison>& comparisons) {
  Json list = Json::array();
  for (const api::FileComparison& one : comparisons) {
    const api::OutputErrors& c = one.errors;
    list.push_back({{"output", one.output},
                    {"file", one.file},
                    {"ok", c.ok},
                    {"elements", one.elements},
                    {"differing", one.differing},
                    {"max_abs_error", Finite(c.max_abs_error)},
                    {"max_rel_error", Finite(c.max_rel_error)},
                    {"tolerance", c.tolerance},
                    {"worst", c.worst}});
  }
  return list;
}

Json JsonOf(const api::PlanRun& report) {
  Json outputs = Json::array();
  for (const api::RunOutput& output : report.outputs) {
    outputs.push_back({{"name", output.name}, {"shape", output.shape}, {"dtype", output.dtype}});
  }
  Json json;
  if (!report.sizes.empty()) json = {{"sizes", report.sizes}, {"input_sizes", report.input_sizes}};
  json["outputs"] = outputs;
  json["paths"] = report.paths;
  json["prefetched_bytes"] = report.prefetched_bytes;
  if (report.bench.has_value()) {
    json["latency"] = LatencyJson(report.bench->latency);
    json["throughput"] = ThroughputJson(*report.bench);
  }
  if (report.tasks_us.has_value()) json["tasks_us"] = *report.tasks_us;
  if (report.estimated_us.has_value()) json["estimated_us"] = *report.estimated_us;
  if (report.check.has_value()) {
    const api::OutputErrors& c = *report.check;
    json["check"] = {{"ok", c.ok},
                     {"max_abs_error", Finite(c.max_abs_error)},
                     {"max_rel_error", Finite(c.max_rel_error)},
                     {"tolerance", c.tolerance},
                     {"worst", c.worst}};
  }
  if (!report.comparisons.empty()) json["compare"] = ComparisonsJson(report.comparisons);
  return json;
}

void PrintJson(std::ostream& out, const std::vector<api::PlanRun>& reports) {
  if (reports.front().sizes.empty()) {
    WriteDocument(out, kRunSchema, JsonOf(reports.front()));
    return;
  }
  Json plans = Json::array();
  for (const api::PlanRun& report : reports) plans.push_back(JsonOf(report));
  WriteDocument(out, kRunSchema, {{"plans", plans}});
}

void PrintBench(std::ostream& out, const api::PlanRun& report) {
  const api::RunLatency& d = report.bench->latency;
  const auto text = [](double us) { return Duration(us * 1e-6); };
  if (report.prefetched_bytes > 0)
    out << "weights are brought to the cache ahead of their kernels: " << Bytes(report.prefetched_bytes) << " a run\n";
  if (report.paths > 1) out << "independent kernels run side by side, on " << report.paths << " paths\n";
  out << "latency p50 " << text(d.p50_us) << ", p90 " << text(d.p90_us) << ", p99 " << text(d.p99_us) << " (mean "
      << text(d.mean_us) << ", min " << text(d.min_us) << ", max " << text(d.max_us) << ") of " << Count(d.runs, "run")
      << "\n"
      << "throughput " << Digits(report.bench->runs_per_s) << " runs/s back to back\n";
  if (report.estimated_us.has_value()) out << "estimated latency " << text(*report.estimated_us) << "\n";
  if (report.tasks_us.has_value()) out << "sum of task latencies " << text(*report.tasks_us) << "\n";
}

void PrintText(std::ostream& out, const api::PlanRun& report) {
  if (!report.sizes.empty()) {
    out << "plan " << api::SizesText(report.sizes)
        << (report.input_sizes == report.sizes
                ? std::string()
                : absl::StrCat(" for inputs with ", api::SizesText(report.input_sizes), ", padded"))
        << "\n";
  }
  for (const api::RunOutput& output : report.outputs)
    out << "output " << output.name << ": " << output.dtype << " " << absl::StrJoin(output.shape, "x") << "\n";
  if (report.check.has_value()) {
    out << "check " << (report.check->ok ? "ok" : "FAILED")
        << absl::StrFormat(": largest error %.3g, ", report.check->max_abs_error)
        << absl::StrFormat("%.3g of the output's magnitude (allowed: %.3g)\n", report.check->max_rel_error,
                           report.check->tolerance);
  }
  for (const api::FileComparison& one : report.comparisons) out << VerdictText(one) << "\n";
  if (report.bench.has_value()) PrintBench(out, report);
}

// What was compared and differs is an error of the command.
absl::Status StatusOf(const RunFlags& flags, const api::PlanRun& report) {
  const std::string with = report.sizes.empty() ? "" : absl::StrCat(" with ", api::SizesText(report.sizes));
  if (report.check.has_value() && !report.check->ok)
    return absl::DataLossError(absl::StrCat(flags.package, " computes a wrong result", with, " (", report.check->worst,
                                            "); build it again, and report a bug if that does not help"));
  for (const api::FileComparison& one : report.comparisons) {
    if (one.errors.ok) continue;
    return absl::DataLossError(absl::StrCat("output '", one.output, "'", with, " differs from ", one.file, " in ",
                                            one.differing, " of ", Count(one.elements, "element"), " (",
                                            one.errors.worst,
                                            "); --check compares with the network itself, --tolerance allows more"));
  }
  return absl::OkStatus();
}

absl::StatusOr<api::RunOptions> OptionsOf(const RunFlags& flags) {
  api::RunOptions options;
  options.package = flags.package;
  ASSIGN_OR_RETURN(options.inputs, ParseInputs(flags.inputs));
  ASSIGN_OR_RETURN(options.compare, ParseComparisons(flags.comparisons));
  options.dims = flags.dims;
  options.seed = static_cast<uint64_t>(flags.random_seed);
  options.output_dir = flags.output_dir;
  options.check = flags.check;
  options.tolerance = flags.tolerance;
  if (flags.bench)
    options.bench = {flags.warm_up_ms, flags.duration, flags.iterations, static_cast<int>(flags.repeat),
                     flags.min_repeat_ms};
  return options;
}

absl::Status RunRun(const RunFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const api::RunOptions options, OptionsOf(flags));
  ASSIGN_OR_RETURN(const std::vector<api::PlanRun> reports, api::Run(options));
  if (flags.json) PrintJson(session.out, reports);
  for (const api::PlanRun& report : reports) {
    if (!flags.json) PrintText(session.out, report);
  }
  for (const api::PlanRun& report : reports) RETURN_IF_ERROR(StatusOf(flags, report));
  return absl::OkStatus();
}

// Each of them asks for the measurement.
void AddBenchFlags(CLI::App* command, RunFlags* flags) {
  const std::string group = "Measuring";
  command
      ->add_flag("--bench", flags->bench,
                 "Measure latency (percentiles of single runs) and throughput (runs back to back)")
      ->group(group);
  const auto bench = [flags](const std::string&) { flags->bench = true; };
  AddNumber(command, "--duration", &flags->duration, 0, "Seconds of single runs (default 3)")
      ->group(group)
      ->each(bench);
  AddWhole(command, "--iterations", &flags->iterations, {1, 1'000'000'000}, "Least number of single runs (default 10)")
      ->group(group)
      ->each(bench);
  AddNumber(command, "--warm-up-ms", &flags->warm_up_ms, 0, "Milliseconds of warm-up before measuring (default 200)")
      ->group(group)
      ->each(bench);
  AddWhole(command, "--repeat", &flags->repeat, {1, 100'000}, "Samples of runs back to back (default 10)")
      ->group(group);
  AddNumber(command, "--min-repeat-ms", &flags->min_repeat_ms, 0, "Least length of such a sample in ms (default 100)")
      ->group(group);
}

}  // namespace

void AddRun(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("run", "Run a package, check it and time it");
  command->footer(
      "A package that was built with --dim has several plans, of which the sizes of the inputs select one. Inputs of "
      "sizes between those of the plans are padded, and outputs cropped, if the build has proven that this changes no "
      "result; other sizes are rejected.");
  auto flags = std::make_shared<RunFlags>();
  command->add_option("PACKAGE", flags->package, "Package that `diapason build` made, a folder or a .dpk file")
      ->required()
      ->type_name("");
  command
      ->add_option("--input", flags->inputs,
                   "Content of an input, NAME=FILE with a .npy or ONNX .pb tensor; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME=FILE");
  AddDimFlag(command, &flags->dims,
             "Sizes of random inputs, which select the plan of a package that has several: seq=100 or, for one run "
             "after the other, seq=16,100 (default: the sizes of all plans)");
  AddWhole(command, "--random-seed", &flags->random_seed, {0, std::numeric_limits<int64_t>::max()},
           "Seed of the random inputs (default 0)");
  command->add_option("--output-dir", flags->output_dir, "Folder for the outputs, as NAME.npy")->type_name("DIR");
  command->add_flag("--check", flags->check, "Compare the outputs with the reference implementation of the network");
  command
      ->add_option("--compare", flags->comparisons,
                   "Compare an output with a file, OUTPUT=FILE with a .npy or ONNX .pb tensor; may be repeated. The "
                   "exit status is 0 only if all agree within --tolerance")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("OUTPUT=FILE");
  AddNumber(command, "--tolerance", &flags->tolerance, 0,
            "Error that --compare allows, relative to the larger of the element and the output's root mean square "
            "(default 0.001, float16 0.01, bfloat16 0.05); integers must be equal");
  AddBenchFlags(command, flags.get());
  AddJsonFlag(command, &flags->json);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunRun(*flags, session); }; });
}

}  // namespace diapason
