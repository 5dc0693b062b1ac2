#include "compiler/lower/wide_stores.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/tensor/simplify.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

constexpr int64_t kLanesOfRow = 4, kColumnsOfLane = 2, kColumnsOfTile = kLanesOfRow * kColumnsOfLane;
constexpr int64_t kRowsOfTile = kLanesOfWarp / kLanesOfRow;

class WideStores {
 public:
  WideStores(const KernelFunc& kernel, int* next_buffer) : threads_(kernel.threads), next_buffer_(next_buffer) {
    for (const BufferDecl& param : kernel.params) {
      parameters_.insert(param.id);
      if (BytesOf(param.dtype) == 2) narrow_.insert(param.id);
    }
  }

  Stmt Run(const Stmt& stmt) {
    if (stmt == nullptr || stmt->body.empty()) return stmt;
    if (IsLoop(stmt, ForKind::kUnroll) && thread_) {
      if (Stmt wide = Widened(*stmt)) return wide;
      if (Stmt transposed = Transposed(*stmt)) return transposed;
    }
    const Surroundings inside(this, *stmt);
    std::vector<Stmt> body;
    for (const Stmt& child : stmt->body) body.push_back(Run(child));
    return body == stmt->body ? stmt : WithBody(*stmt, std::move(body));
  }

 private:
  // What is known inside a statement and not behind it.
  class Surroundings {
   public:
    Surroundings(WideStores* pass, const StmtNode& stmt)
        : pass_(*pass), thread_(pass->thread_), diverges_(pass->diverges_) {
      if (stmt.kind == StmtKind::kFor) pass_.analyzer_.Bind(stmt.var, stmt.extent);
      if (stmt.kind == StmtKind::kAlloc && stmt.decl.scope == Scope::kLocal) pass_.registers_.insert(stmt.decl.id);
      if (stmt.kind == StmtKind::kFor && stmt.for_kind == ForKind::kThreadX) {
        pass_.thread_ = stmt.extent == pass_.threads_ ? stmt.var : nullptr;
        pass_.varying_.insert(stmt.var.get());
      }
      if (stmt.kind == StmtKind::kLet && pass_.Varies(stmt.value)) pass_.varying_.insert(stmt.var.get());
      if (stmt.kind == StmtKind::kIf) pass_.diverges_ = pass_.diverges_ || pass_.Varies(stmt.condition);
    }
    ~Surroundings() {
      pass_.thread_ = thread_;
      pass_.diverges_ = diverges_;
    }
    Surroundings(const Surroundings&) = delete;
    Surroundings& operator=(const Surroundings&) = delete;

   private:
    WideStores& pass_;
    const Expr thread_;
    const bool diverges_;
  };

  // Whether the lanes of a warp may have different values of it.
  bool Varies(const Expr& e) const {
    bool varies = false;
    Visit(e,
          [&](const ExprNode& node) { varies = varies || varying_.contains(&node) || node.kind == ExprKind::kLoad; });
    return varies;
  }

  // The thread as 4 * row + lane, where rows are of fragments.
  Expr ByLane(const Expr& e) {
    return analyzer_.Simplify(Substitute(e, {{thread_.get(), Add(Mul(row_, IntImm(kLanesOfRow)), lane_)}}));
  }
  Expr ByThread(const Expr& e) const { return Substitute(e, {{row_.get(), FloorDiv(thread_, kLanesOfRow)}}); }

  // The loop over tiles with wide stores, or null.
  Stmt Widened(const StmtNode& tiles) {
    if (threads_ % kLanesOfWarp != 0) return nullptr;
    row_ = MakeVar("row");
    lane_ = MakeVar("lane");
    analyzer_.Bind(row_, threads_ / kLanesOfRow);
    analyzer_.Bind(lane_, kLanesOfRow);
    analyzer_.Bind(tiles.var, tiles.extent);
    for (const int64_t together : {4, 2}) {
      if (tiles.extent % together != 0) continue;
      const Expr group = MakeVar(tiles.var->name);
      analyzer_.Bind(group, tiles.extent / together);
      Stmt body = Inside(tiles.body[0], {tiles.var, group, together}, diverges_);
      if (body != nullptr) return MakeFor(ForKind::kUnroll, group, tiles.extent / together, std::move(body));
    }
    return nullptr;
  }

  struct Tiles {
    Expr tile, group;  // tile `tile` is one of `together` of the group
    int64_t together;
  };

  // Between the loop over tiles and the columns of a lane there may be loops and conditions of rows.
  Stmt Inside(const Stmt& stmt, const Tiles& tiles, bool diverges) {
    if (IsLoop(stmt, ForKind::kVectorize)) return Wide(*stmt, tiles, diverges);
    const bool condition = stmt->kind == StmtKind::kIf;
    if (!condition && !IsLoop(stmt, ForKind::kUnroll)) return nullptr;
    if (condition && !IsOfRow(stmt->condition, tiles)) return nullptr;
    if (!condition) analyzer_.Bind(stmt->var, stmt->extent);
    Stmt body = Inside(stmt->body[0], tiles, diverges || (condition && Varies(stmt->condition)));
    return body == nullptr ? nullptr : WithBody(*stmt, {std::move(body)});
  }

  // The same for all columns of a row.
  bool IsOfRow(const Expr& condition, const Tiles& tiles) {
    const Expr of_row = ByLane(condition);
    return !Varies(of_row) && !UsesVar(of_row, lane_.get()) && !UsesVar(of_row, tiles.tile.get());
  }

  Stmt Wide(const StmtNode& columns, const Tiles& tiles, bool diverges) {
    const Stmt& store = columns.body[0];
    if (store->kind == StmtKind::kIf) {
      if (UsesVar(store->condition, columns.var.get())) return nullptr;
      return Inside(MakeIf(store->condition, WithBody(columns, store->body)), tiles, diverges);
    }
    if (columns.extent != kColumnsOfLane || store->kind != StmtKind::kStore || store->async ||
        !store->operands.empty() || !narrow_.contains(store->buffer))
      return nullptr;
    analyzer_.Bind(columns.var, columns.extent);
    const std::optional<Expr> row = RowOf(store->index, tiles, columns.var);
    if (!row) return nullptr;
    // Of tile `number` of the group.
    const auto value = [&](const Expr& number, const Expr& column) {
      return analyzer_.Simplify(Substitute(
          store->value,
          {{tiles.tile.get(), Add(Mul(tiles.group, IntImm(tiles.together)), number)}, {columns.var.get(), column}}));
    };
    const Expr first = Add(*row, Mul(tiles.group, IntImm(tiles.together * kColumnsOfTile)));
    const auto stored = [&](std::vector<Expr> values) {
      return MakeQuadStore(store->buffer, first, std::move(values), diverges ? kLanesOfRow : kLanesOfWarp);
    };
    std::vector<Expr> values;
    if (!LoadsFrom(store->value, [&](int buffer) { return parameters_.contains(buffer); })) {
      for (int64_t i = 0; i < tiles.together; ++i)
        for (int64_t c = 0; c < kColumnsOfLane; ++c) values.push_back(value(IntImm(i), IntImm(c)));
      return stored(std::move(values));
    }
    // Both columns are loaded at once, as before.
    BufferDecl own;
    own.id = (*next_buffer_)++;
    own.name = "own" + std::to_string(own.id);
    own.scope = Scope::kLocal;
    own.elements = tiles.together * kColumnsOfLane;
    const Expr number = MakeVar("tile"), index = Add(Mul(number, IntImm(kColumnsOfLane)), columns.var);
    analyzer_.Bind(number, tiles.together);
    for (int64_t i = 0; i < own.elements; ++i) values.push_back(Load(own.id, own.dtype, {IntImm(i)}));
    const Expr each = value(number, columns.var);
    const Expr exact = each->kind == ExprKind::kCast ? each->args[0] : each;  // rounded when it is stored
    const Stmt computed = WithBody(columns, {MakeStore(own.id, index, Cast(own.dtype, exact))});
    return MakeAlloc(own,
                     MakeSeq({MakeFor(ForKind::kUnroll, number, tiles.together, computed), stored(std::move(values))}));
  }

  // Where the first tile of the row begins; nothing unless all columns lie side by side behind it, at a multiple of
  // what a lane stores.
  std::optional<Expr> RowOf(const Expr& index, const Tiles& tiles, const Expr& column) {
    Affine affine = ToAffine(ByLane(index));
    if (affine.CoefficientOf(tiles.tile.get()) != kColumnsOfTile ||
        affine.CoefficientOf(lane_.get()) != kColumnsOfLane || affine.CoefficientOf(column.get()) != 1)
      return std::nullopt;
    const std::optional<Expr> row = Without({tiles.tile.get(), lane_.get(), column.get()}, std::move(affine));
    if (!row || analyzer_.KnownDivisor(*row) % (kColumnsOfLane * tiles.together) != 0) return std::nullopt;
    return ByThread(*row);
  }

  // The sum without the terms of these variables; nothing if others depend on them, or differ within a warp.
  std::optional<Expr> Without(const std::vector<const ExprNode*>& moving, Affine affine) const {
    std::erase_if(affine.terms, [&](const auto& term) {
      return std::find(moving.begin(), moving.end(), term.first.get()) != moving.end();
    });
    Expr rest = FromAffine(affine);
    if (Varies(rest) ||
        std::any_of(moving.begin(), moving.end(), [&](const ExprNode* var) { return UsesVar(rest, var); }))
      return std::nullopt;
    return rest;
  }

  // Of a product whose columns are the tensor's rows, a lane has two rows of each of two times eight columns that lie
  // side by side: `columns` is the loop over these two, with one over the rows and conditions of rows inside.
  Stmt Transposed(const StmtNode& columns) {
    if (threads_ % kLanesOfWarp != 0 || diverges_ || columns.extent != 2) return nullptr;
    const StmtNode *inner = columns.body[0].get(), *rows = nullptr;
    std::vector<Expr> conditions;
    for (; inner->kind != StmtKind::kStore; inner = inner->body[0].get()) {
      const bool pair = inner->kind == StmtKind::kFor && inner->extent == 2 &&
                        (inner->for_kind == ForKind::kUnroll || inner->for_kind == ForKind::kVectorize);
      if (pair && rows == nullptr)
        rows = inner;
      else if (inner->kind == StmtKind::kIf)
        conditions.push_back(inner->condition);
      else
        return nullptr;
    }
    const StmtNode& store = *inner;
    if (rows == nullptr || store.async || !store.operands.empty() || !narrow_.contains(store.buffer) ||
        !IsOfRegisters(store.value))
      return nullptr;
    BindTurned(columns, *rows);
    const std::optional<Expr> index = OfTurnedRow(store.index, columns, *rows);
    if (!index || analyzer_.KnownDivisor(*index) % 4 != 0) return nullptr;
    Expr condition;
    for (const Expr& one : conditions) {
      const std::optional<Expr> of_row = ConditionOfTurnedRow(one, columns, *rows);
      if (!of_row) return nullptr;
      condition = condition ? And(condition, *of_row) : *of_row;
    }
    std::vector<Expr> values;
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t row = 0; row < 2; ++row)
        values.push_back(analyzer_.Simplify(
            Substitute(store.value, {{columns.var.get(), IntImm(half)}, {rows->var.get(), IntImm(row)}})));
    return MakeTransposedStore(store.buffer, OfThread(*index), std::move(values),
                               condition ? OfThread(condition) : nullptr);
  }

  // Whether lanes may evaluate it where they do not store: it loads registers that the loops around name, nothing else.
  bool IsOfRegisters(const Expr& e) const {
    bool all = true;
    Visit(e, [&](const ExprNode& node) {
      if (node.kind == ExprKind::kLoad) all = all && registers_.contains(node.buffer) && !Varies(node.args[0]);
    });
    return all;
  }

  void BindTurned(const StmtNode& columns, const StmtNode& rows) {
    warp_ = MakeVar("warp");
    row_ = MakeVar("row");
    lane_ = MakeVar("lane");
    half_ = MakeVar("half");
    analyzer_.Bind(warp_, threads_ / kLanesOfWarp);
    analyzer_.Bind(row_, kRowsOfTile);
    analyzer_.Bind(lane_, kLanesOfRow);
    analyzer_.Bind(half_, columns.extent);
    analyzer_.Bind(columns.var, columns.extent);
    analyzer_.Bind(rows.var, rows.extent);
  }

  // A sum of multiples of what moves in a turned tile, and of anything else.
  struct TurnedSum {
    int64_t by_group, by_lane, by_half, by_pair;  // the lane's group of four, its place there, its columns, its rows
    Expr rest;
  };
  std::optional<TurnedSum> ToTurnedSum(const Expr& e, const StmtNode& columns, const StmtNode& rows) {
    const Expr thread = Add(Mul(warp_, IntImm(kLanesOfWarp)), Add(Mul(row_, IntImm(kLanesOfRow)), lane_));
    const Affine affine = ToAffine(analyzer_.Simplify(Substitute(e, {{thread_.get(), thread}})));
    const std::vector<const ExprNode*> moving = {row_.get(), lane_.get(), columns.var.get(), rows.var.get()};
    const std::optional<Expr> rest = Without(moving, affine);
    if (!rest) return std::nullopt;
    return TurnedSum{affine.CoefficientOf(moving[0]), affine.CoefficientOf(moving[1]), affine.CoefficientOf(moving[2]),
                     affine.CoefficientOf(moving[3]), *rest};
  }

  // Where row row_ of the eight begins; nothing unless columns lie side by side.
  std::optional<Expr> OfTurnedRow(const Expr& index, const StmtNode& columns, const StmtNode& rows) {
    const std::optional<TurnedSum> sum = ToTurnedSum(index, columns, rows);
    if (!sum || sum->by_group != 1 || sum->by_half != kColumnsOfTile || sum->by_lane != 2 * sum->by_pair)
      return std::nullopt;
    return analyzer_.Simplify(Add(sum->rest, Mul(row_, IntImm(sum->by_pair))));
  }

  // Of row row_ and the columns half_; nothing unless it is the same for all eight of these.
  std::optional<Expr> ConditionOfTurnedRow(const Expr& e, const StmtNode& columns, const StmtNode& rows) {
    if (e->kind == ExprKind::kAnd) {
      const std::optional<Expr> first = ConditionOfTurnedRow(e->args[0], columns, rows),
                                second = ConditionOfTurnedRow(e->args[1], columns, rows);
      if (!first || !second) return std::nullopt;
      return And(*first, *second);
    }
    if (e->kind != ExprKind::kLt && e->kind != ExprKind::kLe) return std::nullopt;
    std::vector<Expr> sides;
    for (const Expr& side : e->args) {
      const std::optional<TurnedSum> sum = ToTurnedSum(side, columns, rows);
      // Where both rows of a lane are alike, the lane alone counts.
      const bool alike = sum && sum->by_pair == 0;
      if (!sum || sum->by_group != 0 || (!alike && sum->by_lane != 2 * sum->by_pair)) return std::nullopt;
      const Expr of_row = alike ? Mul(FloorDiv(row_, 2), IntImm(sum->by_lane)) : Mul(row_, IntImm(sum->by_pair));
      sides.push_back(analyzer_.Simplify(Add(Add(sum->rest, of_row), Mul(half_, IntImm(sum->by_half)))));
    }
    return e->kind == ExprKind::kLt ? Lt(sides[0], sides[1]) : Le(sides[0], sides[1]);
  }

  Expr OfThread(const Expr& e) const {
    return Substitute(e, {{warp_.get(), FloorDiv(thread_, kLanesOfWarp)},
                          {row_.get(), FloorMod(FloorDiv(thread_, kLanesOfRow), kRowsOfTile)},
                          {half_.get(), FloorMod(thread_, 2)}});
  }

  const int64_t threads_;
  int* const next_buffer_;
  std::set<int> parameters_, narrow_, registers_;
  Analyzer analyzer_;
  Expr thread_;                        // of the loop around, if all threads are in it
  std::set<const ExprNode*> varying_;  // variables that are not the same for all lanes of a warp
  bool diverges_ = false;              // a condition is around that need not be either
  Expr warp_, row_, lane_, half_;      // of the thread
};

}  // namespace

KernelFunc WithWideStores(KernelFunc kernel, int* next_buffer) {
  if (kernel.body != nullptr) kernel.body = WideStores(kernel, next_buffer).Run(kernel.body);
  return kernel;
}

}  // namespace diapason
