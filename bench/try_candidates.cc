// Candidates chosen by hand: what each compiles to and, where the target has a device here, how long it takes and
// whether it is right. For finding out what a sketch can do, apart from what a search finds in it.
//
//   try_candidates NETWORK TARGET TASK [NAME=VALUE ...] [--source DIR] [--replace DIR] < LINES
//
// NETWORK is a built-in network, with options (NAME=VALUE; dtype=float16 and batch=8 too) for it, and TASK a part of a
// task's name, also of one that only fusion alternatives have. Each line names a sketch and values of parameters, the
// others have their defaults: "gemm/tensor m.warps=2 n.warps=4". Lines that are empty or begin with # are skipped.
// Prints a line for each: microseconds (median, measured as workers do), largest relative error, shared bytes,
// registers, spilled bytes, the analytic estimate. With --source, N.cu and N.bin of candidate N, counted from 0, are
// written to DIR. With --replace, N.cu of DIR is compiled for candidate N, where there is such a file: a printed source
// that was changed by hand, to find out what a part of it costs. Such a candidate's line ends with "(replaced)".
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "bench/evaluate.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/reference.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/model.h"
#include "compiler/graph/passes.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/fill.h"
#include "compiler/runtime/measure.h"
#include "compiler/tensor/compare.h"
#include "scheduler/space.h"
#include "service/target.h"
#include "worker/process/in_place.h"

namespace diapason {
namespace {

struct Line {
  std::string text, problem;
  double analytic = 0;  // seconds
  Program program;
};

struct Arguments {
  std::string network, target, task, folder, replacements;
  ModelOptions options;
};

// The configuration a line asks for; refuses what is not legal. Parameters behind one that is said move to their
// nearest legal values.
absl::StatusOr<std::vector<int32_t>> Configuration(const Space& space, std::istringstream& words) {
  std::vector<int32_t> configuration = space.Default();
  std::map<std::string, int32_t> wanted;
  for (std::string word; words >> word;) {
    const size_t equal = word.find('=');
    if (equal == std::string::npos) return absl::InvalidArgumentError(absl::StrCat("'", word, "' is not NAME=VALUE"));
    int32_t value = 0;
    if (!absl::SimpleAtoi(word.substr(equal + 1), &value))
      return absl::InvalidArgumentError(absl::StrCat("'", word, "' has no number"));
    wanted[word.substr(0, equal)] = value;
  }
  for (int h = 0; h < space.size(); ++h) {
    const auto it = wanted.find(space.parameter_name(h));
    if (it == wanted.end()) continue;
    std::vector<int32_t> domain;
    space.Domain(h, configuration, &domain);
    if (std::find(domain.begin(), domain.end(), it->second) == domain.end())
      return absl::InvalidArgumentError(absl::StrCat(it->first, " cannot be ", it->second, " here"));
    configuration[h] = it->second;
    if (h + 1 < space.size()) space.Clamp(h + 1, absl::MakeSpan(configuration));
    wanted.erase(it);
  }
  if (wanted.empty()) return configuration;
  std::string parameters;
  for (int h = 0; h < space.size(); ++h) absl::StrAppend(&parameters, h == 0 ? "" : ", ", space.parameter_name(h));
  return absl::InvalidArgumentError(
      absl::StrCat("there is no parameter '", wanted.begin()->first, "'; the sketch has ", parameters));
}

absl::Status Compile(const ComputeDag& dag, const TaskSpace& spaces, const Target& target, const DeviceFacts& facts,
                     Line* line) {
  std::istringstream words(line->text);
  std::string sketch;
  words >> sketch;
  const int index = spaces.Find(sketch);
  if (index < 0) {
    std::string known;
    for (int i = 0; i < spaces.size(); ++i) absl::StrAppend(&known, i == 0 ? "" : ", ", spaces.space(i).name());
    return absl::InvalidArgumentError(absl::StrCat("there is no sketch '", sketch, "', only ", known));
  }
  const Space& space = spaces.space(index);
  ASSIGN_OR_RETURN(const std::vector<int32_t> configuration, Configuration(space, words));
  line->text = sketch;
  for (int h = 0; h < space.size(); ++h)
    absl::StrAppend(&line->text, " ", space.parameter_name(h), "=", configuration[h]);
  Metrics metrics;
  space.Evaluate(configuration, &metrics);
  line->analytic = metrics.seconds;
  ASSIGN_OR_RETURN(const LoweredProgram lowered, Lower(dag, space.Instantiate(configuration), target, facts));
  ASSIGN_OR_RETURN(line->program, CompileProgram(lowered, target));
  return absl::OkStatus();
}

// Compiles the source in the file instead of the program's own, if there is such a file.
absl::Status Replace(const std::string& path, Line& line) {
  std::ifstream file(path);
  if (!file) return absl::OkStatus();
  Program& program = line.program;
  line.text += " (replaced)";
  program.source.assign(std::istreambuf_iterator<char>(file), {});
  return CompileSource(program, 60);
}

// The same for every candidate.
std::map<int, Array> Inputs(const ComputeDag& dag) {
  std::map<int, Array> inputs;
  for (int id : dag.inputs()) {
    const Stage& stage = dag.stage(id);
    Array& array = inputs[id] = Array(stage.dtype, stage.shape());
    IntegerRange range{stage.valid_min, stage.valid_max};
    if (IsByte(stage.dtype)) range = DrawnIntegers(dag, id);
    FillRandom(array, static_cast<uint64_t>(id) + 1, range.low, range.high);
  }
  return inputs;
}

// What all candidates are measured with.
struct Measurer {
  Device& device;
  const ComputeDag& dag;
  std::map<int, Array> inputs;
  Array expected;
  LazyInPlace lazy;

  absl::Status Measure(const Program& program);
};

absl::Status Measurer::Measure(const Program& program) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, Prepare(device, program, inputs));
  ASSIGN_OR_RETURN(const Array got, RunForOutput(device, *executable, dag));
  double largest = 1e-30, error = 0;
  for (int64_t i = 0; i < got.elements(); ++i) {
    largest = std::max(largest, std::abs(expected.at(i)));
    error = std::isnan(got.at(i)) ? INFINITY : std::max(error, std::abs(got.at(i) - expected.at(i)));
  }
  TimingOptions options;
  options.repeat = 5;
  options.SetCaches(program.target.caches);
  if (program.target.caches == Caches::kNetwork && StartsEarly(program)) {
    ASSIGN_OR_RETURN(InPlace* const in_place, lazy.Get());
    ASSIGN_OR_RETURN(options.before, in_place->Rewrite(*executable));
  }
  ASSIGN_OR_RETURN(const Timing timing, MeasureExecutable(*executable, options));
  std::printf("%9.3f us  error %.1e ", MedianSeconds(timing) * 1e6, error / largest);
  return absl::OkStatus();
}

absl::Status Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(arguments.target));
  ASSIGN_OR_RETURN(Network network, LoadOptimized(arguments.network, arguments.options));
  const FusionPreferences preferences = PreferredFusion(target);
  if (DeferNorms(network, preferences.deferred_norm_rows) > 0) RETURN_IF_ERROR(EliminateDeadCode(network));
  ASSIGN_OR_RETURN(const FusionChoices fusion, FindFusionChoices(network, preferences));
  const Partition& partition = fusion.partition;  // with the tasks of alternatives
  const auto task = std::find_if(partition.tasks.begin(), partition.tasks.end(),
                                 [&](const Task& t) { return t.name.find(arguments.task) != std::string::npos; });
  if (task == partition.tasks.end())
    return absl::NotFoundError(absl::StrCat("no task is named '", arguments.task, "'"));
  if (!arguments.replacements.empty() && !std::filesystem::is_directory(arguments.replacements))
    return absl::NotFoundError(absl::StrCat("there is no folder '", arguments.replacements, "'"));
  auto device = OpenDevice(target);
  const DeviceFacts facts = ResolveFacts(target);
  ASSIGN_OR_RETURN(const std::unique_ptr<TaskSpace> spaces, TaskSpace::Create(task->dag, target, facts));

  std::vector<Line> lines;
  for (std::string text; std::getline(std::cin, text);)
    if (!text.empty() && text[0] != '#') lines.push_back({text, "", 0, {}});
  std::vector<std::thread> compilers;
  const size_t width = std::max(1u, std::thread::hardware_concurrency());
  for (size_t t = 0; t < width; ++t)
    compilers.emplace_back([&, t] {
      for (size_t i = t; i < lines.size(); i += width) {
        absl::Status status = Compile(task->dag, *spaces, target, facts, &lines[i]);
        if (status.ok() && !arguments.replacements.empty())
          status = Replace(absl::StrCat(arguments.replacements, "/", i, ".cu"), lines[i]);
        if (!status.ok()) lines[i].problem = std::string(status.message());
      }
    });
  for (std::thread& compiler : compilers) compiler.join();

  std::optional<Measurer> measurer;
  if (device.ok()) {
    measurer.emplace(Measurer{**device, task->dag, Inputs(task->dag), {}, LazyInPlace(**device, CompileSource)});
    ASSIGN_OR_RETURN(const Program program, CompileReference(task->dag, target));
    ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, Prepare(**device, program, measurer->inputs));
    ASSIGN_OR_RETURN(measurer->expected, RunForOutput(**device, *executable, task->dag));
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    std::printf("%3zu ", i);
    std::string problem = lines[i].problem;
    if (problem.empty() && measurer) problem = std::string(measurer->Measure(lines[i].program).message());
    const Program& program = lines[i].program;
    for (size_t k = 0; k < program.kernels.size(); ++k) {
      const Kernel& kernel = program.kernels[k];
      std::printf("[%d x %d, %d shared", static_cast<int>(kernel.grid[0]), static_cast<int>(kernel.block[0]),
                  static_cast<int>(kernel.shared_bytes));
      if (k < program.registers.size())
        std::printf(", %d registers, %d spilled", program.registers[k], program.spill_bytes[k]);
      if (k < program.serialized.size() && program.serialized[k]) std::printf(", products that wait for each other");
      std::printf("] ");
    }
    std::printf("analytic %.3f us ", lines[i].analytic * 1e6);
    std::printf("%s%s%s\n", lines[i].text.c_str(), problem.empty() ? "" : ": ", problem.c_str());
    if (arguments.folder.empty() || !lines[i].problem.empty()) continue;
    std::ofstream(absl::StrCat(arguments.folder, "/", i, ".cu")) << lines[i].program.source;
    std::ofstream(absl::StrCat(arguments.folder, "/", i, ".bin"), std::ios::binary)
        .write(reinterpret_cast<const char*>(lines[i].program.binary.data()),
               static_cast<std::streamsize>(lines[i].program.binary.size()));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  diapason::Arguments arguments;
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 3) {
    std::fprintf(stderr, "error: give NETWORK TARGET TASK, and a candidate a line on standard input\n");
    return 2;
  }
  arguments.network = words[0];
  arguments.target = words[1];
  arguments.task = words[2];
  for (size_t i = 3; i < words.size(); ++i) {
    const size_t equal = words[i].find('=');
    if (words[i] == "--source" && i + 1 < words.size())
      arguments.folder = words[++i];
    else if (words[i] == "--replace" && i + 1 < words.size())
      arguments.replacements = words[++i];
    else if (words[i].rfind("dtype=", 0) == 0 && diapason::DTypeFromName(words[i].substr(6)))
      arguments.options.dtype = *diapason::DTypeFromName(words[i].substr(6));
    else if (int64_t batch = 0; words[i].rfind("batch=", 0) == 0 && absl::SimpleAtoi(words[i].substr(6), &batch))
      arguments.options.batch = batch;
    else if (equal != std::string::npos)
      arguments.options.extra[words[i].substr(0, equal)] = words[i].substr(equal + 1);
    else
      return std::fprintf(stderr, "error: '%s' is neither NAME=VALUE nor --source DIR nor --replace DIR\n",
                          words[i].c_str()),
             2;
  }
  const absl::Status status = diapason::Run(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 1;
}
