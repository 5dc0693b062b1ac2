#include "scheduler/objective.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"

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

using Alternative = std::vector<std::pair<int, double>>;

// An alternative that takes longer than the best by this factor after a first round will not become the best by more
// rounds.
constexpr double kClearlyBehind = 1.25;

double TimesIn(const Alternative& alternative, int task) {
  double times = 0;
  for (const auto& [member, count] : alternative)
    if (member == task) times += count;
  return times;
}

// 0 where a task has no time yet.
double TimeOf(const Alternative& alternative, absl::Span<const double> seconds) {
  double sum = 0;
  for (const auto& [task, times] : alternative) {
    if (seconds[task] <= 0) return 0;
    sum += times * seconds[task];
  }
  return sum;
}

}  // namespace

double Correction(double measured, double estimated) {
  if (measured <= 0 || estimated <= 0) return 1;
  return std::clamp(measured / estimated, 0.5, 2.0);
}

absl::StatusOr<Objective> Objective::Parse(const std::string& text,
                                           const std::vector<std::vector<NetworkWeight>>& weights,
                                           const std::vector<NetworkChoice>& choices) {
  Objective objective;
  for (int task = 0; task < static_cast<int>(weights.size()); ++task) {
    for (const NetworkWeight& weight : weights[task]) {
      auto& networks = objective.networks_;
      auto found = std::find_if(networks.begin(), networks.end(),
                                [&](const Network& network) { return network.name == weight.network; });
      if (found == networks.end()) {
        networks.push_back({weight.network, 0, {}, {}});
        found = networks.end() - 1;
      }
      found->weights.push_back({task, weight.weight});
    }
  }
  objective.choices_ = choices;
  for (size_t c = 0; c < choices.size(); ++c) {
    const auto network = std::find_if(objective.networks_.begin(), objective.networks_.end(),
                                      [&](const Network& n) { return n.name == choices[c].network; });
    DIAPASON_CHECK(network != objective.networks_.end() && !choices[c].alternatives.empty());
    network->choices.push_back(static_cast<int>(c));
    for (auto& [task, weight] : network->weights) weight -= TimesIn(choices[c].alternatives[0], task);
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

int Objective::BestAlternative(const NetworkChoice& choice, absl::Span<const double> seconds) const {
  int best = 0;
  double least = 0;
  for (size_t w = 0; w < choice.alternatives.size(); ++w) {
    const double time = TimeOf(choice.alternatives[w], seconds) * (w == 0 ? kWorthAnotherAlternative : 1);
    if (time == 0 || (least > 0 && time >= least)) continue;
    best = static_cast<int>(w);
    least = time;
  }
  return best;
}

std::vector<int> Objective::BestAlternatives(absl::Span<const double> seconds) const {
  std::vector<int> best;
  for (const NetworkChoice& choice : choices_) best.push_back(BestAlternative(choice, seconds));
  return best;
}

double Objective::Latency(const Network& network, absl::Span<const double> seconds) const {
  double sum = 0;
  for (const auto& [task, weight] : network.weights) sum += weight * seconds[task];
  for (int c : network.choices)
    for (const auto& [task, times] : choices_[c].alternatives[BestAlternative(choices_[c], seconds)])
      sum += times * seconds[task];
  return sum;
}

double Objective::Value(absl::Span<const double> seconds) const {
  double sum = 0;
  for (const Network& network : networks_) sum += std::max(network.target, Latency(network, seconds));
  return sum;
}

double Objective::Slope(int task, absl::Span<const double> seconds) const {
  double slope = 0;
  for (const Network& network : networks_) {
    if (network.target > 0 && Latency(network, seconds) <= network.target) continue;
    slope += TimesIn(network.weights, task);
    for (int c : network.choices) {
      const NetworkChoice& choice = choices_[c];
      const double best = TimeOf(choice.alternatives[BestAlternative(choice, seconds)], seconds);
      double most = 0;
      for (const Alternative& alternative : choice.alternatives) {
        const double time = TimeOf(alternative, seconds);
        if (best == 0 || (time > 0 && time <= kClearlyBehind * best)) most = std::max(most, TimesIn(alternative, task));
      }
      slope += most;
    }
  }
  return slope;
}

double Objective::Weight(int task, absl::Span<const double> seconds) const {
  double weight = 0;
  for (const Network& network : networks_) {
    weight += TimesIn(network.weights, task);
    for (int c : network.choices)
      weight += TimesIn(choices_[c].alternatives[BestAlternative(choices_[c], seconds)], task);
  }
  return weight;
}

bool Objective::IsOptional(int task) const {
  for (const Network& network : networks_)
    if (TimesIn(network.weights, task) > 0) return false;
  bool other = false;
  for (const NetworkChoice& choice : choices_) {
    if (TimesIn(choice.alternatives[0], task) > 0) return false;
    for (const Alternative& alternative : choice.alternatives) other = other || TimesIn(alternative, task) > 0;
  }
  return other;
}

}  // namespace diapason
