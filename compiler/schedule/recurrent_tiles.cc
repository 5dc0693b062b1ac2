#include "compiler/schedule/recurrent_tiles.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/recurrent_products.h"
#include "compiler/schedule/region.h"
#include "compiler/tensor/device_facts.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

constexpr int64_t kBanks = 32;
constexpr int64_t kOtherRegisters = 40;  // of addresses and loops
constexpr int64_t kRegistersOfBlock = 65536, kRegistersOfThread = 255;
constexpr int64_t kStackBytes = 512 << 10;  // of a core

int64_t Words(const Stage& stage, int64_t elements) { return CeilDiv(elements * BytesOf(stage.dtype), 4); }

}  // namespace

RecurrentTiles RecurrentTiles::Of(absl::Span<const Factor> factors) {
  return {factors[0].Eval({}), factors[1].Eval({}), factors[2].Eval({}), static_cast<WeightsIn>(factors[3].Eval({}))};
}

std::vector<Expr> WeightLoads(const Recurrence& recurrence, const Stage& stage, const Expr& body) {
  std::vector<Expr> loads;
  const auto add = [&](const Expr& e) {
    if (e->kind != ExprKind::kLoad || e->buffer < 0 || UsesVar(e, recurrence.step.get())) return e;
    if (std::find(recurrence.body.begin(), recurrence.body.end(), e->buffer) != recurrence.body.end()) return e;
    if (std::find(recurrence.start.begin(), recurrence.start.end(), e->buffer) != recurrence.start.end()) return e;
    for (size_t d = 0; d + 1 < stage.axes.size(); ++d)
      if (UsesVar(e, stage.axes[d].var.get())) return e;
    const bool known = std::any_of(loads.begin(), loads.end(), [&](const Expr& load) { return Equal(load, e); });
    if (!known) loads.push_back(e);
    return e;
  };
  Rewrite(body, add);
  return loads;
}

std::vector<ExchangedStage> RecurrentSchedule::Exchanged() const {
  std::vector<ExchangedStage> all;
  for (size_t i = 0; i < recurrence.body.size(); ++i) {
    if (!dag.stage(recurrence.body[i]).reduces()) continue;
    Visit(recurrence.expressions[i], [&](const ExprNode& e) {
      if (e.kind != ExprKind::kLoad) return;
      const int id = recurrence.SourceOf(e.buffer);
      if (std::find(recurrence.body.begin(), recurrence.body.end(), id) == recurrence.body.end()) return;
      auto found = std::find_if(all.begin(), all.end(), [&](const ExchangedStage& s) { return s.stage == id; });
      if (found == all.end()) found = all.insert(all.end(), ExchangedStage{id});
      (Recurrence::CarriedIn(e.buffer) < 0 ? found->own : found->carried) = true;
    });
  }
  return all;
}

int64_t RecurrentSchedule::UnitsOfBlock(const RecurrentTiles& tiles) const {
  return CeilDiv(recurrence.units, tiles.cluster * tiles.units) * tiles.units;
}

int64_t RecurrentSchedule::Threads(const RecurrentTiles& tiles) const {
  return CeilDiv(UnitsOfBlock(tiles) / tiles.units * tiles.lanes, kLanesOfWarp) * kLanesOfWarp;
}

int64_t RecurrentSchedule::TermsInRegisters(const RecurrentTiles& tiles, const Stage& stage) const {
  const int64_t of_lane = CeilDiv(stage.terms(), tiles.lanes);
  if (tiles.weights == WeightsIn::kRegisters) return of_lane;
  return tiles.weights == WeightsIn::kRegistersAndShared ? CeilDiv(of_lane, 2) : 0;
}

int64_t RecurrentSchedule::TermsInShared(const RecurrentTiles& tiles, const Stage& stage) const {
  if (tiles.weights == WeightsIn::kShared) return stage.terms();
  if (tiles.weights != WeightsIn::kRegistersAndShared) return 0;
  return std::max<int64_t>(0, stage.terms() - TermsInRegisters(tiles, stage) * tiles.lanes);
}

int64_t RecurrentSchedule::WeightStride(const RecurrentTiles& tiles, int64_t terms, int64_t groups) const {
  const int64_t columns = groups * tiles.units;  // of a thread, one behind the other
  int64_t stride = CeilDiv(terms, tiles.lanes) * tiles.lanes;
  for (int64_t pad = 0; pad < kBanks; ++pad)
    if ((stride + pad) * columns % kBanks == tiles.lanes % kBanks) return stride + pad;
  return stride;
}

int64_t RecurrentSchedule::FragmentWords(const Stage& stage) const {
  return CeilDiv(recurrence.GroupsOf(stage), kColumnsOfLane) * kColumnsOfLane * stage.terms() / (2 * kLanesOfUnit);
}

int64_t RecurrentSchedule::RowsOfThread(const RecurrentTiles& tiles, const Stage& stage) const {
  const int64_t rows = recurrence.RowsOf(stage);
  return tiles.fragments() ? CeilDiv(rows, kRowsOfProduct) * kRowsOfLane : rows;
}

int64_t RecurrentSchedule::SharedBytes(const RecurrentTiles& tiles, const Target& target) const {
  const auto padded = [](int64_t bytes) { return CeilDiv(bytes, 16) * 16; };
  int64_t bytes = 0;
  for (const ExchangedStage& exchanged : Exchanged()) {
    const Stage& stage = dag.stage(exchanged.stage);
    int64_t elements = stage.elements();
    // Parts of 2 bytes of rows that are padded: of a type of 4 bytes two of them.
    if (tiles.fragments())
      elements = CeilDiv(recurrence.RowsOf(stage), kRowsOfProduct) * kRowsOfProduct * stage.axes.back().extent;
    bytes += padded(elements * exchanged.slots() * BytesOf(stage.dtype));
  }
  for (size_t i = 0; i < recurrence.body.size(); ++i) {
    const Stage& stage = dag.stage(recurrence.body[i]);
    if (!stage.reduces()) continue;
    const int64_t groups = recurrence.GroupsOf(stage), terms = TermsInShared(tiles, stage);
    if (terms > 0)
      for (const Expr& load : WeightLoads(recurrence, stage, recurrence.expressions[i]))
        bytes += padded(UnitsOfThreads(tiles) * groups * WeightStride(tiles, terms, groups) * BytesOf(load->dtype));
    if (tiles.weights == WeightsIn::kSharedFragments) bytes += Threads(tiles) * FragmentWords(stage) * 4;
    if (target.kind != TargetKind::kCuda && tiles.lanes > 1)
      bytes += padded(Threads(tiles) * recurrence.RowsOf(stage) * groups * tiles.units * BytesOf(stage.dtype));
  }
  return bytes;
}

int64_t RecurrentSchedule::Registers(const RecurrentTiles& tiles) const {
  int64_t words = kOtherRegisters;
  for (size_t i = 0; i < recurrence.body.size(); ++i) {
    const Stage& stage = dag.stage(recurrence.body[i]);
    const int64_t columns = recurrence.GroupsOf(stage) * tiles.units;
    if (!stage.reduces()) continue;
    words += Words(stage, RowsOfThread(tiles, stage) * columns);
    if (tiles.weights == WeightsIn::kFragments) words += FragmentWords(stage);
    if (tiles.fragments()) words += Words(stage, 4 * RowsOfThread(tiles, stage) * (columns + 1));
    const int64_t held = TermsInRegisters(tiles, stage);
    if (held == 0) continue;
    for (const Expr& load : WeightLoads(recurrence, stage, recurrence.expressions[i]))
      words += CeilDiv(columns * held * BytesOf(load->dtype), 4);
  }
  for (const Recurrence::Carried& carried : recurrence.carried) {
    const Stage& stage = dag.stage(carried.source);
    words += Words(stage, RowsOfThread(tiles, stage) * recurrence.GroupsOf(stage) * tiles.units);
  }
  return words;
}

absl::Status RecurrentSchedule::Check(const RecurrentTiles& tiles, const Target& target,
                                      const DeviceFacts& facts) const {
  const auto limit = [](absl::string_view what, int64_t needed, int64_t most) {
    return absl::FailedPreconditionError(
        absl::StrCat("a recurrence in one kernel needs ", needed, " ", what, ", at most ", most, " are possible"));
  };
  if (tiles.cluster < 1 || tiles.lanes < 1 || tiles.units < 1 || tiles.weights > WeightsIn::kRegistersAndShared)
    return absl::FailedPreconditionError("a recurrence in one kernel needs blocks, lanes and units");
  if (recurrence.units % tiles.units != 0)
    return absl::FailedPreconditionError(
        absl::StrCat(recurrence.units, " units are not divided among threads of ", tiles.units));
  if (target.kind == TargetKind::kCpu) {
    if (tiles.cluster != 1 || tiles.lanes != 1 || tiles.weights != WeightsIn::kGlobal)
      return absl::FailedPreconditionError("on cpu a recurrence has one block, one lane and weights in memory");
    int64_t bytes = 0;
    for (const auto* stages : {&recurrence.start, &recurrence.body})
      for (int id : *stages) bytes += 2 * dag.stage(id).elements() * 4;
    return bytes > kStackBytes ? limit("bytes of a core's stack", bytes, kStackBytes) : absl::OkStatus();
  }
  const int64_t clusters = target.kind == TargetKind::kCuda ? std::max(1, facts.max_cluster) : 1;
  if (tiles.cluster > clusters) return limit("blocks of a cluster", tiles.cluster, clusters);
  if (tiles.lanes > kLanesOfWarp || kLanesOfWarp % tiles.lanes != 0)
    return limit("lanes of a warp", tiles.lanes, kLanesOfWarp);
  if (const int64_t threads = Threads(tiles); threads > facts.max_threads_per_block)
    return limit("threads", threads, facts.max_threads_per_block);
  if (const int64_t bytes = SharedBytes(tiles, target); bytes > facts.max_shared_bytes)
    return limit("bytes of shared memory", bytes, facts.max_shared_bytes);
  if (tiles.fragments()) {
    if (target.kind != TargetKind::kCuda ||
        CudaArchNumber(facts.arch) < TensorIntrinsicOf(TensorMode::kHalf).first_arch)
      return absl::FailedPreconditionError("a recurrence on tensor cores needs those of sm_80 or later");
    if (tiles.lanes != kLanesOfUnit || tiles.units != 1)
      return absl::FailedPreconditionError(
          absl::StrCat("a recurrence on tensor cores has ", kLanesOfUnit, " lanes for each unit"));
    RETURN_IF_ERROR(CheckRecurrentProducts(*this));
  }
  const int64_t most = std::min(kRegistersOfThread, kRegistersOfBlock / std::max<int64_t>(Threads(tiles), 1));
  const bool held = tiles.weights == WeightsIn::kRegisters || tiles.weights == WeightsIn::kRegistersAndShared ||
                    tiles.weights == WeightsIn::kFragments;
  if (const int64_t registers = Registers(tiles); held && registers > most)
    return limit("registers of a thread", registers, most);
  return absl::OkStatus();
}

}  // namespace diapason
