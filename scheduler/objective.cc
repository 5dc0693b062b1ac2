#include "scheduler/objective.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "compiler/tensor/check.h"

namespace diapason {
namespace {

constexpr char kTargets[] = "targets:";

// "5ms" in seconds; 0 for what is no positive time.
double ParseTime(absl::string_view text) {
  const std::pair<const char*, double> units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"s", 1}};
  for (const auto& [unit, seconds] : units) {
    double value = 0;
    absl::string_view number = text;
    if (!absl::ConsumeSuffix(&number, unit)) continue;
    return absl::SimpleAtod(number, &value) && value > 0 && value < 1e9 ? value * seconds : 0;
  }
  return 0;
}

absl::Status Refuse(const std::string& text, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the objective '", text, "' ", why, ": write sum, or targets:NETWORK=TIME,... as in targets:resnet-18=5ms"));
}

}  // namespace

absl::StatusOr<Objective> Objective::Parse(const std::string& text,
                                           const std::vector<std::vector<NetworkWeight>>& weights) {
  Objective objective;
  for (int task = 0; task < static_cast<int>(weights.size()); ++task) {
    for (const NetworkWeight& weight : weights[task]) {
      auto& networks = objective.networks_;
      auto found = std::find_if(networks.begin(), networks.end(),
                                [&](const Network& network) { return network.name == weight.network; });
      if (found == networks.end()) {
        networks.push_back({weight.network, 0, {}});
        found = networks.end() - 1;
      }
      found->weights.push_back({task, weight.weight});
    }
  }
  if (text == "sum") return objective;
  if (text.rfind(kTargets, 0) != 0) return Refuse(text, "is not known");
  for (absl::string_view part : absl::StrSplit(absl::string_view(text).substr(sizeof kTargets - 1), ',')) {
    const std::vector<std::string> words = absl::StrSplit(part, '=');
    if (words.size() != 2) return Refuse(text, absl::StrCat("has '", part, "' where NETWORK=TIME belongs"));
    const double target = ParseTime(words[1]);
    if (target <= 0) return Refuse(text, absl::StrCat("has '", words[1], "', which is no time in s, ms or us"));
    bool known = false;
    for (Network& network : objective.networks_) {
      if (network.name != words[0]) continue;
      network.target = target;
      known = true;
    }
    if (!known) {
      const std::string names = absl::StrJoin(
          objective.networks_, ", ", [](std::string* out, const Network& network) { out->append(network.name); });
      return Refuse(text, absl::StrCat("names the network '", words[0], "', but this run tunes ", names));
    }
  }
  return objective;
}

double Objective::Network::Latency(absl::Span<const double> seconds) const {
  double sum = 0;
  for (const auto& [task, weight] : weights) sum += weight * seconds[task];
  return sum;
}

double Objective::Value(absl::Span<const double> seconds) const {
  double sum = 0;
  for (const Network& network : networks_) sum += std::max(network.target, network.Latency(seconds));
  return sum;
}

double Objective::Slope(int task, absl::Span<const double> seconds) const {
  double slope = 0;
  for (const Network& network : networks_) {
    if (network.target > 0 && network.Latency(seconds) <= network.target) continue;
    for (const auto& [member, weight] : network.weights)
      if (member == task) slope += weight;
  }
  return slope;
}

}  // namespace diapason
