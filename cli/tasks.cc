// diapason tasks: the tuning tasks of a network.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "service/target.h"
#include "service/tune_spec.h"
#include "compiler/lower/lower.h"
#include "compiler/tensor/check.h"
#include "scheduler/space.h"

namespace diapason {
namespace {

struct TasksFlags {
  ModelFlags model;
  ImportFlags import;
  std::string target, mask;
  bool json = false;
};

struct TaskLine {
  const Task* task;
  std::vector<std::string> sketches;
  int64_t kernels = 0;  // that the default schedule launches
  bool moves = false;   // they only move data
};

// A combination of sizes.
struct PlanLine {
  SymbolSizes sizes;
  int tasks = 0;
  double flops = 0;
  std::map<std::string, SymbolPadding> padding;
};

// An element of something, or a constant; which one may depend on anything.
bool IsMoved(const Expr& e) {
  if (e->kind == ExprKind::kSelect) return IsMoved(e->args[1]) && IsMoved(e->args[2]);
  return e->kind == ExprKind::kLoad || e->kind == ExprKind::kFloatImm || e->kind == ExprKind::kIntImm;
}

// Transposes, slices, concatenations, padding, copies.
bool OnlyMovesData(const ComputeDag& dag) {
  for (int id = 0; id < dag.size(); ++id) {
    const Stage& stage = dag.stage(id);
    if (stage.body && (stage.reduces() || !IsMoved(stage.body))) return false;
  }
  return true;
}

// The tasks that `tune` knows, in its order.
absl::StatusOr<std::vector<TaskLine>> TaskLines(const Partition& partition, const ResolvedTarget& resolved) {
  std::vector<TaskLine> lines;
  for (const Task& task : partition.tasks) {
    ASSIGN_OR_RETURN(const std::unique_ptr<TaskSpace> space, TaskSpace::Create(task.dag, resolved.target, resolved.facts));
    TaskLine line{&task, {}};
    for (int i = 0; i < space->size(); ++i) line.sketches.push_back(space->space(i).name());
    ASSIGN_OR_RETURN(const LoweredProgram lowered, Lower(task.dag, space->DefaultSchedule(), resolved.target, resolved.facts));
    line.kernels = static_cast<int64_t>(lowered.kernels.size());
    line.moves = OnlyMovesData(task.dag);
    lines.push_back(std::move(line));
  }
  return lines;
}

PlanLine PlanLineOf(const ImportedPlan& plan) {
  PlanLine line{plan.combination.sizes, 0, 0, plan.model.padding};
  for (const Task& task : plan.model.cuts.partition.tasks) {
    line.tasks += task.weight > 0 ? 1 : 0;
    line.flops += task.weight * task.dag.flops();
  }
  return line;
}

using Json = nlohmann::ordered_json;

Json InputsJson(const std::vector<ImportedInput>& inputs) {
  Json list = Json::array();
  for (const ImportedInput& input : inputs) {
    Json shape = Json::array();
    for (size_t d = 0; d < input.symbols.size(); ++d) shape.push_back(input.symbols[d].empty() ? Json(input.type.shape[d]) : Json(input.symbols[d]));
    list.push_back({{"name", input.name}, {"dtype", NameOf(input.type.dtype)}, {"shape", shape}});
  }
  return list;
}

void PrintJson(std::ostream& out, const Target& target, const std::vector<ImportedInput>& inputs, const std::vector<PlanLine>& plans,
               const std::vector<TaskLine>& lines) {
  Json tasks = Json::array(), all_plans = Json::array();
  for (size_t i = 0; i < lines.size(); ++i) {
    const Task& task = *lines[i].task;
    tasks.push_back({{"id", i + 1},
                     {"name", task.name},
                     {"weight", task.weight},
                     {"gflop", task.dag.flops() / 1e9},
                     {"workload", task.workload_key},
                     {"sketches", lines[i].sketches.size()},
                     {"sketch_names", lines[i].sketches},
                     {"kernels", lines[i].kernels},
                     {"moves_data", lines[i].moves}});
  }
  for (const PlanLine& plan : plans) {
    Json padding = Json::object();
    for (const auto& [symbol, found] : plan.padding) {
      const bool harmless = found.why_not.empty();
      padding[symbol] = {{"harmless", harmless}, {"least", harmless ? Json(found.least) : Json(nullptr)}, {"why_not", found.why_not}};
    }
    all_plans.push_back({{"sizes", Json::object()}, {"tasks", plan.tasks}, {"gflop", plan.flops / 1e9}, {"padding", padding}});
    for (const auto& [symbol, size] : plan.sizes) all_plans.back()["sizes"][symbol] = size;
  }
  out << Json{{"target", target.ToString()}, {"inputs", InputsJson(inputs)}, {"plans", all_plans}, {"tasks", tasks}}.dump(2) << "\n";
}

// "input ids: int64 batchxseq".
void PrintInputs(std::ostream& out, const std::vector<ImportedInput>& inputs) {
  for (const ImportedInput& input : inputs) {
    std::vector<std::string> extents;
    for (size_t d = 0; d < input.symbols.size(); ++d)
      extents.push_back(input.symbols[d].empty() ? absl::StrCat(input.type.shape[d]) : input.symbols[d]);
    out << "input " << input.name << ": " << NameOf(input.type.dtype) << " " << absl::StrJoin(extents, "x") << "\n";
  }
}

void PrintPlan(std::ostream& out, const PlanLine& plan) {
  out << "plan " << SizesText(plan.sizes) << ": " << Count(plan.tasks, "task") << ", " << absl::StrFormat("%.3f", plan.flops / 1e9) << " GFLOP\n";
  for (const auto& [symbol, padding] : plan.padding) {
    const int64_t size = plan.sizes.contains(symbol) ? plan.sizes.at(symbol) : 0;
    if (size == padding.least) continue;  // nothing lies between this size and the next smaller one
    out << "  " << (padding.why_not.empty() ? absl::StrCat("inputs from ", symbol, "=", padding.least, " on are padded")
                                             : absl::StrCat("inputs are not padded along ", symbol, ": ", padding.why_not))
        << "\n";
  }
}

void PrintText(std::ostream& out, const std::vector<ImportedInput>& inputs, const std::vector<PlanLine>& plans,
               const std::vector<TaskLine>& lines) {
  TextTable table({{"id", true}, {"task"}, {"weight", true}, {"GFLOP", true}, {"sketches", true}, {"kernels", true}, {"workload"}});
  double total = 0;
  int64_t kernels = 0, moving = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Task& task = *lines[i].task;
    total += task.weight * task.dag.flops();
    kernels += task.weight * lines[i].kernels;
    if (lines[i].moves) moving += task.weight * lines[i].kernels;
    table.AddRow({absl::StrCat(i + 1), task.name, absl::StrCat(task.weight), absl::StrFormat("%.4f", task.dag.flops() / 1e9),
                  absl::StrCat(lines[i].sketches.size()), absl::StrCat(lines[i].kernels, lines[i].moves ? "*" : ""), task.workload_key});
  }
  const auto other = std::count_if(lines.begin(), lines.end(), [](const TaskLine& line) { return line.task->weight == 0; });
  PrintInputs(out, inputs);
  out << table.ToString() << Count(lines.size() - other, "task") << ", " << absl::StrFormat("%.3f", total / 1e9)
      << " GFLOP and "
      << Count(kernels, "kernel") << " in all with their weights\n";
  if (moving > 0) out << "* " << Count(moving, "kernel") << (moving == 1 ? " only moves" : " only move") << " data\n";
  if (other > 0)
    out << Count(other, "task") << " of weight 0 " << (other == 1 ? "is" : "are")
        << " for other ways to cut the network, and used where a history says that these are faster\n";
  for (const PlanLine& plan : plans)
    if (!plan.sizes.empty()) PrintPlan(out, plan);
}

absl::Status RunTasks(const TasksFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const ResolvedTarget resolved, ResolveTarget(flags.target));
  ASSIGN_OR_RETURN(std::vector<ImportedPlan> loaded, LoadPlans(flags.model, flags.import, /*with_network=*/false, flags.mask));
  for (const std::string& warning : WarningsOf(loaded)) Warn(session, warning);
  std::vector<PlanLine> plans;
  for (const ImportedPlan& plan : loaded) plans.push_back(PlanLineOf(plan));
  const std::vector<ImportedInput> inputs = loaded.front().model.inputs;
  const TuneWork work = MergePlans(NetworkName(flags.model.model), std::move(loaded), resolved.target.ToString());
  ASSIGN_OR_RETURN(const std::vector<TaskLine> lines, TaskLines(work.partition, resolved));
  flags.json ? PrintJson(session.out, resolved.target, inputs, plans, lines) : PrintText(session.out, inputs, plans, lines);
  return absl::OkStatus();
}

}  // namespace

void AddTasks(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("tasks", "Show the tuning tasks that a network is cut into");
  auto flags = std::make_shared<TasksFlags>();
  AddModelFlags(command, &flags->model);
  AddImportFlags(command, &flags->import);
  AddTargetFlag(command, &flags->target);
  AddMaskFlag(command, &flags->mask);
  command->add_flag("--json", flags->json, "One JSON document instead of text");
  command->footer(
      "The inputs are shown with their symbolic dimensions, to which --dim gives sizes; with several sizes, the tasks of all plans are shown, each "
      "once, and for each plan whether smaller inputs may be padded to its sizes. A symbolic first dimension without sizes is 1. Kernels are those of the schedule that is used without any record.");
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunTasks(*flags, session); }; });
}

}  // namespace diapason
