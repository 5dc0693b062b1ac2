#include "compiler/lower/recurrent_products.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/lower/fragments.h"
#include "compiler/schedule/region.h"

namespace diapason {
namespace {

constexpr int64_t kWordsOfWeights = 4, kWordsOfState = 2;  // of a lane, in one product
constexpr int64_t kDepthsAtOnce = 2;                       // products along k whose state one load brings
constexpr int kLoadsAtOnce = 2;                            // of weights in shared memory: steps that are unrolled

}  // namespace

int64_t RecurrentProducts::Eights() const {
  return CeilDiv(nest_.r.RowsOf(nest_.dag.stage(nest_.r.body.front())), kRowsOfProduct);
}

const ExchangedStage& RecurrentProducts::StateOf(const Product& p) const {
  const int id = nest_.r.SourceOf(p.product.state->buffer);
  return *std::find_if(nest_.exchanged.begin(), nest_.exchanged.end(),
                       [&](const ExchangedStage& e) { return e.stage == id; });
}

Expr RecurrentProducts::ExchangeIndex(const Exchange& exchange, const Expr& slot, int64_t part, int64_t eight,
                                      const Expr& unit) const {
  const Expr rows = Add(Mul(slot, IntImm(exchange.parts * Eights())), IntImm(part * Eights() + eight));
  return Mul(Add(Mul(rows, IntImm(exchange.units)), unit), IntImm(kRowsOfProduct));
}

// In shared memory the words of a lane lie together, those of the lanes of a warp side by side.
Expr RecurrentProducts::WeightIndex(const Product& p, int64_t pair, const Expr& k) const {
  const Expr step = Add(k, IntImm(pair * p.steps));
  if (nest_.tiles.weights == WeightsIn::kFragments) return Mul(step, IntImm(kWordsOfWeights));
  const Expr warp = Mul(FloorDiv(nest_.thread, kLanesOfWarp), IntImm(p.pairs * p.steps));
  const Expr lane = FloorMod(nest_.thread, kLanesOfWarp);
  return Mul(Add(Mul(Add(warp, step), IntImm(kLanesOfWarp)), lane), IntImm(kWordsOfWeights));
}

Stmt RecurrentProducts::KeepWeights() {
  std::vector<Stmt> all;
  const bool shared = nest_.tiles.weights == WeightsIn::kSharedFragments;
  for (size_t i = 0; i < nest_.r.body.size(); ++i) {
    const Stage& stage = nest_.dag.stage(nest_.r.body[i]);
    if (!stage.reduces()) continue;
    Product p{*ProductOf(nest_.context.schedule, i)};
    p.steps = stage.terms() / TensorIntrinsicOf(p.product.mode).depth();
    p.pairs = CeilDiv(nest_.r.GroupsOf(stage), kColumnsOfLane);
    const int64_t words = nest_.context.schedule.FragmentWords(stage);
    p.weights = nest_.Declare(stage.name + "_weights", DType::kInt32, shared ? Scope::kShared : Scope::kLocal,
                              shared ? words * nest_.context.schedule.Threads(nest_.tiles) : words);
    all.push_back(Keep(p, stage));
    DeclareExchange(p);
    products_.emplace(i, std::move(p));
  }
  return MakeSeq(std::move(all));
}

// Once for all products of a stage.
void RecurrentProducts::DeclareExchange(const Product& p) {
  const ExchangedStage& e = StateOf(p);
  if (exchanges_.contains(e.stage)) return;
  const Stage& stage = nest_.dag.stage(e.stage);
  Exchange exchange{-1, p.product.parts, stage.axes.back().extent, p.product.weight->dtype};
  exchange.buffer = nest_.Declare(stage.name + "_shared", exchange.dtype, Scope::kShared,
                                  e.slots() * exchange.parts * Eights() * exchange.units * kRowsOfProduct);
  exchanges_.emplace(e.stage, exchange);
}

Stmt RecurrentProducts::Keep(const Product& p, const Stage& stage) {
  const TensorIntrinsic& intrinsic = TensorIntrinsicOf(p.product.mode);
  const Expr k = MakeVar("k");
  std::vector<Stmt> stores;
  for (int64_t pair = 0; pair < p.pairs; ++pair)
    for (int64_t i = 0; i < kWordsOfWeights; ++i) {
      // Without a second group of the pair its columns are those of the first one, whose sums nobody reads.
      const int64_t group = std::min(kColumnsOfLane * pair + i % 2, nest_.r.GroupsOf(stage) - 1), word = i / 2;
      std::vector<Expr> factors;
      for (int64_t f = 0; f < intrinsic.factors_per_register(); ++f) {
        const Expr term =
            Add(Add(Mul(k, IntImm(intrinsic.depth())), Mul(nest_.lane, IntImm(2))), IntImm(word * intrinsic.row() + f));
        factors.push_back(nest_.WithTerm(p.product.weight, stage, {0, group}, term));
      }
      stores.push_back(MakePack(p.weights, Add(WeightIndex(p, pair, k), IntImm(i)), std::move(factors)));
    }
  const bool registers = nest_.tiles.weights == WeightsIn::kFragments;
  return nest_.ForEach(
      MakeFor(registers ? ForKind::kUnroll : ForKind::kSerial, k, p.steps, MakeSeq(std::move(stores))));
}

// Lane l gives the address of a row of matrix l / 8: the 8 rows of the state at one element of k.
Stmt RecurrentProducts::LoadState(const Product& p, int to, const Expr& k, int64_t matrices) const {
  const ExchangedStage& e = StateOf(p);
  const Exchange& exchange = exchanges_.at(e.stage);
  const Expr slot = SlotRead(e, p.product.state->buffer, nest_.step);
  const Expr lane = FloorMod(nest_.thread, matrices * 8);
  const Expr first = Mul(k, IntImm(TensorIntrinsicOf(p.product.mode).depth()));
  std::vector<Stmt> all;
  for (int64_t part = 0; part < exchange.parts; ++part)
    for (int64_t eight = 0; eight < Eights(); ++eight) {
      const Expr at = ExchangeIndex(exchange, slot, part, eight, Add(first, lane));
      all.push_back(MakeLoadMatrix({.tensor = p.product.mode,
                                    .buffer = to,
                                    .index = IntImm((part * Eights() + eight) * kDepthsAtOnce * kWordsOfState),
                                    .matrices = matrices,
                                    .value = Load(exchange.buffer, exchange.dtype, {at}),
                                    .transposed = true}));
    }
  return MakeSeq(std::move(all));
}

int64_t RecurrentProducts::SumOf(const Product& p, int64_t chain, int64_t pair, int64_t eight) const {
  return ((chain * p.pairs + pair) * Eights() + eight) * kTileSums;
}

// Each part and each of the products along k has sums of its own, so that these do not wait for each other.
Stmt RecurrentProducts::Multiply(const Product& p, const Operands& to, const Expr& k, int64_t count) const {
  const DType type = p.product.weight->dtype;
  std::vector<Stmt> all;
  for (int64_t depth = 0; depth < count; ++depth)
    for (int64_t pair = 0; pair < p.pairs; ++pair) {
      int weights = p.weights;
      Expr first = WeightIndex(p, pair, Add(k, IntImm(depth)));
      if (to.words >= 0) {
        const Expr word = MakeVar("word"),
                   from = std::exchange(first, IntImm((depth * p.pairs + pair) * kWordsOfWeights));
        weights = to.words;
        const Expr load = Load(p.weights, DType::kInt32, {Add(from, word)});
        all.push_back(MakeFor(ForKind::kVectorize, word, kWordsOfWeights, MakeStore(weights, Add(first, word), load)));
      }
      for (int64_t part = 0; part < p.product.parts; ++part)
        for (int64_t eight = 0; eight < Eights(); ++eight) {
          const int64_t sum = SumOf(p, part * kDepthsAtOnce + depth, pair, eight);
          const int64_t of_state = ((part * Eights() + eight) * kDepthsAtOnce + depth) * kWordsOfState;
          std::vector<Expr> operands;
          for (int64_t i = 0; i < kTileSums; ++i) operands.push_back(IntImm(sum + i));
          for (int64_t i = 0; i < kWordsOfWeights; ++i)
            operands.push_back(Load(weights, DType::kInt32, {Add(first, IntImm(i))}));
          for (int64_t i = 0; i < kWordsOfState; ++i)
            operands.push_back(Load(to.state, DType::kInt32, {IntImm(of_state + i)}));
          all.push_back(MakeMma(p.product.mode, {type, type}, to.sums, std::move(operands), false));
        }
    }
  return MakeSeq(std::move(all));
}

Stmt RecurrentProducts::Emit(size_t i) {
  const int id = nest_.r.body[i];
  const Stage& stage = nest_.dag.stage(id);
  const Product& p = products_.at(i);
  const int64_t chains = p.product.parts * kDepthsAtOnce, all_sums = SumOf(p, chains, 0, 0);
  const bool shared = nest_.tiles.weights == WeightsIn::kSharedFragments;
  Operands to;
  to.sums = nest_.Declare(stage.name + "_chains", DType::kFloat32, Scope::kLocal, all_sums);
  to.state = nest_.Declare(stage.name + "_state", DType::kInt32, Scope::kLocal,
                           p.product.parts * Eights() * kDepthsAtOnce * kWordsOfState);
  if (shared)
    to.words =
        nest_.Declare(stage.name + "_words", DType::kInt32, Scope::kLocal, kDepthsAtOnce * p.pairs * kWordsOfWeights);
  std::vector<Stmt> all;
  for (int64_t s = 0; s < all_sums; ++s) all.push_back(MakeStore(to.sums, IntImm(s), FloatImm(0)));
  const auto multiply = [&](const Expr& k, int64_t count) {
    return MakeSeq({LoadState(p, to.state, k, count * kWordsOfState), Multiply(p, to, k, count)});
  };
  const Expr round = MakeVar("round");
  if (p.steps >= kDepthsAtOnce)
    all.push_back(MakeFor(shared ? ForKind::kSerial : ForKind::kUnroll, round, p.steps / kDepthsAtOnce,
                          multiply(Mul(round, IntImm(kDepthsAtOnce)), kDepthsAtOnce), shared ? kLoadsAtOnce : 0));
  if (p.steps % kDepthsAtOnce != 0) all.push_back(multiply(IntImm(p.steps - 1), 1));
  all.push_back(nest_.ForEach(nest_.OverElements(stage, [&](RowAndGroup at) {
    const int64_t of_tile = at.group % kColumnsOfLane * kRowsOfLane + at.row % kRowsOfLane;
    Expr sum;
    for (int64_t chain = chains; chain-- > 0;) {
      const int64_t place = SumOf(p, chain, at.group / kColumnsOfLane, at.row / kRowsOfLane) + of_tile;
      const Expr one = Load(to.sums, DType::kFloat32, {IntImm(place)});
      sum = sum == nullptr ? one : Add(sum, one);
    }
    return MakeStore(nest_.LocalOf(id), nest_.LocalIndex(stage, at), sum);
  })));
  return MakeSeq(std::move(all));
}

Stmt RecurrentProducts::Send(const ExchangedStage& e, int from, const Expr& slot) {
  const Stage& stage = nest_.dag.stage(e.stage);
  const Exchange& exchange = exchanges_.at(e.stage);
  const bool remote = nest_.tiles.cluster > 1;
  const Expr rank = MakeVar("to"), row = MakeVar("row_of_lane");
  const char* const rounded = exchange.dtype == DType::kFloat16 ? "tf32" : "bfloat16";
  std::vector<Stmt> stores;
  for (int64_t part = 0; part < exchange.parts; ++part)
    for (int64_t eight = 0; eight < Eights(); ++eight) {
      const Expr whole = Load(from, stage.dtype, {Add(row, IntImm(eight * kRowsOfLane))});
      Expr value = whole;
      if (exchange.parts == 2) value = Call(rounded, {whole});
      if (part == 1) value = Sub(whole, value);
      const Expr at = Add(
          Add(ExchangeIndex(exchange, slot, part, eight, nest_.OwnUnit()), Mul(nest_.lane, IntImm(kRowsOfLane))), row);
      stores.push_back(
          MakeFor(ForKind::kVectorize, row, kRowsOfLane,
                  remote ? MakeRemoteStore(exchange.buffer, at, value, rank) : MakeStore(exchange.buffer, at, value)));
    }
  const Stmt each = nest_.ForEach(MakeSeq(std::move(stores)));
  return MakeIf(nest_.active, MakeFor(ForKind::kUnroll, rank, nest_.tiles.cluster, each));
}

}  // namespace diapason
