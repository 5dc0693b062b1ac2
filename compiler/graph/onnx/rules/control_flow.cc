// If, Loop and Scan, whose course is known while importing: the branch that is taken, and loops step by step.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/found_rows.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

constexpr int64_t kMostSteps = 1024;

absl::StatusOr<bool> KnownCondition(const ImportValue& condition, const std::string& what) {
  if (condition->value && condition->type.elements() == 1) return condition->value->int_at(0) != 0;
  return absl::InvalidArgumentError(absl::StrCat(
      what,
      " is known only when the network runs, which is not supported: export the model with static shapes, or with ",
      "the input it depends on as a constant"));
}

absl::Status If(NodeImporter& node) {
  Composer c(node);
  ASSIGN_OR_RETURN(ImportValue condition, node.Input(0));
  ASSIGN_OR_RETURN(bool taken, KnownCondition(condition, "its condition"));
  std::shared_ptr<const OnnxGraph> yes = node.Body("then_branch"), no = node.Body("else_branch");
  if (!yes || !no) return absl::InvalidArgumentError("a branch is missing");
  ASSIGN_OR_RETURN(std::vector<ImportValue> results, node.ImportBody(taken ? *yes : *no, {}));
  if (results.size() < node.node().outputs.size())
    return absl::InvalidArgumentError("a branch has fewer results than the node");
  for (size_t i = 0; i < node.node().outputs.size(); ++i) {
    if (node.IsRead(static_cast<int>(i))) HandOn(c, static_cast<int>(i), results[i], results[i]->narrow);
  }
  return c.status();
}

// The results of all steps along a new axis.
ImportValue Stacked(Composer& c, const std::vector<ImportValue>& steps, int64_t axis) {
  std::vector<ImportValue> parts;
  for (const ImportValue& step : steps) parts.push_back(c.Unsqueeze(step, {axis}));
  return c.Concat(parts, axis);
}

// The same of what bodies gave.
absl::StatusOr<ImportValue> StackedResults(NodeImporter& node, Composer& c, const std::vector<ImportValue>& steps,
                                           int64_t axis) {
  if (steps.empty())
    return absl::InvalidArgumentError("it makes no step, so that a result would be empty, which is not supported");
  for (const ImportValue& step : steps) {
    if (!step->is_tensor()) return absl::InvalidArgumentError("its body hands out a sequence for each step");
    RETURN_IF_ERROR(LoseFoundRows(*step, node));
  }
  return Stacked(c, steps, axis);
}

absl::Status TooManySteps(int64_t steps) {
  return absl::InvalidArgumentError(absl::StrCat("it has ", steps > kMostSteps ? "more than " : "",
                                                 std::min(steps, kMostSteps), " steps, and loops of up to ", kMostSteps,
                                                 " are unrolled"));
}

// How often a loop runs at most.
absl::StatusOr<int64_t> TripCount(NodeImporter& node) {
  if (!node.HasInput(0)) return std::numeric_limits<int64_t>::max();
  ASSIGN_OR_RETURN(ImportValue count, node.Input(0));
  if (count->value && count->type.elements() == 1) return count->value->int_at(0);
  return absl::InvalidArgumentError(
      "its number of steps is known only when the network runs, which is not supported: export the model with static "
      "shapes, or with "
      "the number as a constant");
}

ImportValue Counter(Composer& c, int64_t step) {
  Array array(DType::kInt64, {});
  array.set_int(0, step);
  return c.Constant(std::move(array));
}

absl::Status FinishLoop(NodeImporter& node, Composer& c, const std::vector<ImportValue>& carried,
                        const std::vector<std::vector<ImportValue>>& stacked, const Ints& axes) {
  for (size_t i = 0; i < node.node().outputs.size(); ++i) {
    int result = static_cast<int>(i);
    if (!node.IsRead(result)) continue;
    if (i < carried.size()) {
      HandOn(c, result, carried[i], carried[i]->narrow);
      continue;
    }
    size_t k = i - carried.size();
    if (k >= stacked.size()) return absl::InvalidArgumentError("its body has fewer results than the node");
    ASSIGN_OR_RETURN(const ImportValue all, StackedResults(node, c, stacked[k], k < axes.size() ? axes[k] : 0));
    HandOn(c, result, all, stacked[k][0]->narrow);
  }
  return c.status();
}

// Body: (step, condition, carried...) -> (condition, carried..., stacked...).
absl::Status Loop(NodeImporter& node) {
  Composer c(node);
  std::shared_ptr<const OnnxGraph> body = node.Body("body");
  if (!body || node.inputs() < 2) return absl::InvalidArgumentError("its body or an input is missing");
  ASSIGN_OR_RETURN(int64_t steps, TripCount(node));
  ImportValue condition;
  if (node.HasInput(1)) {
    ASSIGN_OR_RETURN(condition, node.Input(1));
  } else {
    Array yes(DType::kBool, {});
    yes.set_int(0, 1);
    condition = c.Constant(std::move(yes));
  }
  std::vector<ImportValue> carried;
  for (int i = 2; i < node.inputs(); ++i) {
    ASSIGN_OR_RETURN(ImportValue value, node.AnyInput(i));
    carried.push_back(value);
  }
  if (body->outputs.size() < carried.size() + 1) return absl::InvalidArgumentError("its body has too few results");
  std::vector<std::vector<ImportValue>> stacked(body->outputs.size() - 1 - carried.size());
  for (int64_t step = 0; step < steps; ++step) {
    ASSIGN_OR_RETURN(bool more, KnownCondition(condition, absl::StrCat("its condition before step ", step)));
    if (!more) break;
    if (step >= kMostSteps) return TooManySteps(kMostSteps + 1);
    std::vector<ImportValue> inputs = {Counter(c, step), condition};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    ASSIGN_OR_RETURN(std::vector<ImportValue> results, node.ImportBody(*body, inputs));
    condition = results[0];
    for (size_t i = 0; i < carried.size(); ++i) carried[i] = results[i + 1];
    for (size_t k = 0; k < stacked.size(); ++k) stacked[k].push_back(results[1 + carried.size() + k]);
  }
  return FinishLoop(node, c, carried, stacked, {});
}

struct ScanPlan {
  int64_t states = 0, scanned = 0, steps = 0;
  Ints axes, directions, output_axes, output_directions;
};

absl::StatusOr<ScanPlan> PlanOf(NodeImporter& node, Composer& c, const OnnxGraph& body) {
  ScanPlan plan;
  plan.scanned = node.Int("num_scan_inputs", 0);
  plan.states = node.inputs() - plan.scanned;
  const int64_t results = static_cast<int64_t>(body.outputs.size()) - plan.states;
  if (plan.scanned < 1 || plan.states < 0 || results < 0)
    return absl::InvalidArgumentError("its inputs do not fit its body");
  plan.axes = node.Ints("scan_input_axes", Ints(plan.scanned, 0));
  plan.directions = node.Ints("scan_input_directions", Ints(plan.scanned, 0));
  plan.output_axes = node.Ints("scan_output_axes", Ints(results, 0));
  plan.output_directions = node.Ints("scan_output_directions", Ints(results, 0));
  auto fits = [](const Ints& list, int64_t size) { return static_cast<int64_t>(list.size()) == size; };
  if (!fits(plan.axes, plan.scanned) || !fits(plan.directions, plan.scanned) || !fits(plan.output_axes, results) ||
      !fits(plan.output_directions, results)) {
    return absl::InvalidArgumentError("its axes or directions do not fit its inputs and results");
  }
  for (int64_t k = 0; k < plan.scanned; ++k) {
    ASSIGN_OR_RETURN(ImportValue x, node.Input(static_cast<int>(plan.states + k)));
    plan.axes[k] = c.Axis(plan.axes[k], x);
    RETURN_IF_ERROR(c.status());
    const int64_t steps = x->type.shape[plan.axes[k]];
    if (k > 0 && steps != plan.steps)
      return absl::InvalidArgumentError(absl::StrCat("its inputs have ", plan.steps, " and ", steps, " steps"));
    plan.steps = steps;
  }
  if (plan.steps > kMostSteps) return TooManySteps(plan.steps);
  return plan;
}

struct ScanRun {
  std::vector<ImportValue> states;
  std::vector<std::vector<ImportValue>> stacked;  // by result: what each step gave
};

// Body: (states..., slices...) -> (states..., stacked...).
absl::StatusOr<ScanRun> RunScan(NodeImporter& node, const OnnxGraph& body, const ScanPlan& plan,
                                std::vector<ImportValue> states, const std::vector<ImportValue>& scanned) {
  Composer c(node);
  ScanRun run{std::move(states), std::vector<std::vector<ImportValue>>(body.outputs.size() - plan.states)};
  for (int64_t step = 0; step < plan.steps; ++step) {
    std::vector<ImportValue> inputs = run.states;
    for (size_t k = 0; k < scanned.size(); ++k) {
      const int64_t at = plan.directions[k] != 0 ? plan.steps - 1 - step : step;
      inputs.push_back(c.Squeeze(c.Slice(scanned[k], plan.axes[k], at, at + 1), {plan.axes[k]}));
      inputs.back()->narrow = scanned[k]->narrow;
    }
    RETURN_IF_ERROR(c.status());
    ASSIGN_OR_RETURN(std::vector<ImportValue> results, node.ImportBody(body, inputs));
    for (size_t i = 0; i < run.states.size(); ++i) run.states[i] = results[i];
    for (size_t k = 0; k < run.stacked.size(); ++k) {
      std::vector<ImportValue>& list = run.stacked[k];
      list.insert(plan.output_directions[k] != 0 ? list.begin() : list.end(), results[run.states.size() + k]);
    }
  }
  return run;
}

// Inputs of the node from number `first` on.
absl::StatusOr<std::vector<ImportValue>> InputsFrom(const NodeImporter& node, int64_t first, int64_t count) {
  std::vector<ImportValue> inputs;
  for (int64_t i = first; i < first + count; ++i) {
    ASSIGN_OR_RETURN(ImportValue value, node.Input(static_cast<int>(i)));
    inputs.push_back(value);
  }
  return inputs;
}

// The form of opset 8: inputs and results have a batch in front, input 0 has the lengths of its sequences, or is
// absent.
struct BatchedScan {
  ScanPlan plan;  // of one sequence; `steps` is the longest length
  Ints lengths;
  std::vector<ImportValue> states, scanned;
};

absl::StatusOr<BatchedScan> BatchedScanOf(NodeImporter& node, const OnnxGraph& body) {
  BatchedScan scan;
  ScanPlan& plan = scan.plan;
  plan.scanned = node.Int("num_scan_inputs", 0);
  plan.states = node.inputs() - 1 - plan.scanned;
  const int64_t results = static_cast<int64_t>(body.outputs.size()) - plan.states;
  plan.directions = node.Ints("directions", Ints(std::max<int64_t>(plan.scanned, 0), 0));
  if (plan.scanned < 1 || plan.states < 0 || results < 0 ||
      static_cast<int64_t>(plan.directions.size()) != plan.scanned)
    return absl::InvalidArgumentError("its inputs or directions do not fit its body");
  plan.axes = Ints(plan.scanned, 0);
  plan.output_directions = Ints(results, 0);
  ASSIGN_OR_RETURN(scan.states, InputsFrom(node, 1, plan.states));
  ASSIGN_OR_RETURN(scan.scanned, InputsFrom(node, 1 + plan.states, plan.scanned));
  const Ints& first = scan.scanned[0]->type.shape;
  const auto begins_as_first = [&](const ImportValue& x, size_t axes) {
    const Ints& shape = x->type.shape;
    return shape.size() >= axes && std::equal(first.begin(), first.begin() + static_cast<int64_t>(axes), shape.begin());
  };
  bool fit = first.size() >= 2 && first[0] >= 1 && first[1] >= 1;
  for (const ImportValue& x : scan.scanned) fit = fit && begins_as_first(x, 2);
  for (const ImportValue& x : scan.states) fit = fit && begins_as_first(x, 1);
  if (!fit) return absl::InvalidArgumentError("its inputs differ in their batch or in their number of steps");
  plan.steps = first[1];
  if (first[0] > kMostSteps / plan.steps) return TooManySteps(kMostSteps + 1);
  scan.lengths = Ints(first[0], plan.steps);
  if (node.HasInput(0)) {
    ASSIGN_OR_RETURN(scan.lengths, node.KnownInts(0, "the lengths of the sequences"));
  }
  const auto possible = [&](int64_t length) { return length >= 1 && length <= plan.steps; };
  if (scan.lengths.size() == static_cast<size_t>(first[0]) &&
      std::all_of(scan.lengths.begin(), scan.lengths.end(), possible))
    return scan;
  return absl::InvalidArgumentError(absl::StrCat("its lengths must be ", first[0], " numbers from 1 to ", plan.steps));
}

// What the steps of a sequence gave, behind them zeros.
absl::StatusOr<ImportValue> PaddedSteps(NodeImporter& node, Composer& c, const std::vector<ImportValue>& given,
                                        int64_t steps) {
  ASSIGN_OR_RETURN(const ImportValue all, StackedResults(node, c, given, 0));
  RETURN_IF_ERROR(c.status());
  Ints shape = all->type.shape;
  shape[0] = steps - shape[0];
  if (shape[0] == 0) return all;
  return c.Concat({all, c.Expand(c.Scalar(0, all), shape)}, 0);
}

absl::Status ScanOfBatches(NodeImporter& node, const OnnxGraph& body) {
  Composer c(node);
  ASSIGN_OR_RETURN(const BatchedScan scan, BatchedScanOf(node, body));
  std::vector<std::vector<ImportValue>> states(scan.states.size()), stacked(scan.plan.output_directions.size());
  for (size_t b = 0; b < scan.lengths.size(); ++b) {
    const auto of_sequence = [&](const std::vector<ImportValue>& all) {
      std::vector<ImportValue> one;
      for (const ImportValue& x : all) {
        one.push_back(c.Squeeze(c.Slice(x, 0, static_cast<int64_t>(b), static_cast<int64_t>(b) + 1), {0}));
        one.back()->narrow = x->narrow;
      }
      return one;
    };
    ScanPlan plan = scan.plan;
    plan.steps = scan.lengths[b];
    const std::vector<ImportValue> begin = of_sequence(scan.states), scanned = of_sequence(scan.scanned);
    RETURN_IF_ERROR(c.status());
    ASSIGN_OR_RETURN(const ScanRun run, RunScan(node, body, plan, begin, scanned));
    for (size_t i = 0; i < states.size(); ++i) states[i].push_back(run.states[i]);
    for (size_t k = 0; k < stacked.size(); ++k) {
      ASSIGN_OR_RETURN(ImportValue all, PaddedSteps(node, c, run.stacked[k], scan.plan.steps));
      all->narrow = run.stacked[k][0]->narrow;
      stacked[k].push_back(std::move(all));
    }
  }
  std::vector<std::vector<ImportValue>> results = std::move(states);
  results.insert(results.end(), stacked.begin(), stacked.end());
  return FinishLoop(node, c, {}, results, {});
}

absl::Status Scan(NodeImporter& node) {
  Composer c(node);
  std::shared_ptr<const OnnxGraph> body = node.Body("body");
  if (!body) return absl::InvalidArgumentError("its body is missing");
  if (node.opset() < 9) return ScanOfBatches(node, *body);
  ASSIGN_OR_RETURN(ScanPlan plan, PlanOf(node, c, *body));
  ASSIGN_OR_RETURN(std::vector<ImportValue> states, InputsFrom(node, 0, plan.states));
  ASSIGN_OR_RETURN(const std::vector<ImportValue> scanned, InputsFrom(node, plan.states, plan.scanned));
  ASSIGN_OR_RETURN(const ScanRun run, RunScan(node, *body, plan, std::move(states), scanned));
  for (size_t k = 0; k < run.stacked.size(); ++k) {
    const int64_t rank = run.stacked[k].empty() ? 0 : RankOf(run.stacked[k][0]) + 1;
    if (plan.output_axes[k] < 0) plan.output_axes[k] += rank;
    if (plan.output_axes[k] >= 0 && plan.output_axes[k] < rank) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("scan_output_axes has ", plan.output_axes[k], " for a result with ", rank, " dimensions"));
  }
  return FinishLoop(node, c, run.states, run.stacked, plan.output_axes);
}

}  // namespace

std::vector<OnnxRule> ControlFlow() { return {{"If", If}, {"Loop", Loop}, {"Scan", Scan}}; }

}  // namespace diapason::onnx_rules
