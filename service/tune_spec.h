// What is to be tuned and how: the options of `tune` and `submit`, and their way to the tuner.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/dims.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/model.h"
#include "scheduler/tuner.h"
#include "service/import_plans.h"
#include "service/target.h"

namespace diapason {

class History;
namespace v1 {
class TuneSpec;
}

inline constexpr int64_t kDefaultTrials = 1000;

struct TuneSpec {
  std::string model;       // an .onnx file or a built-in network
  std::string model_hash;  // of the file's content, where the service has it by that; else empty
  ModelOptions options;
  DimChoices dims;  // sizes of symbolic dimensions, and how much each counts
  std::string target;
  int64_t trials = 0;  // 0: not given
  double seconds = 0;  // 0: no limit
  std::string tasks;   // "1,4"; empty: all
  uint64_t seed = 0;
  int64_t trials_per_round = 64;
  double early_stop = 0;  // a share, or from 1 on a number of trials without a gain
  std::string objective = "sum";
  MeasureOptions measure;
  // Of the devices that measure.
  std::string device_model;
  std::map<std::string, std::string> labels;
  int32_t priority = 0;
  double weight = 1;
  // Rounds one after the other, and a run that was cut off is played again from the history: the same proposals for the
  // same seed and measurements, whatever happened in between.
  bool deterministic = false;
  bool cold_start = false;          // TunerOptions::warm_start is off
  bool no_shipped_records = false;  // the records that come with the program are no first candidates
  bool no_check = false;            // the network is not assembled and compared at the end

  // Nothing: no limit but the time.
  std::optional<int64_t> trial_limit() const {
    if (trials > 0) return trials;
    return seconds > 0 ? std::nullopt : std::optional<int64_t>(kDefaultTrials);
  }
};

void ToProto(const TuneSpec& spec, v1::TuneSpec& message);
// InvalidArgument for what no `tune` would take: out of range, not finite, unknown names.
absl::StatusOr<TuneSpec> FromProto(const v1::TuneSpec& message);

// A model partitioned into tasks, ready for the tuner.
struct TuneWork {
  std::string network;  // the name that a history knows it by
  // Its tasks are those of the list: those of the default fusion, then those of alternatives that may win, of
  // weight 0.
  Partition partition;
  std::vector<ChoicePoint> choice_points;  // of all plans
  std::vector<NetworkChoice> choices;      // by choice point: the alternatives that are tuned
  std::vector<std::vector<int>> tried;     // by choice point: which ones of its alternatives these are
  std::vector<TuningTask> tasks;
  std::vector<NetworkTask> links;
  std::vector<int> only;              // positions of the tasks to tune; empty: all
  std::string latency_key;            // LatencyKey of the network; empty where there are several plans
  std::vector<std::string> warnings;  // of reading the model
  FusionPreferences fusion;           // with which it was read
};

// How a model is read for tuning.
struct PrepareOptions {
  ImportLimits limits;
  const std::atomic<bool>* stop = nullptr;       // ends it with Cancelled
  std::optional<FusionPreferences> fusion = {};  // nothing: what is preferred for the target as the spec names it
};

// Loads the model from `path` (or the built-in network of that name) in a process of its own (ImportModel) and checks
// the options that depend on it.
absl::StatusOr<TuneWork> PrepareWork(const TuneSpec& spec, const std::string& path, const PrepareOptions& options);
// The tasks of all plans together, each once: a task that several plans have counts in all of them, by their weights.
// Each plan is a network of its own for the objective (NameWithSizes), and `network` for the history. Without `only`.
// REQUIRES: at least one plan.
TuneWork MergePlans(const std::string& network, std::vector<ImportedPlan> plans, const std::string& target);
// For people: the choice points where another alternative than the default fusion is best so far, with that
// alternative.
struct NonDefaultFusion {
  std::string choice_point, alternative;
};
std::vector<NonDefaultFusion> NonDefaultFusions(const TuneWork& work, const TuneReport& report);
// All but the seed of evolution, the model's path and how the run is reported.
TunerOptions TunerOptionsFor(const TuneSpec& spec, const TuneWork& work, const ResolvedTarget& target);

// What the search begins with of the records that come with the program at `program` (ShippedRecordsFolder). Nothing
// with `deterministic`, `cold_start` or `no_shipped_records`. InvalidArgument, PermissionDenied: a file of them is
// damaged or cannot be read.
absl::StatusOr<std::vector<TunedWorkload>> ShippedForSearch(const TuneSpec& spec, const ResolvedTarget& target,
                                                            const std::string& program);

// With `deterministic`: the runs of this command line and seed that the history has, which the next one resumes
// (TunerOptions::continued_runs). Else none.
absl::StatusOr<std::vector<int64_t>> ContinuedRuns(const TuneSpec& spec, History& history,
                                                   const std::string& command_line);

// What History::Latency knows a network by: its name and, since options make other networks of one name, a hash of its
// tasks with their counts as it is usually cut.
std::string LatencyKey(const std::string& network, const Partition& partition);

// "resnet-18", or a file's name without folder and ".onnx".
std::string NetworkName(const std::string& model);

}  // namespace diapason
