// Products on tensor cores by warpgroups (wgmma m64nNk8): of four warps each makes 16 rows, whose factors it holds in registers as
// for mma.sync m16n8k8; all columns of the group come straight from shared memory, where a copy holds them as core matrices and a second
// one their small parts. The products run on their own: a pipeline prepares the next step beside them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/lower/fragments.h"

namespace diapason {
namespace {

constexpr int64_t kMostColumns = 256;   // of one product

// Tiles of 8 columns, one after the other in shared memory, that one product makes for the same rows.
struct Run {
  std::vector<int64_t> tiles;
  int64_t sum = 0;  // where its sums begin
};

}  // namespace

absl::Status NestBuilder::CheckGroupProducts(int id, const Expr& columns) {
  const StageState& stage = state_.stage(id);
  const StageState& lanes = state_.stage(stage.lane_stage);
  const auto refuse = [&](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": warpgroups take ", what));
  };
  if (small_parts_[columns->buffer] < 0) return refuse("columns from a copy in core matrices");
  const std::vector<int>& parts = lanes.loops[lanes.loops[stage.lane_n].fused_into].fused;
  if (parts.size() < 3 || bounds_.stages[stage.lane_stage].extent[parts[parts.size() - 3]] % 4 != 0)
    return refuse("four warps in a row");
  if (MovesWithLane(id, columns, parts[parts.size() - 3]) || MovesWithLane(id, columns, stage.lane_m))
    return refuse("the same columns in four warps");
  return absl::OkStatus();
}

// The tiles of the stage's loops from position `first` on, written out. With defer_group_ the sums of the last products are left to
// group_end_.
Stmt NestBuilder::EmitGroupProducts(int id, size_t first, int buffer, const Expr& place) {
  const StageState& stage = state_.stage(id);
  const StageBounds& b = bounds_.stages[id];
  const size_t end = stage.order.size() - 3;
  const Expr& body = stage.op.body;
  const int64_t extent = b.extent[stage.tensor_k];
  const auto refuse = [&](const absl::Status& why) {
    if (status_.ok()) status_ = why;
    return nullptr;
  };
  if (const absl::Status possible = CheckProducts(id, first); !possible.ok()) return refuse(possible);
  const bool swapped = !MovesWithLane(id, body->args[0], stage.lane_m);
  Fragments rows, columns;
  rows.load = body->args[swapped ? 1 : 0];
  rows.rows = true;
  rows.buffer = (*next_buffer_)++;
  columns.load = body->args[swapped ? 0 : 1];
  if (const absl::Status possible = CheckGroupProducts(id, columns.load); !possible.ok()) return refuse(possible);
  const int copy = columns.load->buffer, small = (*next_buffer_)++, sums = (*next_buffer_)++;
  const StageBounds& of_copy = bounds_.stages[copy];

  int64_t tiles = 1;
  for (size_t p = first; p < end; ++p) tiles *= b.extent[stage.order[p]];
  std::vector<Expr>& mine = context_[id].value;
  const std::vector<Expr> before = mine;
  // Where the first column of a tile begins that has element k of it, in the copy or among its small parts.
  const Expr slot = read_slot_[copy];
  auto column = [&](int64_t k, bool of_small) {
    if (of_small && slot) read_slot_[copy] = FloorMod(group_iteration_, 2);
    const Expr load = OperandLoad(id, columns, IntImm(k), IntImm(0), IntImm(0));
    read_slot_[copy] = slot;
    return Load(of_small ? small_parts_[copy] : copy, stage.op.dtype, {load->args[0]});
  };
  auto select = [&](int64_t number, VarMap* values) {
    for (size_t p = end; p-- > first;) {
      const int64_t loop_extent = b.extent[stage.order[p]];
      mine[stage.order[p]] = IntImm(number % loop_extent);
      if (values) (*values)[context_[id].leaf[p].get()] = IntImm(number % loop_extent);
      number /= loop_extent;
    }
  };

  std::vector<Stmt> all;
  int64_t most = 0, sums_used = 0;
  for (int64_t k0 = 0; k0 < extent; k0 += kLongestRunOfK) {
    const int64_t k_end = std::min(extent, k0 + kLongestRunOfK);
    std::vector<std::vector<int64_t>> fragments;  // by group: the places of its rows' factors, by product along k
    std::vector<std::vector<Run>> groups;
    std::vector<std::vector<Stmt>> loads;
    rows.elements = sums_used = 0;
    rows.known.clear();
    Expr next_column;
    for (int64_t number = 0; number < tiles; ++number) {
      select(number, nullptr);
      std::vector<int64_t> places;
      for (int64_t k = k0; k < k_end; k += kProductDepth) places.push_back(FragmentAt(id, &rows, k));
      const auto found = std::find(fragments.begin(), fragments.end(), places);
      const size_t group = found - fragments.begin();
      if (found == fragments.end()) {
        fragments.push_back(places);
        groups.emplace_back();
        loads.push_back(std::move(rows.loads));
        rows.loads.clear();
      }
      const Expr start = column(k0, false);
      if (analyzer_.KnownDivisor(start->args[0]) % 4 != 0 ||
          !IsInt(analyzer_.Simplify(Sub(column(k0 + 4, false)->args[0], start->args[0])), of_copy.core_stride())) {
        mine = before;
        return refuse(absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": warpgroups take k in fours of a copy")));
      }
      std::vector<Run>& runs = groups[group];
      const bool follows = !runs.empty() && static_cast<int64_t>(runs.back().tiles.size() + 1) * 8 <= kMostColumns &&
                           [&] {
                             select(runs.back().tiles.front(), nullptr);
                             const Expr run_start = column(k0, false);
                             return IsInt(analyzer_.Simplify(Sub(start->args[0], run_start->args[0])),
                                          32 * static_cast<int64_t>(runs.back().tiles.size()));
                           }();
      if (!follows) runs.emplace_back();
      runs.back().tiles.push_back(number);
    }
    most = std::max(most, rows.elements);

    std::vector<Stmt> begin, finish;
    for (size_t g = 0; g < groups.size(); ++g) {
      begin.insert(begin.end(), loads[g].begin(), loads[g].end());
      for (int64_t at : fragments[g])
        begin.push_back(MakeSmallParts(small, IntImm(at), kTileSums, Load(rows.buffer, stage.op.dtype, {IntImm(at)})));
      begin.push_back(MakeGroupSync(GroupSync::kBegin));
      for (Run& run : groups[g]) {
        run.sum = sums_used;
        sums_used += kTileSums * static_cast<int64_t>(run.tiles.size());
      }
      for (int64_t k = k0; k < k_end; k += kProductDepth) {
        const int64_t at = fragments[g][(k - k0) / kProductDepth];
        for (const Run& run : groups[g]) {
          select(run.tiles.front(), nullptr);
          std::vector<Expr> operands;
          for (int from : {rows.buffer, small})
            for (int64_t i = 0; i < kTileSums; ++i) operands.push_back(Load(from, stage.op.dtype, {IntImm(at + i)}));
          operands.push_back(column(k, false));
          operands.push_back(column(k, true));
          begin.push_back(MakeGroupMma(sums, IntImm(run.sum), 8 * static_cast<int64_t>(run.tiles.size()), std::move(operands),
                                       of_copy.core_stride(), k == k0));
        }
      }
      begin.push_back(MakeGroupSync(GroupSync::kCommit));
      finish.push_back(MakeGroupSync(GroupSync::kWait, static_cast<int64_t>(groups.size() - 1 - g)));
      for (const Run& run : groups[g]) {
        for (size_t t = 0; t < run.tiles.size(); ++t) {
          VarMap values;
          select(run.tiles[t], &values);
          for (int64_t i = 0; i < kTileSums; ++i) {
            values[context_[id].leaf[end + 1].get()] = IntImm(i / 2);
            values[context_[id].leaf[end + 2].get()] = IntImm(i % 2);
            const Expr at = analyzer_.Simplify(Substitute(place, values));
            const Expr sum = Load(sums, stage.op.dtype, {IntImm(run.sum + kTileSums * static_cast<int64_t>(t) + i)});
            finish.push_back(MakeStore(buffer, at, Add(Load(buffer, stage.op.dtype, {at}), sum)));
          }
        }
      }
    }
    all.insert(all.end(), begin.begin(), begin.end());
    if (defer_group_ && k_end == extent) {
      group_end_ = MakeSeq(finish);
      defer_group_ = false;
    } else {
      all.insert(all.end(), finish.begin(), finish.end());
    }
  }
  mine = before;
  auto declare = [&](int buffer_id, const char* name, int64_t elements) {
    temporaries_.push_back({buffer_id, absl::StrCat(name, buffer_id), stage.op.dtype, Scope::kLocal, elements, true, 0});
  };
  declare(sums, "sums", sums_used);
  declare(rows.buffer, "rows", most);
  declare(small, "small", most);
  return MakeSeq(all);
}

// The small parts of what this thread has copied at an iteration: its own stores are all it has to wait for.
Stmt NestBuilder::EmitSmallParts(int copy, const Expr& iteration, int64_t slots) {
  PrepareValues(copy);
  const StageState& stage = state_.stage(copy);
  const StageBounds& b = bounds_.stages[copy];
  size_t end = stage.order.size();
  int64_t elements = 1;
  VarMap first;
  if (end > 0 && KindOf(copy, end - 1) == ForKind::kVectorize) {
    --end;
    elements = b.extent[stage.order[end]];
    first[context_[copy].leaf[end].get()] = IntImm(0);
  }
  return EmitLoops(copy, 0, end, [&]() -> Stmt {
    const Expr at = Substitute(FlatIndex(copy, context_[copy].compact), first);
    auto in_slot = [&](int64_t count) {
      if (slots == 1) return analyzer_.Simplify(at);
      return analyzer_.Simplify(Add(Mul(FloorMod(iteration, count), IntImm(b.slot_stride())), at));
    };
    Stmt store = MakeSmallParts(small_parts_[copy], in_slot(2), elements, Load(copy, stage.op.dtype, {in_slot(slots)}));
    std::vector<Expr> inside;
    for (const Expr& guard : GuardsOf(copy).spatial) inside.push_back(analyzer_.Simplify(Substitute(guard, first)));
    for (size_t i = inside.size(); i-- > 0;) store = MakeIf(inside[i], store);
    return store;
  });
}

// Those of all copies in core matrices at a loop, visible to products behind the next barrier; null if there are none.
Stmt NestBuilder::AttachedSmallParts(int id, size_t position, const Expr& iteration, int64_t slots) {
  std::vector<Stmt> all;
  for (int child : state_.topological()) {
    const StageState& stage = state_.stage(child);
    if (stage.attach != StageState::Attach::kAt || stage.attach_stage != id || small_parts_[child] < 0) continue;
    if (bounds_.stages[child].attach_position == static_cast<int>(position)) all.push_back(EmitSmallParts(child, iteration, slots));
  }
  if (!all.empty()) all.push_back(MakeGroupSync(GroupSync::kPublish));
  return MakeSeq(all);
}

// A pipeline as EmitPipeline's, whose steps start the products of iteration t and beside them cut what iteration t + 1 needs in two and
// start the copies of iteration t + slots - 1. A thread cuts what it has copied itself, so one barrier a step is enough. `at` binds
// the loops of an iteration.
Stmt NestBuilder::EmitGroupPipeline(int id, size_t last, size_t end, int64_t slots, int64_t iterations, const Expr& step,
                                    const Expr& fill, const Expr& use, const std::function<Stmt(const Expr&, Stmt)>& at,
                                    const std::function<Stmt()>& inner) {
  const Expr ahead = MakeVar("ahead");
  analyzer_.Bind(ahead, slots - 1);
  analyzer_.Bind(step, iterations);
  auto copies = [&](const Expr& iteration) {
    Stmt body = at(Min(iteration, IntImm(iterations - 1)), AttachedAt(id, last, true));
    return MakeLet(fill, analyzer_.Simplify(FloorMod(iteration, slots)), body);
  };
  auto small = [&](const Expr& iteration) { return AttachedSmallParts(id, last, iteration, slots); };
  auto before = [&](const Expr& iteration, Stmt body) { return MakeIf(analyzer_.Simplify(Lt(iteration, IntImm(iterations))), body); };

  const Stmt first = MakeFor(ForKind::kSerial, ahead, slots - 1, MakeSeq({copies(ahead), MakeCommit()}), 1);
  std::vector<Stmt> body{MakeBarrier()};
  ++serial_depth_;
  group_iteration_ = step;
  defer_group_ = true;  // unless a step makes products more than once
  for (size_t p = last + 1; p < end; ++p) defer_group_ &= bounds_.stages[id].extent[state_.stage(id).order[p]] == 1;
  group_end_ = nullptr;
  Stmt products = MakeSeq({AttachedAt(id, last, false), EmitLoops(id, last + 1, end, inner)});
  const Stmt sums = group_end_;
  defer_group_ = false;
  group_end_ = nullptr;
  --serial_depth_;
  auto in_use = [&](Stmt part) { return MakeLet(use, FloorMod(step, slots), at(step, part)); };
  body.push_back(in_use(products));
  const Expr next = Add(step, IntImm(1)), later = Add(step, IntImm(slots - 1));
  const Stmt start_copies = MakeSeq({before(later, copies(later)), MakeCommit()});
  if (slots > 2) {
    body.insert(body.end(), {MakeWait(slots - 3), before(next, small(next)), start_copies});
  } else {
    body.insert(body.end(), {start_copies, MakeWait(0), before(next, small(next))});
  }
  body.push_back(sums ? in_use(sums) : nullptr);
  return MakeSeq({first, MakeWait(slots - 2), small(IntImm(0)), MakeFor(ForKind::kSerial, step, iterations, MakeSeq(body), 1)});
}

}  // namespace diapason
