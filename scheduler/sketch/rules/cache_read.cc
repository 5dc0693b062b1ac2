// Operands of a tiled reduction go through shared memory, copied by all threads of the block at its outer reduce loop
// (Ansor's AddCacheRead with cooperative fetching). An operand that is itself an element-wise stage (padding, im2col)
// is computed right there: the copy is its evaluation. Where operands are not both reused (depthwise), two ways without
// shared memory compete: reading straight through the caches, and a window in the registers of each thread, which holds
// what all its outputs need once.
#include <algorithm>
#include <optional>

#include "compiler/schedule/tensor_of_copy.h"
#include "compiler/tensor/simplify.h"
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

// True if a window moves over the last dimension of a stage: runs of neighbours are copied that begin and end anywhere.
bool SlidesAlongRows(const Draft& draft, int copy, int reader) {
  bool slides = false;
  Visit(draft.state().stage(reader).op.body, [&](const ExprNode& e) {
    if (e.kind == ExprKind::kLoad && e.buffer == copy && !e.args.empty())
      slides |= ToAffine(e.args.back()).terms.size() > 1;
  });
  return slides;
}

// One element of another stage, or of one of several.
bool OnlyMoves(const Expr& body) {
  if (body->kind == ExprKind::kSelect) return OnlyMoves(body->args[1]) && OnlyMoves(body->args[2]);
  return body->kind == ExprKind::kLoad;
}

// A stage that moves elements, with the stages that move them before it computed where it reads them: each would offer
// the same choices again.
Draft WithMovesInlined(const Draft& draft, int stage) {
  Draft next = draft;
  const auto inline_one = [&] {
    const State& state = next.state();
    for (int producer : state.Producers(stage)) {
      if (!IsInjective(state, producer) || state.stage(producer).prologue || state.is_output(producer) ||
          state.Consumers(producer).size() > 1 || !next.IsUnscheduled(producer) || IsLongPlace(state, producer) ||
          !OnlyMoves(state.stage(producer).op.body))
        continue;
      next.Do({StepKind::kInline, producer, {}, {}, -1, {}});
      return true;
    }
    return false;
  };
  if (!IsInjective(draft.state(), stage) || !OnlyMoves(draft.state().stage(stage).op.body)) return next;
  while (next.status().ok() && inline_one()) continue;
  return next;
}

class CacheReadShared : public SketchRule {
 public:
  std::string name() const override { return "cache_read_shared"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const TileInfo* tile = TiledReader(draft, stage);
    if (!tile || tile->reduce_loop < 0) return Answer::kSkip;
    const StageState& s = draft.state().stage(stage);
    if (s.attach != StageState::Attach::kRoot) return Answer::kSkip;
    if (s.op.axes.empty()) return Answer::kSkip;  // a number, such as a zero point, has no tiles
    if (draft.traits().read_in_place.contains(stage)) return Answer::kSkip;
    return Answer::kApplyAndSkipRest;
  }

  std::vector<Derived> Apply(const Draft& drafted, int stage) const override {
    const TileInfo tile = *TiledReader(drafted, stage);
    const Draft draft = tile.gemm_like ? drafted : WithMovesInlined(drafted, stage);
    const StageState& s = draft.state().stage(stage);
    const bool fused = IsInjective(draft.state(), stage) && !s.prologue && !s.op.kept &&
                       !draft.state().is_output(stage) && draft.state().Consumers(stage).size() == 1;
    std::vector<Derived> result;
    // A copied stage that is computed is looked at again: how it is computed itself is still open.
    const bool again = !fused && draft.state().stage(stage).computes();
    if (tile.streams) {
      result.push_back({HoldWindow(draft, stage, tile, fused), again});
      return result;
    }
    Draft next = draft;
    int copy = stage;
    if (fused) {
      next.Do({StepKind::kSetScope, stage, {}, {}, -1, {static_cast<int32_t>(Memory::kShared)}});
    } else {
      copy = next.CacheRead(stage, Memory::kShared, {tile.stage});
    }
    const Factor* width = nullptr;
    for (const auto& [operand, runs] : tile.core_matrices)
      if (operand == stage) width = &runs;
    Fetch(&next, copy, tile, width);
    // of tensor cores bring elements of their own
    const bool lanes = draft.state().stage(tile.stage).tensor != TensorMode::kNone;
    if (!lanes && SlidesAlongRows(draft, stage, tile.stage)) HoldRows(&next, copy, tile);
    if (!tile.gemm_like) next.Name("shared");
    if (width != nullptr && !(width->is_constant() && width->value == 1)) {
      ByTensorCopies(std::move(next), {.copy = copy, .reader = tile.stage}, again, &result);
      return result;
    }
    result.push_back({std::move(next), again});
    if (MayCopyInBulk(draft, stage, tile)) {
      Draft bulk = draft;
      bulk.Name("bulk");
      bulk.DropPrior();  // it was found for copies by threads
      const bool inlined = FetchInBulk(&bulk, stage, tile);
      result.push_back({std::move(bulk), draft.state().stage(stage).computes() && !inlined});
    }
    if (!tile.gemm_like) {
      Draft through = draft;
      through.Name("cached");
      if (fused && !IsLongPlace(draft.state(), stage)) {
        if (OnlyMoves(s.op.body))
          for (int moved : draft.state().Producers(stage)) through.traits().read_in_place.insert(moved);
        through.Do({StepKind::kInline, stage, {}, {}, -1, {}});
      }
      result.push_back({std::move(through), false});
      Draft window = HoldWindow(draft, stage, tile, fused);
      window.Name("window");
      result.push_back({std::move(window), again});
    }
    return result;
  }

 private:
  struct CoreMatrixCopy {
    int copy, reader;
  };
  // A copy in core matrices, made by threads, and by tensor copies where these can. All of a sketch are made in the
  // same way; a producer may ask for both factors.
  static void ByTensorCopies(Draft draft, const CoreMatrixCopy& of, bool again, std::vector<Derived>* to) {
    std::optional<bool>& chosen = draft.traits().tensor_copies;
    const bool can = draft.context().HasTensorCopies() && TensorOfCopy(draft.state(), of.copy) &&
                     !draft.state().has_low_parts(of.copy) && !draft.state().is_rounded_in_place(of.copy);
    const bool second = can && chosen.value_or(false);
    if (can && !chosen) {
      chosen = false;
      to->push_back({draft, again});
      draft.Name("boxes");
      chosen = true;
    }
    if (can && *chosen) draft.Do({StepKind::kTensorCopy, of.copy, {}, {}, -1, {}});
    if (second) {
      std::vector<int32_t> choices = {0, 1};
      if (ReadsConstants(draft.state(), of.reader)) choices.insert(choices.end(), {2, 3, 4});
      draft.Do({StepKind::kProducer, of.reader, {}, {draft.OptionParameter("producer", choices, 0)}, -1, {}});
    }
    to->push_back({std::move(draft), again});
  }

  // Whether a tensor copy that a stage reads is of a constant.
  static bool ReadsConstants(const State& state, int reader) {
    const std::vector<int> copies = state.Producers(reader);
    return std::any_of(copies.begin(), copies.end(), [&](int id) {
      const StageState& copy = state.stage(id);
      return copy.tensor_copy && state.stage(LoadOfCopy(copy.op)->buffer).prologue;
    });
  }

  // Constants whose tiles tensor cores read with k innermost.
  static bool MayCopyInBulk(const Draft& draft, int stage, const TileInfo& tile) {
    const StageState& reader = draft.state().stage(tile.stage);
    const TensorIntrinsic* products = FindTensorIntrinsic(static_cast<int>(reader.tensor));
    if (!draft.context().HasCapability(90) || !draft.state().stage(stage).prologue || products == nullptr ||
        products->groups)
      return false;
    bool innermost = false;
    Visit(reader.op.body, [&](const ExprNode& e) {
      innermost |= e.kind == ExprKind::kLoad && e.buffer == stage && e.args.back() == reader.op.reduce_axes.back().var;
    });
    return innermost;
  }

  // Laid out tile by tile at build time, each copied by one instruction. True: the constant's own stage is inlined
  // there.
  static bool FetchInBulk(Draft* draft, int stage, const TileInfo& tile) {
    const bool computed = IsInjective(draft->state(), stage) && draft->state().Consumers(stage).size() == 1;
    const int copy = draft->CacheRead(stage, Memory::kShared, {tile.stage});
    const std::string name = draft->state().stage(copy).op.name;
    draft->ComputeAt(copy, tile.stage, {tile.reduce_loop});
    draft->parameters().AtLeast(draft->state().stage(tile.stage).pipeline, 2);
    draft->Do({StepKind::kPadRows, copy, {}, {PadParameter(draft, copy)}, -1, {}});
    const Factor tiles = draft->OptionParameter(name + ".tiles", {2, 4, 8, 16, 64}, 4);
    draft->Do({StepKind::kBulkCopy, copy, {}, {tiles}, -1, {}});
    if (computed) draft->Do({StepKind::kInline, stage, {}, {}, -1, {}});
    return computed;
  }

  // Elements of 4 bytes: what vectors and banks of shared memory are counted in.
  static int32_t Word(const Draft& draft, int copy) {
    return std::max<int32_t>(1, 4 / static_cast<int32_t>(BytesOf(draft.state().stage(copy).op.dtype)));
  }

  // Unused elements behind each row: none, 16 or 32 bytes.
  static Factor PadParameter(Draft* draft, int copy) {
    const int32_t word = Word(*draft, copy);
    return draft->OptionParameter(draft->state().stage(copy).op.name + ".pad", {0, 4 * word, 8 * word}, 4 * word);
  }

  // `core_width`, unless null: in core matrices, with runs that divide it.
  static void Fetch(Draft* draft, int copy, const TileInfo& tile, const Factor* core_width) {
    const std::string name = draft->state().stage(copy).op.name;
    draft->ComputeAt(copy, tile.stage, {tile.reduce_loop});
    const int all = draft->Fuse(copy, SpatialAxes(draft->state(), copy));
    const int32_t word = Word(*draft, copy);
    const Factor vector = core_width ? Factor::Of(4 * word)
                                     : draft->OptionParameter(name + ".vector", {word, 2 * word, 4 * word}, 4 * word);
    if (SlidesAlongRows(*draft, copy, tile.stage)) Align(draft, copy);
    const std::vector<int> pieces = draft->Split(copy, all, {tile.threads, vector});
    draft->Annotate(copy, pieces[1], Annotation::kThreadX);
    draft->Annotate(copy, pieces[2], Annotation::kVectorize);
    // A few rounds of copying are unrolled, so that their loads are in flight together (of the first layer of ResNet-18
    // on an H200 7.9 us, with asynchronous copies in loops 9.1).
    draft->Do({StepKind::kUnroll, copy, {}, {Factor::Of(8)}, -1, {}});
    if (core_width) {
      const std::vector<Factor> widths = core_width->is_constant() && core_width->value == 1
                                             ? std::vector<Factor>{}
                                             : std::vector<Factor>{*core_width};
      draft->Do({StepKind::kCoreMatrices, copy, {}, widths, -1, {}});
      return;
    }
    const Factor pad = PadParameter(draft, copy);
    if (tile.row_windows) draft->parameters().Prior(pad, 0);
    draft->Do({StepKind::kPadRows, copy, {}, {pad}, -1, {}});
  }

  static void Align(Draft* draft, int copy) { draft->Do({StepKind::kAlignRows, copy, {}, {Factor::Of(4)}, -1, {}}); }

  // What a thread's tile needs of a shared copy over whose rows a window slides, in its registers: neighbouring columns
  // share most of it, and compilers read it element by element, since windows begin anywhere.
  static void HoldRows(Draft* draft, int copy, const TileInfo& tile) {
    const std::vector<struct Loop>& loops = draft->state().stage(tile.stage).loops;
    const std::vector<int>& pieces = loops[loops[tile.reduce_loop].parent].pieces;
    const int rows = draft->CacheRead(copy, Memory::kLocal, {tile.stage});
    draft->ComputeAt(rows, tile.stage, {pieces[pieces.size() - 2]});
    Align(draft, rows);
    const std::vector<int> axes = SpatialAxes(draft->state(), rows);
    const std::vector<int> vector = draft->Split(rows, axes.back(), {Factor::Of(4)});
    for (size_t a = 0; a + 1 < axes.size(); ++a) draft->Annotate(rows, axes[a], Annotation::kUnroll);
    draft->Annotate(rows, vector[0], Annotation::kUnroll);
    draft->Annotate(rows, vector[1], Annotation::kVectorize);
  }

  // `computed`: the window is the stage itself, evaluated there.
  static Draft HoldWindow(const Draft& draft, int stage, const TileInfo& tile, bool computed) {
    Draft window = draft;
    int held = stage;
    if (computed)
      window.Do({StepKind::kSetScope, stage, {}, {}, -1, {static_cast<int32_t>(Memory::kLocal)}});
    else
      held = window.CacheRead(stage, Memory::kLocal, {tile.stage});
    Hold(&window, held, tile);
    return window;
  }

  // By each thread for itself: only constant indices keep the window in registers.
  static void Hold(Draft* draft, int window, const TileInfo& tile) {
    const std::string name = draft->state().stage(window).op.name;
    draft->ComputeAt(window, tile.stage, {tile.reduce_loop});
    std::vector<int> axes = SpatialAxes(draft->state(), window);
    // Up to 16 bytes, along memory.
    if (tile.streams) {
      const auto along = axes.begin() + DimensionAlongMemory(draft->state(), window);
      std::rotate(along, along + 1, axes.end());
      draft->Reorder(window, axes);
    }
    const std::vector<int32_t> lengths =
        Word(*draft, window) > 1 ? std::vector<int32_t>{1, 2, 4, 8} : std::vector<int32_t>{1, 2, 4};
    const Factor vector = draft->OptionParameter(name + ".vector", lengths, tile.streams ? lengths.back() : 4);
    std::vector<int> pieces = draft->Split(window, axes.back(), {vector});
    for (size_t a = 0; a + 1 < axes.size(); ++a) draft->Annotate(window, axes[a], Annotation::kUnroll);
    draft->Annotate(window, pieces[0], Annotation::kUnroll);
    draft->Annotate(window, pieces[1], Annotation::kVectorize);
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeCacheReadShared() { return std::make_unique<CacheReadShared>(); }

}  // namespace diapason
