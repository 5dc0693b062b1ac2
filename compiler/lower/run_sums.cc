#include "compiler/lower/run_sums.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/lower/leaves.h"
#include "compiler/tensor/simplify.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

constexpr int64_t kMostElements = 128;  // of a thread

// A store with the loops and conditions around it, the outermost first.
struct StoreInLoops {
  std::vector<const StmtNode*> loops;
  std::vector<Expr> conditions;
  const StmtNode* store = nullptr;

  int64_t elements() const {
    int64_t all = 1;
    for (const StmtNode* loop : loops) all *= loop->extent;
    return all;
  }
};

std::optional<StoreInLoops> ToStoreInLoops(const Stmt& leaf, int buffer) {
  StoreInLoops nest;
  for (const StmtNode* s = leaf.get();; s = s->body[0].get()) {
    if (s->kind == StmtKind::kStore) {
      if (s->buffer != buffer || s->async || !s->operands.empty()) return std::nullopt;
      nest.store = s;
      return nest;
    }
    if (s->kind == StmtKind::kIf && !LoadsFrom(s->condition, [](int) { return true; })) {
      nest.conditions.push_back(s->condition);
    } else if (s->kind == StmtKind::kFor && (s->for_kind == ForKind::kSerial || s->for_kind == ForKind::kUnroll ||
                                             s->for_kind == ForKind::kVectorize)) {
      nest.loops.push_back(s);
    } else {
      return std::nullopt;
    }
  }
}

// Where the loops of a thread stand.
using Place = std::vector<int64_t>;

class RunSumsOfKernel {
 public:
  RunSumsOfKernel(const KernelFunc& kernel, const RunSums& of, const BufferDecl& sums, int* next_buffer)
      : kernel_(kernel), of_(of), decl_(sums), next_buffer_(*next_buffer) {}

  std::optional<KernelFunc> Run() {
    const std::vector<Leaf> leaves = LeavesOf(kernel_.body);
    size_t at = leaves.size();
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!Contains(leaves[i].stmt, [this](const StmtNode& s) { return s.buffer == of_.source && Writes(s); }))
        continue;
      if (at < leaves.size()) return std::nullopt;
      at = i;
    }
    if (at == leaves.size()) return std::nullopt;
    const std::optional<StoreInLoops> nest = ToStoreInLoops(leaves[at].stmt, of_.source);
    if (!nest || nest->elements() > kMostElements || !BindAround(leaves[at].around)) return std::nullopt;
    nest_ = *nest;
    index_ = WithLets(nest_.store->index);
    for (Expr& condition : nest_.conditions) condition = WithLets(condition);
    for (int64_t lanes = 1; lanes <= kLanesOfWarp; lanes *= 2) {
      if (!Divide(lanes)) continue;
      KernelFunc kernel = kernel_;
      kernel.body = MapLeaves(kernel.body, [&](size_t i, const Stmt& leaf) { return i == at ? Stored(leaf) : leaf; });
      kernel.params.push_back(decl_);
      return kernel;
    }
    return std::nullopt;
  }

 private:
  static bool Writes(const StmtNode& s) { return s.kind == StmtKind::kStore || s.kind == StmtKind::kQuadStore; }

  // What is known of the variables around; whether all threads are there.
  bool BindAround(const std::vector<const StmtNode*>& around) {
    for (const StmtNode* s : around) {
      if (s->kind == StmtKind::kLet) lets_.emplace_back(s->var, s->value);
      if (s->kind != StmtKind::kFor) continue;
      analyzer_.Bind(s->var, s->extent);
      if (s->for_kind == ForKind::kThreadX) thread_ = s->extent == kernel_.threads && !thread_ ? s->var : nullptr;
    }
    return thread_ != nullptr && kernel_.threads % kLanesOfWarp == 0;
  }

  Expr WithLets(Expr e) const {
    for (auto let = lets_.rbegin(); let != lets_.rend(); ++let) e = Substitute(e, {{let->first.get(), let->second}});
    return e;
  }

  // A part of a run: elements of this thread.
  struct Part {
    int64_t number = 0;  // of the run, behind the one that holds the first element
    std::vector<Place> places;
  };

  // Whether so many neighbouring lanes have whole runs together, as many elements each.
  bool Divide(int64_t lanes) {
    lanes_ = lanes;
    group_ = MakeVar("group");
    lane_ = MakeVar("lane");
    analyzer_.Bind(group_, kernel_.threads / lanes);
    analyzer_.Bind(lane_, lanes);
    for (const StmtNode* loop : nest_.loops) analyzer_.Bind(loop->var, loop->extent);
    const Affine affine = ToAffine(OfLanes(index_));
    Affine rest = affine;
    std::vector<const ExprNode*> moving = {lane_.get()};
    for (const StmtNode* loop : nest_.loops) moving.push_back(loop->var.get());
    const auto moves = [&](const ExprNode* var) {
      return std::find(moving.begin(), moving.end(), var) != moving.end();
    };
    std::erase_if(rest.terms, [&](const auto& term) { return moves(term.first.get()); });
    first_ = FromAffine(rest);
    if (std::any_of(moving.begin(), moving.end(), [&](const ExprNode* var) { return UsesVar(first_, var); }) ||
        analyzer_.KnownDivisor(first_) % of_.run != 0)
      return false;
    std::map<int64_t, std::map<int64_t, std::vector<Place>>> places;  // by run and lane
    std::set<int64_t> offsets;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      Place place(nest_.loops.size(), 0);
      do {
        int64_t offset = affine.CoefficientOf(lane_.get()) * lane;
        for (size_t l = 0; l < place.size(); ++l) offset += affine.CoefficientOf(nest_.loops[l]->var.get()) * place[l];
        if (offset < 0 || !offsets.insert(offset).second) return false;
        places[offset / of_.run][lane].push_back(place);
      } while (Next(place));
    }
    parts_.clear();
    for (const auto& [number, of_lanes] : places) {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const auto found = of_lanes.find(lane);
        if (found == of_lanes.end() || static_cast<int64_t>(found->second.size()) * lanes != of_.run ||
            found->second != of_lanes.begin()->second)
          return false;
      }
      parts_.push_back({number, of_lanes.begin()->second});
      if (!IsAlike(parts_.back())) return false;
    }
    return true;
  }

  // Whether the conditions are the same for all elements of a run.
  bool IsAlike(const Part& part) {
    for (const Expr& condition : nest_.conditions) {
      const Expr of_lanes = OfLanes(condition);
      if (UsesVar(of_lanes, lane_.get())) return false;
      for (size_t l = 0; l < nest_.loops.size(); ++l) {
        const bool varies = std::any_of(part.places.begin(), part.places.end(),
                                        [&](const Place& place) { return place[l] != part.places[0][l]; });
        if (varies && UsesVar(of_lanes, nest_.loops[l]->var.get())) return false;
      }
    }
    return true;
  }

  bool Next(Place& place) const {
    for (size_t l = place.size(); l-- > 0;) {
      if (++place[l] < nest_.loops[l]->extent) return true;
      place[l] = 0;
    }
    return false;
  }

  Expr OfLanes(const Expr& e) {
    return analyzer_.Simplify(Substitute(e, {{thread_.get(), Add(Mul(group_, IntImm(lanes_)), lane_)}}));
  }
  Expr OfThread(const Expr& e) {
    return analyzer_.Simplify(
        Substitute(e, {{group_.get(), FloorDiv(thread_, lanes_)}, {lane_.get(), FloorMod(thread_, lanes_)}}));
  }
  Expr At(const Expr& e, const Place& place) const {
    VarMap map;
    for (size_t l = 0; l < place.size(); ++l) map[nest_.loops[l]->var.get()] = IntImm(place[l]);
    return Substitute(e, map);
  }

  int64_t NumberOf(const Place& place) const {
    int64_t number = 0;
    for (size_t l = 0; l < place.size(); ++l) number = number * nest_.loops[l]->extent + place[l];
    return number;
  }
  // Of the element where the loops stand.
  Expr Number() const {
    Expr number = IntImm(0);
    for (const StmtNode* loop : nest_.loops) number = Add(Mul(number, IntImm(loop->extent)), loop->var);
    return number;
  }

  BufferDecl Registers(const std::string& name, int64_t elements) {
    BufferDecl decl;
    decl.id = next_buffer_++;
    decl.name = name + std::to_string(decl.id);
    decl.scope = Scope::kLocal;
    decl.elements = elements;
    return decl;
  }

  // The leaf's loops, unrolled, and conditions around another store in place of its own.
  static Stmt WithStore(const Stmt& stmt, const Stmt& store) {
    if (stmt->kind == StmtKind::kStore) return store;
    Stmt body = WithStore(stmt->body[0], store);
    if (!IsLoop(stmt, ForKind::kSerial)) return WithBody(*stmt, {std::move(body)});
    return MakeFor(ForKind::kUnroll, stmt->var, stmt->extent, std::move(body));
  }
  Stmt InLoops(Stmt stmt) const {
    for (auto loop = nest_.loops.rbegin(); loop != nest_.loops.rend(); ++loop)
      stmt = MakeFor(ForKind::kUnroll, (*loop)->var, (*loop)->extent, std::move(stmt));
    return stmt;
  }

  Stmt Stored(const Stmt& leaf) {
    const StmtNode& store = *nest_.store;
    const auto parts = static_cast<int64_t>(parts_.size());
    const BufferDecl values = Registers("stored", nest_.elements()), sums = Registers("sums", 2 * parts),
                     others = Registers("others", parts);
    std::vector<Stmt> all;
    if (!nest_.conditions.empty()) all.push_back(InLoops(MakeStore(values.id, Number(), FloatImm(0))));
    const Expr exact = store.value->kind == ExprKind::kCast ? store.value->args[0] : store.value;
    all.push_back(WithStore(leaf, MakeStore(values.id, Number(), Cast(DType::kFloat32, exact))));
    const Expr stored = Load(values.id, values.dtype, {Number()});
    const DType type = store.value->dtype;
    all.push_back(
        WithStore(leaf, MakeStore(store.buffer, store.index, type == values.dtype ? stored : Cast(type, stored))));
    for (int64_t p = 0; p < parts; ++p) {
      Expr sum, squares;
      for (const Place& place : parts_[p].places) {
        const Expr value = At(values, NumberOf(place)), square = Mul(value, value);
        sum = sum ? Add(sum, value) : value;
        squares = squares ? Add(squares, square) : square;
      }
      all.push_back(MakeStore(sums.id, IntImm(p), sum));
      all.push_back(MakeStore(sums.id, IntImm(parts + p), squares));
    }
    int64_t left = 2 * parts;
    for (int64_t apart = 1; apart < lanes_; apart *= 2) left = Exchange(sums, left, others, apart, &all);
    for (int64_t p = 0; p < parts; ++p) all.push_back(StoreSums(sums, p));
    return MakeAlloc(values, MakeAlloc(sums, MakeAlloc(others, MakeSeq(std::move(all)))));
  }

  static Expr At(const BufferDecl& registers, int64_t i) { return Load(registers.id, registers.dtype, {IntImm(i)}); }

  // Of the lane in its group.
  Expr Bit(int64_t apart) const { return FloorMod(FloorDiv(thread_, apart), 2); }

  // One step of the sums over lanes: of the first `values` registers, each of two lanes sends one half to the other
  // lane and keeps the other half, so that fewer are left with each step; of a single value both have the sum. Returns
  // how many are left.
  int64_t Exchange(const BufferDecl& sums, int64_t values, const BufferDecl& others, int64_t apart,
                   std::vector<Stmt>* all) {
    const Expr lane = FloorMod(thread_, kLanesOfWarp),
               other = analyzer_.Simplify(Sub(Add(lane, IntImm(apart)), Mul(Bit(apart), IntImm(2 * apart)))),
               second = Eq(Bit(apart), IntImm(1));
    const int64_t kept = (values + 1) / 2;
    const auto half = [&](int64_t i, bool of_second) {
      if (values == 1) return At(sums, 0);
      const Expr behind = kept + i < values ? At(sums, kept + i) : FloatImm(0);
      return of_second ? Select(second, behind, At(sums, i)) : Select(second, At(sums, i), behind);
    };
    for (int64_t i = 0; i < kept; ++i) all->push_back(MakeShuffle(others.id, IntImm(i), half(i, false), other));
    for (int64_t i = 0; i < kept; ++i) all->push_back(MakeStore(sums.id, IntImm(i), Add(half(i, true), At(others, i))));
    return kept;
  }

  // Those of part `p`: by one thread, or its sum by one and its squares by the next.
  Stmt StoreSums(const BufferDecl& sums, int64_t p) {
    const Part& part = parts_[p];
    const auto parts = static_cast<int64_t>(parts_.size());
    const int64_t rows = decl_.elements / (2 * of_.runs);
    const Expr number = Add(FloorDiv(first_, of_.run), IntImm(part.number)),
               place = Add(Mul(FloorMod(number, of_.runs), IntImm(rows)), FloorDiv(number, of_.runs)),
               run = Mul(OfThread(analyzer_.Simplify(place)), IntImm(2));
    Stmt store;
    Expr holds;
    if (lanes_ == 1) {
      const Expr which = MakeVar("which");
      store = MakeFor(
          ForKind::kVectorize, which, 2,
          MakeStore(decl_.id, Add(run, which), Load(sums.id, sums.dtype, {Add(IntImm(p), Mul(which, IntImm(parts)))})));
    } else {
      int64_t left = parts, at = p, pair = 0;  // as Exchange leaves them
      for (int64_t apart = 2; apart < lanes_; apart *= 2) {
        const int64_t kept = (left + 1) / 2;
        if (at >= kept) {
          at -= kept;
          pair += apart / 2;
        }
        left = kept;
      }
      holds = Eq(FloorMod(FloorDiv(thread_, 2), lanes_ / 2), IntImm(pair));
      store = MakeStore(decl_.id, Add(run, Bit(1)), At(sums, at));
    }
    for (const Expr& condition : nest_.conditions)
      store = MakeIf(analyzer_.Simplify(At(condition, part.places[0])), store);
    return lanes_ <= 2 ? store : MakeIf(analyzer_.Simplify(holds), store);
  }

  const KernelFunc& kernel_;
  const RunSums& of_;
  const BufferDecl& decl_;  // of the sums
  int& next_buffer_;
  Analyzer analyzer_;
  Expr thread_;
  std::vector<std::pair<Expr, Expr>> lets_;
  StoreInLoops nest_;
  Expr index_;
  int64_t lanes_ = 1;
  Expr group_, lane_;  // of the thread: thread = group * lanes + lane
  Expr first_;         // the index without what lanes and loops add
  std::vector<Part> parts_;
};

}  // namespace

std::optional<KernelFunc> WithRunSums(const KernelFunc& kernel, const RunSums& of, const BufferDecl& sums,
                                      int* next_buffer) {
  if (kernel.body == nullptr) return std::nullopt;
  return RunSumsOfKernel(kernel, of, sums, next_buffer).Run();
}

}  // namespace diapason
