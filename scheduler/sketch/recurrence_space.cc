#include "scheduler/sketch/recurrence_space.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "scheduler/sketch/feature_names.h"

namespace diapason {
namespace {

constexpr int32_t kBlocks[] = {1, 2, 4, 8, 16}, kLanes[] = {1, 2, 4, 8, 16, 32}, kUnits[] = {1, 2, 4, 8, 16},
                  kWeights[] = {0, 1, 2, 3, 4, 5};

// Rough costs on a GPU of today; they rank candidates until some are measured.
constexpr double kCycle = 1 / 1.7e9;
constexpr double kBarrierCycles = 60, kClusterBarrierCycles = 500, kCyclesPerBlock = 10, kLatencyCycles = 300;
constexpr double kShuffleCycles = 30, kElementwiseCycles = 40, kSchedulers = 4;
constexpr double kProductCycles = 16, kProductLatency = 33, kChains = 2;  // on tensor cores, of a warp
constexpr double kShared = 3, kGlobal = 12;  // a product whose weight is in memory, to one with it in registers

RecurrentTiles TilesOf(absl::Span<const int32_t> c) { return {c[0], c[1], c[2], static_cast<WeightsIn>(c[3])}; }

}  // namespace

absl::StatusOr<std::unique_ptr<RecurrenceSpace>> RecurrenceSpace::Create(RecurrentSchedule schedule,
                                                                         const SketchContext& context) {
  std::unique_ptr<RecurrenceSpace> space(new RecurrenceSpace(std::move(schedule), context));
  absl::Status why;
  double least = 0;
  for (int32_t blocks : kBlocks)
    for (int32_t lanes : kLanes)
      for (int32_t units : kUnits)
        for (int32_t weights : kWeights) {
          const Configuration configuration = {blocks, lanes, units, weights};
          const RecurrentTiles tiles = TilesOf(configuration);
          const absl::Status legal = space->schedule_.Check(tiles, space->target_, space->facts_);
          if (!legal.ok()) {
            if (why.ok()) why = legal;
            continue;
          }
          space->legal_.push_back(configuration);
          const double seconds = space->Estimate(tiles);
          if (!space->default_.empty() && seconds >= least) continue;
          least = seconds;
          space->default_.assign(configuration.begin(), configuration.end());
        }
  if (space->legal_.empty()) return why;
  return space;
}

void RecurrenceSpace::Domain(int parameter, absl::Span<const int32_t> configuration,
                             std::vector<int32_t>* values) const {
  values->clear();
  for (const Configuration& legal : legal_) {
    if (!std::equal(legal.begin(), legal.begin() + parameter, configuration.begin())) continue;
    const int32_t value = legal[parameter];
    if (std::find(values->begin(), values->end(), value) == values->end()) values->push_back(value);
  }
  std::sort(values->begin(), values->end());
  DIAPASON_CHECK_MSG(!values->empty(), "no value of a recurrence's parameter is legal");
}

void RecurrenceSpace::Clamp(int first, absl::Span<int32_t> configuration) const {
  std::vector<int32_t> values;
  for (int p = first; p < size(); ++p) {
    Domain(p, configuration, &values);
    const int32_t wanted = configuration[p];
    configuration[p] = *std::min_element(values.begin(), values.end(), [&](int32_t a, int32_t b) {
      return std::abs(a - wanted) < std::abs(b - wanted);
    });
  }
}

double RecurrenceSpace::SecondsOfStep(const RecurrentTiles& tiles) const {
  const Recurrence& r = schedule_.recurrence;
  double products = 0, sums = 0, others = 0;  // of a thread
  double waits = 0;                           // for products on tensor cores, in cycles
  for (int id : r.body) {
    const Stage& stage = schedule_.dag.stage(id);
    const double columns = static_cast<double>(schedule_.RowsOfThread(tiles, stage) * r.GroupsOf(stage) * tiles.units);
    if (!stage.reduces()) {
      others += columns;
      continue;
    }
    if (tiles.fragments()) {
      // Sums of a lane, and terms of a product: of the parts of a state in float32.
      const double made = columns / 4 * static_cast<double>(stage.terms()) / 16 * 2;
      products += made;
      waits += static_cast<double>(stage.terms()) / 16 / kChains * kProductLatency;
      continue;
    }
    sums += columns;
    products += columns * std::ceil(static_cast<double>(stage.terms()) / static_cast<double>(tiles.lanes));
  }
  if (target_.kind == TargetKind::kCpu) {
    const double vectors = static_cast<double>(r.units / tiles.units) * std::max(1.0, 4.0 / tiles.units);
    return (products + 10 * others) * vectors / (facts_.flops / std::max(1, facts_.num_cores));
  }
  const double warps = std::max(1.0, static_cast<double>(schedule_.Threads(tiles)) / 32 / kSchedulers);
  const double cost = tiles.weights == WeightsIn::kRegisters            ? 1
                      : tiles.weights == WeightsIn::kShared             ? kShared
                      : tiles.weights == WeightsIn::kRegistersAndShared ? (1 + kShared) / 2
                                                                        : kGlobal;
  const double barrier =
      tiles.cluster > 1 ? kClusterBarrierCycles + kCyclesPerBlock * static_cast<double>(tiles.cluster) : kBarrierCycles;
  if (tiles.fragments()) {
    const double loads = tiles.weights == WeightsIn::kSharedFragments ? 2 : 1;
    return kCycle * (barrier + kLatencyCycles + std::max(waits, products * loads * kProductCycles * warps) +
                     kElementwiseCycles * others);
  }
  const double shuffles = sums * std::log2(static_cast<double>(tiles.lanes));
  return kCycle * (barrier + kLatencyCycles + products * cost * warps +
                   shuffles * std::max(warps * 2, kShuffleCycles / std::max(1.0, sums)) + kElementwiseCycles * others);
}

double RecurrenceSpace::Estimate(const RecurrentTiles& tiles) const {
  return facts_.launch_seconds + static_cast<double>(schedule_.recurrence.steps) * SecondsOfStep(tiles);
}

void RecurrenceSpace::Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const {
  std::memset(metrics->features, 0, sizeof(metrics->features));
  metrics->legal = schedule_.Check(TilesOf(configuration), target_, facts_).ok();
  metrics->seconds = Estimate(TilesOf(configuration));
  metrics->features[kTotalFeaturesAt] = 1;
  metrics->features[kTotalFeaturesAt + 1] = static_cast<float>(std::log2(1 + metrics->seconds * 1e9));
  for (size_t i = 0; i < kParameters; ++i)
    metrics->features[kParameterFeaturesAt + i] = static_cast<float>(configuration[i]);
}

Schedule RecurrenceSpace::Instantiate(absl::Span<const int32_t> configuration) const {
  Step step{StepKind::kRecurrence, schedule_.dag.outputs()[0], {}, {}, -1, {}};
  for (int32_t value : configuration) step.factors.push_back(Factor::Of(value));
  return {rewrite_, name_, {step}, std::vector<int32_t>(configuration.begin(), configuration.end())};
}

}  // namespace diapason
