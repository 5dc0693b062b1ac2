// `run --compare OUTPUT=FILE`: outputs of a run compared with arrays in files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/build/package_format.h"
#include "compiler/tensor/array.h"
#include "diapason/run.h"

namespace diapason::api {

// Compares the named outputs with their files (.npy, .pb), in the order of `ports`. An element may be off by
// `tolerance` of the larger of itself and the array's root mean square; integers and booleans must be equal. Below 0:
// 0.001, 0.01 for float16 and 0.05 for bfloat16. Floating-point files of another width are converted. InvalidArgument
// for an output that does not exist, and for a file of another shape or type; errors of ReadTensorFile.
absl::StatusOr<std::vector<FileComparison>> CompareWithFiles(const std::map<std::string, std::string>& files,
                                                             const std::vector<PackagePort>& ports,
                                                             const std::vector<Array>& outputs, double tolerance);

}  // namespace diapason::api
