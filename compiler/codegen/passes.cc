#include "compiler/codegen/passes.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>

#include "compiler/lower/expand_loops.h"
#include "compiler/lower/map_children.h"

namespace diapason {
namespace {

Expr Same(const Expr& e) { return e; }

// One comparison a < b (or a <= b) with difference a - b = base + stride * lane, stride 1 or -1.
Expr UnifyComparison(const Expr& e, const Expr& lane, int64_t lanes, Analyzer& analyzer) {
  if (e->kind != ExprKind::kLt && e->kind != ExprKind::kLe) return e;
  if (IsFloat(e->args[0]->dtype) || !UsesVar(e, lane.get())) return e;
  Expr difference = Sub(e->args[0], e->args[1]);
  if (e->kind == ExprKind::kLe) difference = Sub(difference, IntImm(1, difference->dtype));  // now: difference < 0
  const Stride stride = StrideOf(difference, lane, analyzer);
  if (!stride.affine || (stride.stride != 1 && stride.stride != -1)) return e;
  // Going up from base, zero is crossed within the lanes only if base is no multiple; going down, if base + 1 is none.
  const Expr edge = stride.stride == 1 ? stride.base : Add(stride.base, IntImm(1, stride.base->dtype));
  const int64_t divisor = analyzer.KnownDivisor(edge);
  if (divisor % lanes != 0) return e;
  return analyzer.Simplify(Substitute(e, {{lane.get(), IntImm(0)}}));
}

bool IsVectorLoop(const StmtNode& s) { return s.kind == StmtKind::kFor && s.for_kind == ForKind::kVectorize; }

bool NeedsOwnLanes(const StmtNode& s) {
  return IsVectorLoop(s) || s.kind == StmtKind::kAlloc || s.kind == StmtKind::kBarrier ||
         s.kind == StmtKind::kClusterBarrier || s.kind == StmtKind::kClusterEnd;
}

Stmt Normalize(const Stmt& stmt, const ExprNode* lane, Analyzer& analyzer) {
  ForKind kind = stmt->for_kind;
  const ExprNode* inner_lane = lane;
  if (IsVectorLoop(*stmt)) {
    const bool plain = !Contains(stmt->body[0], NeedsOwnLanes);
    kind = plain ? ForKind::kVectorize : ForKind::kUnroll;
    if (plain) inner_lane = stmt->var.get();
  }
  if (stmt->kind == StmtKind::kLet && lane != nullptr && UsesVar(stmt->value, lane)) {
    const Stmt body = SubstituteAndSimplify(stmt->body[0], {{stmt->var.get(), stmt->value}}, analyzer);
    return Normalize(body, lane, analyzer);
  }
  if (stmt->body.empty()) return stmt;
  auto copy = std::make_shared<StmtNode>(*stmt);
  copy->for_kind = kind;
  for (Stmt& child : copy->body) child = Normalize(child, inner_lane, analyzer);
  return copy;
}

int64_t LargestPowerOfTwo(int64_t limit) { return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(limit))); }

}  // namespace

bool HasLoad(const Expr& e) {
  return e->kind == ExprKind::kLoad || std::any_of(e->args.begin(), e->args.end(), HasLoad);
}

Stmt NormalizeVectorLoops(const Stmt& stmt, Analyzer& analyzer) {
  return stmt == nullptr ? nullptr : Normalize(stmt, nullptr, analyzer);
}

Stmt SubstituteAndSimplify(const Stmt& stmt, const VarMap& map, Analyzer& analyzer) {
  return MapExprs(stmt, [&](const Expr& e) { return analyzer.Simplify(Substitute(e, map)); });
}

Stmt ExpandUnrolled(const Stmt& stmt, Analyzer& analyzer, int64_t max_stores) {
  if (stmt == nullptr) return nullptr;
  const auto unrolled = [](const StmtNode& loop, bool) { return loop.for_kind == ForKind::kUnroll; };
  return LoopExpander(analyzer, unrolled, max_stores).Expand(stmt);
}

namespace {

class LaneSplitter {
 public:
  LaneSplitter(Analyzer& analyzer, const std::function<int64_t(const Stmt& body)>& max_lanes)
      : analyzer_(analyzer), max_lanes_(max_lanes) {}

  Stmt Split(const Stmt& stmt) {
    if (!IsVectorLoop(*stmt))
      return MapChildren(
          *stmt, [this](const Stmt& child) { return Split(child); }, Same);
    const Stmt body = Split(stmt->body[0]);
    if (body == nullptr) return nullptr;
    const int64_t most = LargestPowerOfTwo(std::max<int64_t>(1, max_lanes_(body)));
    std::vector<Stmt> pieces;
    for (int64_t start = 0; start < stmt->extent;) {
      const int64_t lanes = std::min(most, LargestPowerOfTwo(stmt->extent - start));
      const bool whole = lanes == stmt->extent;
      const Expr lane = whole || lanes == 1 ? stmt->var : LaneOf(stmt->var->name, lanes);
      const Expr value = lanes == 1 ? IntImm(start) : Add(lane, IntImm(start));
      const Stmt piece = whole && lanes > 1 ? body : SubstituteAndSimplify(body, {{stmt->var.get(), value}}, analyzer_);
      if (piece != nullptr) pieces.push_back(lanes == 1 ? piece : MakeFor(ForKind::kVectorize, lane, lanes, piece));
      start += lanes;
    }
    return MakeSeq(std::move(pieces));
  }

 private:
  // One variable for all pieces of a length, so that equal values of several are seen to be equal.
  Expr LaneOf(const std::string& name, int64_t lanes) {
    Expr& lane = lanes_[lanes];
    if (lane == nullptr) {
      lane = MakeVar(name);
      analyzer_.Bind(lane, Interval{0, lanes - 1});
    }
    return lane;
  }

  Analyzer& analyzer_;
  const std::function<int64_t(const Stmt& body)>& max_lanes_;
  std::map<int64_t, Expr> lanes_;
};

}  // namespace

Stmt SplitVectorLoops(const Stmt& stmt, Analyzer& analyzer, const std::function<int64_t(const Stmt& body)>& max_lanes) {
  return stmt == nullptr ? nullptr : LaneSplitter(analyzer, max_lanes).Split(stmt);
}

Stmt UnifyLaneConditions(const Stmt& stmt, Analyzer& analyzer) {
  if (stmt == nullptr) return nullptr;
  Stmt result = MapChildren(
      *stmt, [&](const Stmt& child) { return UnifyLaneConditions(child, analyzer); }, Same);
  if (result == nullptr || result->kind != StmtKind::kFor || result->for_kind != ForKind::kVectorize) return result;
  const Expr lane = result->var;
  const int64_t lanes = result->extent;
  return MapExprs(result, [&](const Expr& e) {
    if (!UsesVar(e, lane.get())) return e;
    return Rewrite(e, [&](const Expr& node) { return UnifyComparison(node, lane, lanes, analyzer); });
  });
}

namespace {

// A condition that stays as it is whatever is stored.
bool IsGuard(const StmtNode& s) { return s.kind == StmtKind::kIf && !HasLoad(s.condition); }

}  // namespace

Stmt GatherGuards(const Stmt& stmt) {
  if (stmt == nullptr) return nullptr;
  const Stmt result = MapChildren(
      *stmt, [](const Stmt& child) { return GatherGuards(child); }, Same);
  if (result == nullptr) return nullptr;
  if (IsVectorLoop(*result) && IsGuard(*result->body[0]) && !UsesVar(result->body[0]->condition, result->var.get())) {
    const Stmt& guard = result->body[0];
    return MakeIf(guard->condition,
                  MakeFor(ForKind::kVectorize, result->var, result->extent, guard->body[0], result->unroll));
  }
  if (result->kind != StmtKind::kSeq) return result;
  std::vector<Stmt> all;
  for (const Stmt& child : result->body) {
    const bool same =
        IsGuard(*child) && !all.empty() && IsGuard(*all.back()) && Equal(all.back()->condition, child->condition);
    if (!same) {
      all.push_back(child);
      continue;
    }
    all.back() = MakeIf(child->condition, MakeSeq({all.back()->body[0], child->body[0]}));
  }
  return MakeSeq(std::move(all));
}

namespace {

class WholeTileSplitter {
 public:
  explicit WholeTileSplitter(Analyzer& analyzer) : analyzer_(analyzer) {}

  Stmt Run(const Stmt& stmt) {
    if (IsSerialLoop(*stmt)) {
      const Loop loop = LoopOf(*stmt);
      const bool inner_has_more =
          std::any_of(stmt->body.begin(), stmt->body.end(), [&](const Stmt& child) { return HasOthers(child, loop); });
      if (!loop.excess.empty() && !inner_has_more && CountStores(stmt) <= kMaxStores) return Twice(stmt, loop);
    }
    return MapChildren(
        *stmt, [this](const Stmt& child) { return Run(child); }, Same);
  }

 private:
  static constexpr int64_t kMaxStores = 512;  // of a loop that comes twice

  struct Loop {
    std::set<const ExprNode*> changed;  // variables that it and what is in it bind, lanes of vectors left out
    std::map<const ExprNode*, int64_t> lanes;
    std::vector<Expr> excess;  // its conditions are that each of these is below zero
  };

  static bool IsSerialLoop(const StmtNode& s) { return s.kind == StmtKind::kFor && s.for_kind == ForKind::kSerial; }

  Loop LoopOf(const StmtNode& s) {
    Loop loop;
    Bind(s, &loop);
    Collect(s, &loop);
    return loop;
  }

  static void Bind(const StmtNode& s, Loop* loop) {
    if (IsVectorLoop(s))
      loop->lanes[s.var.get()] = s.extent;
    else if (s.kind == StmtKind::kFor || s.kind == StmtKind::kLet)
      loop->changed.insert(s.var.get());
    for (const Stmt& child : s.body) Bind(*child, loop);
  }

  void Collect(const StmtNode& s, Loop* loop) {
    if (IsGuard(s)) {
      ForEachConjunct(s.condition, [&](const Expr& conjunct) {
        if (const Expr excess = ExcessOf(conjunct, *loop)) AddExcess(excess, &loop->excess);
      });
    }
    for (const Stmt& child : s.body) Collect(*child, loop);
  }

  // Of those that differ by a number, the greatest stands for all.
  void AddExcess(const Expr& excess, std::vector<Expr>* all) {
    for (Expr& other : *all) {
      const Expr more = analyzer_.Simplify(Sub(excess, other));
      if (more->kind != ExprKind::kIntImm) continue;
      if (more->value > 0) other = excess;
      return;
    }
    all->push_back(excess);
  }

  static void ForEachConjunct(const Expr& condition, const std::function<void(const Expr&)>& fn) {
    if (condition->kind != ExprKind::kAnd) return fn(condition);
    for (const Expr& part : condition->args) ForEachConjunct(part, fn);
  }

  // What must be below zero for the comparison to hold in every lane; null: it is no such comparison, or the loop
  // changes it.
  Expr ExcessOf(const Expr& conjunct, const Loop& loop) {
    if (conjunct->kind != ExprKind::kLt && conjunct->kind != ExprKind::kLe) return nullptr;
    if (IsFloat(conjunct->args[0]->dtype)) return nullptr;
    Expr excess = Sub(conjunct->args[0], conjunct->args[1]);
    if (conjunct->kind == ExprKind::kLe) excess = Sub(excess, IntImm(1, excess->dtype));
    for (const auto& [lane, lanes] : loop.lanes) {
      if (!UsesVar(excess, lane)) continue;
      const Affine affine = ToAffine(analyzer_.Simplify(excess));
      const int64_t coefficient = affine.CoefficientOf(lane);
      excess = Substitute(FromAffine(affine), {{lane, IntImm(coefficient > 0 ? lanes - 1 : 0)}});
      if (coefficient == 0) return nullptr;  // not affine
      for (const auto& [term, unused] : affine.terms)
        if (term.get() != lane && UsesVar(term, lane)) return nullptr;
    }
    const bool changes = std::any_of(loop.changed.begin(), loop.changed.end(),
                                     [&](const ExprNode* var) { return UsesVar(excess, var); });
    return changes ? nullptr : analyzer_.Simplify(excess);
  }

  // Whether a loop in the statement has conditions that `outer`, around it, changes.
  bool HasOthers(const Stmt& stmt, const Loop& outer) {
    if (IsSerialLoop(*stmt)) {
      for (const Expr& excess : LoopOf(*stmt).excess)
        for (const ExprNode* var : outer.changed)
          if (UsesVar(excess, var)) return true;
    }
    return std::any_of(stmt->body.begin(), stmt->body.end(),
                       [&](const Stmt& child) { return HasOthers(child, outer); });
  }

  Stmt Twice(const Stmt& stmt, const Loop& loop) {
    std::vector<Expr> whole;
    for (const Expr& excess : loop.excess) whole.push_back(analyzer_.Simplify(Lt(excess, IntImm(0, excess->dtype))));
    const Expr condition = And(whole);
    const Stmt otherwise = loop.excess.size() == 1 ? WhereExceeded(stmt, loop) : stmt;
    return MakeSeq(
        {MakeIf(condition, Without(stmt, loop)), otherwise == nullptr ? nullptr : MakeIf(Not(condition), otherwise)});
  }

  // The statement where the loop's one condition does not hold; null if nothing is left.
  Stmt WhereExceeded(const Stmt& stmt, const Loop& loop) {
    bool never = false;
    if (IsGuard(*stmt)) {
      ForEachConjunct(stmt->condition, [&](const Expr& conjunct) {
        const Expr excess = ExcessOf(conjunct, loop);
        never |= excess != nullptr && !UsesLanes(conjunct, loop) && Equal(excess, loop.excess[0]);
      });
    }
    if (never) return nullptr;
    if (stmt->body.empty()) return stmt;
    auto copy = std::make_shared<StmtNode>(*stmt);
    copy->body.clear();
    for (const Stmt& child : stmt->body)
      if (const Stmt left = WhereExceeded(child, loop)) copy->body.push_back(left);
    return copy->body.empty() ? nullptr : copy;
  }

  static bool UsesLanes(const Expr& e, const Loop& loop) {
    return std::any_of(loop.lanes.begin(), loop.lanes.end(), [&](const auto& lane) { return UsesVar(e, lane.first); });
  }

  // The statement where the loop's conditions hold.
  Stmt Without(const Stmt& stmt, const Loop& loop) {
    const Stmt inner = MapChildren(
        *stmt, [&](const Stmt& child) { return Without(child, loop); }, Same);
    if (!IsGuard(*inner)) return inner;
    std::vector<Expr> left;
    ForEachConjunct(inner->condition, [&](const Expr& conjunct) {
      if (ExcessOf(conjunct, loop) == nullptr) left.push_back(conjunct);
    });
    return left.empty() ? inner->body[0] : MakeIf(And(left), inner->body[0]);
  }

  Analyzer& analyzer_;
};

}  // namespace

Stmt SplitWholeTiles(const Stmt& stmt, Analyzer& analyzer) {
  return stmt == nullptr ? nullptr : WholeTileSplitter(analyzer).Run(stmt);
}

Stride StrideOf(const Expr& index, const Expr& var, Analyzer& analyzer) {
  if (!UsesVar(index, var.get())) return {true, 0, index};
  const Expr simple = analyzer.Simplify(index);
  const Affine affine = ToAffine(simple);
  Affine base;
  base.constant = affine.constant;
  int64_t stride = 0;
  for (const auto& [term, coefficient] : affine.terms) {
    if (term == var) {
      stride = coefficient;
    } else if (UsesVar(term, var.get())) {
      return {};
    } else {
      base.terms.emplace_back(term, coefficient);
    }
  }
  return {true, stride, FromAffine(base)};
}

}  // namespace diapason
