// diapason._tuner: tasks, build, tune and histories, over the public headers of libdiapason. Results are dictionaries,
// of which python/diapason/compiler.py, tuning.py and history.py make what users see.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "diapason/compiler.h"
#include "diapason/explain.h"
#include "diapason/history.h"
#include "diapason/inspect.h"
#include "diapason/model.h"
#include "diapason/tuner.h"
#include "python/src/interruptible.h"

namespace nb = nanobind;

namespace diapason::python {
namespace {

// A dictionary of keys and values in turns.
void Fill(nb::dict&) {}
template <typename Value, typename... Rest>
void Fill(nb::dict& dict, const char* key, const Value& value, const Rest&... rest) {
  dict[key] = nb::cast(value);
  Fill(dict, rest...);
}
template <typename... Rest>
nb::dict Dict(const Rest&... rest) {
  nb::dict dict;
  Fill(dict, rest...);
  return dict;
}

nb::dict ToPython(const api::ModelInput& input);
nb::dict ToPython(const api::Task& task);
nb::dict ToPython(const api::PlanTasks& plan);
nb::dict ToPython(const api::NetworkCheck::WrongRecord& wrong);
nb::dict ToPython(const api::NetworkCheck& check);
nb::dict ToPython(const api::BuiltTask& task);
nb::dict ToPython(const api::FusionChoice& choice);
nb::dict ToPython(const api::BuiltPlan& plan);
nb::dict ToPython(const api::TaskProgress& task);
nb::dict ToPython(const api::Record& record);
nb::dict ToPython(const api::Explanation::Share& share);

template <typename Values>
nb::list ListOf(const Values& values) {
  nb::list list;
  for (const auto& value : values) list.append(ToPython(value));
  return list;
}

nb::dict ToPython(const api::Padding& padding) {
  return Dict("safe", padding.safe, "min_size", padding.safe ? std::optional<int64_t>(padding.min_size) : std::nullopt,
              "reason", padding.reason);
}

nb::dict PaddingOf(const std::map<std::string, api::Padding>& padding) {
  nb::dict dict;
  for (const auto& [symbol, one] : padding) dict[symbol.c_str()] = ToPython(one);
  return dict;
}

nb::dict ToPython(const api::ModelInput& input) {
  return Dict("name", input.name, "dtype", input.dtype, "shape", input.shape, "symbols", input.symbols);
}

nb::dict ToPython(const api::Task& task) {
  return Dict("id", task.id, "name", task.name, "count", task.count, "flops", task.flops, "workload", task.workload,
              "sketches", task.sketches, "kernel_count", task.kernel_count, "moves_data", task.moves_data);
}

nb::dict ToPython(const api::PlanTasks& plan) {
  return Dict("sizes", plan.sizes, "task_count", plan.task_count, "flops", plan.flops, "padding",
              PaddingOf(plan.padding));
}

nb::dict ToPython(const api::TaskList& list) {
  return Dict("target", list.target, "inputs", ListOf(list.inputs), "plans", ListOf(list.plans), "tasks",
              ListOf(list.tasks));
}

nb::dict ToPython(const api::NetworkCheck::WrongRecord& wrong) {
  return Dict("record", wrong.record, "task", wrong.task, "text", wrong.text, "replacement", wrong.replacement);
}

nb::dict ToPython(const api::NetworkCheck& check) {
  return Dict("sizes", check.sizes, "ok", check.ok, "max_rel_error", check.max_rel_error, "elapsed_s", check.elapsed_s,
              "text", check.text, "latency_us", check.latency_us, "wrong_records", ListOf(check.wrong_records));
}

nb::dict ToPython(const api::BuiltTask& task) {
  return Dict("id", task.id, "name", task.name, "count", task.count, "workload", task.workload, "record", task.record,
              "record_source", task.record_source, "record_uuid", task.record_uuid, "schedule", task.schedule, "writes",
              task.writes, "estimated_us", task.estimated_us);
}

nb::dict ToPython(const api::FusionChoice& choice) {
  return Dict("choice_point", choice.choice_point, "alternative", choice.alternative);
}

nb::dict ToPython(const api::RefinedRecords& refined) {
  return Dict("compared", refined.compared, "replaced", refined.replaced, "regrouped", refined.regrouped, "ratio",
              refined.ratio, "ended_early", refined.ended_early);
}

nb::dict ToPython(const api::BuiltPlan& plan) {
  nb::object check = nb::none();
  if (plan.check.has_value()) check = ToPython(*plan.check);
  return Dict("sizes", plan.sizes, "tasks", ListOf(plan.tasks), "task_count", plan.task_count, "fallback_count",
              plan.fallback_count, "shipped_count", plan.shipped_count, "fusion_choices", ListOf(plan.fusion_choices),
              "tasks_us", plan.tasks_us, "estimated_us", plan.estimated_us, "latency_us", plan.latency_us, "check",
              check, "refined", ToPython(plan.refined), "padding", PaddingOf(plan.padding));
}

nb::dict ToPython(const api::BuildReport& report) {
  std::vector<std::string> libraries;
  for (const auto& library : report.libraries) libraries.push_back(library.name);
  return Dict("out", report.out, "target", report.target, "libraries", libraries, "plans", ListOf(report.plans),
              "kernels_used", report.kernels_used, "kernels_stored", report.kernels_stored);
}

nb::dict ToPython(const api::TaskProgress& task) {
  return Dict("id", task.id, "name", task.name, "workload", task.workload, "count", task.count, "trials", task.trials,
              "failed", task.failed, "best_us", task.best_us, "fallback_us", task.fallback_us, "gflops_per_s",
              task.gflops_per_s, "verified", task.verified, "record", task.record, "sketch", task.sketch, "tuned",
              task.tuned);
}

nb::dict ToPython(const api::Progress& progress) {
  nb::dict errors;
  for (const auto& [kind, count] : progress.errors) errors[kind.c_str()] = count;
  return Dict("elapsed_s", progress.elapsed_s, "trials", progress.trials, "measured", progress.measured, "failed",
              progress.failed, "trial_limit", progress.trial_limit, "time_limit_s", progress.time_limit_s,
              "time_left_s", progress.time_left_s, "estimated_us", progress.estimated_us, "estimated_fallback_us",
              progress.estimated_fallback_us, "candidates", progress.candidates, "errors", errors, "tasks",
              ListOf(progress.tasks));
}

nb::dict ToPython(const api::TuneResult& result) {
  return Dict("progress", ToPython(result.progress), "stop_reason", result.stop_reason, "cancelled", result.cancelled,
              "fusion_choices", ListOf(result.fusion_choices), "checks", ListOf(result.checks), "check_code",
              absl::StatusCodeToString(result.check_status.code()), "check_text",
              std::string(result.check_status.message()));
}

nb::dict ToPython(const api::Record& record) {
  return Dict("id", record.id, "uuid", record.uuid, "workload", record.workload, "task", record.task, "target",
              record.target, "device", record.device, "median_us", record.median_us, "samples_us", record.samples_us,
              "stopped_early", record.stopped_early, "trial", record.trial, "verification", record.verification,
              "algorithm", record.algorithm, "sketch", record.sketch, "seed", record.seed, "created_at",
              record.created_at);
}

nb::dict ToPython(const api::Explanation::Share& share) {
  return Dict("network", share.network, "count", share.count, "share", share.share);
}

nb::dict ToPython(const api::Explanation& e) {
  nb::object measured = nb::none(), failed = nb::none();
  if (e.measured.has_value())
    measured = Dict("median_us", e.measured->median_us, "samples_us", e.measured->samples_us, "runs_per_sample",
                    e.measured->runs_per_sample, "stopped_early", e.measured->stopped_early, "gflops_per_s",
                    e.measured->gflops_per_s);
  if (e.failed.has_value()) failed = Dict("kind", e.failed->kind, "stage", e.failed->stage, "text", e.failed->text);
  const std::optional<int64_t> record = e.record > 0 ? std::optional<int64_t>(e.record) : std::nullopt;
  return Dict("record", record, "workload", e.workload, "task", e.task, "target", e.target, "device", e.device,
              "algorithm", e.algorithm, "sketch", e.sketch, "configuration", e.configuration, "measured", measured,
              "failed", failed, "predicted_us", e.predicted_us, "analytic_us", e.analytic_us, "verification",
              e.verification, "verification_text", e.verification_text, "computation", e.computation, "rewrite",
              e.rewrite, "steps", e.steps, "loops", e.loops, "source", e.source, "problem", e.problem, "features",
              e.features, "shares", ListOf(e.shares), "sketch_times_us", e.sketch_times);
}

// Warnings go to a function of Python's, which looks for the line of its caller.
api::Hooks HooksOf(Interruptible& call, const nb::callable& warn) {
  return {
      [&call, &warn](const std::string& sentence) { call.CallPythonOfCaller([&warn, sentence] { warn(sentence); }); },
      call.stop()};
}

// Of a file, whatever else is asked of the model.
std::string GraphName(const api::Model& model) {
  api::Model file;
  file.source = model.source;
  file.import_memory_gib = model.import_memory_gib;
  file.import_seconds = model.import_seconds;
  Interruptible call;
  return call.Run([&] { return api::InspectModel(file, {nullptr, call.stop()}); }).name;
}

nb::dict Tasks(const api::Model& model, const std::string& target, const nb::callable& warn) {
  Interruptible call;
  const api::Hooks hooks = HooksOf(call, warn);
  return ToPython(call.Run([&] { return api::Tasks(model, target, hooks); }));
}

nb::dict Build(api::BuildOptions options, const nb::callable& warn, const nb::object& progress) {
  Interruptible call;
  options.hooks = HooksOf(call, warn);
  if (!progress.is_none())
    options.progress = [&](const std::string& step) { call.CallPython([&] { progress(step); }); };
  return ToPython(call.Run([&] { return api::Build(options); }));
}

nb::dict Tune(api::TuneOptions options, const nb::callable& warn, const nb::object& progress) {
  Interruptible call;
  options.hooks = HooksOf(call, warn);
  if (!progress.is_none())
    options.progress = [&](const api::Progress& state) { call.CallPython([&] { progress(ToPython(state)); }); };
  return ToPython(call.Run([&] { return api::Tune(options); }));
}

nb::dict ExplainCandidate(const api::Model& model, const api::CandidateChoice& choice, const nb::callable& warn) {
  Interruptible call;
  const api::Hooks hooks = HooksOf(call, warn);
  return ToPython(call.Run([&] { return api::ExplainCandidate(model, choice, hooks); }));
}

// A short call, without the interpreter's lock: the file may be locked by another process.
template <typename Body>
auto Call(Body body) {
  auto result = [&] {
    const nb::gil_scoped_release unlocked;
    return body();
  }();
  if (!result.ok())
    Raise(absl::StatusCodeToString(result.status().code()).c_str(), std::string(result.status().message()));
  return *std::move(result);
}

nb::dict ExplainRecord(const std::string& history, int64_t record) {
  return ToPython(Call([&] { return api::ExplainRecord(history, record); }));
}

nb::dict CheckHistory(const std::string& path) {
  const api::HistoryProblems found = Call([&] { return api::CheckHistory(path); });
  return Dict("record_count", found.record_count, "problems", found.problems);
}

nb::dict ExportHistory(const std::string& path, const std::string& file, const api::HistoryExport& options) {
  const api::ExportedRecords done = Call([&] { return api::ExportHistoryToFile(path, options, file); });
  return Dict("record_count", done.record_count, "damaged", done.damaged);
}

nb::dict ImportHistory(const std::string& path, const std::string& file, bool skip_damaged) {
  const api::ImportedRecords done = Call([&]() -> absl::StatusOr<api::ImportedRecords> {
    std::ifstream in(file, std::ios::binary);
    if (!in) return absl::NotFoundError(file + " cannot be read; name a file that an export wrote");
    return api::ImportHistory(path, in, file, skip_damaged);
  });
  return Dict("lines", done.lines, "added", done.added, "known", done.known, "updated", done.updated, "damaged",
              done.damaged);
}

nb::dict CopyHistory(const std::string& from, const std::string& to) {
  const api::CopiedRecords done = Call([&] { return api::CopyHistory(from, to); });
  return Dict("added", done.added, "known", done.known, "updated", done.updated, "latencies", done.latencies);
}

nb::dict PruneHistory(const std::string& path, int64_t keep, const std::string& out) {
  const api::PrunedRecords done = Call([&] { return api::PruneHistory(path, keep, out); });
  return Dict("kept", done.kept, "dropped", done.dropped, "bytes_before", done.bytes_before, "bytes_after",
              done.bytes_after);
}

class History {
 public:
  explicit History(const std::string& path) : history_(Call([&] { return api::History::Open(path); })) {}

  nb::list Query(const std::string& target, const std::string& workload, const std::string& device,
                 const std::string& network, int64_t top) {
    return ListOf(Call([&] { return history_->Query({target, workload, device, network}, top); }));
  }
  nb::object Best(const std::string& workload, const std::string& device, const std::string& target) {
    const std::optional<api::Record> best = Call([&] { return history_->Best(workload, device, target); });
    return best.has_value() ? nb::object(ToPython(*best)) : nb::object(nb::none());
  }
  nb::dict Summary() {
    const api::HistorySummary summary = Call([&] { return history_->Summary(); });
    std::vector<std::string> networks, devices;
    for (const auto& network : summary.networks) networks.push_back(network.network);
    for (const auto& device : summary.devices)
      if (devices.empty() || devices.back() != device.device) devices.push_back(device.device);
    return Dict("path", summary.path, "schema_version", summary.schema_version, "file_bytes", summary.file_bytes,
                "record_count", summary.record_count, "failed", summary.failed, "runs", summary.runs, "networks",
                networks, "devices", devices);
  }

 private:
  std::unique_ptr<api::History> history_;
};

void DefineBuildOptions(nb::module_& module) {
  nb::class_<api::BuildOptions>(module, "BuildOptions")
      .def(nb::init<>())
      .def_rw("model", &api::BuildOptions::model)
      .def_rw("target", &api::BuildOptions::target)
      .def_rw("out", &api::BuildOptions::out)
      .def_rw("histories", &api::BuildOptions::histories)
      .def_rw("shipped_records", &api::BuildOptions::shipped_records)
      .def_rw("build_timeout_seconds", &api::BuildOptions::build_timeout_seconds)
      .def_rw("check", &api::BuildOptions::check)
      .def_rw("measure", &api::BuildOptions::measure)
      .def_rw("refine_seconds", &api::BuildOptions::refine_seconds);
}

}  // namespace

NB_MODULE(_tuner, module) {
  module.attr("version") = api::Version();
  module.def("set_program", &api::SetProgram, nb::arg("path"),
             "The diapason program of this build, which is started for models, builds and measurements.");
  nb::class_<api::Model>(module, "Model")
      .def(nb::init<>())
      .def_rw("source", &api::Model::source)
      .def_rw("batch", &api::Model::batch)
      .def_rw("layout", &api::Model::layout)
      .def_rw("dtype", &api::Model::dtype)
      .def_rw("tolerance", &api::Model::tolerance)
      .def_rw("input_shapes", &api::Model::input_shapes)
      .def_rw("dims", &api::Model::dims)
      .def_rw("mask", &api::Model::mask)
      .def_rw("strict", &api::Model::strict)
      .def_rw("options", &api::Model::options)
      .def_rw("import_memory_gib", &api::Model::import_memory_gib)
      .def_rw("import_seconds", &api::Model::import_seconds);
  DefineBuildOptions(module);
  nb::class_<api::Endpoint>(module, "Endpoint")
      .def(nb::init<>())
      .def_rw("address", &api::Endpoint::address)
      .def_rw("token_file", &api::Endpoint::token_file)
      .def_rw("tls_cert", &api::Endpoint::tls_cert)
      .def_rw("tls_key", &api::Endpoint::tls_key)
      .def_rw("tls_ca", &api::Endpoint::tls_ca)
      .def_rw("insecure", &api::Endpoint::insecure);
  nb::class_<api::FleetRequest>(module, "FleetRequest")
      .def(nb::init<>())
      .def_rw("tracker", &api::FleetRequest::tracker)
      .def_rw("device", &api::FleetRequest::device)
      .def_rw("labels", &api::FleetRequest::labels)
      .def_rw("priority", &api::FleetRequest::priority)
      .def_rw("weight", &api::FleetRequest::weight)
      .def_rw("wait_seconds", &api::FleetRequest::wait_seconds);
  nb::class_<api::TuneOptions>(module, "TuneOptions")
      .def(nb::init<>())
      .def_rw("model", &api::TuneOptions::model)
      .def_rw("target", &api::TuneOptions::target)
      .def_rw("history", &api::TuneOptions::history)
      .def_rw("trials", &api::TuneOptions::trials)
      .def_rw("seconds", &api::TuneOptions::seconds)
      .def_rw("tasks", &api::TuneOptions::tasks)
      .def_rw("early_stop", &api::TuneOptions::early_stop)
      .def_rw("seed", &api::TuneOptions::seed)
      .def_rw("shipped_records", &api::TuneOptions::shipped_records)
      .def_rw("deterministic", &api::TuneOptions::deterministic)
      .def_rw("repeat", &api::TuneOptions::repeat)
      .def_rw("min_repeat_ms", &api::TuneOptions::min_repeat_ms)
      .def_rw("build_timeout_seconds", &api::TuneOptions::build_timeout_seconds)
      .def_rw("run_timeout_seconds", &api::TuneOptions::run_timeout_seconds)
      .def_rw("builders", &api::TuneOptions::builders)
      .def_rw("sandbox", &api::TuneOptions::sandbox)
      .def_rw("fleet", &api::TuneOptions::fleet)
      .def_rw("check", &api::TuneOptions::check);
  module.def("tasks", &Tasks, nb::arg("model"), nb::arg("target"), nb::arg("warn"));
  module.def("graph_name", &GraphName, nb::arg("model"), "The name of the graph of an ONNX file.");
  module.def("build", &Build, nb::arg("options"), nb::arg("warn"), nb::arg("progress").none());
  module.def("tune", &Tune, nb::arg("options"), nb::arg("warn"), nb::arg("progress").none());
  nb::class_<api::CandidateChoice>(module, "CandidateChoice")
      .def(nb::init<>())
      .def_rw("target", &api::CandidateChoice::target)
      .def_rw("task", &api::CandidateChoice::task)
      .def_rw("sketch", &api::CandidateChoice::sketch)
      .def_rw("parameters", &api::CandidateChoice::parameters);
  nb::class_<api::RecordQuery>(module, "RecordQuery")
      .def(nb::init<>())
      .def_rw("target", &api::RecordQuery::target)
      .def_rw("workload", &api::RecordQuery::workload)
      .def_rw("device", &api::RecordQuery::device)
      .def_rw("network", &api::RecordQuery::network);
  nb::class_<api::HistoryExport>(module, "HistoryExport")
      .def(nb::init<>())
      .def_rw("format", &api::HistoryExport::format)
      .def_rw("records", &api::HistoryExport::records)
      .def_rw("skip_damaged", &api::HistoryExport::skip_damaged)
      .def_rw("with_host", &api::HistoryExport::with_host);
  module.def("explain_candidate", &ExplainCandidate, nb::arg("model"), nb::arg("choice"), nb::arg("warn"));
  module.def("explain_record", &ExplainRecord, nb::arg("history"), nb::arg("record"));
  module.def("check_history", &CheckHistory, nb::arg("path"));
  module.def("export_history", &ExportHistory, nb::arg("path"), nb::arg("file"), nb::arg("options"));
  module.def("import_history", &ImportHistory, nb::arg("path"), nb::arg("file"), nb::arg("skip_damaged"));
  module.def("copy_history", &CopyHistory, nb::arg("source"), nb::arg("to"));
  module.def("prune_history", &PruneHistory, nb::arg("path"), nb::arg("keep"), nb::arg("out"));
  nb::class_<History>(module, "History")
      .def(nb::init<const std::string&>(), nb::arg("path"))
      .def("query", &History::Query, nb::arg("target"), nb::arg("workload"), nb::arg("device"), nb::arg("network"),
           nb::arg("top"))
      .def("best", &History::Best, nb::arg("workload"), nb::arg("device"), nb::arg("target"),
           nb::sig("def best(self, workload: str, device: str, target: str) -> dict | None"))
      .def("summary", &History::Summary);
}

}  // namespace diapason::python
