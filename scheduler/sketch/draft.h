// A sketch while it is derived: the state reached so far, the steps that lead there and the holes they have.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/schedule/state.h"
#include "compiler/tensor/target.h"

namespace diapason {

// A tunable parameter: one number left open. Candidate values in ascending order; limits of the target and padding
// narrow them further (scheduler/sketch/sketch_space.h).
struct Hole {
  enum class Kind : uint8_t {
    kTile,    // factor of a split
    kOption,  // unrolling, padding, vector width, attach point: every value is structurally valid
  };
  std::string name;
  Kind kind = Kind::kTile;
  std::vector<int32_t> values;
  int32_t preferred = 1;         // where clamping and the default start from
  std::optional<int32_t> prior;  // its value in the sketch's prior (Draft::Prior), where that says one
};

// The tiling of one loop of extent `extent` by the product of some holes and a constant: what the tiles cover beyond
// the extent is bounded (kMaxPadding).
struct Tiling {
  int64_t extent;
  Factor tile;
};

// Tiles may cover at most this many times the extent.
inline constexpr double kMaxPadding = 1.35;

struct SketchContext {
  const Target& target;
  const DeviceFacts& facts;
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
  const std::string& AxisName(int stage, int axis) const { return state_.stage(stage).axis(axis).var->name; }
  const SketchContext& context() const { return context_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Hole>& holes() const { return holes_; }
  const std::vector<Tiling>& tilings() const { return tilings_; }
  const std::string& name() const { return name_; }
  bool gpu() const { return context_.target.is_gpu(); }
  // On cuda: compute capability of at least that much; other GPUs run the same loops without what needs it.
  bool HasCapability(int least) const;

  // Applies a step and records it. One that does not apply sets `status`, and this draft changes no more: false, and
  // the numbers of loops and stages that the calls below then return mean nothing, but are in range. Who derived the
  // draft reports it (GenerateSketches).
  bool Do(Step step);
  const absl::Status& status() const { return status_; }
  void Name(const std::string& part) { name_ += name_.empty() ? part : "." + part; }
  // Adds a hole over a tile of a loop of that extent: its divisors, powers of two and 3*2^k, none above `limit`.
  Factor TileHole(const std::string& name, int64_t extent, int32_t limit, int32_t preferred = 1);
  Factor OptionHole(const std::string& name, std::vector<int32_t> values, int32_t preferred);
  // Takes values below `least` from the domain of a factor's hole, which keeps others.
  void AtLeast(const Factor& factor, int32_t least);
  // Declares a part of the sketch's prior: a configuration, known from measurements of similar shapes, that is measured
  // among the first and is the sketch's default. The hole of `factor` takes the least of its values that is not below
  // `wanted`, else the greatest; holes that nothing is declared for take their preferred value. Without a hole in
  // `factor` there is nothing to choose.
  void Prior(const Factor& factor, int64_t wanted);
  // For a variant of a sketch whose prior does not suit it.
  void DropPrior();
  // From here on float32 products are single ones of TensorFloat-32 (TensorIntrinsic::rounds_factors).
  void RoundFactors() { rounds_factors_ = true; }
  bool rounds_factors() const { return rounds_factors_; }
  // For a sketch that is known from measurements to suit its task better than the analytic estimate says.
  void PreferAsFallback() { preferred_fallback_ = true; }
  bool preferred_fallback() const { return preferred_fallback_; }
  void Tile(int64_t extent, Factor product) { tilings_.push_back({extent, product}); }

  void AddTile(TileInfo info) { tiles_.push_back(std::move(info)); }
  // The tiling of a stage; null if it was not tiled.
  const TileInfo* TileOf(int stage) const;
  // The tiled stage that reads `stage` directly; null if none does.
  const TileInfo* TiledReader(int stage) const;

  // Steps by name. Loop ids are returned where new loops come to be.
  std::vector<int> Split(int stage, int loop, std::vector<Factor> factors);
  int Fuse(int stage, std::vector<int> loops);  // one loop: itself
  void Reorder(int stage, std::vector<int> loops);
  void Annotate(int stage, int loop, Annotation annotation);
  void VectorizeInnermost(int stage, int loop);  // moves the loop inside all others, as a vector
  void ComputeAt(int stage, int target, std::vector<int> loops, Factor choice = Factor{0});
  int CacheWrite(int stage, Memory memory);                           // id of the new stage
  int CacheRead(int stage, Memory memory, std::vector<int> readers);  // id of the new stage

  // Questions that rules ask.
  bool NeedsTiling(int stage) const;  // data reuse exists (Ansor's needs_multi_level_tiling)
  // The only consumer, if it reads the stage point by point and is still free: a root without bound loops; else -1.
  int ElementwiseConsumer(int stage) const;
  bool IsInjective(int stage) const;  // computed, without reduction
  bool IsExpensive(int stage) const;  // calls a function or chooses by condition
  // Says where a reader's loads lie (the samples of regions, the points of a grid), takes a long expression to do so,
  // and is read many times: computed where it is read, it would be most of the kernel.
  bool IsLongPlace(int stage) const;
  // Axes of a reduction that each operand uses, although every operand is reused along some other axis: batch axes.
  std::vector<bool> BatchAxes(int stage, bool* gemm_like) const;
  bool IsBound(int stage) const;        // has block, thread or parallel loops
  bool IsUnscheduled(int stage) const;  // a root whose loops are as they were made, nothing said about how they run
  // Loops of spatial and reduce axes before any step (ids are axis numbers).
  std::vector<int> SpatialAxes(int stage) const;
  std::vector<int> ReduceAxes(int stage) const;
  int LastLoop(int stage) const { return static_cast<int>(state_.stage(stage).loops.size()) - 1; }  // made last
  // True if a window moves by this axis over the last dimension of a stage that is read.
  bool IsRowOfWindow(int stage, int axis) const;
  int LongestReduceAxis(int stage) const;  // the first of equal ones; -1 without a reduction
  // Lanes of 4 bytes in the device's widest vector; powers of two up to so many such vectors and to an extent.
  int32_t NativeLanes() const { return static_cast<int32_t>(context_.facts.vector_bytes / 4); }
  std::vector<int32_t> LanesUpTo(int64_t extent, int vectors) const;

 private:
  State state_;
  SketchContext context_;
  std::vector<Step> steps_;
  std::vector<Hole> holes_;
  std::vector<Tiling> tilings_;
  std::vector<TileInfo> tiles_;
  std::string name_;
  bool rounds_factors_ = false, preferred_fallback_ = false;
  absl::Status status_;
};

// A draft whose kernel ends in an element-wise stage: a reduction at the end, that nothing is scheduled of, gets a
// copy-out stage.
Draft EndingElementwise(const Draft& draft, int root);

// Values for a tile of a loop: divisors of the extent, powers of two and 3*2^k up to min(extent rounded up, limit).
std::vector<int32_t> TileValues(int64_t extent, int32_t limit);

// Binds an element-wise root stage: threads over all elements (GPU), or threads over the outer loops and a vector over
// the innermost (CPU). Returns the loop at which producers of one thread's or one vector's work are computed; -1: none.
// With `hosts`, a producer will be computed there: on GPUs a thread then has one element (a part of a fused loop is no
// region).
int BindElementwise(Draft* draft, int stage, const std::string& hole_prefix, bool hosts);

}  // namespace diapason
