// diapason inspect: what a model or a package takes and gives.
#include "diapason/inspect.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/json.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/table.h"

namespace diapason {
namespace {

struct InspectFlags {
  ModelFlags model;
  ImportFlags import;
  bool json = false;
};

Json PortsJson(const std::vector<api::PortInfo>& ports) {
  Json list = Json::array();
  for (const api::PortInfo& port : ports) {
    Json shape = Json::array();
    for (size_t d = 0; d < port.shape.size(); ++d)
      shape.push_back(!port.symbols[d].empty() ? Json(port.symbols[d])
                      : port.shape[d] > 0      ? Json(port.shape[d])
                                               : Json(nullptr));
    list.push_back({{"name", port.name},
                    {"dtype", port.dtype.empty() ? Json(nullptr) : Json(port.dtype)},
                    {"shape", port.has_shape ? shape : Json(nullptr)}});
  }
  return list;
}

void PrintPorts(std::ostream& out, const std::string& kind, const std::vector<api::PortInfo>& ports) {
  for (const api::PortInfo& port : ports)
    out << kind << " " << Printable(port.name) << ": " << Printable(port.TypeText()) << "\n";
}

// The most frequent first.
std::vector<std::pair<std::string, int64_t>> ByFrequency(const std::map<std::string, int64_t>& operators) {
  std::vector<std::pair<std::string, int64_t>> sorted(operators.begin(), operators.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

void PrintJson(std::ostream& out, const std::string& source, const api::ModelInfo& info) {
  Json operators = Json::object();
  for (const auto& [name, count] : ByFrequency(info.operators)) operators[name] = count;
  WriteDocument(out, {"model", 1},
                {{"kind", "model"},
                 {"model", source},
                 {"name", info.name},
                 {"opset", info.opset > 0 ? Json(info.opset) : Json(nullptr)},
                 {"inputs", PortsJson(info.inputs)},
                 {"outputs", PortsJson(info.outputs)},
                 {"parameters", info.parameters},
                 {"weights_bytes", info.weights_bytes},
                 {"operators", operators}});
}

void PrintText(std::ostream& out, const std::string& source, const api::ModelInfo& info) {
  out << "model " << Printable(source) << ": "
      << (info.opset > 0 ? absl::StrCat("ONNX, opset ", info.opset) : "built-in network") << ", "
      << Count(info.parameters, "parameter") << " (" << Bytes(info.weights_bytes) << ")\n";
  PrintPorts(out, "input", info.inputs);
  PrintPorts(out, "output", info.outputs);
  int64_t nodes = 0;
  for (const auto& [name, count] : info.operators) nodes += count;
  out << Count(nodes, "operator") << ": "
      << absl::StrJoin(
             ByFrequency(info.operators), ", ",
             [](std::string* text, const auto& one) { absl::StrAppend(text, Printable(one.first), " ", one.second); })
      << "\n";
}

Json PlanJson(const api::PackagePlanInfo& plan) {
  const auto number = [](const auto& value) { return value.has_value() ? Json(*value) : Json(nullptr); };
  const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
  Json tasks = Json::array();
  for (const api::PackageTaskInfo& task : plan.tasks) {
    tasks.push_back({{"task", task.name},
                     {"workload", task.workload},
                     {"count", task.count},
                     {"kernel_count", task.kernel_count},
                     {"record", number(task.record)},
                     {"record_source", text(task.record_source)},
                     {"record_uuid", text(task.record_uuid)},
                     {"schedule", task.schedule},
                     {"estimated_us", number(task.estimated_us)}});
  }
  return {{"sizes", plan.sizes},
          {"padded_from", plan.padded},
          {"kernel_count", plan.kernel_count},
          {"arena_bytes", plan.arena_bytes},
          {"estimated_us", number(plan.estimated_us)},
          {"tasks", tasks}};
}

void PrintJson(std::ostream& out, const api::PackageInfo& info) {
  Json plans = Json::array();
  for (const api::PackagePlanInfo& plan : info.plans) plans.push_back(PlanJson(plan));
  WriteDocument(out, {"package", 2},
                {{"kind", "package"},
                 {"package", info.path},
                 {"network", info.network},
                 {"target", info.target},
                 {"device", info.device},
                 {"arch", info.arch},
                 {"libraries", info.libraries},
                 {"weights_bytes", info.weights_bytes},
                 {"programs", info.programs},
                 {"mask", info.mask.empty() ? Json(nullptr) : Json(info.mask)},
                 {"inputs", PortsJson(info.inputs)},
                 {"outputs", PortsJson(info.outputs)},
                 {"plans", plans}});
}

// "padded from seq=17 on" of each symbol where it says something.
std::string PaddedText(const api::PackagePlanInfo& plan) {
  std::string text;
  for (const auto& [symbol, least] : plan.padded)
    if (const auto size = plan.sizes.find(symbol); size != plan.sizes.end() && least < size->second)
      absl::StrAppend(&text, ", inputs from ", Printable(symbol), "=", least, " on are padded");
  return text;
}

void PrintTasks(std::ostream& out, const api::PackagePlanInfo& plan) {
  TextTable table(
      {{"task"}, {"count", true}, {"kernels", true}, {"estimated us", true}, {"record", true}, {"schedule"}});
  for (const api::PackageTaskInfo& task : plan.tasks) {
    table.AddRow({Printable(task.name), absl::StrCat(task.count), absl::StrCat(task.kernel_count),
                  Digits(task.estimated_us.value_or(0)), RecordText(task.record, task.record_source),
                  Printable(task.schedule)});
  }
  out << table.ToString();
}

void PrintText(std::ostream& out, const api::PackageInfo& info) {
  out << "package " << Printable(info.path) << ": " << Printable(info.network) << " for " << info.target;
  if (!info.device.empty()) out << ", built for " << Printable(info.device);
  out << "\n";
  if (!info.libraries.empty()) out << "needs " << absl::StrJoin(info.libraries, " and ") << " where it runs\n";
  PrintPorts(out, "input", info.inputs);
  if (!info.mask.empty()) out << "mask " << Printable(info.mask) << "\n";
  PrintPorts(out, "output", info.outputs);
  out << "weights " << Bytes(info.weights_bytes) << ", " << Count(info.programs, "compiled task") << "\n";
  for (const api::PackagePlanInfo& plan : info.plans) {
    const bool sized = !plan.sizes.empty();
    out << (sized ? absl::StrCat("plan ", Printable(api::SizesText(plan.sizes)), ": ") : "")
        << Count(plan.kernel_count, "kernel") << " in a run, " << Bytes(plan.arena_bytes)
        << " of memory for intermediate tensors";
    if (plan.estimated_us.has_value()) out << ", estimated latency " << Duration(*plan.estimated_us * 1e-6);
    out << PaddedText(plan) << "\n";
    if (!sized) PrintTasks(out, plan);
  }
}

absl::Status InspectPackageAt(const InspectFlags& flags, Session& session) {
  const ModelFlags& m = flags.model;
  if (m.batch > 0 || !m.dims.empty() || !m.input_shapes.empty() || !m.extra.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(m.model, " is a package, which has its sizes: leave out the options of models"));
  ASSIGN_OR_RETURN(const api::PackageInfo info, api::InspectPackage(m.model));
  flags.json ? PrintJson(session.out, info) : PrintText(session.out, info);
  return absl::OkStatus();
}

absl::Status RunInspect(const InspectFlags& flags, Session& session) {
  if (api::IsPackage(flags.model.model)) return InspectPackageAt(flags, session);
  ASSIGN_OR_RETURN(const api::Model model, ModelOf(flags.model, flags.import, ""));
  ASSIGN_OR_RETURN(const api::ModelInfo info, api::InspectModel(model, HooksOf(session)));
  flags.json ? PrintJson(session.out, flags.model.model, info) : PrintText(session.out, flags.model.model, info);
  return absl::OkStatus();
}

}  // namespace

void AddInspect(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Show the inputs and outputs of a model or a package, and what a package consists of");
  command->footer(
      "Shows names, types and shapes; symbolic dimensions have the names that --dim takes. A package (a folder or a "
      ".dpk file) is shown with its target, device, kernels and weights; nothing in it is executed.");
  auto flags = std::make_shared<InspectFlags>();
  command
      ->add_option("MODEL", flags->model.model,
                   "Package that `diapason build` made, an .onnx file, or a built-in network (`diapason networks`)")
      ->required()
      ->type_name("");
  AddSizeFlags(command, &flags->model,
               "Size of a symbolic dimension of the model, as in seq=128, to show the resulting shapes");
  AddImportFlags(command, &flags->import);
  AddJsonFlag(command, &flags->json);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunInspect(*flags, session); }; });
}

}  // namespace diapason
