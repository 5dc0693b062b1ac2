// diapason tasks: the tuning tasks of a network.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/plan_json.h"
#include "cli/table.h"
#include "diapason/compiler.h"

namespace diapason {
namespace {

struct TasksFlags {
  ModelFlags model;
  ImportFlags import;
  std::string target, mask;
  bool json = false;
};

Json InputsJson(const std::vector<api::ModelInput>& inputs) {
  Json list = Json::array();
  for (const api::ModelInput& input : inputs) {
    Json shape = Json::array();
    for (size_t d = 0; d < input.symbols.size(); ++d)
      shape.push_back(input.symbols[d].empty() ? Json(input.shape[d]) : Json(input.symbols[d]));
    list.push_back({{"name", input.name}, {"dtype", input.dtype}, {"shape", shape}});
  }
  return list;
}

void PrintJson(std::ostream& out, const api::TaskList& list) {
  Json tasks = Json::array(), all_plans = Json::array();
  for (const api::Task& task : list.tasks) {
    tasks.push_back({{"task_id", task.id},
                     {"task", task.name},
                     {"count", task.count},
                     {"gflop", task.flops / 1e9},
                     {"workload", task.workload},
                     {"sketch_count", task.sketches.size()},
                     {"sketch_names", task.sketches},
                     {"kernel_count", task.kernel_count},
                     {"moves_data", task.moves_data}});
  }
  for (const api::PlanTasks& plan : list.plans) {
    Json padding = Json::object();
    for (const auto& [symbol, found] : plan.padding) padding[symbol] = PaddingJson(found);
    all_plans.push_back({{"sizes", Json::object()},
                         {"task_count", plan.task_count},
                         {"gflop", plan.flops / 1e9},
                         {"padding", padding}});
    for (const auto& [symbol, size] : plan.sizes) all_plans.back()["sizes"][symbol] = size;
  }
  WriteDocument(out, {"tasks", 2},
                {{"target", list.target}, {"inputs", InputsJson(list.inputs)}, {"plans", all_plans}, {"tasks", tasks}});
}

// "input ids: int64 batchxseq".
void PrintInputs(std::ostream& out, const std::vector<api::ModelInput>& inputs) {
  for (const api::ModelInput& input : inputs) {
    std::vector<std::string> extents;
    for (size_t d = 0; d < input.symbols.size(); ++d)
      extents.push_back(input.symbols[d].empty() ? absl::StrCat(input.shape[d]) : input.symbols[d]);
    out << "input " << input.name << ": " << input.dtype << " " << absl::StrJoin(extents, "x") << "\n";
  }
}

void PrintPlan(std::ostream& out, const api::PlanTasks& plan) {
  out << "plan " << api::SizesText(plan.sizes) << ": " << Count(plan.task_count, "task") << ", "
      << absl::StrFormat("%.3f", plan.flops / 1e9) << " GFLOP\n";
  for (const auto& [symbol, padding] : plan.padding) {
    const int64_t size = plan.sizes.contains(symbol) ? plan.sizes.at(symbol) : 0;
    if (size == padding.min_size) continue;  // nothing lies between this size and the next smaller one
    out << "  "
        << (padding.safe ? absl::StrCat("inputs from ", symbol, "=", padding.min_size, " on are padded")
                         : absl::StrCat("inputs are not padded along ", symbol, ": ", padding.reason))
        << "\n";
  }
}

void PrintText(std::ostream& out, const api::TaskList& list) {
  TextTable table(
      {{"id", true}, {"task"}, {"count", true}, {"GFLOP", true}, {"sketches", true}, {"kernels", true}, {"workload"}});
  double total = 0;
  int64_t kernels = 0, moving = 0, other = 0;
  for (const api::Task& task : list.tasks) {
    total += static_cast<double>(task.count) * task.flops;
    kernels += task.count * task.kernel_count;
    if (task.moves_data) moving += task.count * task.kernel_count;
    if (task.count == 0) ++other;
    table.AddRow({absl::StrCat(task.id), task.name, absl::StrCat(task.count), absl::StrFormat("%.4f", task.flops / 1e9),
                  absl::StrCat(task.sketches.size()), absl::StrCat(task.kernel_count, task.moves_data ? "*" : ""),
                  task.workload});
  }
  PrintInputs(out, list.inputs);
  out << table.ToString() << Count(static_cast<int64_t>(list.tasks.size()) - other, "task") << ", "
      << absl::StrFormat("%.3f", total / 1e9) << " GFLOP and " << Count(kernels, "kernel")
      << " in all, counting every occurrence\n";
  if (moving > 0) out << "* " << Count(moving, "kernel") << (moving == 1 ? " only moves" : " only move") << " data\n";
  if (other > 0)
    out << Count(other, "task") << " with count 0 " << (other == 1 ? "belongs" : "belong")
        << " to fusion alternatives, which `build` takes where the history says that they are faster\n";
  for (const api::PlanTasks& plan : list.plans)
    if (!plan.sizes.empty()) PrintPlan(out, plan);
}

absl::Status RunTasks(const TasksFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const api::Model model, ModelOf(flags.model, flags.import, flags.mask));
  ASSIGN_OR_RETURN(const api::TaskList list, api::Tasks(model, flags.target, HooksOf(session)));
  flags.json ? PrintJson(session.out, list) : PrintText(session.out, list);
  return absl::OkStatus();
}

}  // namespace

void AddTasks(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("tasks", "List the tuning tasks of a network");
  auto flags = std::make_shared<TasksFlags>();
  AddModelFlags(command, &flags->model);
  AddImportFlags(command, &flags->import);
  AddTargetFlag(command, &flags->target, &flags->model);
  AddMaskFlag(command, &flags->mask);
  AddJsonFlag(command, &flags->json);
  command->footer(
      "Shows the inputs with their symbolic dimensions, to which --dim gives sizes. With several sizes, the tasks of "
      "all plans are listed once each, and for each plan whether smaller inputs may be padded to its sizes. A symbolic "
      "first dimension without sizes is 1. The column `kernels` refers to the fallback schedule, which is used without "
      "a record.");
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunTasks(*flags, session); }; });
}

}  // namespace diapason
