// How many candidates a second one core takes through sampling or mutation, legality, features and prediction.
//
//   search_speed [NETWORK [TARGET [SECONDS [TASK [NAME=VALUE ...]]]]]      default: conv2d "cuda -arch=sm_90" 5
//
// TASK is a part of a task's name (default: the network's first task), NAME=VALUE an option of the network
// (dtype=float16 too); conv2d is the 3x3 convolution of 64 to 64 channels at 56x56.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "compiler/graph/model.h"
#include "compiler/graph/partition.h"
#include "compiler/graph/passes.h"
#include "costmodel/cost_model.h"
#include "scheduler/evolution.h"
#include "scheduler/space.h"
#include "scheduler/variation.h"
#include "service/target.h"

namespace diapason {
namespace {

// Processor time of this thread, all that the search uses: other work on the machine does not count.
double Now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A model as large as in the middle of a run: what is learned does not matter for the speed.
void TrainOnMadeUpTimes(const TaskSpace& space, XgbCostModel* model) {
  Random random(1);
  std::vector<Sample> samples;
  std::vector<int32_t> configuration, values;
  Metrics metrics;
  for (int i = 0; i < 1000; ++i) {
    const Space& one = space.space(static_cast<int>(random.Below(space.size())));
    configuration.assign(one.size(), 1);
    SampleConfiguration(one, &random, absl::MakeSpan(configuration), &values);
    one.Evaluate(configuration, &metrics);
    samples.push_back({1,
                       static_cast<uint64_t>(i),
                       {metrics.features, metrics.features + kNumFeatures},
                       metrics.seconds,
                       metrics.seconds * std::exp(random.Uniform())});
  }
  model->AddSamples(std::move(samples));
  model->Train();
  model->Wait();
}

// Prints the mean time of `body`, which handles `per_call` candidates, over about a second.
template <typename Body>
void Time(const char* what, int per_call, const Body& body) {
  const double start = Now();
  int calls = 0;
  for (; Now() - start < 1; ++calls) body();
  std::printf("  %-28s %8.2f us a candidate\n", what, (Now() - start) / calls / per_call * 1e6);
}

void TimeParts(const TaskSpace& space, const Ranker& ranker) {
  for (int i = 0; i < space.size(); ++i) {
    const Space& one = space.space(i);
    std::printf("%s, %d parameters\n", one.name().c_str(), one.size());
    Random random(2);
    std::vector<int32_t> configuration(one.size(), 1), values;
    Metrics metrics;
    Time("sample", 1, [&] { SampleConfiguration(one, &random, absl::MakeSpan(configuration), &values); });
    Time("mutate", 1, [&] { Mutate(one, &random, absl::MakeSpan(configuration), &values); });
    Time("evaluate", 1, [&] { one.Evaluate(configuration, &metrics); });
  }
  constexpr int kRows = 512;
  const std::vector<float> features(static_cast<size_t>(kRows) * kNumFeatures, 1.0f);
  const std::vector<double> analytic(kRows, 1e-5);
  std::vector<double> scores(kRows);
  std::printf("model\n");
  Time("predict", kRows, [&] { ranker.Predict(1, features, analytic, absl::MakeSpan(scores)); });
}

struct Arguments {
  std::string network = "conv2d", target = "cuda -arch=sm_90", task, dtype = "float32";
  double seconds = 5;
  ModelOptions options;
};

absl::Status Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(arguments.target));
  ModelOptions read = arguments.options;
  ASSIGN_OR_RETURN(read.dtype, ModelTypeFromName("dtype", arguments.dtype));
  ASSIGN_OR_RETURN(Network network, LoadOptimized(arguments.network, read));
  if (DeferNorms(network, PreferredFusion(target).deferred_norm_rows) > 0) RETURN_IF_ERROR(EliminateDeadCode(network));
  ASSIGN_OR_RETURN(const Partition partition, PartitionNetwork(network));
  const auto task = std::find_if(partition.tasks.begin(), partition.tasks.end(),
                                 [&](const Task& t) { return t.name.find(arguments.task) != std::string::npos; });
  if (task == partition.tasks.end())
    return absl::NotFoundError(absl::StrCat("no task is named '", arguments.task, "'"));
  const double start = Now();
  ASSIGN_OR_RETURN(const auto space, TaskSpace::Create(task->dag, target, DefaultFacts(target)));
  std::printf("%s: %d spaces in %.1f ms\n", task->name.c_str(), space->size(), (Now() - start) * 1e3);

  XgbOptions options;
  options.num_features = kNumFeatures;
  options.feature_version = kFeatureVersion;
  XgbCostModel model(options);
  TrainOnMadeUpTimes(*space, &model);
  std::printf("trained on %lld samples: %d trees in %.2f s\n", static_cast<long long>(model.stats().samples),
              model.stats().trees, model.stats().seconds);
  const auto ranker = model.Current();
  TimeParts(*space, *ranker);

  TaskSearch search(space.get(), 1, {});
  const double begin = Now();
  int rounds = 0;
  for (; Now() - begin < arguments.seconds; ++rounds) search.NextRound(ranker.get(), 64);
  const double took = Now() - begin;
  std::printf(
      "search: %d rounds of 64, %.0f candidates/s made, %.0f/s of them new and through legality, features and "
      "prediction\n",
      rounds, static_cast<double>(search.stats().sampled) / took, static_cast<double>(search.stats().evaluated) / took);
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  diapason::Arguments arguments;
  if (argc > 1) arguments.network = argv[1];
  if (argc > 2) arguments.target = argv[2];
  if (argc > 3) arguments.seconds = std::atof(argv[3]);
  if (argc > 4) arguments.task = argv[4];
  for (int i = 5; i < argc; ++i) {
    const std::pair<std::string, std::string> option = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    if (option.first == "dtype")
      arguments.dtype = option.second;
    else
      arguments.options.extra.insert(option);
  }
  const absl::Status status = diapason::Run(arguments);
  if (!status.ok()) std::fprintf(stderr, "search_speed: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
