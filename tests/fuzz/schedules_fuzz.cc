// Schedules from anywhere, as text: the first line names a task and a target, the second a rewrite; each further line
// is a step, "KIND STAGE TARGET;LOOPS;FACTORS;INTS" with blanks between numbers.
//
//   gemm cuda -arch=sm_90
//   winograd 4
//   1 2 -1;0;4 8;
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/programs.h"

namespace diapason {
namespace {

constexpr size_t kMaxSteps = 64;

std::vector<int32_t> Numbers(const std::string& text) {
  std::vector<int32_t> numbers;
  for (const auto& word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    int32_t number = 0;
    if (absl::SimpleAtoi(word, &number)) numbers.push_back(number);
  }
  return numbers;
}

Step ReadStep(const std::string& line) {
  std::vector<std::string> parts = absl::StrSplit(line, ';');
  parts.resize(4);
  std::vector<int32_t> head = Numbers(parts[0]);
  head.resize(3, -1);
  Step step{static_cast<StepKind>(head[0]), head[1], Numbers(parts[1]), {}, head[2], Numbers(parts[3])};
  for (int32_t value : Numbers(parts[2])) step.factors.push_back(Factor::Of(value));
  return step;
}

std::string WriteStep(const Step& step) {
  const auto value = [](std::string* out, const Factor& factor) { absl::StrAppend(out, factor.value); };
  return absl::StrCat(static_cast<int>(step.kind), " ", step.stage, " ", step.target, ";",
                      absl::StrJoin(step.loops, " "), ";", absl::StrJoin(step.factors, " ", value), ";",
                      absl::StrJoin(step.ints, " "), "\n");
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const NamedDag& dag : FuzzDags()) {
    for (const std::string& target : FuzzTargets()) {
      for (const Schedule& schedule : GoodSchedules(dag.dag, target)) {
        std::string text = absl::StrCat(dag.name, " ", target, "\n", schedule.rewrite.name, " ",
                                        absl::StrJoin(schedule.rewrite.params, " "), "\n");
        for (const Step& step : schedule.steps) text += WriteStep(step);
        seeds.push_back(std::move(text));
      }
    }
  }
  return seeds;
}

}  // namespace diapason

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace diapason;
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  std::string first, rewrite, line;
  std::getline(lines, first);
  std::getline(lines, rewrite);
  const size_t blank = std::min(first.find(' '), first.size());
  const absl::StatusOr<Target> target = Target::Parse(first.substr(std::min(blank + 1, first.size())));
  if (!target.ok()) return 0;
  Schedule schedule;
  std::istringstream(rewrite) >> schedule.rewrite.name;
  for (int32_t param : Numbers(rewrite)) schedule.rewrite.params.push_back(param);
  while (schedule.steps.size() < kMaxSteps && std::getline(lines, line)) {
    const Step step = ReadStep(line);
    // What ParseSchedule lets through.
    if (!ParseSchedule(SerializeSchedule(Schedule{{}, "", {step}, {}})).ok()) continue;
    schedule.steps.push_back(step);
  }
  for (const NamedDag& dag : FuzzDags()) {
    if (dag.name == first.substr(0, blank)) LowerAndPrint(dag.dag, schedule, *target);
  }
  return 0;
}
