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
  bool safe = false;     // it was proven to change no result
  int64_t min_size = 0;  // then: the smallest size that is padded to the plan's
  std::string reason;    // else
};

struct ModelInput {
  std::string name;
  std::string dtype;                 // "float32"
  std::vector<int64_t> shape;        // with the sizes of the first plan
  std::vector<std::string> symbols;  // by axis; empty where the extent is fixed
};

struct Task {
  int id = 0;  // from 1, as TuneOptions::tasks takes it
  std::string name;
  int64_t count = 0;     // occurrences in the network; 0: only fusion alternatives have it
  double flops = 0;      // of one occurrence
  std::string workload;  // the key under which records are kept
  std::vector<std::string> sketches;
  int64_t kernel_count = 0;  // that the fallback schedule launches
  bool moves_data = false;   // these only move data
};

// A combination of sizes of symbolic dimensions.
struct PlanTasks {
  std::map<std::string, int64_t> sizes;  // empty: all shapes are fixed
  int task_count = 0;                    // of a count above 0
  double flops = 0;
  std::map<std::string, Padding> padding;  // by symbol
};

struct TaskList {
  std::string target;  // with what the given one left open filled in
  std::vector<ModelInput> inputs;
  std::vector<PlanTasks> plans;  // at least one
  std::vector<Task> tasks;       // of all plans, each once
};

// The tasks that Tune knows, in its order. `target`: "cpu", "cuda -arch=sm_90". InvalidArgument, NotFound: the model or
// the target; Cancelled: by hooks.stop, while the model is read.
absl::StatusOr<TaskList> Tasks(const Model& model, const std::string& target, const Hooks& hooks = {});

// ---- Checks of the whole network ----

// The assembled network compared with the reference implementation of the model.
struct NetworkCheck {
  struct WrongRecord {
    int64_t record = 0;
    std::string task;
    std::string text;                    // the evidence
    std::optional<int64_t> replacement;  // the record in its place; nothing: the fallback schedule
    std::string sentence;                // all of this, for people
  };
  std::map<std::string, int64_t> sizes;  // of the plan; empty: there is one
  bool ok = false;
  double max_rel_error = 0;                // may be infinite
  double elapsed_s = 0;                    // that the check took
  std::string text;                        // why not, when not ok
  std::optional<double> latency_us;        // of the network when it is ok and was measured
  std::vector<WrongRecord> wrong_records;  // marked in the history and replaced
  std::string summary;                     // for people
};

// ---- Packages ----

struct BuildOptions {
  Model model;
  std::string target;
  std::string out;  // folder, or file ending in .dpk, to make; a package there is replaced
  // Where records are looked for, in this order; a workload gets its record from the first that has a verified one.
  // Each is a history, a file of JSON lines (`diapason history export`), or an http:// or https:// address of such a
  // file. A history that does not exist is an error (NotFound), and one of several is warned of. A task without a
  // record gets its fallback schedule, with a warning.
  std::vector<std::string> histories;
  // After these, the history of this service, which cannot be marked from here. No address: none.
  Endpoint service;
  // After these, the records that come with Diapason: of this device, or of another one of its architecture.
  bool shipped_records = true;
  double build_timeout_seconds = 120;  // to compile a task
  bool check = true;  // where the device is here: compare the network with the reference implementation
  // where the device is here and all tasks have records: time the package, and keep that in the first history
  bool measure = true;
  bool list_fallbacks = false;  // warn of each task without a verified record, instead of how many these are
  Hooks hooks;
  // What begins now, for people: "compiling 18 tasks". From the thread that builds. May be empty.
  std::function<void(const std::string&)> progress;
};

struct BuiltTask {
  int id = 0;  // from 1
  std::string name;
  int64_t count = 0;  // occurrences in the network
  std::string workload;
  std::string record_source;      // "history", "service", "file", "shipped"; empty: the fallback schedule
  std::optional<int64_t> record;  // id in its history or service; files have none
  std::string record_uuid;        // of the record, wherever it is from
  std::string schedule;           // for people
  std::string writes;             // its place in a larger tensor; empty: a whole tensor
  std::optional<double> estimated_us;
};

// A choice point where another alternative than the default fusion is built.
struct FusionChoice {
  std::string choice_point, alternative;
};

struct BuiltPlan {
  std::map<std::string, int64_t> sizes;
  std::vector<BuiltTask> tasks;  // what is compiled: a task that writes to several places is there for each
  int task_count = 0;            // tasks, each once
  int fallback_count = 0;        // of these, with the fallback schedule
  int shipped_count = 0;         // of these, with a record that comes with Diapason
  std::vector<FusionChoice> fusion_choices;
  std::optional<double> tasks_us;      // the sum of the tasks' times
  std::optional<double> estimated_us;  // latency of the network
  std::optional<double> latency_us;    // the same, measured
  std::optional<NetworkCheck> check;   // nothing: there was none
  std::map<std::string, Padding> padding;
};

struct BuildReport {
  std::string out, target;
  struct Library {
    std::string name, title;  // "cudnn", "cuDNN"
  };
  std::vector<Library> libraries;                // that the package needs where it runs
  std::vector<BuiltPlan> plans;                  // at least one
  int64_t kernels_used = 0, kernels_stored = 0;  // of all plans; equal ones are stored once
};

// Makes a package. No device is needed; where there is none, it is not checked. DataLoss: the network is wrong, and no
// package was made. Cancelled: by hooks.stop, between two steps; the package may be there then or not, but is whole.
// Other errors are of the model, the target, the history or the disk.
absl::StatusOr<BuildReport> Build(const BuildOptions& options);

}  // namespace diapason::api
