// What a package is on disk.
//
//   DIR/manifest.json          all that follows, as JSON; written last
//   DIR/weights.bin            the constants, each at an offset that is a multiple of 512
//   DIR/kernels/NAME.program   a task's compiled program (tensor/program.h) without its source and binary
//   DIR/kernels/NAME.so        its binary: a shared object (.so) or a cubin (.cubin); none for opencl, whose source is
//   built by
//                              the driver when the package is loaded
//   DIR/kernels/NAME.c         its source (.c, .cl, .cu)
//   DIR/tasks/NAME.dag         what the task computes (tensor/serialize.h), for the check against the naive evaluation
//
// manifest.json:
//   {"format": "diapason-package", "version": 1,
//    "network": "resnet-18", "target": "cpu -num-cores=2",
//    "device": {"model", "arch", "driver", "vector_bytes"},              where it was built, or what it was built for
//    "libraries": ["cudnn"],                                             whose functions the kernels' steps call; may be left
//                                                                        out when there are none
//    "weights": {"bytes", "checksum"}, "arena_bytes": 3211264,
//    "latency_us": 154.2,                                                expected from end to end; may be left out
//    "inputs":  [{"name", "dtype", "shape", "tensor", "valid_min", "valid_max"}],
//    "outputs": [{"name", "dtype", "shape", "tensor"}],
//    "tasks":   [{"name", "file", "workload", "weight", "record", "schedule", "estimated_us", "checksum",
//                 "place": {"row", "stride", "offset", "elements"}}],    place (tensor/output_place.h): where the output is a part of a
//                                                                        larger tensor; left out where it is not
//    "tensors": [{"name", "dtype", "elements", "place", "offset"}],      place: input, constant (offset into
//    weights.bin),
//                                                                        arena (offset into the arena)
//    "steps":   [{"task", "inputs": [tensor...], "outputs": [tensor...], "workspaces": [[buffer, offset]...]}]}
// A step runs the kernels of a task. Its inputs stand for the placeholders of the task's dag in order of their ids, its
// outputs for the dag's outputs, or for the tensor that the output is a part of. Workspaces are scratch buffers of the program
// (by index) placed in the arena for the length of the step. Views are resolved: several names, inputs and outputs, may give the same tensor. Constants are
// stored as the network has them; what a program prepares from them (its prologue) is made when the package is loaded:
// that takes milliseconds, and keeps one layout of weights in the format whatever schedules do to them.
//
// Version 2 has places, 1 has none: a package is written as 1 unless it needs 2, and a reader takes both. Another version is
// refused, and built again. Unknown fields are ignored. A file of another size or checksum than the manifest says is refused.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/tensor/dtype.h"
#include "compiler/tensor/library_call.h"
#include "compiler/tensor/output_place.h"
#include "compiler/tensor/target.h"

namespace diapason {

inline constexpr int kPackageVersion = 2;

// An input or output of the network.
struct PackagePort {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  int tensor = -1;                       // position in PackageManifest::tensors
  int64_t valid_min = 0, valid_max = 0;  // integer inputs: the values that make sense

  int64_t elements() const;
  std::string TypeText() const;  // "float32 1x3x224x224"
};

struct PackageTask {
  std::string name;
  std::string file;      // NAME of its files
  std::string workload;  // key
  int weight = 1;
  int64_t record = -1;           // of the history; -1: the default schedule
  std::string schedule;          // for people
  double estimated_seconds = 0;  // of one run, as recorded; 0: unknown
  uint64_t checksum = 0;         // of the binary, or of the source where there is none
  OutputPlace place{};           // of the output in the tensor that a step names
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

struct PackageManifest {
  std::string network;
  Target target;
  DeviceFacts device;  // model, arch, driver and vector_bytes alone are kept
  std::vector<Library> libraries;  // that must be where it runs
  int64_t weights_bytes = 0;
  uint64_t weights_checksum = 0;
  int64_t arena_bytes = 0;
  double latency_seconds = 0;  // expected from end to end (latency_model.h); 0: unknown
  std::vector<PackagePort> inputs, outputs;
  std::vector<PackageTask> tasks;
  std::vector<PackageTensor> tensors;
  std::vector<PackageStep> steps;

  // Sum of weight times estimate; 0 when one of them is unknown.
  double estimated_seconds() const;
};

std::string ManifestToJson(const PackageManifest& manifest);
// `path` is named in errors. DataLoss for text that is no manifest, or contradicts itself (a number that points
// nowhere); FailedPrecondition for another version.
absl::StatusOr<PackageManifest> ManifestFromJson(const std::string& text, const std::string& path);

// File name endings of a target's source and binary; the latter empty for opencl.
const char* SourceEnding(TargetKind kind);
const char* BinaryEnding(TargetKind kind);

}  // namespace diapason
