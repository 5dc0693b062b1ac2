#include "scheduler/sketch/tunable_parameters.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace diapason {

std::vector<int32_t> TileValues(int64_t extent, int32_t limit) {
  std::set<int32_t> values{1};
  for (int64_t v = 1; v <= extent && v <= limit; ++v)
    if (extent % v == 0) values.insert(static_cast<int32_t>(v));
  for (int64_t base : {1, 3})
    for (int64_t v = base; v <= limit && v < 2 * extent; v *= 2) values.insert(static_cast<int32_t>(v));
  return {values.begin(), values.end()};
}

Factor TunableParameters::Add(const std::string& name, Hole::Kind kind, std::vector<int32_t> values,
                              int32_t preferred) {
  if (values.empty() && status_.ok())
    status_ = absl::InvalidArgumentError(absl::StrCat("parameter ", name, " has no value"));
  if (values.empty()) return Factor::Of(1);
  if (values.size() == 1) return Factor::Of(values[0]);
  holes_.push_back({name, kind, std::move(values), preferred, std::nullopt});
  return Factor::Hole(static_cast<int>(holes_.size()) - 1);
}

Factor TunableParameters::Tile(const std::string& name, int64_t extent, int32_t limit, int32_t preferred) {
  return Add(name, Hole::Kind::kTile, TileValues(extent, limit), preferred);
}

Factor TunableParameters::Option(const std::string& name, std::vector<int32_t> values, int32_t preferred) {
  return Add(name, Hole::Kind::kOption, std::move(values), preferred);
}

void TunableParameters::AtLeast(const Factor& factor, int32_t least) {
  if (factor.holes[0] < 0) return;
  Hole& hole = holes_[factor.holes[0]];
  if (hole.values.back() < least) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(absl::StrCat("parameter ", hole.name, " has no value of ", least));
    return;
  }
  std::erase_if(hole.values, [&](int32_t value) { return value < least; });
  hole.preferred = std::max(hole.preferred, least);
  if (hole.prior.has_value()) hole.prior = std::max(*hole.prior, least);
}

void TunableParameters::Prior(const Factor& factor, int64_t wanted) {
  if (factor.holes[0] < 0) return;
  Hole& hole = holes_[factor.holes[0]];
  const auto place = std::lower_bound(hole.values.begin(), hole.values.end(), wanted);
  hole.prior = place == hole.values.end() ? hole.values.back() : *place;
}

void TunableParameters::DropPrior() {
  for (Hole& hole : holes_) hole.prior.reset();
}

}  // namespace diapason
