// What a package is on disk.
//
//   DIR/manifest.json          all that follows, as JSON; written last
//   DIR/weights.bin            the constants, each at an offset that is a multiple of 512
//   DIR/kernels/NAME.program   a task's compiled program (tensor/program.h) without its source and binary
//   DIR/kernels/NAME.so        its binary: a shared object (.so) or a cubin (.cubin); none for opencl, whose source
//                              the driver compiles when the package is loaded
//   DIR/kernels/NAME.c         its source (.c, .cl, .cu)
//   DIR/tasks/NAME.dag         what the task computes (tensor/serialize.h), for checks of its results
//
// manifest.json (docs/schema/packages/manifest.json is its JSON Schema):
//   {"format": "diapason-package", "version": 1,
//    "network": "resnet-18", "target": "cpu -num-cores=2",
//    "device": {"model", "arch", "driver", "vector_bytes"},    where it was built, or what it was built for
//    "libraries": ["cudnn"],                  whose functions the kernels' steps call; left out when there are none
//    "weights": {"bytes", "checksum"}, "arena_bytes": 3211264,
//    "latency_us": 154.2,                     expected from end to end; may be left out
//    "inputs":  [{"name", "dtype", "shape", "tensor", "valid_min", "valid_max"}],
//    "outputs": [{"name", "dtype", "shape", "tensor"}],
//    "tasks":   [{"name", "file", "workload", "weight", "record", "schedule", "estimated_us", "checksum",
//                 "stages": {"inputs": [0, 1], "outputs": [4]},
//                                             stages of the task's dag, and so buffers of its program, that the inputs
//                                             and outputs of its steps stand for; packages of older builds have none,
//                                             and are run by `diapason run` alone
//                 "work": [{"flops", "bytes", "tensor"}],
//                                             by kernel (tensor/kernel_work.h), for profiles; may be left out
//                 "place": {"row", "stride", "offset", "elements"}}],
//                                             where the output is a part of a larger tensor (tensor/output_place.h);
//                                             else left out
//    "tensors": [{"name", "dtype", "elements", "place", "offset"}],
//                                             place: input, constant (offset into weights.bin), arena (offset into it)
//    "steps":   [{"task", "inputs": [tensor...], "outputs": [tensor...], "workspaces": [[buffer, offset]...]}]}
//
// A package may be one file instead of a folder: a zip archive of the same files (package_archive.h).
//
// A step runs the kernels of a task. Its inputs stand for the placeholders of the task's dag in order of their ids, its
// outputs for the dag's outputs, or for the tensor that the output is a part of. Workspaces are scratch buffers of the
// program (by index) placed in the arena for the length of the step. Views are resolved: several names, inputs and
// outputs, may give the same tensor. Constants are stored as the network has them; what a program prepares from them
// (its prologue) is made when the package is loaded: that takes milliseconds, and keeps one layout of weights in the
// format whatever schedules do to them.
//
// A package for several sizes of a model's symbolic dimensions has one plan for each combination of sizes, in version
// 3:
//   {"format", "version": 3, "network", "target", "device", "libraries", "weights",
//    "mask": "attention_mask",                input that is 0 where there is padding; left out when there is none
//    "plans":   [{"sizes": {"batch": 4, "seq": 128},
//                 "padding": {"seq": {"least": 65}, "batch": {"least": 2, "why_not": "..."}},
//                 "arena_bytes", "latency_us", "inputs", "outputs", "tasks", "tensors", "steps"}]}
// Inputs have "symbols" then, by axis ("" where the extent is fixed); outputs have "grows": [{"symbol", "axis",
// "block"}], the axes that have `block` elements for each of the symbol's size. Padding: from which real size on inputs
// may be padded to the plan's size along a symbol of size 2 or more; "why_not" is there when it could not be shown that
// this changes no result, and "needs_first": true when that was shown only for masks that are not 0 at the first
// position of each sequence. Plans share weights.bin and the files of kernels and tasks: what is equal is stored once.
//
// Version 2 has places, 1 has none: a package of one plan without sizes is written as 1 unless it needs 2, others as 3.
// A reader takes all of them. Another version is refused, and built again. Unknown fields are ignored. A file of
// another size or checksum than the manifest says is refused; weights in an archive have its checksum.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/dims.h"
#include "compiler/tensor/dtype.h"
#include "compiler/tensor/kernel_work.h"
#include "compiler/tensor/library_call.h"
#include "compiler/tensor/output_place.h"
#include "compiler/tensor/target.h"

namespace diapason {

inline constexpr int kPackageVersion = 3;

// An axis of an output that has `block` elements for each of a symbol's size.
struct PortGrowth {
  std::string symbol;
  int axis = 0;
  int64_t block = 1;
};

// An input or output of the network.
struct PackagePort {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  int tensor = -1;                       // position in PackageManifest::tensors
  int64_t valid_min = 0, valid_max = 0;  // integer inputs: the values that may be given; both 0: any
  std::vector<std::string> symbols{};    // inputs of plans with sizes, by axis; empty where the extent is fixed
  std::vector<PortGrowth> grows{};       // outputs of plans with sizes

  int64_t elements() const;
  std::string TypeText() const;  // "float32 1x3x224x224"
  // InvalidArgument names the first of n values that may not be given: an index of no element.
  absl::Status CheckValues(const void* values, int64_t n) const;
};

// Whether records of such a source (PackageTask::record_source) have ids there: those of histories and services.
bool HasRecordIds(const std::string& record_source);

struct PackageTask {
  std::string name;
  std::string file;      // NAME of its files
  std::string workload;  // key
  int weight = 1;
  int64_t record = -1;           // id in its source; -1: the fallback schedule
  std::string schedule;          // for people
  double estimated_seconds = 0;  // of one run, as recorded; 0: unknown
  uint64_t checksum = 0;         // of the binary, or of the source where there is none
  OutputPlace place{};           // of the output in the tensor that a step names
  // What the inputs and outputs of its steps stand for in its program (ProgramBuffer::stage). No outputs: the manifest
  // does not say, and the task's dag does (build/open_package.h).
  std::vector<int> input_stages{}, output_stages{};
  std::vector<KernelWork> work{};  // by kernel of its program; empty: the manifest does not say
  std::string record_uuid{};       // empty: the manifest does not say
  std::string record_source{};     // "history", "service", "file", "shipped"; empty: the fallback schedule
  // By which its history or service knows the record; nothing: the fallback schedule, or a record of a file.
  std::optional<int64_t> record_id() const;
};

struct PackageTensor {
  enum class Place : uint8_t { kInput, kConstant, kArena };
  std::string name;
  DType dtype = DType::kFloat32;
  int64_t elements = 0;
  Place place = Place::kArena;
  int64_t offset = 0;
  int64_t bytes() const { return elements * BytesOf(dtype); }
};

struct PackageStep {
  int task = 0;
  std::vector<int> inputs, outputs;                 // tensors
  std::vector<std::pair<int, int64_t>> workspaces;  // program buffer, offset in the arena
};

// Whether inputs may be padded to a plan's size of a symbol.
struct PlanPadding {
  int64_t least = 1;         // real sizes from this one on
  std::string why_not;       // empty: they may
  bool needs_first = false;  // where the mask is not 0 at the first position of each sequence
};

// One plan, with what all plans of a package have in common.
struct PackageManifest {
  std::string network;
  Target target;
  DeviceFacts device;              // model, arch, driver and vector_bytes alone are kept
  std::vector<Library> libraries;  // that must be where it runs
  int64_t weights_bytes = 0;
  uint64_t weights_checksum = 0;
  int64_t arena_bytes = 0;
  double latency_seconds = 0;                  // expected from end to end (latency_model.h); 0: unknown
  SymbolSizes sizes;                           // of symbolic dimensions; empty: a package of one plan for fixed shapes
  std::map<std::string, PlanPadding> padding;  // by symbol
  std::string mask;                            // input that is 0 where there is padding; empty: none
  std::vector<PackagePort> inputs, outputs;
  std::vector<PackageTask> tasks;
  std::vector<PackageTensor> tensors;
  std::vector<PackageStep> steps;

  // Sum of weight times estimate; 0 when one of them is unknown.
  double estimated_seconds() const;
};

// The manifest of a package of these plans. REQUIRES: at least one; with sizes if there are several.
std::string PlansToJson(const std::vector<PackageManifest>& plans);
// `path` is named in errors. DataLoss for text that is no manifest, or contradicts itself (a number that points
// nowhere, plans of different symbols); FailedPrecondition for another version.
absl::StatusOr<std::vector<PackageManifest>> PlansFromJson(const std::string& text, const std::string& path);

// File name endings of a target's source and binary; the latter empty for opencl.
const char* SourceEnding(TargetKind kind);
const char* BinaryEnding(TargetKind kind);

}  // namespace diapason
