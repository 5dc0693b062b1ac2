#include "compiler/lower/reductions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/lower/guards.h"
#include "compiler/lower/warp_products.h"

namespace diapason {
namespace {

bool ReadsMemory(const Expr& e) {
  bool reads = false;
  Visit(e, [&](const ExprNode& node) { reads |= node.kind == ExprKind::kLoad; });
  return reads;
}

// The reduction of one stage.
class Reduction {
 public:
  Reduction(const ReductionParts& with, int id)
      : with_(with),
        parts_(with.parts),
        nest_(parts_.state),
        id_(id),
        stage_(nest_.kernel.state.stage(id)),
        carrier_(stage_.carry.is_carried_by(id)),
        carried_(stage_.carry.is_carried() && !carrier_),
        first_(parts_.loops.FirstReduction(id)),
        held_(parts_.loops.RegisterPosition(id, first_)),
        step_(static_cast<size_t>(std::find(stage_.order.begin(), stage_.order.end(), stage_.carry.loop) -
                                  stage_.order.begin())) {}

  Stmt Emit() {
    LowerStatement();
    in_registers_ = SumsAreRegisters();
    growth_ = with_.carried.GrowthOf(id_);
    buffer_ = id_;
    place_ = index_;
    if (in_registers_) DeclareRegisters();
    FindBegin();
    if (carrier_ && ((!in_registers_ && stage_.memory != Memory::kLocal) || held_ > step_ || !begun_.empty())) {
      nest_.Refuse(absl::InvalidArgumentError(
          absl::StrCat("stage ", stage_.op.name, ": a reduction that carries others has its own sums in registers")));
      return nullptr;
    }
    return with_.emitter.EmitLoops(id_, 0, first_, [&] {
      const Stmt begin = in_registers_ ? nullptr : BeginInMemory();
      const Stmt sums = with_.emitter.EmitLoops(id_, first_, held_, [&] { return EmitHeld(); });
      return with_.carried.WithGrowth(id_, first_, index_, guards_, MakeSeq({begin, sums}));
    });
  }

 private:
  // A term and where it is added.
  void LowerStatement() {
    index_ = parts_.expressions.StoreIndex(id_);
    bool unsafe = false;
    value_ = parts_.expressions.Lower(id_, stage_.op.body, &unsafe);
    shuffles_ = parts_.lanes.TakeShuffles();
    const Guards guards = GuardsOf(nest_, id_);
    guards_ = update_guards_ = guards.spatial;
    if (!nest_.kernel.target.is_gpu()) TakeConditions();
    if (unsafe) update_guards_.insert(update_guards_.end(), guards.domain.begin(), guards.domain.end());
    if (unsafe || !PaddingIsHarmless(nest_.kernel, id_))
      update_guards_.insert(update_guards_.end(), guards.reduce.begin(), guards.reduce.end());
  }

  // Terms that a condition (padding) makes neutral are left out, which is a branch around several multiply-adds where a
  // choice would be an operation of each. Not where the lanes of a vector differ in it.
  void TakeConditions() {
    const bool products = stage_.op.combiner == Combiner::kSum && value_->kind == ExprKind::kMul;
    for (int factor = 0; factor < (products ? 2 : 1); ++factor) {
      const Expr term = products ? value_->args[factor] : value_;
      if (term->kind != ExprKind::kSelect || ReadsMemory(term->args[0]) || DependsOnLane(term->args[0])) continue;
      if (!Equal(term->args[2], IdentityOf(stage_.op.combiner, term->dtype))) continue;
      update_guards_.push_back(term->args[0]);
      if (!products) {
        value_ = term->args[1];
        return;
      }
      std::vector<Expr> args = value_->args;
      args[factor] = term->args[1];
      value_ = Rebuild(value_, std::move(args));
    }
  }

  bool DependsOnLane(const Expr& e) const {
    const size_t last = stage_.order.size() - 1;
    return parts_.loops.KindOf(id_, last) == ForKind::kVectorize && UsesVar(e, nest_.stages[id_].leaf[last].get());
  }

  bool SumsAreRegisters() const {
    if (carried_) return true;
    const bool elsewhere = held_ > first_ || stage_.attach == StageState::Attach::kRoot || IsOfBlock(stage_.memory) ||
                           parts_.loops.InSerialLoops(id_, first_) ||
                           (!nest_.kernel.target.is_gpu() && !IsReadStraight());
    return elsewhere && parts_.loops.HasReduction(id_, held_);
  }

  // Whether all that reads the stage is unrolled, so that what it is held in are registers: memory that is read by a
  // loop is no place to add up in, since compilers find registers for it by luck.
  bool IsReadStraight() const {
    if (stage_.attach != StageState::Attach::kAt) return false;
    const StageState& reader = nest_.kernel.state.stage(stage_.attach_stage);
    const auto after = static_cast<size_t>(nest_.kernel.bounds.stages[id_].attach_position) + 1;
    for (size_t p = after; p < reader.order.size(); ++p) {
      const ForKind kind = parts_.loops.KindOf(stage_.attach_stage, p);
      const bool straight = kind == ForKind::kUnroll || kind == ForKind::kVectorize;
      if (!straight && nest_.kernel.extent(stage_.attach_stage, p) > 1) return false;
    }
    return true;
  }

  void DeclareRegisters() {
    buffer_ = nest_.buffers.NewId();
    int64_t elements = 1;
    place_ = IntImm(0);
    for (size_t p = held_; p < stage_.order.size(); ++p) {
      if (stage_.loops[stage_.order[p]].reduce) continue;
      const int64_t extent = nest_.kernel.extent(id_, p);
      if (extent > 1) place_ = Add(Mul(place_, IntImm(extent)), nest_.stages[id_].leaf[p]);
      elements *= extent;
    }
    place_ = nest_.analyzer.Simplify(place_);
    nest_.buffers.Declare({buffer_, Identifier(stage_.op.name) + "_sum", stage_.op.dtype, Scope::kLocal, elements, true,
                           nest_.kernel.target.is_gpu() ? 16 : 64});
  }

  // The loops [first, held) come to an element more than once, or to several: where they reduce, sums wait in memory.
  void FindBegin() {
    for (size_t p = first_; p < held_; ++p)
      if (nest_.kernel.extent(id_, p) > 1 && stage_.loops[stage_.order[p]].reduce)
        begun_.push_back(Eq(nest_.stages[id_].leaf[p], IntImm(0)));
  }

  Stmt Guarded(const VarMap& fresh, Stmt stmt) const {
    std::vector<Expr> conditions;
    for (const Expr& guard : guards_) conditions.push_back(Substitute(guard, fresh));
    return MakeIf(And(conditions), std::move(stmt));
  }

  // Memory that sums are in from the beginning.
  Stmt BeginInMemory() {
    const Expr identity = IdentityOf(stage_.op.combiner, stage_.op.dtype);
    return parts_.loops.SpatialNest(id_, first_, [&](const VarMap& fresh) {
      return Guarded(fresh, MakeStore(id_, Substitute(index_, fresh), identity));
    });
  }

  // Registers begin with the identity, and memory is written when the sum is done; it never holds the identity.
  Stmt BeginInRegisters() {
    if (carried_) return LoadSums();
    const Stmt zero = parts_.loops.SpatialNest(id_, held_, [&](const VarMap& fresh) {
      return MakeStore(buffer_, Substitute(place_, fresh), IdentityOf(stage_.op.combiner, stage_.op.dtype));
    });
    if (begun_.empty()) return zero;
    return MakeSeq({MakeIf(And(begun_), zero), MakeIf(Not(And(begun_)), LoadSums())});
  }

  Stmt LoadSums() {
    return parts_.loops.SpatialNest(id_, held_, [&](const VarMap& fresh) {
      Expr before = Load(id_, stage_.op.dtype, {Substitute(index_, fresh)});
      if (carried_ && growth_) before = Mul(before, Substitute(growth_, fresh));
      return Guarded(fresh, MakeStore(buffer_, Substitute(place_, fresh), before));
    });
  }

  Stmt StoreSums() {
    return parts_.loops.SpatialNest(id_, held_, [&](const VarMap& fresh) {
      const Expr sum = Load(buffer_, stage_.op.dtype, {Substitute(place_, fresh)});
      return Guarded(fresh, MakeStore(id_, Substitute(index_, fresh), sum));
    });
  }

  Stmt Update() {
    const Expr old = Load(buffer_, stage_.op.dtype, {place_});
    return parts_.lanes.WithShuffles(
        id_, shuffles_, update_guards_.empty(),
        MakeIf(And(update_guards_), MakeStore(buffer_, place_, Combine(stage_.op.combiner, old, value_))));
  }

  // The sums of the terms before this step, relative to the maximum of this step: where it grew, as far as a thread
  // knows.
  Stmt Rescale() {
    if (!growth_) return nullptr;
    const Stmt all = parts_.loops.SpatialNest(id_, held_, [&](const VarMap& fresh) {
      const Expr inside = Substitute(place_, fresh);
      return MakeStore(buffer_, inside, Mul(Load(buffer_, stage_.op.dtype, {inside}), Substitute(growth_, fresh)));
    });
    return MakeIf(with_.carried.MayGrow(stage_.carry.maximum), all);
  }

  // From the position on from which sums are held.
  Stmt EmitHeld() {
    Stmt loops;
    if (!nest_.kernel.OnTensorCores(id_)) {
      loops = EmitTerms(stage_.order.size(), [&] { return Update(); });
    } else if (stage_.attach == StageState::Attach::kRoot || stage_.memory != Memory::kLocal ||
               !update_guards_.empty() || held_ + 3 > stage_.order.size()) {
      nest_.Refuse(absl::InvalidArgumentError(absl::StrCat(
          "stage ", stage_.op.name, ": a product on tensor cores has its sums in registers and no predicates")));
      return nullptr;
    } else {
      size_t tiles = stage_.order.size() - 3;
      while (tiles > held_ && !stage_.loops[stage_.order[tiles - 1]].reduce) --tiles;
      const TileProducts products{id_, tiles, buffer_, place_};
      loops = EmitTerms(tiles, [&] {
        return nest_.kernel.OnWarpgroups(id_) ? EmitGroupProducts(parts_, products, with_.handover)
                                              : EmitWarpProducts(parts_, products);
      });
    }
    if (!in_registers_) return loops;
    const Stmt begin = BeginInRegisters();
    return MakeSeq({begin, loops, StoreSums()});
  }

  Stmt EmitTerms(size_t end, const std::function<Stmt()>& inner) {
    if (!carrier_) return with_.emitter.EmitLoops(id_, held_, end, inner);
    const Stmt start = with_.carried.Begin(id_);
    const Stmt steps = with_.emitter.EmitLoops(id_, held_, step_ + 1, [&] {
      const Stmt rescale = Rescale();
      return MakeSeq({rescale, with_.emitter.EmitLoops(id_, step_ + 1, end, inner)});
    });
    return MakeSeq({start, steps});
  }

  const ReductionParts& with_;
  NestParts& parts_;
  NestState& nest_;
  const int id_;
  const StageState& stage_;
  const bool carrier_, carried_;  // its loop carries others and itself; or is carried by another stage's
  const size_t first_;            // the first reduce loop
  const size_t held_;             // from there on sums are held, in registers or in the stage's own memory
  const size_t step_;             // of a carrier: its loop
  Expr index_, value_;            // of an element, of a term
  std::vector<Stmt> shuffles_;
  std::vector<Expr> guards_, update_guards_;
  bool in_registers_ = false;
  Expr growth_;
  int buffer_ = -1;          // where sums are held
  Expr place_;               // of an element's sum there
  std::vector<Expr> begun_;  // all hold in the first iteration of the reduce loops around the held ones
};

}  // namespace

Stmt EmitReduction(const ReductionParts& with, int id) { return Reduction(with, id).Emit(); }

}  // namespace diapason
