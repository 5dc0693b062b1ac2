// A sketch while it is derived: the state reached so far, the steps that lead there and the tunable parameters that
// they have.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "compiler/schedule/state.h"
#include "compiler/tensor/target.h"
#include "scheduler/sketch/stage_facts.h"
#include "scheduler/sketch/tunable_parameters.h"

namespace diapason {

struct SketchContext {
  const Target& target;
  const DeviceFacts& facts;

  // On cuda: compute capability of at least that much; other GPUs run the same loops without what needs it.
  bool HasCapability(int least) const {
    return target.kind != TargetKind::kCuda || CudaArchNumber(facts.arch) >= least;
  }
  // Elsewhere what they make is made by loops, as it is without them.
  bool HasTensorCopies() const { return target.kind == TargetKind::kCuda && HasCapability(90); }
  // Lanes of 4 bytes in the device's widest vector.
  int32_t NativeLanes() const { return static_cast<int32_t>(facts.vector_bytes / 4); }
  // Powers of two up to so many such vectors and to an extent.
  std::vector<int32_t> LanesUpTo(int64_t extent, int vectors) const;
};

// What a sketch is, beside its steps.
struct SketchTraits {
  // From here on float32 products are single ones of TensorFloat-32 (TensorIntrinsic::rounds_factors).
  bool rounds_factors = false;
  // Whether copies in core matrices are tensor copies; nothing is decided before the first that may be.
  std::optional<bool> tensor_copies;
  // Tensors that a tile reads where they lie, by moves that are computed there: they have no copies.
  std::set<int> read_in_place;
  // It is known from measurements to suit its task better than the analytic estimate says.
  bool preferred_fallback = false;
};

// What the tiling of a stage decided that rules for its producers build on.
struct TileInfo {
  int stage = -1;        // the tiled reduction
  int consumer = -1;     // the stage it is computed in; itself if it is a root
  int reduce_loop = -1;  // its innermost outer reduce loop: copies into shared memory go there
  std::vector<int>
      attach;  // loops of `consumer`, inner to outer, at which producers can be computed: what they hold grows (cpu)
  Factor threads;            // threads of a block (GPU)
  Factor inner;              // innermost tile of the last axis (cpu): what packed constants are laid out by
  std::optional<int> dots;   // reduce axis whose innermost loop is a dot product of bytes (cpu, rules/byte_dots.h)
  bool row_windows = false;  // the prior of a window over rows was declared for it (rules/window_prior.h)
  // Operands whose shared copies are laid out for warpgroups, with what their runs have to divide (1: runs of 16
  // bytes).
  std::vector<std::pair<int, Factor>> core_matrices;
  bool gemm_like = false;     // each operand is reused along an axis of the other
  bool in_registers = false;  // the whole reduction is made of tiles of registers (cpu)
  // Sets of threads read what they multiply into registers: `reduce_loop` is a loop of each set.
  bool streams = false;
};

// Loops behind others.
inline void Append(std::vector<int>* to, const std::vector<int>& from) {
  to->insert(to->end(), from.begin(), from.end());
}

class Draft {
 public:
  Draft(State state, SketchContext context) : state_(std::move(state)), context_(context) {}

  const State& state() const { return state_; }
  const SketchContext& context() const { return context_; }
  bool gpu() const { return context_.target.is_gpu(); }
  const std::vector<Step>& steps() const { return steps_; }
  // The name of the sketch, of parts that rules add.
  const std::string& name() const { return name_; }
  void Name(const std::string& part) { name_ += name_.empty() ? part : "." + part; }
  const SketchTraits& traits() const { return traits_; }
  SketchTraits& traits() { return traits_; }

  // Applies a step and records it. One that does not apply sets `status`, and this draft changes no more: false, and
  // the numbers of loops and stages that the calls below then return mean nothing, but are in range. Who derived the
  // draft reports it (GenerateSketches).
  bool Do(Step step);
  // The first error of a step, else of the parameters.
  const absl::Status& status() const { return status_.ok() ? parameters_.status() : status_; }
  // Steps by name. Loop ids are returned where new loops come to be.
  std::vector<int> Split(int stage, int loop, std::vector<Factor> factors);
  int Fuse(int stage, std::vector<int> loops);  // one loop: itself
  void Reorder(int stage, std::vector<int> loops);
  void Annotate(int stage, int loop, Annotation annotation);
  void ComputeAt(int stage, int target, std::vector<int> loops, Factor choice = Factor{0});
  int CacheWrite(int stage, Memory memory);                           // id of the new stage
  int CacheRead(int stage, Memory memory, std::vector<int> readers);  // id of the new stage

  const TunableParameters& parameters() const { return parameters_; }
  TunableParameters& parameters() { return parameters_; }
  // As TunableParameters::Tile and Option.
  Factor TileParameter(const std::string& name, int64_t extent, int32_t limit, int32_t preferred = 1) {
    return parameters_.Tile(name, extent, limit, preferred);
  }
  Factor OptionParameter(const std::string& name, std::vector<int32_t> values, int32_t preferred) {
    return parameters_.Option(name, std::move(values), preferred);
  }
  // For a variant of a sketch whose prior does not suit it.
  void DropPrior();

  void AddTile(TileInfo info) { tiles_.push_back(std::move(info)); }
  // The tiling of a stage; null if it was not tiled.
  const TileInfo* TileOf(int stage) const;
  // A root whose loops are as they were made, nothing said about how they run.
  bool IsUnscheduled(int stage) const;

 private:
  State state_;
  SketchContext context_;
  std::vector<Step> steps_;
  TunableParameters parameters_;
  std::vector<TileInfo> tiles_;
  std::string name_;
  SketchTraits traits_;
  absl::Status status_;
};

// The tiled stage that reads `stage` directly; null if none does.
const TileInfo* TiledReader(const Draft& draft, int stage);
// Moves a loop inside all others, as a vector.
void VectorizeInnermost(Draft* draft, int stage, int loop);

// A draft whose kernel ends in an element-wise stage: a reduction at the end, that nothing is scheduled of, gets a
// copy-out stage.
Draft EndingElementwise(const Draft& draft, int root);

// Binds an element-wise root stage: threads over all elements (GPU), or threads over the outer loops and a vector over
// the innermost (CPU). Returns the loop at which producers of one thread's or one vector's work are computed; -1: none.
// With `hosts`, a producer will be computed there: on GPUs a thread then has one element (a part of a fused loop is no
// region).
int BindElementwise(Draft* draft, int stage, const std::string& prefix, bool hosts);

}  // namespace diapason
