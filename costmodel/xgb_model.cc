#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "costmodel/booster.h"
#include "costmodel/cost_model.h"
#include "costmodel/labels.h"
#include "costmodel/model_file.h"

namespace diapason {
namespace {

class XgbRanker : public Ranker {
 public:
  XgbRanker(std::unique_ptr<Booster> booster, AnalyticPrior prior, Label label, int num_features)
      : booster_(std::move(booster)), prior_(std::move(prior)), label_(label), num_features_(num_features) {}

  void Predict(uint64_t task, absl::Span<const float> features, absl::Span<const double> analytic_seconds,
               absl::Span<double> scores) const override {
    thread_local std::vector<float> outputs;
    outputs.resize(scores.size());
    booster_->Predict(features, num_features_, absl::MakeSpan(outputs));
    for (size_t i = 0; i < scores.size(); ++i)
      scores[i] = ScoreOf(outputs[i], prior_.Margin(task, analytic_seconds[i]), label_);
  }

  const Booster& booster() const { return *booster_; }
  const AnalyticPrior& prior() const { return prior_; }

 private:
  const std::unique_ptr<Booster> booster_;
  const AnalyticPrior prior_;
  const Label label_;
  const int num_features_;
};

using Key = std::pair<uint64_t, uint64_t>;  // task, candidate

struct Stored {
  Sample sample;
  int64_t arrived = 0;
};

// Whether a sample judges the number of trees: one in six, by its hash, so that it stays on its side.
bool HeldOut(const Sample& sample) { return (sample.candidate * 0x9e3779b97f4a7c15u >> 32) % 6 == 0; }

}  // namespace

class XgbCostModel::Impl {
 public:
  explicit Impl(XgbOptions options) : options_(std::move(options)) {
    DIAPASON_CHECK(options_.num_features > 0);
    thread_ = std::thread([this] { Loop(); });
  }
  ~Impl() {
    {
      MutexLock lock(mutex_);
      stop_ = true;
    }
    wake_.NotifyAll();
    thread_.join();
  }

  std::shared_ptr<const Ranker> Current() const {
    MutexLock lock(mutex_);
    return current_;
  }

  void AddSamples(std::vector<Sample> samples, int64_t mark) {
    MutexLock lock(mutex_);
    for (Sample& sample : samples) Add(std::move(sample));
    if (mark != 0) mark_ = mark;
  }

  void Train() {
    MutexLock lock(mutex_);
    if (!EnoughNew()) return;
    wanted_ = true;
    wake_.NotifyAll();
  }

  void Wait() {
    MutexLock lock(mutex_);
    idle_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !wanted_ && !training_; });
  }

  TrainingStats stats() const {
    MutexLock lock(mutex_);
    return stats_;
  }

  absl::Status Save(const std::string& path) const {
    ModelFile file{options_.feature_version, options_.num_features, options_.target_kind, options_.label, {}, {}, ""};
    std::shared_ptr<const XgbRanker> ranker;
    {
      MutexLock lock(mutex_);
      for (const auto& [key, stored] : samples_) file.samples.push_back(stored.sample);
      ranker = current_;
    }
    if (ranker != nullptr) {
      file.prior = ranker->prior();
      ASSIGN_OR_RETURN(file.booster, ranker->booster().Serialize());
    }
    return WriteModelFile(path, file);
  }

  absl::Status Load(const std::string& path) {
    ASSIGN_OR_RETURN(ModelFile file,
                     ReadModelFile(path, options_.feature_version, options_.num_features, options_.target_kind));
    std::shared_ptr<const XgbRanker> ranker;
    if (!file.booster.empty()) {
      ASSIGN_OR_RETURN(std::unique_ptr<Booster> booster, Booster::Parse(file.booster));
      ranker = std::make_shared<XgbRanker>(std::move(booster), file.prior, file.label, options_.num_features);
    }
    MutexLock lock(mutex_);
    const int64_t before = successes_;
    for (Sample& sample : file.samples)
      if (samples_.find({sample.task, sample.candidate}) == samples_.end()) Add(std::move(sample));
    if (current_ == nullptr && ranker != nullptr && before == 0) {
      current_ = std::move(ranker);
      trained_on_ = static_cast<int64_t>(samples_.size());
      new_samples_ = 0;
    }
    return absl::OkStatus();
  }

 private:
  void Add(Sample sample) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    DIAPASON_CHECK(static_cast<int>(sample.features.size()) == options_.num_features);
    for (float& feature : sample.features)
      if (!std::isfinite(feature)) feature = 0;
    if (!(sample.analytic_seconds > 0) || !std::isfinite(sample.analytic_seconds)) sample.analytic_seconds = 1;
    Stored& stored = samples_[{sample.task, sample.candidate}];
    if (stored.sample.seconds > 0) --successes_;
    if (sample.seconds > 0) ++successes_;
    stored.sample = std::move(sample);
    stored.arrived = ++arrivals_;
    ++new_samples_;
    if (static_cast<int64_t>(samples_.size()) > options_.max_samples) DropOldest();
  }

  // A tenth at once, so that this costs nothing on average.
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<int64_t> arrived;
    for (const auto& [key, stored] : samples_) arrived.push_back(stored.arrived);
    const auto middle = arrived.begin() + static_cast<std::ptrdiff_t>(arrived.size() / 10);
    std::nth_element(arrived.begin(), middle, arrived.end());
    const int64_t limit = *middle;
    for (auto it = samples_.begin(); it != samples_.end();) {
      if (it->second.arrived >= limit) {
        ++it;
        continue;
      }
      if (it->second.sample.seconds > 0) --successes_;
      it = samples_.erase(it);
    }
  }

  bool EnoughNew() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return successes_ >= options_.min_samples && new_samples_ > 0 && new_samples_ * 10 >= trained_on_;
  }

  void Loop() {
    MutexLock lock(mutex_);
    while (true) {
      wake_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || wanted_; });
      if (stop_) return;
      wanted_ = false;
      training_ = true;
      std::vector<Sample> samples;
      for (const auto& [key, stored] : samples_) samples.push_back(stored.sample);
      new_samples_ = 0;
      const int64_t mark = mark_;
      lock.Unlock();
      const auto start = std::chrono::steady_clock::now();
      absl::StatusOr<std::shared_ptr<const XgbRanker>> trained = TrainOn(samples);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      lock.Lock();
      training_ = false;
      stats_.seconds += took.count();
      stats_.error = trained.ok() ? "" : std::string(trained.status().message());
      if (trained.ok()) {
        current_ = *std::move(trained);
        trained_on_ = static_cast<int64_t>(samples.size());
        ++stats_.trainings;
        stats_.samples = trained_on_;
        stats_.mark = mark;
        stats_.trees = trees_;
      }
      if (!wanted_) idle_.NotifyAll();
    }
  }

  absl::StatusOr<std::shared_ptr<const XgbRanker>> TrainOn(const std::vector<Sample>& samples) {
    std::vector<const Sample*> all, learning, judging;
    for (const Sample& sample : samples) {
      all.push_back(&sample);
      (HeldOut(sample) ? judging : learning).push_back(&sample);
    }
    BoosterOptions booster{"reg:squarederror", options_.max_depth, options_.learning_rate, options_.threads,
                           options_.seed};
    if (options_.label == Label::kRank) booster.objective = "rank:pairwise";
    const auto keep_on = [this] { return !stop_; };
    const AnalyticPrior prior = FitPrior(all);
    const auto matrix = [&](const std::vector<const Sample*>& some) {
      return MakeTrainingMatrix(some, prior, options_.label, options_.num_features);
    };
    trees_ = DefaultTrees(samples.size());
    if (judging.size() >= kMinJudging && options_.label != Label::kRank) {
      const auto best = Booster::BestTrees(matrix(learning), matrix(judging), booster, options_.max_trees, keep_on);
      if (best.ok()) trees_ = std::max(kMinTrees, *best);
    }
    ASSIGN_OR_RETURN(auto trained, Booster::Train(matrix(all), booster, trees_, keep_on));
    return std::make_shared<XgbRanker>(std::move(trained), prior, options_.label, options_.num_features);
  }

  int DefaultTrees(size_t samples) const { return std::min(options_.max_trees, 20 + static_cast<int>(samples / 4)); }

  static constexpr size_t kMinJudging = 40;
  static constexpr int kMinTrees = 10;

  const XgbOptions options_;
  std::atomic<bool> stop_{false};
  int trees_ = 0;  // of the training thread, and read under mutex_ behind it

  mutable Mutex mutex_;
  CondVar wake_, idle_;
  // Ordered: training does not depend on the order of arrival.
  std::map<Key, Stored> samples_ ABSL_GUARDED_BY(mutex_);
  int64_t successes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t arrivals_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t new_samples_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t trained_on_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t mark_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const XgbRanker> current_ ABSL_GUARDED_BY(mutex_);
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool training_ ABSL_GUARDED_BY(mutex_) = false;
  TrainingStats stats_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;  // last: started when all else is there
};

XgbCostModel::XgbCostModel(XgbOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
XgbCostModel::~XgbCostModel() = default;
std::shared_ptr<const Ranker> XgbCostModel::Current() const { return impl_->Current(); }
void XgbCostModel::AddSamples(std::vector<Sample> samples, int64_t mark) {
  impl_->AddSamples(std::move(samples), mark);
}
void XgbCostModel::Train() { impl_->Train(); }
void XgbCostModel::Wait() { impl_->Wait(); }
TrainingStats XgbCostModel::stats() const { return impl_->stats(); }
absl::Status XgbCostModel::Save(const std::string& path) const { return impl_->Save(path); }
absl::Status XgbCostModel::Load(const std::string& path) { return impl_->Load(path); }

}  // namespace diapason
