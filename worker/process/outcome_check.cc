#include "worker/process/outcome_check.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "diapason/v1/measure.pb.h"
#include "diapason/v1/tracker.pb.h"
#include "worker/process/candidate.h"
#include "worker/process/convert.h"
#include "worker/rpc/message_limits.h"

namespace diapason {
namespace {

constexpr size_t kMaxText = kMaxErrorText, kMaxCompiler = 1024;
constexpr int kMaxKernels = 4096;
// Early stopping takes some samples, whatever was asked for.
constexpr int kRaceSamples = 16;
constexpr double kLongestSample = 1e6;

bool Verifies(const v1::MeasureRequest& request) {
  return request.mode() == v1::MEASURE_MODE_VERIFY || request.mode() == v1::MEASURE_MODE_TIME_AND_VERIFY;
}

void Cut(std::string* text, size_t most) {
  if (text->size() > most) *text = CutMiddle(Printable(*text), most);
}

std::string FaultOfTiming(const v1::MeasureRequest& request, const v1::Timing& timing, const v1::DeviceFacts* facts) {
  if (request.mode() == v1::MEASURE_MODE_VERIFY) {
    return timing.samples().empty() ? "" : "it timed what was only to be verified";
  }
  if (timing.samples().empty()) return "its timing has no samples";
  if (timing.samples_size() > std::max<int>(static_cast<int>(request.timing().repeat()), kRaceSamples)) {
    return absl::StrCat("its timing has ", timing.samples_size(), " samples, where ", request.timing().repeat(),
                        " were asked for");
  }
  if (timing.number() < 1) return absl::StrCat("its timing has ", timing.number(), " launches");
  if (timing.stopped_early() && !request.timing().race()) return "it stopped early a candidate that was not to race";
  for (const double sample : timing.samples()) {
    if (sample > 0 && sample <= kLongestSample) continue;  // false for NaN
    return absl::StrCat("a sample of its timing is ", sample, " s");
  }
  const double least = *std::min_element(timing.samples().begin(), timing.samples().end());
  const LeastWork work{request.least_operations(), request.least_bytes()};
  const double possible = facts == nullptr ? 0 : work.Seconds(facts->flops(), facts->l2_bandwidth());
  if (least >= possible) return "";
  char text[128];
  std::snprintf(text, sizeof text, "a sample of its timing is %.3g us, where the device cannot be done before %.3g us",
                least * 1e6, possible * 1e6);
  return text;
}

}  // namespace

void TrimOutcome(v1::MeasureResult& result) {
  result.DiscardUnknownFields();
  if (result.has_error()) {
    Cut(result.mutable_error()->mutable_text(), kMaxText);
    Cut(result.mutable_error()->mutable_kind(), kDefaultBytes);
    Cut(result.mutable_error()->mutable_stage(), kDefaultBytes);
  }
  if (result.has_cancelled()) Cut(result.mutable_cancelled()->mutable_reason(), kMaxText);
  if (result.has_verification()) Cut(result.mutable_verification()->mutable_text(), kMaxText);
  Cut(result.mutable_compiler(), kMaxCompiler);
  if (result.has_on()) {
    v1::MeasuredOn& on = *result.mutable_on();
    for (std::string* text :
         {on.mutable_worker(), on.mutable_device(), on.mutable_model(), on.mutable_uuid(), on.mutable_driver()})
      Cut(text, kDefaultBytes);
  }
  if (result.registers_size() > kMaxKernels) result.mutable_registers()->Truncate(kMaxKernels);
  if (result.spill_bytes_size() > kMaxKernels) result.mutable_spill_bytes()->Truncate(kMaxKernels);
}

std::string FaultOfOutcome(const v1::MeasureRequest& request, const v1::MeasureResult& result,
                           const v1::DeviceFacts* facts) {
  if (const absl::Status status = CheckMessage(result); !status.ok()) return std::string(status.message());
  if (result.has_verification() && !Verifies(request)) return "it has a verification that was not asked for";
  if (request.has_network() && !result.has_verification() && !result.has_error() && !result.has_cancelled())
    return "it ran a network and compared nothing";
  if (result.has_timing()) return FaultOfTiming(request, result.timing(), facts);
  if (result.has_error() || result.has_cancelled()) return "";
  return "it has neither a timing nor an error";
}

}  // namespace diapason
