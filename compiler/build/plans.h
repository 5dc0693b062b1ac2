// Packages of several plans: which one runs inputs of given sizes, what is padded for it, and what of the results is
// real.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/build/package.h"
#include "compiler/graph/dims.h"
#include "compiler/runtime/device.h"
#include "compiler/tensor/array.h"

namespace diapason {

struct PlanChoice {
  int plan = 0;
  SymbolSizes given;  // the sizes of the inputs; less than those of the plan where they are to be padded
};

// The sizes of the package's symbols that these inputs have; symbols of which they say nothing are left out.
// InvalidArgument for an input that does not exist, of another type, or with other fixed extents, and for inputs whose
// sizes differ.
absl::StatusOr<SymbolSizes> SizesOfInputs(const Package& package, const std::map<std::string, Array>& inputs);

// The plan of these sizes, or the smallest one to which they may be padded. InvalidArgument, with the sizes that there
// are, when there is none, or a size is missing. A package of one plan without sizes has that.
absl::StatusOr<PlanChoice> ChoosePlan(const Package& package, const SymbolSizes& given);

// Inputs of the given sizes as the plan takes them: rows are repeated, and a mask is continued by zeros.
// InvalidArgument where padding is harmless only beside a real position, and the mask begins with 0
// (PlanPadding::needs_first).
absl::StatusOr<std::map<std::string, Array>> PadInputs(const PackageManifest& plan,
                                                       const std::map<std::string, Array>& inputs);
// What of the plan's outputs belongs to the given sizes.
std::vector<Array> CutOutputs(const PackageManifest& plan, const SymbolSizes& given, std::vector<Array> outputs);

// A package on a device with all of its plans, each loaded when it is first needed. Constants that several plans read
// are there once. One thread at a time.
class PlanRunner {
 public:
  // As PackageRunner::Load.
  static absl::StatusOr<std::unique_ptr<PlanRunner>> Load(const std::string& dir, Device* device = nullptr);
  static absl::StatusOr<std::unique_ptr<PlanRunner>> Load(Package package, Device* device = nullptr);

  const Package& package() const { return package_; }
  // Errors as PackageRunner::Load.
  absl::StatusOr<PackageRunner*> Runner(int plan);
  // Runs inputs of any sizes that the package has a plan for: chooses it, pads, runs and cuts. Errors as SizesOfInputs,
  // ChoosePlan, PadInputs, PackageRunner.
  absl::StatusOr<std::vector<Array>> Run(const std::map<std::string, Array>& inputs);

 private:
  PlanRunner(Package package, std::unique_ptr<Device> owned, Device* device)
      : package_(std::move(package)),
        owned_device_(std::move(owned)),
        device_(device),
        runners_(package_.plans().size()) {}

  // In order of construction: each may refer to those before it.
  const Package package_;
  const std::unique_ptr<Device> owned_device_;
  Device* const device_;
  LoadedParts loaded_;
  std::vector<std::unique_ptr<PackageRunner>> runners_;  // by plan; null: not loaded
};

}  // namespace diapason
