#include "compiler/lower/recurrent_kernel.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/lower/element_index.h"
#include "compiler/lower/kernel_buffers.h"
#include "compiler/lower/recurrent_nest.h"
#include "compiler/lower/recurrent_products.h"
#include "compiler/lower/recurrent_sums.h"

namespace diapason {
namespace {

class RecurrentKernelBuilder {
 public:
  RecurrentKernelBuilder(const RecurrentKernelContext& context, int* next_buffer)
      : context_(context), nest_(context, next_buffer), sums_(&nest_), products_(&nest_) {}

  KernelFunc Build() {
    std::vector<Stmt> all{OnTensorCores() ? products_.KeepWeights() : sums_.KeepWeights()};
    if (nest_.tiles.cluster > 1) all.push_back(nest_.Barrier());  // before it another block may not have begun
    const Stmt steps = StepBody();
    all.push_back(nest_.OverUnits(Start()));
    all.push_back(nest_.Ahead(IntImm(0), true));
    all.push_back(nest_.Barrier());
    all.push_back(MakeFor(ForKind::kSerial, nest_.step, r_.steps, steps, 1));
    return Finish(MakeSeq(std::move(all)));
  }

 private:
  bool OnTensorCores() const { return nest_.tiles.fragments(); }
  int Output() const { return dag_.outputs()[0]; }
  bool IsOfStart(int id) const { return std::find(r_.start.begin(), r_.start.end(), id) != r_.start.end(); }

  // An expression of a stage, for all that the thread has of it.
  Stmt Compute(int buffer, const Stage& stage, const Expr& body, bool ahead) {
    return nest_.ForEachOf(stage, nest_.OverElements(stage, [&](RowAndGroup at) {
      return MakeStore(buffer, nest_.LocalIndex(stage, at), nest_.Value(body, stage, at, ahead));
    }));
  }

  // The first step's stages that have no state, and what the steps begin with.
  Stmt Start() {
    std::vector<Stmt> all;
    for (size_t i = 0; i < r_.start.size(); ++i)
      all.push_back(Compute(nest_.LocalOf(r_.start[i]), dag_.stage(r_.start[i]), r_.start_expressions[i], false));
    for (size_t c = 0; c < r_.carried.size(); ++c) {
      const auto& [source, initial] = r_.carried[c];
      all.push_back(Compute(CarriedBuffer(c), dag_.stage(source), initial, false));
      for (const ExchangedStage& e : nest_.exchanged)
        if (e.stage == source && e.carried) all.push_back(Send(e, CarriedBuffer(c), IntImm(0)));
    }
    for (const Recurrence::Store& store : r_.stores)
      if (IsOfStart(store.stage)) all.push_back(StoreOutput(store, IntImm(0)));
    return MakeSeq(std::move(all));
  }

  int CarriedBuffer(size_t c) const { return nest_.LocalOf(Recurrence::BufferOf(static_cast<int>(c))); }

  Stmt StepBody() {
    std::vector<Stmt> all, phase;  // between two barriers
    std::set<int> sent;
    const auto meet = [&](Stmt meanwhile) {
      all.push_back(nest_.OverUnits(MakeSeq(std::move(phase))));
      all.push_back(nest_.Barrier(std::move(meanwhile)));
      phase.clear();
      sent.clear();
    };
    for (size_t i = 0; i < r_.body.size(); ++i) {
      const int id = r_.body[i];
      if (dag_.stage(id).reduces()) {
        if (ReadsAny(i, sent)) meet(nullptr);
        phase.push_back(OnTensorCores() ? products_.Emit(i) : sums_.Emit(i));
      } else {
        phase.push_back(Compute(nest_.LocalOf(id), dag_.stage(id), r_.expressions[i], true));
      }
      for (const ExchangedStage& e : nest_.exchanged) {
        if (e.stage != id) continue;
        phase.push_back(Send(e, nest_.LocalOf(id), e.carried ? FloorMod(Add(nest_.step, IntImm(1)), 2) : IntImm(0)));
        sent.insert(id);
      }
    }
    // In a cluster the next step's inputs are asked for, and results stored, while other blocks arrive.
    std::vector<Stmt> last;
    for (size_t c = 0; c < r_.carried.size(); ++c) last.push_back(Carry(c));
    for (const Recurrence::Store& store : r_.stores) {
      if (IsOfStart(store.stage)) continue;
      const Stmt stores = StoreOutput(store, nest_.step);
      last.push_back(store.last ? MakeIf(Eq(nest_.step, IntImm(r_.steps - 1)), stores) : stores);
    }
    last.push_back(nest_.Ahead(Min(Add(nest_.step, IntImm(1)), IntImm(r_.steps - 1)), false));
    const bool meanwhile = nest_.tiles.cluster > 1;
    if (!meanwhile) phase.insert(phase.end(), last.begin(), last.end());
    meet(meanwhile ? MakeSeq(std::move(last)) : nullptr);
    return MakeSeq(std::move(all));
  }

  bool ReadsAny(size_t i, const std::set<int>& stages) const {
    bool reads = false;
    Visit(r_.expressions[i],
          [&](const ExprNode& e) { reads = reads || (e.kind == ExprKind::kLoad && stages.contains(e.buffer)); });
    return reads;
  }

  // What the next step reads of this one.
  Stmt Carry(size_t c) {
    const int source = r_.carried[c].source;
    const Stage& stage = dag_.stage(source);
    return nest_.ForEachOf(stage, nest_.OverElements(stage, [&](RowAndGroup at) {
      const Expr index = nest_.LocalIndex(stage, at);
      return MakeStore(CarriedBuffer(c), index, Load(nest_.LocalOf(source), stage.dtype, {index}));
    }));
  }

  // What the thread has of a stage, in buffer `from`, goes to all blocks, a few to each lane.
  Stmt Send(const ExchangedStage& e, int from, const Expr& slot) {
    if (OnTensorCores()) return products_.Send(e, from, slot);
    const Stage& stage = dag_.stage(e.stage);
    const int to = nest_.SharedOf(e.stage);
    const bool remote = nest_.tiles.cluster > 1;
    const auto stores = [&](const Expr& rank) {
      return nest_.ForEachOf(stage, nest_.OverElements(stage, [&](RowAndGroup at) {
        const Expr index = Add(Mul(slot, IntImm(stage.elements())), nest_.ElementIndex(stage, at));
        const Expr value = Load(from, stage.dtype, {nest_.LocalIndex(stage, at)});
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
    const Expr has_row = nest_.HasRow(store.row);
    const int64_t row = has_row == nullptr ? store.row : RowOfLane(store.row);
    const Expr element = Load(nest_.LocalOf(store.stage), stage.dtype, {nest_.LocalIndex(stage, {row, store.group})});
    const Expr value = Cast(dag_.stage(Output()).dtype, element);
    const Expr flat = Add(Add(IntImm(store.offset), Mul(now, IntImm(store.step_stride))), nest_.OwnUnit());
    const Stmt stores = nest_.ForEach(MakeStore(Output(), PlaceOf(context_.place, flat), value));
    if (!nest_.gpu) return stores;
    return MakeIf(And(nest_.active, has_row == nullptr ? Eq(nest_.lane, IntImm(0)) : has_row), stores);
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
  RecurrentProducts products_;
  const ComputeDag& dag_ = nest_.dag;
  const Recurrence& r_ = nest_.r;
};

}  // namespace

absl::StatusOr<KernelFunc> BuildRecurrentKernel(const RecurrentKernelContext& context, int* next_buffer) {
  RETURN_IF_ERROR(context.schedule.Check(context.tiles, context.target, context.facts));
  return RecurrentKernelBuilder(context, next_buffer).Build();
}

}  // namespace diapason
