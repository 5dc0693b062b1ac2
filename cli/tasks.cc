// diapason tasks: the tuning tasks of a network.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "service/target.h"
#include "compiler/tensor/check.h"
#include "scheduler/space.h"

namespace diapason {
namespace {

struct TasksFlags {
  ModelFlags model;
  ImportFlags import;
  std::string target;
  bool json = false;
};

struct TaskLine {
  const Task* task;
  std::vector<std::string> sketches;
};

// The tasks that `tune` knows, in its order.
absl::StatusOr<std::vector<TaskLine>> TaskLines(const Cuts& cuts, const ResolvedTarget& resolved) {
  std::vector<TaskLine> lines;
  const size_t count = resolved.target.libs.empty() ? cuts.worthwhile_tasks : cuts.partition.tasks.size();
  for (size_t i = 0; i < count; ++i) {
    const Task& task = cuts.partition.tasks[i];
    ASSIGN_OR_RETURN(const std::unique_ptr<TaskSpace> space, TaskSpace::Create(task.dag, resolved.target, resolved.facts));
    TaskLine line{&task, {}};
    for (int i = 0; i < space->size(); ++i) line.sketches.push_back(space->space(i).name());
    lines.push_back(std::move(line));
  }
  return lines;
}

void PrintJson(std::ostream& out, const Target& target, const std::vector<TaskLine>& lines) {
  nlohmann::ordered_json tasks = nlohmann::ordered_json::array();
  for (size_t i = 0; i < lines.size(); ++i) {
    const Task& task = *lines[i].task;
    tasks.push_back({{"id", i + 1},
                     {"name", task.name},
                     {"weight", task.weight},
                     {"gflop", task.dag.flops() / 1e9},
                     {"workload", task.workload_key},
                     {"sketches", lines[i].sketches.size()},
                     {"sketch_names", lines[i].sketches}});
  }
  out << nlohmann::ordered_json{{"target", target.ToString()}, {"tasks", tasks}}.dump(2) << "\n";
}

void PrintText(std::ostream& out, const std::vector<TaskLine>& lines) {
  TextTable table({{"id", true}, {"task"}, {"weight", true}, {"GFLOP", true}, {"sketches", true}, {"workload"}});
  double total = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Task& task = *lines[i].task;
    total += task.weight * task.dag.flops();
    table.AddRow({absl::StrCat(i + 1), task.name, absl::StrCat(task.weight), absl::StrFormat("%.4f", task.dag.flops() / 1e9),
                  absl::StrCat(lines[i].sketches.size()), task.workload_key});
  }
  const auto other = std::count_if(lines.begin(), lines.end(), [](const TaskLine& line) { return line.task->weight == 0; });
  out << table.ToString() << Count(lines.size() - other, "task") << ", " << absl::StrFormat("%.3f", total / 1e9)
      << " GFLOP in all with their weights\n";
  if (other > 0)
    out << Count(other, "task") << " of weight 0 " << (other == 1 ? "is" : "are")
        << " for other ways to cut the network, and used where a history says that these are faster\n";
}

absl::Status RunTasks(const TasksFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const ResolvedTarget resolved, ResolveTarget(flags.target));
  ASSIGN_OR_RETURN(const ImportedModel loaded, LoadAndCut(flags.model, flags.import, /*with_network=*/false));
  ASSIGN_OR_RETURN(const std::vector<TaskLine> lines, TaskLines(loaded.cuts, resolved));
  flags.json ? PrintJson(session.out, resolved.target, lines) : PrintText(session.out, lines);
  return absl::OkStatus();
}

}  // namespace

void AddTasks(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("tasks", "Show the tuning tasks that a network is cut into");
  auto flags = std::make_shared<TasksFlags>();
  AddModelFlags(command, &flags->model);
  AddImportFlags(command, &flags->import);
  AddTargetFlag(command, &flags->target);
  command->add_flag("--json", flags->json, "One JSON document instead of text");
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunTasks(*flags, session); }; });
}

}  // namespace diapason
