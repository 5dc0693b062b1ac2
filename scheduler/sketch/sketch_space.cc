#include "scheduler/sketch/sketch_space.h"

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "base/check.h"
#include "compiler/schedule/rewrite.h"

namespace diapason {
namespace {

// Scratch of one thread: Evaluate and Domain allocate nothing after their first calls.
struct Scratch {
  Bounds bounds;
  std::vector<MetricsModel::Resources> kernels;
  std::vector<int32_t> configuration;
};

Scratch& ScratchOfThread() {
  thread_local Scratch scratch;
  return scratch;
}

int32_t LeastOf(const TunableParameter& parameter) { return parameter.values.front(); }

void AddParameters(const Factor& factor, std::vector<uint8_t>* marked) {
  for (int16_t parameter : factor.parameters)
    if (parameter >= 0) (*marked)[parameter] = 1;
}

// True if what a tile covers beyond the whole loop is held by a producer or unrolled: the outermost piece runs inside
// it.
bool PaddingTakesRoom(const Skeleton& skeleton, int id, const Loop& loop) {
  const StageState& stage = skeleton.state().stage(id);
  const int outermost = loop.pieces[0];
  const Annotation annotation = stage.loops[outermost].annotation;
  if (annotation == Annotation::kUnroll || annotation == Annotation::kThreadX) return true;
  for (const Access& access : skeleton.accesses(id)) {
    const StageState& producer = skeleton.state().stage(access.producer);
    if (producer.attach != StageState::Attach::kAt) continue;
    if (producer.attach_stage != id) return true;
    for (int at : producer.attach_loops)
      if (skeleton.position(id, outermost) < 0 || skeleton.position(id, outermost) > skeleton.position(id, at))
        return true;
  }
  return false;
}

int64_t LeastOf(const Factor& factor, const std::vector<TunableParameter>& parameters) {
  int64_t least = factor.value;
  for (int16_t parameter : factor.parameters)
    if (parameter >= 0) least *= LeastOf(parameters[parameter]);
  return least;
}

// Parameters whose larger values may need less than smaller ones: tiles of whole loops whose padding takes room (2 of 3
// covers 4, 3 of 3 covers 3), steps of a pipeline of two at least (one step needs one buffer), and places of
// computation.
std::vector<uint8_t> UnevenParameters(const Skeleton& skeleton, const std::vector<TunableParameter>& parameters) {
  std::vector<uint8_t> uneven(parameters.size(), 0);
  for (int id : skeleton.backwards()) {
    const StageState& stage = skeleton.state().stage(id);
    if (stage.attach == StageState::Attach::kAt) AddParameters(stage.attach_choice, &uneven);
    for (const Loop& loop : stage.loops) {
      const bool whole = stage.attach == StageState::Attach::kRoot || loop.reduce;
      if (loop.pieces.empty() || !whole) continue;
      if (!(loop.reduce && LeastOf(stage.pipeline, parameters) > 1) && !PaddingTakesRoom(skeleton, id, loop)) continue;
      for (int piece : loop.pieces) AddParameters(stage.loops[piece].factor, &uneven);
    }
  }
  return uneven;
}

// True if limits may depend on how the loops of a stage are split: its loops are counted or it has stages inside.
bool LoopsMatter(const Skeleton& skeleton, int id) {
  const StageState& stage = skeleton.state().stage(id);
  if (stage.attach != StageState::Attach::kAt || stage.op.reduces()) return true;
  for (const Access& access : skeleton.accesses(id))
    if (skeleton.state().stage(access.producer).attach == StageState::Attach::kAt) return true;
  return std::any_of(stage.order.begin(), stage.order.end(),
                     [&](int loop) { return stage.loops[loop].annotation == Annotation::kUnroll; });
}

// The parameters that the limits of a kernel depend on.
std::vector<uint8_t> LimitingParameters(const Skeleton& skeleton, int root, size_t parameters) {
  std::vector<uint8_t> limiting(parameters, 0);
  for (int id : skeleton.backwards()) {
    if (skeleton.root_of(id) != root) continue;
    const StageState& stage = skeleton.state().stage(id);
    for (const Factor* factor :
         {&stage.attach_choice, &stage.pad_rows, &stage.odd_rows, &stage.pipeline, &stage.bulk_tiles, &stage.producer})
      AddParameters(*factor, &limiting);
    if (!LoopsMatter(skeleton, id)) continue;
    for (const Loop& loop : stage.loops) AddParameters(loop.factor, &limiting);
  }
  return limiting;
}

// The greatest of ascending values that is not above `wanted`; the first if all are.
int32_t AtMost(const std::vector<int32_t>& values, int32_t wanted) {
  const auto place = std::upper_bound(values.begin(), values.end(), wanted);
  return place == values.begin() ? values.front() : *(place - 1);
}

}  // namespace

SketchSpace::SketchSpace(std::string name, DagRewrite rewrite, const Draft& draft)
    : name_(std::move(name)),
      rewrite_(std::move(rewrite)),
      loses_digits_(draft.traits().rounds_factors || LosesDigits(rewrite_)),
      preferred_fallback_(draft.traits().preferred_fallback),
      is_gpu_(draft.gpu()),
      steps_(draft.steps()),
      parameters_(draft.parameters().all()),
      tilings_(draft.parameters().tilings()),
      skeleton_(std::make_unique<Skeleton>(draft.state())),
      slots_(*skeleton_, parameters_),
      model_(std::make_unique<MetricsModel>(skeleton_.get(), draft.context().target, draft.context().facts)) {
  const std::vector<int>& roots = model_->roots();
  DIAPASON_CHECK(roots.size() <= 64);
  kernels_of_.assign(parameters_.size(), 0);
  for (size_t k = 0; k < roots.size(); ++k) {
    const Kernels kernel = Kernels{1} << k;
    const std::vector<uint8_t> limiting = LimitingParameters(*skeleton_, roots[k], parameters_.size());
    for (size_t h = 0; h < parameters_.size(); ++h)
      if (limiting[h]) kernels_of_[h] |= kernel;
    all_kernels_ |= kernel;
  }
  uneven_ = UnevenParameters(*skeleton_, parameters_);
  tilings_of_.resize(parameters_.size());
  for (size_t t = 0; t < tilings_.size(); ++t)
    for (int16_t parameter : tilings_[t].tile.parameters)
      if (parameter >= 0) tilings_of_[parameter].push_back(static_cast<int>(t));
}

bool SketchSpace::PaddingOk(const Tiling& tiling, absl::Span<const int32_t> configuration) const {
  const int64_t tile = tiling.tile.Eval(configuration);
  const int64_t covered = (tiling.extent + tile - 1) / tile * tile;
  // The least tiles of a loop (a vector over three channels) may be all there is.
  const int64_t least = LeastOf(tiling.tile, parameters_);
  const int64_t unavoidable = (tiling.extent + least - 1) / least * least;
  return static_cast<double>(covered) <= kMaxPadding * static_cast<double>(unavoidable);
}

bool SketchSpace::PaddingsOk(int parameter, absl::Span<const int32_t> configuration) const {
  return std::all_of(tilings_of_[parameter].begin(), tilings_of_[parameter].end(),
                     [&](int t) { return PaddingOk(tilings_[t], configuration); });
}

bool SketchSpace::Satisfiable(absl::Span<const int32_t> configuration, Kernels kernels) const {
  Bounds& bounds = ScratchOfThread().bounds;
  for (size_t k = 0; k < model_->roots().size(); ++k) {
    if ((kernels >> k & 1) == 0) continue;
    skeleton_->InferKernel(model_->roots()[k], configuration, &bounds);
    if (!model_->WithinLimits(model_->ResourcesOf(bounds, static_cast<int>(k)))) return false;
  }
  return true;
}

void SketchSpace::Domain(int parameter, absl::Span<const int32_t> configuration, std::vector<int32_t>* values) const {
  Scratch& scratch = ScratchOfThread();
  std::vector<int32_t>& trial = scratch.configuration;
  trial.assign(configuration.begin(), configuration.end());
  for (int h = parameter; h < size(); ++h) trial[h] = LeastOf(parameters_[h]);
  DomainWithinLimits(parameter, absl::MakeSpan(trial), values);
  if (values->size() < 2 || !slots_.SetBy(parameter)) return;
  trial[parameter] = values->front();
  for (int root : model_->roots()) skeleton_->InferKernel(root, trial, &scratch.bounds);
  slots_.DropEqual(parameter, scratch.bounds, absl::MakeSpan(trial), values);
}

// `trial`: the configuration, with the least values from the parameter on.
void SketchSpace::DomainWithinLimits(int parameter, absl::Span<int32_t> trial, std::vector<int32_t>* values) const {
  values->clear();
  for (int32_t value : parameters_[parameter].values) {
    trial[parameter] = value;
    if (PaddingsOk(parameter, trial)) values->push_back(value);
  }
  if (values->empty()) values->push_back(LeastOf(parameters_[parameter]));
  const Kernels kernels = kernels_of_[parameter];
  if (kernels == 0) return;
  if (uneven_[parameter]) {
    const int32_t least = values->front();
    std::erase_if(*values, [&](int32_t value) {
      trial[parameter] = value;
      return value != least && !Satisfiable(trial, kernels);
    });
    return;
  }
  // Limits are monotone in all other factors: the first value that breaks one ends the domain.
  size_t low = 1, high = values->size();
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    trial[parameter] = (*values)[middle - 1];
    if (Satisfiable(trial, kernels))
      low = middle;
    else
      high = middle - 1;
  }
  values->resize(low);
}

// Sets parameters of `trial` from `first` on, which are at their least values, to those of `configuration` as far as
// these are in their domains; returns the first that is not. Limits are monotone but for uneven parameters: runs of
// even ones are halved.
int SketchSpace::KeepMost(int first, absl::Span<const int32_t> configuration, absl::Span<int32_t> trial) const {
  int kept = first;
  while (kept < size()) {
    // A run of parameters that may be kept together.
    int end = kept;
    Kernels kernels = 0;
    for (; end < size(); ++end) {
      if (uneven_[end] && end > kept) break;
      trial[end] = configuration[end];
      const bool known =
          std::binary_search(parameters_[end].values.begin(), parameters_[end].values.end(), configuration[end]);
      if (!known || !PaddingsOk(end, trial)) {
        trial[end] = LeastOf(parameters_[end]);
        break;
      }
      kernels |= kernels_of_[end];
      if (uneven_[end]) {
        ++end;
        break;
      }
    }
    if (end == kept) return kept;
    int low = kept, high = end;
    for (int middle = end; low < high; middle = (low + high + 1) / 2) {
      for (int h = low; h < end; ++h) trial[h] = h < middle ? configuration[h] : LeastOf(parameters_[h]);
      if (kernels == 0 || Satisfiable(trial, kernels))
        low = middle;
      else
        high = middle - 1;
    }
    for (int h = kept; h < end; ++h) trial[h] = h < low ? configuration[h] : LeastOf(parameters_[h]);
    kept = low;
    if (low < end) return low;
  }
  return kept;
}

void SketchSpace::Clamp(int first, absl::Span<int32_t> configuration) const {
  // Most changes stay within the limits: one check finds that out.
  bool fine = true;
  for (int h = 0; h < size() && fine; ++h)
    fine = std::binary_search(parameters_[h].values.begin(), parameters_[h].values.end(), configuration[h]);
  for (size_t t = 0; t < tilings_.size() && fine; ++t) fine = PaddingOk(tilings_[t], configuration);
  if (fine && Satisfiable(configuration, all_kernels_))
    return slots_.DropUnused(ScratchOfThread().bounds, configuration);
  thread_local std::vector<int32_t> trial, values;
  trial.assign(configuration.begin(), configuration.end());
  first = std::max(first, 0);
  for (int h = first; h < size(); ++h) trial[h] = LeastOf(parameters_[h]);
  for (int h = first; (h = KeepMost(h, configuration, absl::MakeSpan(trial))) < size(); ++h) {
    Domain(h, trial, &values);
    trial[h] = AtMost(values, configuration[h]);
  }
  std::copy(trial.begin(), trial.end(), configuration.begin());
  if (Satisfiable(configuration, all_kernels_)) return slots_.DropUnused(ScratchOfThread().bounds, configuration);
  // A limit that is not monotone in some parameter: the least candidate is always legal.
  for (int h = 0; h < size(); ++h) configuration[h] = LeastOf(parameters_[h]);
}

void SketchSpace::Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const {
  Scratch& scratch = ScratchOfThread();
  for (int root : model_->roots()) skeleton_->InferKernel(root, configuration, &scratch.bounds);
  model_->ResourcesOf(scratch.bounds, &scratch.kernels);
  model_->Evaluate(scratch.bounds, configuration, scratch.kernels, metrics);
  for (const Tiling& tiling : tilings_) metrics->legal = metrics->legal && PaddingOk(tiling, configuration);
}

Schedule SketchSpace::Instantiate(absl::Span<const int32_t> configuration) const {
  Schedule schedule;
  schedule.rewrite = rewrite_;
  schedule.sketch = name_;
  schedule.steps = diapason::Instantiate(steps_, configuration);
  schedule.configuration.assign(configuration.begin(), configuration.end());
  return schedule;
}

std::vector<int32_t> SketchSpace::Default() const { return has_default_ ? default_ : Climbed(); }

double SketchSpace::FindDefault(bool climb) {
  default_ = climb ? Climbed() : Start();
  has_default_ = true;
  Metrics metrics;
  Evaluate(default_, &metrics);
  return metrics.legal ? metrics.seconds : std::numeric_limits<double>::infinity();
}

// The prior, if a rule declared one; else the preferred values, clamped, and from there a short climb on the analytic
// estimate. Deterministic.
std::vector<int32_t> SketchSpace::Climbed() const {
  std::vector<int32_t> best = Start();
  if (has_prior()) return best;
  Metrics metrics;
  Evaluate(best, &metrics);
  double seconds = metrics.legal ? metrics.seconds : 1e30;
  std::mt19937 random(1);
  std::vector<int32_t> trial, values;
  std::set<std::vector<int32_t>> tried = {best};  // before and after they are clamped: none is faster than the best
  for (int round = 0; round < (is_gpu_ ? 300 : 100) && size() > 0; ++round) {
    trial = best;
    const int changes = 1 + static_cast<int>(random() % 2);
    for (int c = 0; c < changes; ++c) {
      const int parameter = static_cast<int>(random() % size());
      trial[parameter] = parameters_[parameter].values[random() % parameters_[parameter].values.size()];
    }
    if (!tried.insert(trial).second) continue;
    const std::vector<int32_t> drawn = trial;
    Clamp(0, absl::MakeSpan(trial));
    if (trial != drawn && !tried.insert(trial).second) continue;
    Evaluate(trial, &metrics);
    if (!metrics.legal || metrics.seconds >= seconds) continue;
    seconds = metrics.seconds;
    best = trial;
  }
  if (!is_gpu_) ClimbFrom(seconds, &best);
  return best;
}

// From a configuration of that estimate to one that no change of a parameter, nor of two parts of a register tile,
// improves.
void SketchSpace::ClimbFrom(double seconds, std::vector<int32_t>* best) const {
  std::vector<int> tiles;
  for (int h = 0; h < size(); ++h)
    if (parameters_[h].name.ends_with(".s3")) tiles.push_back(h);
  Metrics metrics;
  std::vector<int32_t> trial;
  const auto improve = [&] {
    Clamp(0, absl::MakeSpan(trial));
    Evaluate(trial, &metrics);
    if (!metrics.legal || metrics.seconds >= seconds) return false;
    seconds = metrics.seconds;
    *best = trial;
    return true;
  };
  for (size_t i = 0; i < tiles.size(); ++i) {
    for (size_t j = i + 1; j < tiles.size(); ++j) {
      const std::vector<int32_t> from = *best;
      for (const int32_t rows : parameters_[tiles[i]].values) {
        for (const int32_t columns : parameters_[tiles[j]].values) {
          trial = from;
          trial[tiles[i]] = rows;
          trial[tiles[j]] = columns;
          improve();
        }
      }
    }
  }
  bool better = true;
  for (int sweep = 0; sweep < 3 && better; ++sweep) {
    better = false;
    for (int h = 0; h < size(); ++h) {
      for (const int32_t value : parameters_[h].values) {
        trial = *best;
        if (trial[h] == value) continue;
        trial[h] = value;
        better |= improve();
      }
    }
  }
}

// The prior's values, where it says any, and else the preferred ones, moved into their domains.
std::vector<int32_t> SketchSpace::Start() const {
  std::vector<int32_t> configuration(size());
  for (int h = 0; h < size(); ++h)
    configuration[h] = parameters_[h].prior.value_or(AtMost(parameters_[h].values, parameters_[h].preferred));
  Clamp(0, absl::MakeSpan(configuration));
  return configuration;
}

std::vector<std::vector<int32_t>> SketchSpace::Priors() const {
  if (!has_prior()) return {};
  return {Start()};
}

bool SketchSpace::has_prior() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const TunableParameter& parameter) { return parameter.prior.has_value(); });
}

}  // namespace diapason
