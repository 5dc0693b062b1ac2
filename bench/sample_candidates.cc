// Random candidates of a network's tasks and the least time of each, as records of a history: what fit_estimate judges
// the analytic estimate by, without the choice that a search makes.
//
//   sample_candidates NETWORK TARGET HISTORY COUNT [TASK ...]
//
// NETWORK is built-in; TASKs are parts of tasks' names, all tasks where there are none. Of each task the default of
// every sketch and COUNT more are taken: half drawn, half mutants of the fastest so far. What is timed takes turns, a
// few milliseconds each, and has real-time priority where that is allowed, so that other work on the machine does not
// decide. Results are not compared with a reference.
#include <dirent.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/codegen/codegen.h"
#include "compiler/graph/model.h"
#include "compiler/graph/partition.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/executable.h"
#include "compiler/runtime/fill.h"
#include "compiler/runtime/measure.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/serialize.h"
#include "db/history.h"
#include "scheduler/candidate.h"
#include "scheduler/space.h"

namespace diapason {
namespace {

constexpr int kTurns = 4;

struct SampledCandidate {
  int space = 0;
  std::vector<int32_t> configuration;
  Program program;
  std::string problem;
  double seconds = 0;  // the least; 0: not timed
};

// All threads of this process, those of the device too.
void SetPriority(bool real_time) {
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return;
  const sched_param priority{real_time ? 5 : 0};
  while (const dirent* entry = readdir(folder))
    if (const int thread = std::atoi(entry->d_name); thread > 0)
      sched_setscheduler(thread, real_time ? SCHED_FIFO : SCHED_OTHER, &priority);
  closedir(folder);
}

class TaskSampler {
 public:
  TaskSampler(Device& device, const Task& task, const Target& target)
      : device_(device), task_(task), target_(target), facts_(ResolveFacts(target)), spare_buffers_(device, 64 << 20) {}

  absl::Status Run(int count) {
    ASSIGN_OR_RETURN(spaces_, TaskSpace::Create(task_.dag, target_, facts_));
    for (int i = 0; i < spaces_->size(); ++i)
      if (!spaces_->space(i).external()) Add({i, spaces_->space(i).Default(), {}, "", 0});
    Evaluate(0);
    size_t from = candidates_.size();
    for (int i = 0; i < (count + 1) / 2; ++i) Add(Draw());
    Evaluate(from);
    for (int part = 0; part < 2; ++part) {
      from = candidates_.size();
      for (int i = 0; i < (count / 2 + part) / 2; ++i) Add(Mutate());
      Evaluate(from);
    }
    return absl::OkStatus();
  }

  std::vector<TuningRecord> Records() const {
    std::vector<TuningRecord> records;
    for (const SampledCandidate& candidate : candidates_) {
      if (candidate.seconds <= 0) continue;
      const Schedule schedule = spaces_->space(candidate.space).Instantiate(candidate.configuration);
      TuningRecord record;
      record.workload_key = task_.workload_key;
      record.workload = SerializeDag(task_.dag);
      record.task_name = task_.name;
      record.target = target_.ToString();
      record.device_model = facts_.model;
      record.rewrite = schedule.rewrite.ToString();
      record.sketch = schedule.sketch;
      record.schedule = SerializeSchedule(schedule);
      record.configuration = candidate.configuration;
      record.configuration_hash = CandidateHash(schedule.sketch, candidate.configuration);
      Timing timing;
      timing.samples = {candidate.seconds};
      record.outcome = timing;
      records.push_back(std::move(record));
    }
    return records;
  }

 private:
  void Add(SampledCandidate candidate) {
    if (seen_.insert({candidate.space, candidate.configuration}).second) candidates_.push_back(std::move(candidate));
  }

  // Vectors are as long as can be for two of three.
  SampledCandidate Draw() {
    SampledCandidate drawn;
    do drawn.space = static_cast<int>(random_() % spaces_->size());
    while (spaces_->space(drawn.space).external());
    const Space& space = spaces_->space(drawn.space);
    const bool long_vectors = random_() % 3 != 0;
    drawn.configuration.resize(space.size());
    std::vector<int32_t> values;
    for (int h = 0; h < space.size(); ++h) {
      space.Domain(h, drawn.configuration, &values);
      const bool lanes = space.parameter_name(h).find(".lanes") != std::string::npos;
      drawn.configuration[h] = long_vectors && lanes ? values.back() : values[random_() % values.size()];
    }
    return drawn;
  }

  // Of one of the four fastest.
  SampledCandidate Mutate() {
    std::vector<const SampledCandidate*> fastest;
    for (const SampledCandidate& candidate : candidates_)
      if (candidate.seconds > 0) fastest.push_back(&candidate);
    if (fastest.empty()) return Draw();
    const size_t kept = std::min<size_t>(4, fastest.size());
    std::partial_sort(fastest.begin(), fastest.begin() + static_cast<std::ptrdiff_t>(kept), fastest.end(),
                      [](const auto* a, const auto* b) { return a->seconds < b->seconds; });
    const SampledCandidate& parent = *fastest[random_() % kept];
    SampledCandidate mutant{parent.space, parent.configuration, {}, "", 0};
    const Space& space = spaces_->space(mutant.space);
    std::vector<int32_t> values;
    for (int change = 0; change < 2 && space.size() > 0; ++change) {
      const int parameter = static_cast<int>(random_() % space.size());
      space.Domain(parameter, mutant.configuration, &values);
      mutant.configuration[parameter] = values[random_() % values.size()];
      if (parameter + 1 < space.size()) space.Clamp(parameter + 1, absl::MakeSpan(mutant.configuration));
    }
    return mutant;
  }

  absl::Status Compile(SampledCandidate& candidate) const {
    const Schedule schedule = spaces_->space(candidate.space).Instantiate(candidate.configuration);
    ASSIGN_OR_RETURN(const LoweredProgram lowered, Lower(task_.dag, schedule, target_, facts_));
    ASSIGN_OR_RETURN(candidate.program, CompileProgram(lowered, target_));
    return absl::OkStatus();
  }

  absl::Status Time(SampledCandidate& candidate) {
    ASSIGN_OR_RETURN(const auto executable, Executable::Create(device_, candidate.program));
    RETURN_IF_ERROR(executable->AllocateRest());
    RETURN_IF_ERROR(FillForMeasuring(*executable, 1));
    RETURN_IF_ERROR(executable->RunPrologue());
    TimingOptions options;
    options.repeat = 5;
    options.min_repeat_ms = 2;
    options.spare_buffers = &spare_buffers_;
    options.SetCaches(target_.caches);
    ASSIGN_OR_RETURN(const Timing timing, MeasureExecutable(*executable, options));
    const double least = *std::min_element(timing.samples.begin(), timing.samples.end());
    candidate.seconds = candidate.seconds > 0 ? std::min(candidate.seconds, least) : least;
    return absl::OkStatus();
  }

  // Candidates from one on: compiles all, then times them in turns.
  void Evaluate(size_t from) {
    std::vector<std::thread> compilers;
    for (size_t t = 0; t < 2; ++t)
      compilers.emplace_back([this, from, t] {
        for (size_t i = from + t; i < candidates_.size(); i += 2)
          candidates_[i].problem = std::string(Compile(candidates_[i]).message());
      });
    for (std::thread& compiler : compilers) compiler.join();
    SetPriority(true);
    for (int turn = 0; turn < kTurns; ++turn)
      for (size_t i = from; i < candidates_.size(); ++i)
        if (candidates_[i].problem.empty()) candidates_[i].problem = std::string(Time(candidates_[i]).message());
    SetPriority(false);
    for (size_t i = from; i < candidates_.size(); ++i) {
      SampledCandidate& candidate = candidates_[i];
      candidate.program = {};
      const Space& space = spaces_->space(candidate.space);
      Metrics metrics;
      space.Evaluate(candidate.configuration, &metrics);
      std::printf("%s %.1f us, estimate %.1f us %s", task_.name.c_str(), candidate.seconds * 1e6, metrics.seconds * 1e6,
                  space.name().c_str());
      for (int h = 0; h < space.size(); ++h)
        std::printf(" %s=%d", space.parameter_name(h).c_str(), candidate.configuration[h]);
      std::printf("%s%s\n", candidate.problem.empty() ? "" : ": ", candidate.problem.c_str());
    }
    std::fflush(stdout);
  }

  Device& device_;
  const Task& task_;
  const Target target_;
  const DeviceFacts facts_;
  SpareBuffers spare_buffers_;
  std::unique_ptr<TaskSpace> spaces_;
  std::vector<SampledCandidate> candidates_;
  std::set<std::pair<int, std::vector<int32_t>>> seen_;
  std::mt19937 random_{1};
};

absl::Status Sample(const std::vector<std::string>& words, int count) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(words[1]));
  ASSIGN_OR_RETURN(const Network network, LoadOptimized(words[0], ModelOptions()));
  ASSIGN_OR_RETURN(const Partition partition, PartitionNetwork(network));
  ASSIGN_OR_RETURN(const auto history, History::Open(words[2], HistoryMode::kCreate));
  ASSIGN_OR_RETURN(const auto device, OpenDevice(target));
  for (const Task& task : partition.tasks) {
    const auto named = [&](const std::string& part) { return task.name.find(part) != std::string::npos; };
    if (words.size() > 4 && std::none_of(words.begin() + 4, words.end(), named)) continue;
    TaskSampler sampler(*device, task, target);
    RETURN_IF_ERROR(sampler.Run(count));
    RETURN_IF_ERROR(history->Append(sampler.Records()).status());
    RETURN_IF_ERROR(history->LinkNetwork(
        {{words[0], task.workload_key, SerializeDag(task.dag), task.name, static_cast<double>(task.weight)}}));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  int count = 0;
  if (words.size() < 4 || !absl::SimpleAtoi(words[3], &count) || count < 0) {
    std::fprintf(stderr, "usage: sample_candidates NETWORK TARGET HISTORY COUNT [TASK ...]\n");
    return 2;
  }
  const absl::Status status = diapason::Sample(words, count);
  if (!status.ok()) std::fprintf(stderr, "sample_candidates: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
