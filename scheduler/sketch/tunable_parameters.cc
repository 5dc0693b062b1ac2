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

Factor TunableParameters::Add(const std::string& name, TunableParameter::Kind kind, std::vector<int32_t> values,
                              int32_t preferred) {
  if (values.empty() && status_.ok())
    status_ = absl::InvalidArgumentError(absl::StrCat("parameter ", name, " has no value"));
  if (values.empty()) return Factor::Of(1);
  if (values.size() == 1) return Factor::Of(values[0]);
  parameters_.push_back({name, kind, std::move(values), preferred, std::nullopt});
  return Factor::Parameter(static_cast<int>(parameters_.size()) - 1);
}

Factor TunableParameters::Tile(const std::string& name, int64_t extent, int32_t limit, int32_t preferred) {
  return Add(name, TunableParameter::Kind::kTile, TileValues(extent, limit), preferred);
}

Factor TunableParameters::EvenTile(const std::string& name, int64_t extent, int32_t limit, int32_t preferred) {
  const std::vector<int32_t> usual = TileValues(extent, limit);
  std::set<int32_t> values(usual.begin(), usual.end());
  for (int64_t tiles = 1; tiles <= extent; ++tiles)
    if (const int64_t tile = (extent + tiles - 1) / tiles; tile <= limit) values.insert(static_cast<int32_t>(tile));
  return Add(name, TunableParameter::Kind::kTile, {values.begin(), values.end()}, preferred);
}

Factor TunableParameters::Option(const std::string& name, std::vector<int32_t> values, int32_t preferred) {
  return Add(name, TunableParameter::Kind::kOption, std::move(values), preferred);
}

void TunableParameters::AtLeast(const Factor& factor, int32_t least) {
  if (factor.parameters[0] < 0) return;
  TunableParameter& parameter = parameters_[factor.parameters[0]];
  if (parameter.values.back() < least) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(absl::StrCat("parameter ", parameter.name, " has no value of ", least));
    return;
  }
  std::erase_if(parameter.values, [&](int32_t value) { return value < least; });
  parameter.preferred = std::max(parameter.preferred, least);
  if (parameter.prior.has_value()) parameter.prior = std::max(*parameter.prior, least);
}

void TunableParameters::Prior(const Factor& factor, int64_t wanted) {
  if (factor.parameters[0] < 0) return;
  TunableParameter& parameter = parameters_[factor.parameters[0]];
  const auto place = std::lower_bound(parameter.values.begin(), parameter.values.end(), wanted);
  parameter.prior = place == parameter.values.end() ? parameter.values.back() : *place;
}

void TunableParameters::DropPrior() {
  for (TunableParameter& parameter : parameters_) parameter.prior.reset();
}

}  // namespace diapason
