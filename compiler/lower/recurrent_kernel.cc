#include "compiler/lower/recurrent_kernel.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "compiler/lower/kernel_buffers.h"
#include "compiler/lower/recurrent_nest.h"
#include "compiler/lower/recurrent_sums.h"

namespace diapason {
namespace {

class RecurrentKernelBuilder {
 public:
  RecurrentKernelBuilder(const RecurrentKernelContext& context, int* next_buffer)
      : context_(context), nest_(context, next_buffer), sums_(&nest_) {}

  KernelFunc Build() {
    std::vector<Stmt> all{sums_.KeepWeights()};
    for (const ExchangedStage& e : nest_.exchanged) all.push_back(CopyInitial(e));
    if (nest_.tiles.cluster > 1) all.push_back(nest_.Barrier());  // before it another block may not have begun
    all.push_back(nest_.OverUnits(Start()));
    all.push_back(nest_.OverUnits(InputsOf(IntImm(0))));
    all.push_back(nest_.Barrier());
    all.push_back(MakeFor(ForKind::kSerial, nest_.step, r_.steps, StepBody(), 1));
    return Finish(MakeSeq(std::move(all)));
  }

 private:
  int Output() const { return dag_.outputs()[0]; }
  bool IsOfStart(int id) const { return std::find(r_.start.begin(), r_.start.end(), id) != r_.start.end(); }

  Stmt Compute(int id, const Expr& body, const Expr& now) {
    const Stage& stage = dag_.stage(id);
    return nest_.ForEachOf(stage, nest_.OverElements(stage, [&](RowAndGroup at) {
      return MakeStore(nest_.LocalOf(id), nest_.LocalIndex(stage, at), nest_.Value(body, stage, at, now));
    }));
  }

  // The first step's stages that have no state, and what the steps begin with.
  Stmt Start() {
    std::vector<Stmt> all;
    for (int id : r_.start) all.push_back(Compute(id, dag_.stage(id).body, IntImm(0)));
    for (size_t c = 0; c < r_.carried.size(); ++c) {
      const auto [source, initial] = r_.carried[c];
      all.push_back(Carry(c, initial));
      for (const ExchangedStage& e : nest_.exchanged)
        if (e.stage == source && e.carried && !nest_.IsGlobal(initial)) all.push_back(Send(e, initial, IntImm(0)));
    }
    for (const Recurrence::Store& store : r_.stores)
      if (IsOfStart(store.stage)) all.push_back(StoreOutput(store, IntImm(0)));
    return MakeSeq(std::move(all));
  }

  // Slot 0 of a placeholder, which each block has whole.
  Stmt CopyInitial(const ExchangedStage& e) {
    std::vector<Stmt> copies;
    for (const Recurrence::Carried& carried : r_.carried) {
      if (carried.source != e.stage || !e.carried || !nest_.IsGlobal(carried.initial)) continue;
      nest_.Reads(carried.initial);
      const Stage& stage = dag_.stage(e.stage);
      const int64_t elements = stage.elements(), threads = nest_.gpu ? context_.schedule.Threads(nest_.tiles) : 1;
      const Expr round = MakeVar("i");
      const Expr at = nest_.gpu ? Add(Mul(round, IntImm(threads)), nest_.thread) : round;
      Stmt copy = MakeStore(nest_.SharedOf(e.stage), at, Load(carried.initial, stage.dtype, {at}));
      if (elements % threads != 0) copy = MakeIf(Lt(at, IntImm(elements)), copy);
      copies.push_back(MakeFor(ForKind::kSerial, round, (elements + threads - 1) / threads, copy));
    }
    return MakeSeq(std::move(copies));
  }

  // Stages that read nothing but inputs: asked for a step ahead.
  bool IsInput(size_t i) const {
    bool reads_state = dag_.stage(r_.body[i]).reduces();
    Visit(r_.expressions[i], [&](const ExprNode& e) {
      reads_state = reads_state || (e.kind == ExprKind::kLoad && !nest_.IsGlobal(e.buffer));
    });
    return !reads_state;
  }
  Stmt InputsOf(const Expr& now) {
    std::vector<Stmt> all;
    for (size_t i = 0; i < r_.body.size(); ++i)
      if (IsInput(i)) all.push_back(Compute(r_.body[i], r_.expressions[i], now));
    return MakeSeq(std::move(all));
  }

  Stmt StepBody() {
    std::vector<Stmt> all, phase;  // between two barriers
    std::set<int> sent;
    const auto meet = [&] {
      all.push_back(nest_.OverUnits(MakeSeq(std::move(phase))));
      all.push_back(nest_.Barrier());
      phase.clear();
      sent.clear();
    };
    for (size_t i = 0; i < r_.body.size(); ++i) {
      const int id = r_.body[i];
      if (IsInput(i)) continue;
      if (dag_.stage(id).reduces()) {
        if (ReadsAny(i, sent)) meet();
        phase.push_back(sums_.Emit(i));
      } else {
        phase.push_back(Compute(id, r_.expressions[i], nest_.step));
      }
      for (const ExchangedStage& e : nest_.exchanged) {
        if (e.stage != id) continue;
        phase.push_back(Send(e, id, e.carried ? FloorMod(Add(nest_.step, IntImm(1)), 2) : IntImm(0)));
        sent.insert(id);
      }
    }
    for (size_t c = 0; c < r_.carried.size(); ++c) phase.push_back(Carry(c, r_.carried[c].source));
    for (const Recurrence::Store& store : r_.stores) {
      if (IsOfStart(store.stage)) continue;
      const Stmt stores = StoreOutput(store, nest_.step);
      phase.push_back(store.last ? MakeIf(Eq(nest_.step, IntImm(r_.steps - 1)), stores) : stores);
    }
    phase.push_back(InputsOf(Min(Add(nest_.step, IntImm(1)), IntImm(r_.steps - 1))));
    meet();
    return MakeSeq(std::move(all));
  }

  bool ReadsAny(size_t i, const std::set<int>& stages) const {
    bool reads = false;
    Visit(r_.expressions[i],
          [&](const ExprNode& e) { reads = reads || (e.kind == ExprKind::kLoad && stages.contains(e.buffer)); });
    return reads;
  }

  // What the next step reads of this one, or the first one of `from`.
  Stmt Carry(size_t c, int from) {
    const Stage& stage = dag_.stage(from);
    if (nest_.IsGlobal(from)) nest_.Reads(from);
    return nest_.ForEachOf(stage, nest_.OverElements(stage, [&](RowAndGroup at) {
      const Expr index = nest_.LocalIndex(stage, at);
      const Expr value = nest_.IsGlobal(from) ? Load(from, stage.dtype, {nest_.ElementIndex(stage, at)})
                                              : Load(nest_.LocalOf(from), stage.dtype, {index});
      return MakeStore(nest_.LocalOf(Recurrence::BufferOf(static_cast<int>(c))), index, value);
    }));
  }

  // What the thread has of a stage, `from` in front of the first step, goes to all blocks, a few to each lane.
  Stmt Send(const ExchangedStage& e, int from, const Expr& slot) {
    const Stage& stage = dag_.stage(e.stage);
    const int to = nest_.SharedOf(e.stage);
    const bool remote = nest_.tiles.cluster > 1;
    const auto stores = [&](const Expr& rank) {
      return nest_.ForEachOf(stage, nest_.OverElements(stage, [&](RowAndGroup at) {
        const Expr index = Add(Mul(slot, IntImm(stage.elements())), nest_.ElementIndex(stage, at));
        const Expr value = Load(nest_.LocalOf(from), stage.dtype, {nest_.LocalIndex(stage, at)});
        return remote ? MakeRemoteStore(to, index, value, rank) : MakeStore(to, index, value);
      }));
    };
    if (!nest_.gpu) return stores(nullptr);
    std::vector<Stmt> all;
    for (int64_t first = 0; first < nest_.tiles.cluster; first += nest_.tiles.lanes) {
      const Expr rank = Add(nest_.lane, IntImm(first));
      all.push_back(MakeIf(And(nest_.active, Lt(rank, IntImm(nest_.tiles.cluster))), stores(rank)));
    }
    return MakeSeq(std::move(all));
  }

  Stmt StoreOutput(const Recurrence::Store& store, const Expr& now) const {
    const Stage& stage = dag_.stage(store.stage);
    const Expr value =
        Load(nest_.LocalOf(store.stage), stage.dtype, {nest_.LocalIndex(stage, {store.row, store.group})});
    const Expr flat = Add(Add(IntImm(store.offset), Mul(now, IntImm(store.step_stride))), nest_.OwnUnit());
    const Stmt stores = nest_.ForEach(MakeStore(Output(), Placed(flat), value));
    return nest_.gpu ? MakeIf(And(nest_.active, Eq(nest_.lane, IntImm(0))), stores) : stores;
  }

  Expr Placed(const Expr& flat) const {
    const OutputPlace& place = context_.place;
    if (place.whole()) return flat;
    const Expr row = Mul(FloorDiv(flat, place.row), IntImm(place.stride));
    return Add(IntImm(place.offset), Add(row, FloorMod(flat, place.row)));
  }

  KernelFunc Finish(Stmt body) const {
    const std::vector<BufferDecl>& buffers = nest_.buffers();
    for (auto it = buffers.rbegin(); it != buffers.rend(); ++it) body = MakeAlloc(*it, body);
    KernelFunc kernel;
    kernel.name = "k_" + Identifier(dag_.stage(Output()).name);
    kernel.cluster = kernel.blocks = nest_.tiles.cluster;
    if (nest_.gpu) {
      kernel.threads = context_.schedule.Threads(nest_.tiles);
      body = MakeFor(ForKind::kThreadX, nest_.thread, kernel.threads, body);
      if (nest_.tiles.cluster > 1) body = MakeFor(ForKind::kCluster, nest_.rank, nest_.tiles.cluster, body);
    }
    kernel.body = MakeFor(nest_.gpu ? ForKind::kBlockX : ForKind::kParallel, MakeVar("all"), 1, body);
    std::set<int> params = nest_.read();
    params.insert(Output());
    for (int id : params) {
      const Stage& stage = dag_.stage(id);
      const bool output = id == Output();
      const int64_t elements = output && !context_.place.whole() ? context_.place.elements : stage.elements();
      kernel.params.push_back({id, Identifier(stage.name), stage.dtype, Scope::kGlobal, elements, output, 0});
    }
    kernel.shared_bytes = SharedBytesOf(kernel.body);
    return kernel;
  }

  const RecurrentKernelContext& context_;
  RecurrentNest nest_;
  RecurrentSums sums_;
  const ComputeDag& dag_ = nest_.dag;
  const Recurrence& r_ = nest_.r;
};

}  // namespace

absl::StatusOr<KernelFunc> BuildRecurrentKernel(const RecurrentKernelContext& context, int* next_buffer) {
  RETURN_IF_ERROR(context.schedule.Check(context.tiles, context.target, context.facts));
  return RecurrentKernelBuilder(context, next_buffer).Build();
}

}  // namespace diapason
