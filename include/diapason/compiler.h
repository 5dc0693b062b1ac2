// Tuning tasks of a network, and packages with the best schedules of a history. See model.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "diapason/model.h"

namespace diapason::api {

// ---- Tasks ----

// Whether inputs may be padded along a symbolic dimension up to a plan's size.
struct Padding {
  bool safe = false;     // padding was proven to change no result
  int64_t min_size = 0;  // if safe: the smallest size that is padded to the plan's
  std::string reason;    // if not safe
};

struct ModelInput {
  std::string name;
  std::string dtype;                 // "float32"
  std::vector<int64_t> shape;        // with the sizes of the first plan
  std::vector<std::string> symbols;  // by axis; empty where the extent is fixed
};

struct Task {
  int id = 0;  // from 1; for TuneOptions::tasks
  std::string name;
  int64_t count = 0;     // occurrences in the network; 0: it occurs only in fusion alternatives
  double flops = 0;      // of one occurrence
  std::string workload;  // key of its records
  std::vector<std::string> sketches;
  int64_t kernel_count = 0;  // kernels of the fallback schedule
  bool moves_data = false;   // these kernels only move data
};

// A combination of sizes of symbolic dimensions.
struct PlanTasks {
  std::map<std::string, int64_t> sizes;  // empty: all shapes are fixed
  int task_count = 0;                    // tasks with a count above 0
  double flops = 0;
  std::map<std::string, Padding> padding;  // by symbol
};

struct TaskList {
  std::string target;  // resolved: "cpu" becomes "cpu -num-cores=2"
  std::vector<ModelInput> inputs;
  std::vector<PlanTasks> plans;  // at least one
  std::vector<Task> tasks;       // of all plans, each once
};

// The tasks of a model in the order of their ids. `target`: "cpu", "cuda -arch=sm_90". InvalidArgument and NotFound
// refer to the model or the target; Cancelled: hooks.stop became true while the model was read.
absl::StatusOr<TaskList> Tasks(const Model& model, const std::string& target, const Hooks& hooks = {});

// ---- Checks of the whole network ----

// The assembled network compared with the reference implementation of the model.
struct NetworkCheck {
  struct WrongRecord {
    int64_t record = 0;
    std::string task;
    std::string text;                    // the evidence
    std::optional<int64_t> replacement;  // the record that replaces it; nothing: the fallback schedule
    std::string sentence;                // all of this as text
  };
  std::map<std::string, int64_t> sizes;  // of the plan; empty: there is one
  bool ok = false;
  double max_rel_error = 0;                // may be infinite
  double elapsed_s = 0;                    // duration of the check
  std::string text;                        // the reason if not ok
  std::optional<double> latency_us;        // of the network, if it is ok and was measured
  std::vector<WrongRecord> wrong_records;  // marked in the history and replaced
  std::string summary;                     // the result as text
};

// ---- Packages ----

// What BuildOptions::refine_seconds is on cuda where it is not given.
inline constexpr double kRefineSeconds = 10;

struct BuildOptions {
  Model model;
  std::string target;
  std::string out;  // folder to write, or a file whose name ends in .dpk; an existing package is replaced
  // Sources of records, searched in this order: a workload gets its record from the first source that has a verified
  // one, and its fallback schedule, with a warning, if there is none. Each is a history, a file of JSON lines
  // (`diapason history export`), or the http:// or https:// URL of such a file. A missing history is an error
  // (NotFound) if it is the only one, and else a warning.
  std::vector<std::string> histories;
  // After these: the history of this service, in which wrong records cannot be marked. No address: none.
  Endpoint service;
  // After these: the records that come with Diapason, of this device or of another one of its architecture.
  bool shipped_records = true;
  double build_timeout_seconds = 120;  // to compile a task
  bool check = true;  // if the device is present: compare the network with the reference implementation
  // If the device is present and all tasks have records: measure the latency and keep it in the first history.
  bool measure = true;
  // If the device is present, the network is checked and `measure` is set: for so many seconds at most for each plan,
  // fusion alternatives whose tasks take up to 50% longer, and verified records that take up to 4% longer than the best
  // of their task (10% where they let the next kernel start at another moment), are tried in the place of the fastest,
  // and are used if the whole network becomes faster. 0: what is fastest by the times of tasks alone. Nothing:
  // kRefineSeconds for all plans together on cuda, where kernels overlap; 0 elsewhere, and where the target has
  // -caches, which asks for other times than those in the network.
  std::optional<double> refine_seconds;
  bool list_fallbacks = false;  // warnings list the tasks without a verified record instead of their number
  Hooks hooks;
  // Called with the step that begins ("compiling 18 tasks"), on the building thread. May be empty.
  std::function<void(const std::string&)> progress;
};

struct BuiltTask {
  int id = 0;  // from 1
  std::string name;
  int64_t count = 0;  // occurrences in the network
  std::string workload;
  std::string record_source;      // "history", "service", "file", "shipped"; empty: the fallback schedule
  std::optional<int64_t> record;  // id in its history or service; files have none
  std::string record_uuid;        // of the record, whatever its source
  std::string schedule;           // as text
  std::string writes;             // the part of a larger tensor that it writes; empty: a whole tensor
  std::optional<double> estimated_us;
};

// A choice point at which an alternative to the default fusion is used.
struct FusionChoice {
  std::string choice_point, alternative;
};

// Records and fusion alternatives that were chosen by the latency of the whole network (BuildOptions::refine_seconds).
struct RefinedRecords {
  int compared = 0;          // networks that were tried
  int replaced = 0;          // tasks that use another record than the one that is fastest alone
  double ratio = 1;          // latency of the network with these, relative to that by the times of the tasks alone
  int regrouped = 0;         // choice points that use another alternative than the one that is fastest by these times
  bool ended_early = false;  // the time was up, or the build was told to stop, before everything was tried
};

struct BuiltPlan {
  std::map<std::string, int64_t> sizes;
  std::vector<BuiltTask> tasks;  // compiled programs: a task that writes to several places occurs once for each
  int task_count = 0;            // distinct tasks
  int fallback_count = 0;        // of these, with the fallback schedule
  int shipped_count = 0;         // of these, with a record that comes with Diapason
  std::vector<FusionChoice> fusion_choices;
  std::optional<double> tasks_us;      // the sum of the tasks' times
  std::optional<double> estimated_us;  // latency of the network
  std::optional<double> latency_us;    // measured latency
  std::optional<NetworkCheck> check;   // nothing: not checked
  RefinedRecords refined;
  std::map<std::string, Padding> padding;
};

struct BuildReport {
  std::string out, target;
  struct Library {
    std::string name, title;  // "cudnn", "cuDNN"
  };
  std::vector<Library> libraries;                // needed to run the package
  std::vector<BuiltPlan> plans;                  // at least one
  int64_t kernels_used = 0, kernels_stored = 0;  // of all plans; equal kernels are stored once
};

// Builds a package. Without the device, the package is not checked. DataLoss: the network is wrong, and no package was
// written. Cancelled: hooks.stop became true; the package is then either complete or not written. Other errors refer
// to the model, the target, the history or the disk.
absl::StatusOr<BuildReport> Build(const BuildOptions& options);

}  // namespace diapason::api
