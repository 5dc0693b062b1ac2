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

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "cli/tensor_file.h"
#include "compiler/build/check_package.h"
#include "compiler/build/package.h"
#include "compiler/tensor/check.h"

namespace diapason {
namespace {

using Json = nlohmann::ordered_json;

struct RunFlags {
  std::string package, output_dir;
  std::vector<std::string> inputs;  // NAME=FILE
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

// Random values for all inputs, replaced by the files that are given.
absl::StatusOr<std::map<std::string, Array>> InputsFor(const RunFlags& flags, const PackageManifest& manifest) {
  std::map<std::string, Array> inputs = RandomInputs(manifest, static_cast<uint64_t>(flags.random_seed));
  for (const std::string& pair : flags.inputs) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size()) {
      return absl::InvalidArgumentError(absl::StrCat("--input ", pair, " is not understood; write it as NAME=FILE"));
    }
    ASSIGN_OR_RETURN(inputs[pair.substr(0, equals)], ReadTensorFile(pair.substr(equals + 1)));
  }
  return inputs;
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
  std::vector<PackagePort> outputs;
  int paths = 1;  // on which kernels run side by side
  double tasks_seconds = 0, expected_seconds = 0;  // 0: not known
  std::optional<Latency> latency;
  std::optional<CheckResult> check;
};

void PrintJson(std::ostream& out, const RunReport& report) {
  Json outputs = Json::array();
  for (const PackagePort& port : report.outputs) {
    outputs.push_back({{"name", port.name}, {"shape", port.shape}, {"dtype", NameOf(port.dtype)}});
  }
  Json json = {{"outputs", outputs}, {"paths", report.paths}};
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
  out << json.dump(2) << "\n";
}

void PrintText(std::ostream& out, const RunReport& report) {
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

absl::Status RunRun(const RunFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const std::unique_ptr<PackageRunner> runner, PackageRunner::Load(flags.package));
  ASSIGN_OR_RETURN(const auto inputs, InputsFor(flags, runner->manifest()));
  RETURN_IF_ERROR(runner->SetInputs(inputs));
  RETURN_IF_ERROR(runner->Run());
  ASSIGN_OR_RETURN(const std::vector<Array> outputs, runner->Outputs());
  RunReport report;
  report.outputs = runner->manifest().outputs;
  report.paths = runner->paths();
  report.tasks_seconds = runner->manifest().estimated_seconds();
  report.expected_seconds = runner->manifest().latency_seconds;
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
  flags.json ? PrintJson(session.out, report) : PrintText(session.out, report);
  if (report.check.has_value() && !report.check->ok) {
    return absl::DataLossError(absl::StrCat(flags.package, " computes a wrong result (", report.check->worst,
                                            "); build it again, and report a bug if that does not help"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddRun(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("run", "Run a package, check it and time it");
  auto flags = std::make_shared<RunFlags>();
  command->add_option("DIR", flags->package, "Package that `diapason build` made")->required()->type_name("");
  command->add_option("--input", flags->inputs, "Contents of an input, NAME=FILE with a .npy or ONNX .pb tensor; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME=FILE");
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
