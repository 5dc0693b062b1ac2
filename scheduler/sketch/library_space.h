// Spaces in which a library computes a task's convolution or product (the rewrite "library"): its algorithms, and the
// binding of the element-wise kernels around the call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/schedule/library.h"
#include "scheduler/sketch/sketch_space.h"

namespace diapason {

// "library/cudnn", "library/cudnn.fused", "library/cublas". Its first parameter is the algorithm where the library
// leaves a choice.
class LibrarySpace : public SketchSpace {
 public:
  LibrarySpace(std::string name, const Draft& draft, const LibraryMatch& match);

  bool external() const override { return true; }
  std::vector<std::vector<int32_t>> Priors() const override;
  // Rates of the device alone: what an algorithm is worth is the library's secret, and measured. All features but the
  // number of kernels, the estimate and the configuration are 0, which no generated kernel has.
  void Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const override;

 private:
  std::vector<int> algorithms_;  // the most promising first
  bool chooses_ = false;         // parameter 0 is the algorithm
  int kernels_ = 0;              // of a run, the call included
  double seconds_ = 0;
};

// The spaces of the libraries that the target names; none when they can do nothing for the task. Fused ones come first.
std::vector<std::unique_ptr<Space>> LibrarySpaces(const ComputeDag& dag, const SketchContext& context);

}  // namespace diapason
