#include "compiler/runtime/outcome.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/median.h"

namespace diapason {
namespace {

constexpr std::array<std::pair<ErrorKind, const char*>, 13> kErrorKinds = {{
    {ErrorKind::kUnknown, "unknown"},
    {ErrorKind::kInstantiation, "instantiation"},
    {ErrorKind::kLowering, "lowering"},
    {ErrorKind::kCompile, "compile"},
    {ErrorKind::kBuildTimeout, "build_timeout"},
    {ErrorKind::kBuildCrash, "build_crash"},
    {ErrorKind::kRunTimeout, "run_timeout"},
    {ErrorKind::kRunCrash, "run_crash"},
    {ErrorKind::kOutOfMemory, "out_of_memory"},
    {ErrorKind::kIllegalAccess, "illegal_access"},
    {ErrorKind::kLaunchFailure, "launch_failure"},
    {ErrorKind::kWrongResult, "wrong_result"},
    {ErrorKind::kInfrastructure, "infrastructure"},
}};

constexpr std::array<std::pair<MeasureStage, const char*>, 8> kStages = {{
    {MeasureStage::kUnknown, "unknown"},
    {MeasureStage::kQueue, "queue"},
    {MeasureStage::kInstantiate, "instantiate"},
    {MeasureStage::kLower, "lower"},
    {MeasureStage::kCompile, "compile"},
    {MeasureStage::kLoad, "load"},
    {MeasureStage::kRun, "run"},
    {MeasureStage::kVerify, "verify"},
}};

template <typename Table, typename Value>
const char* NameIn(const Table& table, Value value) {
  for (const auto& [known, name] : table)
    if (known == value) return name;
  return "unknown";
}

template <typename Value, size_t n>
std::optional<Value> ValueIn(const std::array<std::pair<Value, const char*>, n>& table, const std::string& wanted) {
  for (const auto& [value, name] : table)
    if (wanted == name) return value;
  return std::nullopt;
}

}  // namespace

double MedianSeconds(const Timing& timing) {
  DIAPASON_CHECK(!timing.samples.empty());
  return Median(timing.samples);
}

bool SpeaksOfCandidate(const Outcome& outcome) {
  const auto* error = std::get_if<MeasureError>(&outcome);
  return error == nullptr || error->kind != ErrorKind::kInfrastructure;
}

const char* ErrorKindName(ErrorKind kind) { return NameIn(kErrorKinds, kind); }
const char* StageName(MeasureStage stage) { return NameIn(kStages, stage); }
std::optional<ErrorKind> ParseErrorKind(const std::string& name) { return ValueIn(kErrorKinds, name); }
std::optional<MeasureStage> ParseStage(const std::string& name) { return ValueIn(kStages, name); }

const std::vector<ErrorKind>& AllErrorKinds() {
  static const auto* const kinds = [] {
    auto* all = new std::vector<ErrorKind>;
    for (const auto& entry : kErrorKinds) all->push_back(entry.first);
    return all;
  }();
  return *kinds;
}

}  // namespace diapason
