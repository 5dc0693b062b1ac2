// How far the kernels of each type and intrinsic are from float64 (docs/precision.md), on the device of a target.
//
//   precision TARGET [PART]
//
// Products, convolutions, attention and normalizations with elements of N(0, 1), by every sketch in its default
// configuration. They are compared with the same dag evaluated in float64 from the same elements, so that the numbers
// hold what the kernel's arithmetic and its last rounding lose, and not what rounding the inputs does. Prints a row for
// each kind of kernel: the largest error and its root mean square, both relative to the root mean square of the result,
// and a sum of the result's bits, by which devices can be compared. PART: only works whose name contains it.
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "bench/evaluate.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/reference.h"
#include "compiler/graph/factor_bounds.h"
#include "compiler/graph/model.h"
#include "compiler/graph/partition.h"
#include "compiler/lower/lower.h"
#include "scheduler/space.h"

namespace diapason {
namespace {

using Options = std::map<std::string, std::string>;

struct Work {
  std::string name, network;
  Options options;
};

std::vector<Work> Works() {
  std::vector<Work> works;
  for (const char* k : {"64", "768", "4096"})
    works.push_back({absl::StrCat("product 256x256x", k), "gemm", {{"m", "256"}, {"n", "256"}, {"k", k}}});
  for (const char* c : {"64", "512"})
    works.push_back({absl::StrCat("convolution 3x3, ", c, " channels"),
                     "conv2d",
                     {{"h", "28"}, {"w", "28"}, {"ci", c}, {"co", "64"}}});
  for (const char* size : {"64", "128"})
    works.push_back(
        {absl::StrCat("attention 4x512x", size), "attention", {{"heads", "4"}, {"queries", "512"}, {"size", size}}});
  works.push_back({"layer norm 256x768", "layer_norm", {{"rows", "256"}, {"columns", "768"}}});
  return works;
}

// The dag with float64 in place of every float; inputs are given in float64, too.
Expr InDouble(const Expr& e) {
  if (e->kind == ExprKind::kVar) return e;  // told apart by address
  if (e->kind == ExprKind::kCast && IsFloat(e->dtype) && IsFloat(e->args[0]->dtype)) return InDouble(e->args[0]);
  ExprNode node = *e;
  if (IsFloat(node.dtype)) node.dtype = DType::kFloat64;
  for (Expr& arg : node.args) arg = InDouble(arg);
  return std::make_shared<const ExprNode>(std::move(node));
}

absl::StatusOr<ComputeDag> InDouble(const ComputeDag& dag) {
  std::vector<Stage> stages = dag.stages();
  for (Stage& stage : stages) {
    if (IsFloat(stage.dtype)) stage.dtype = DType::kFloat64;
    if (stage.body != nullptr) stage.body = InDouble(stage.body);
  }
  return ComputeDag::Create(std::move(stages), dag.outputs());
}

// N(0, 1), as the type stores it; one element scales (attention's 1/8), and is as it is in networks.
std::map<int, Array> Inputs(const ComputeDag& dag) {
  std::map<int, Array> inputs;
  for (int id : dag.inputs()) {
    const Stage& stage = dag.stage(id);
    std::mt19937_64 random(static_cast<uint64_t>(id) + 1);
    std::normal_distribution<double> normal;
    Array& array = inputs[id] = Array(stage.dtype, stage.shape());
    for (int64_t i = 0, n = array.elements(); i < n; ++i) array.set(i, n == 1 ? 0.125 : normal(random));
  }
  return inputs;
}

absl::StatusOr<Array> Evaluate(Device& device, const Program& program, const ComputeDag& dag,
                               const std::map<int, Array>& inputs) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, Prepare(device, program, inputs));
  return RunForOutput(device, *executable, dag);
}

absl::StatusOr<Array> InFloat64(const ComputeDag& dag, const std::map<int, Array>& inputs) {
  ASSIGN_OR_RETURN(const ComputeDag wide, InDouble(dag));
  std::map<int, Array> values;
  for (const auto& [id, array] : inputs) {
    Array& value = values[id] = Array(wide.stage(id).dtype, array.shape);
    for (int64_t i = 0, n = array.elements(); i < n; ++i)
      IsFloat(array.dtype) ? value.set(i, array.at(i)) : value.set_int(i, array.int_at(i));
  }
  const Target cpu;
  ASSIGN_OR_RETURN(const Program program, CompileReference(wide, cpu));
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(cpu));
  return Evaluate(*device, program, wide, values);
}

// The kind of kernel, of a sketch's name without what changes no arithmetic: "gemm/tile1.fuse" is "gemm/tile".
std::string KindOf(const std::string& sketch) {
  std::string kind = sketch.substr(0, sketch.find('.', sketch.find('/')));
  if (absl::EndsWith(kind, "tf32")) return kind;
  while (absl::ascii_isdigit(kind.back())) kind.pop_back();
  return kind;
}

struct Errors {
  double largest = 0, mean = 0;  // of the sketch with the largest
  uint64_t bits = 0;
  int sketches = 0;
};

uint64_t BitsOf(const Array& array) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const uint8_t byte : array.data) hash = (hash ^ byte) * 0x100000001b3ull;
  return hash;
}

void Compare(const Array& got, const Array& exact, Errors* errors) {
  double scale = 0, sum = 0, largest = 0;
  const int64_t n = got.elements();
  for (int64_t i = 0; i < n; ++i) {
    const double error = std::abs(got.at(i) - exact.at(i));
    scale += exact.at(i) * exact.at(i);
    sum += error * error;
    largest = std::isfinite(error) ? std::max(largest, error) : INFINITY;
  }
  const double rms = std::sqrt(scale / static_cast<double>(n));
  errors->bits = (errors->bits ^ BitsOf(got)) * 0x9e3779b97f4a7c15ull;
  ++errors->sketches;
  if (largest / rms <= errors->largest) return;
  errors->largest = largest / rms;
  errors->mean = std::sqrt(sum / static_cast<double>(n)) / rms;
}

struct Compiled {
  std::string sketch;
  absl::StatusOr<Program> program = absl::UnknownError("not compiled");
};

std::vector<Compiled> CompileAll(const ComputeDag& dag, const Target& target, const DeviceFacts& facts,
                                 const TaskSpace& spaces) {
  std::vector<Compiled> all(spaces.size());
  const size_t width = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < width; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = t; i < all.size(); i += width) {
        const Space& space = spaces.space(static_cast<int>(i));
        all[i].sketch = space.name();
        const auto lowered = Lower(dag, space.Instantiate(space.Default()), target, facts);
        all[i].program = lowered.ok() ? CompileProgram(*lowered, target) : lowered.status();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return all;
}

absl::Status Measure(Device& device, const Target& target, const Work& work, DType dtype) {
  ModelOptions options;
  options.extra = work.options;
  options.dtype = dtype;
  ASSIGN_OR_RETURN(const Network network, LoadOptimized(work.network, options));
  ASSIGN_OR_RETURN(const Partition partition, PartitionNetwork(network));
  // As if a network had bounded it: elements of N(0, 1) keep to any limit.
  Subgraph bounded = partition.subgraphs[0];
  FactorBounds bounds;
  for (size_t t = 0; t < network.tensors.size(); ++t)
    bounds[static_cast<int>(t)] = network.tensors[t].constant() ? kMostOfWeight : kMostOfActivation;
  RETURN_IF_ERROR(MarkFactors(bounds, bounded));
  const ComputeDag& dag = bounded.dag;
  const DeviceFacts facts = device.facts();
  ASSIGN_OR_RETURN(const std::unique_ptr<TaskSpace> spaces, TaskSpace::Create(dag, target, facts));
  const std::map<int, Array> inputs = Inputs(dag);
  ASSIGN_OR_RETURN(const Array exact, InFloat64(dag, inputs));
  std::map<std::string, Errors> kinds;
  Array once(dag.stage(dag.outputs()[0]).dtype, exact.shape);
  for (int64_t i = 0, n = exact.elements(); i < n; ++i) once.set(i, exact.at(i));
  Compare(once, exact, &kinds["float64, rounded once"]);
  for (const Compiled& one : CompileAll(dag, target, facts, *spaces)) {
    const absl::StatusOr<Array> got =
        one.program.ok() ? Evaluate(device, *one.program, dag, inputs) : one.program.status();
    if (got.ok())
      Compare(*got, exact, &kinds[KindOf(one.sketch)]);
    else
      std::fprintf(stderr, "%s, %s, %s: %s\n", work.name.c_str(), NameOf(dtype), one.sketch.c_str(),
                   std::string(got.status().message()).c_str());
  }
  for (const auto& [kind, errors] : kinds)
    std::printf("| %s | %s | `%s` | %d | %.1e | %.1e | %016llx |\n", work.name.c_str(), NameOf(dtype), kind.c_str(),
                errors.sketches, errors.largest, errors.mean, static_cast<unsigned long long>(errors.bits));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status Run(const std::string& text, const std::string& part) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(text));
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(target));
  Target resolved = target;
  if (resolved.kind == TargetKind::kCuda && resolved.arch.empty()) resolved.arch = device->facts().arch;
  std::printf("| work | type | kind of kernel | sketches | largest error | root mean square | bits |\n");
  std::printf("|---|---|---|---:|---:|---:|---|\n");
  for (const Work& work : Works())
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16})
      if (absl::StrContains(work.name, part)) RETURN_IF_ERROR(Measure(*device, resolved, work, dtype));
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "error: give TARGET and, if you like, a part of the names of works\n");
    return 2;
  }
  const absl::Status status = diapason::Run(argv[1], argc == 3 ? argv[2] : "");
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 1;
}
