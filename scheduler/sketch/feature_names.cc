#include "scheduler/sketch/feature_names.h"

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace diapason {

std::vector<std::string> FeatureNames(const Target& target) {
  std::vector<std::string> names(kNumFeatures);
  const absl::Span<const char* const> kernel =
      target.is_gpu() ? absl::MakeConstSpan(kGpuFeatureNames) : absl::MakeConstSpan(kCpuFeatureNames);
  for (size_t i = 0; i < kernel.size(); ++i) {
    names[i] = absl::StrCat("slowest: ", kernel[i]);
    names[kKernelFeatures + i] = absl::StrCat("second: ", kernel[i]);
  }
  for (size_t i = 0; i < std::size(kTotalFeatureNames); ++i) {
    names[kTotalFeaturesAt + i] = absl::StrCat("all: ", kTotalFeatureNames[i]);
  }
  for (int i = 0; i < kParameterFeatures; ++i) names[kParameterFeaturesAt + i] = absl::StrCat("parameter ", i);
  return names;
}

}  // namespace diapason
