#include "compiler/lower/overlapped_loads.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/lower/leaves.h"
#include "compiler/lower/registers_ahead.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

std::set<int> BuffersIn(const Stmt& body, Scope scope) {
  std::set<int> buffers;
  Contains(body, [&](const StmtNode& s) {
    if (s.kind == StmtKind::kAlloc && s.decl.scope == scope) buffers.insert(s.decl.id);
    return false;
  });
  return buffers;
}

bool Publishes(const Stmt& stmt) { return stmt->kind == StmtKind::kGroupSync && stmt->sync == GroupSync::kPublish; }

// A wait for copies, what publishes them, and a barrier, from step `first` to step `barrier` of a kernel's first steps.
struct Meeting {
  size_t first = 0, barrier = 0;
  int64_t unfinished = 0;
  bool waits = false, publishes = false;
  int64_t threads = 0;
};

// What a kernel does first: its leaves up to a loop in which threads meet, and those of that loop's first iteration.
struct FirstSteps {
  explicit FirstSteps(const Stmt& body) {
    const auto meets = [](const StmtNode& s) { return s.kind == StmtKind::kBarrier; };
    for (const Leaf& leaf : LeavesOf(body)) {
      if (!IsLoop(leaf.stmt, ForKind::kSerial) || !Contains(leaf.stmt, meets)) {
        all.push_back(leaf.stmt);
        continue;
      }
      loop = leaf.stmt;
      before_loop = all.size();
      for (const Leaf& step : LeavesOf(loop->body[0])) all.push_back(step.stmt);
      return;
    }
    before_loop = all.size();
  }

  std::vector<Stmt> all;
  size_t before_loop = 0;
  Stmt loop;  // may be null
};

class LateWaits {
 public:
  explicit LateWaits(const Stmt& body)
      : body_(body), steps_(body), shared_(BuffersIn(body, Scope::kShared)), local_(BuffersIn(body, Scope::kLocal)) {}

  Stmt Run() const {
    const std::optional<Meeting> early = MeetingAt(SkipQuiet(0, false));
    if (!early || !early->waits || early->unfinished != 0 || early->barrier >= steps_.before_loop) return body_;
    size_t next = SkipQuiet(early->barrier + 1, true);
    // The barrier at a loop's head is there for its other iterations.
    if (next == steps_.before_loop && IsBarrier(next)) next = SkipQuiet(next + 1, true);
    const std::optional<Meeting> late = MeetingAt(next);
    if (!late || late->threads != early->threads) return body_;
    const bool in_loop = late->barrier >= steps_.before_loop, publish = early->publishes && !late->publishes;
    if (in_loop && (!late->waits || publish)) return body_;
    const int64_t commits = CommitsBetween(early->barrier + 1, next);
    // Groups in front of the early wait are then among those that are finished.
    const bool covered = !late->waits || late->unfinished <= commits;
    const bool skewed = IsSkewed(*late);
    if (!covered && !skewed) return body_;
    return MapLeaves(body_, [&](size_t i, const Stmt& leaf) {
      if (i >= early->first && i <= early->barrier) return Stmt();
      // One group with the loop's first copies, since its first wait would wait for a group of their own.
      if (skewed && i < early->first && leaf->kind == StmtKind::kCommit) return Stmt();
      std::vector<Stmt> here;
      if (i == late->first && !late->waits) here.push_back(MakeWait(commits));
      if (i == late->barrier && publish) here.push_back(MakeGroupSync(GroupSync::kPublish));
      here.push_back(leaf);
      return MakeSeq(std::move(here));
    });
  }

 private:
  bool IsBarrier(size_t step) const { return step < steps_.all.size() && steps_.all[step]->kind == StmtKind::kBarrier; }

  // The first step from `i` on that does more than begin copies to shared memory or store to registers.
  size_t SkipQuiet(size_t i, bool tensors) const {
    while (i < steps_.all.size() && IsQuiet(*steps_.all[i], tensors)) ++i;
    return i;
  }

  // `tensors`: tensor copies too, and what makes their barriers.
  bool IsQuiet(const StmtNode& s, bool tensors) const {
    const auto reads = [this](const Expr& e) {
      return LoadsFrom(e, [this](int buffer) { return shared_.contains(buffer); });
    };
    if (reads(s.value) || reads(s.index) || reads(s.condition)) return false;
    switch (s.kind) {
      case StmtKind::kCommit:
      case StmtKind::kComment: return true;
      case StmtKind::kTensorCopy: return tensors;
      case StmtKind::kMbarrier: return tensors && s.mbarrier == MbarrierOp::kInit;
      case StmtKind::kStore: return s.operands.empty() && (s.async ? shared_ : local_).contains(s.buffer);
      case StmtKind::kIf:
        if (CommitsIn(*s.body[0]) != 0) return false;
        break;
      case StmtKind::kFor:
      case StmtKind::kSeq:
      case StmtKind::kLet:
      case StmtKind::kAlloc: break;
      default: return false;
    }
    return std::all_of(s.body.begin(), s.body.end(), [&](const Stmt& child) { return IsQuiet(*child, tensors); });
  }

  static int64_t CommitsIn(const StmtNode& s) {
    if (s.kind == StmtKind::kCommit) return 1;
    int64_t commits = 0;
    for (const Stmt& child : s.body) commits += CommitsIn(*child);
    return s.kind == StmtKind::kFor && s.for_kind != ForKind::kThreadX ? commits * s.extent : commits;
  }

  int64_t CommitsBetween(size_t begin, size_t end) const {
    int64_t commits = 0;
    for (size_t i = begin; i < end; ++i) commits += CommitsIn(*steps_.all[i]);
    return commits;
  }

  // Where all threads meet next, behind a wait or not.
  std::optional<Meeting> MeetingAt(size_t i) const {
    Meeting meeting;
    for (meeting.first = i; i < steps_.all.size(); ++i) {
      const StmtNode& stmt = *steps_.all[i];
      meeting.barrier = i;
      if (stmt.kind == StmtKind::kWait && !meeting.waits && !meeting.publishes) {
        meeting.waits = true;
        meeting.unfinished = stmt.extent;
      } else if (Publishes(steps_.all[i]) && !meeting.publishes) {
        meeting.publishes = true;
      } else if (stmt.kind == StmtKind::kBarrier) {
        meeting.threads = stmt.extent;
        return meeting;
      } else {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  // Whether a loop begins with this meeting, and its first iterations only begin copies: so many that the copies of the
  // first one, and what is in a group with them, have arrived when the work begins.
  bool IsSkewed(const Meeting& meeting) const {
    if (meeting.first != steps_.before_loop || meeting.barrier < steps_.before_loop) return false;
    const size_t work = SkipQuiet(meeting.barrier + 1, true);
    if (work + 1 != steps_.all.size() || steps_.all[work]->kind != StmtKind::kIf) return false;
    const Expr& condition = steps_.all[work]->condition;
    if (condition->kind != ExprKind::kLt && condition->kind != ExprKind::kLe) return false;
    if (condition->args[0]->kind != ExprKind::kIntImm || condition->args[1] != steps_.loop->var) return false;
    const int64_t first = condition->args[0]->value + (condition->kind == ExprKind::kLt);
    return CommitsBetween(meeting.barrier + 1, work) == 1 && meeting.unfinished < first;
  }

  const Stmt& body_;
  const FirstSteps steps_;
  const std::set<int> shared_, local_;
};

// Registers that a thread loads ahead: one for each of its scores in a tile of 64 rows and 128 columns, and some
// scales.
constexpr int64_t kMostRegisters = 72;

class EarlyLoads {
 public:
  EarlyLoads(const KernelFunc& kernel, int* next_buffer)
      : next_buffer_(*next_buffer), local_(BuffersIn(kernel.body, Scope::kLocal)) {
    for (const BufferDecl& param : kernel.params)
      if (!param.written) params_[param.id] = &param;
  }

  Stmt Run(const Stmt& body) {
    const std::vector<Leaf> leaves = LeavesOf(body);
    const size_t product = FirstProduct(leaves);
    Region region{leaves, product < leaves.size() ? WaitBefore(leaves, product) : kNowhere, product};
    Stmt mapped = MapLeaves(body, [&](size_t i, const Stmt& leaf) { return Mapped(region, i, leaf); });
    if (region.decls.empty()) return mapped;
    mapped = MapLeaves(mapped, [&](size_t i, const Stmt& leaf) {
      Stmt here = leaf;
      if (i == region.wait) here = MakeSeq({MakeSeq(region.loads), here});
      if (i == 0) here = MakeSeq({MakeSeq(region.constants), here});
      return here;
    });
    return InsideBlocks(mapped, [&](Stmt inner) {
      for (BufferDecl& decl : region.decls) inner = MakeAlloc(std::move(decl), inner);
      return inner;
    });
  }

 private:
  static constexpr size_t kNowhere = -1;

  struct Region {
    const std::vector<Leaf>& leaves;
    size_t wait, product;
    std::vector<BufferDecl> decls{};
    std::vector<Stmt> loads{}, constants{};
    std::vector<std::pair<Expr, Expr>> known{};  // loads of global memory, and of the registers
  };

  static bool IsWait(const StmtNode& s) {
    return s.kind == StmtKind::kWait || (s.kind == StmtKind::kMbarrier && s.mbarrier == MbarrierOp::kWait);
  }

  // The first of the waits, one behind the other, in front of this leaf.
  static size_t WaitBefore(const std::vector<Leaf>& leaves, size_t leaf) {
    size_t wait = kNowhere;
    for (size_t i = leaf; i-- > 0;) {
      const Stmt& stmt = leaves[i].stmt;
      if (IsWait(*stmt)) wait = i;
      if (wait != kNowhere && !IsWait(*stmt) && stmt->kind != StmtKind::kBarrier && !Publishes(stmt)) break;
    }
    return wait;
  }

  // The loops around a leaf's stores, from the outermost.
  using Loops = std::vector<const StmtNode*>;

  Stmt Mapped(Region& region, size_t i, const Stmt& leaf) {
    if (IsLoop(leaf, ForKind::kSerial) && Contains(leaf->body[0], IsWait)) return WithBody(*leaf, {Run(leaf->body[0])});
    if (region.wait == kNowhere || i <= region.product) return leaf;
    Loops loops;
    return InLoops(region, region.leaves[i], leaf, loops);
  }

  // Of unrolled loops around stores to registers.
  Stmt InLoops(Region& region, const Leaf& leaf, const Stmt& stmt, Loops& loops) {
    if (stmt->kind == StmtKind::kStore && local_.contains(stmt->buffer))
      return MakeStore(stmt->buffer, stmt->index, Replaced(region, leaf, loops, stmt->value), stmt->async);
    if (!IsLoop(stmt, ForKind::kUnroll) && !IsLoop(stmt, ForKind::kVectorize) && stmt->kind != StmtKind::kSeq)
      return stmt;
    if (stmt->kind == StmtKind::kFor) loops.push_back(stmt.get());
    std::vector<Stmt> body;
    for (const Stmt& child : stmt->body) body.push_back(InLoops(region, leaf, child, loops));
    if (stmt->kind == StmtKind::kFor) loops.pop_back();
    return WithBody(*stmt, std::move(body));
  }

  Expr Replaced(Region& region, const Leaf& leaf, const Loops& loops, const Expr& e) {
    if (e->kind == ExprKind::kLoad) {
      const auto param = params_.find(e->buffer);
      return param == params_.end() ? e : Ahead(region, leaf, loops, e);
    }
    if (e->kind == ExprKind::kSelect) return e;  // its loads need not be possible
    std::vector<Expr> args;
    for (const Expr& arg : e->args) args.push_back(Replaced(region, leaf, loops, arg));
    return args.empty() ? e : Rebuild(e, std::move(args));
  }

  // The load of the registers that have what the load of global memory would find, or that load.
  Expr Ahead(Region& region, const Leaf& leaf, const Loops& loops, const Expr& load) {
    const BufferDecl& param = *params_.at(load->buffer);
    Expr index = load->args[0];
    const StmtNode* threads = nullptr;
    if (!IsKnownAt(region.leaves[param.constant ? 0 : region.wait], leaf, &index, &threads) || LoadsAnything(index))
      return load;
    const Expr found = Load(load->buffer, load->dtype, {index});
    for (const auto& [global, own] : region.known)
      if (Equal(global, found)) return own;
    Loops used;
    for (const StmtNode* loop : loops)
      if (UsesVar(index, loop->var.get())) used.push_back(loop);
    const bool pairs =
        !used.empty() && used.back()->extent == 2 && ToAffine(index).CoefficientOf(used.back()->var.get()) == 1;
    ValueAhead value{.name = param.name + "_ahead", .value = found, .filled = used, .elements = used};
    if (!used.empty()) value.innermost = pairs ? ForKind::kVectorize : ForKind::kUnroll;
    if (threads != nullptr) value.filled.insert(value.filled.begin(), threads);
    int next = next_buffer_;
    LoadedAhead made = LoadAhead(value, &next);
    const int64_t registers = RegistersOf(made.decl);
    if (registers > most_) return load;
    most_ -= registers;
    next_buffer_ = next;
    made.decl.packed = pairs && IsNarrowFloat(load->dtype);
    (param.constant ? region.constants : region.loads).push_back(made.fill);
    region.decls.push_back(made.decl);
    region.known.emplace_back(found, made.own);
    return made.own;
  }

  int& next_buffer_;
  int64_t most_ = kMostRegisters;  // registers that are left
  const std::set<int> local_;
  std::map<int, const BufferDecl*> params_;
};

}  // namespace

KernelFunc WithLateWaits(KernelFunc kernel) {
  if (kernel.body != nullptr) kernel.body = LateWaits(Stmt(kernel.body)).Run();
  return kernel;
}

KernelFunc WithEarlyLoads(KernelFunc kernel, int* next_buffer) {
  if (kernel.body != nullptr) kernel.body = EarlyLoads(kernel, next_buffer).Run(kernel.body);
  return kernel;
}

}  // namespace diapason
