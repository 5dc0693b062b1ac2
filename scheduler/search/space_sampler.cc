#include "scheduler/search/space_sampler.h"

#include <algorithm>
#include <string>

#include "absl/types/span.h"
#include "scheduler/candidate.h"
#include "scheduler/parallel.h"
#include "scheduler/variation.h"

namespace diapason {
namespace {

// A space is small if it has at most this many candidates.
constexpr int kEnumerationLimit = 4096;
// Samples that each space gets at least.
constexpr int kLeastSamples = 8;

}  // namespace

SpaceSampler::SpaceSampler(const TaskSpace* spaces, int most_kept)
    : spaces_(spaces), most_kept_(most_kept), lists_(spaces->size()) {}

void SpaceSampler::AddKept(Population* population) const {
  for (int i = 0; i < spaces_->size(); ++i) {
    if (!lists_[i].listed) continue;
    const size_t parameters = static_cast<size_t>(spaces_->space(i).size());
    const size_t count = parameters == 0 ? 1 : lists_[i].all.size() / parameters;
    for (size_t j = 0; j < count; ++j)
      population->Append(i, absl::MakeConstSpan(lists_[i].all).subspan(j * parameters, parameters));
  }
  for (const Sample& sample : kept_) population->Append(sample.space, sample.configuration);
}

SearchStats SpaceSampler::AddSamples(const SearchRound& round, const std::vector<double>& shares,
                                     Population* population) {
  const int wanted = round.options.population / (kept_.empty() ? 1 : 4);
  std::vector<int> sampled(lists_.size()), space_of;
  for (size_t i = 0; i < lists_.size(); ++i) {
    if (lists_[i].listed) continue;
    sampled[i] = std::max(kLeastSamples, static_cast<int>(shares[i] * wanted));
    space_of.insert(space_of.end(), sampled[i], static_cast<int>(i));
  }
  const int first = population->size(), count = static_cast<int>(space_of.size());
  population->Extend(count);
  ParallelFor(round.options.threads, (count + kSearchChunk - 1) / kSearchChunk, [&](int chunk) {
    std::vector<int32_t> values, configuration;
    for (int i = chunk * kSearchChunk; i < std::min(count, (chunk + 1) * kSearchChunk); ++i) {
      Random random = round.Stream(0, i);
      const Space& space = spaces_->space(space_of[i]);
      configuration.resize(space.size());
      SampleConfiguration(space, &random, absl::MakeSpan(configuration), &values);
      population->Set(first + i, space_of[i], configuration);
    }
  });
  const SearchStats stats = round.Evaluate(first, count, population);

  std::vector<int> fresh(lists_.size());
  for (int i = first; i < population->size(); ++i) {
    ++fresh[population->space(i)];
    kept_.push_back({population->space(i), {population->configuration(i).begin(), population->configuration(i).end()}});
  }
  while (static_cast<int>(kept_.size()) > most_kept_) kept_.pop_front();
  // A space of which fewer than half of the samples were new is small, or nearly so.
  for (size_t i = 0; i < lists_.size(); ++i)
    if (fresh[i] * 2 <= sampled[i]) ListIfSmall(static_cast<int>(i));
  return stats;
}

void SpaceSampler::ListSmall() {
  for (int i = 0; i < spaces_->size(); ++i) ListIfSmall(i);
}

void SpaceSampler::ListIfSmall(int space) {
  SpaceList& list = lists_[space];
  if (list.listed || list.large) return;
  list.listed = Enumerate(spaces_->space(space), kEnumerationLimit, &list.all);
  list.large = !list.listed;
}

void SpaceSampler::Save(SearchMemory* memory) const {
  memory->samples.clear();
  memory->listed.clear();
  memory->large.clear();
  for (const Sample& sample : kept_)
    memory->samples.emplace_back(spaces_->space(sample.space).name(), sample.configuration);
  for (int i = 0; i < spaces_->size(); ++i) {
    if (lists_[i].listed) memory->listed.push_back(spaces_->space(i).name());
    if (lists_[i].large) memory->large.push_back(spaces_->space(i).name());
  }
}

void SpaceSampler::Restore(const SearchMemory& memory) {
  kept_.clear();
  for (const auto& [sketch, configuration] : memory.samples) {
    const int space = spaces_->Find(sketch);
    if (IsCandidate(*spaces_, space, configuration)) kept_.push_back({space, configuration});
  }
  for (const std::string& sketch : memory.large)
    if (const int space = spaces_->Find(sketch); space >= 0) lists_[space].large = true;
  for (const std::string& sketch : memory.listed)
    if (const int space = spaces_->Find(sketch); space >= 0) ListIfSmall(space);
}

}  // namespace diapason
