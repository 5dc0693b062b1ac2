#include "api/compare_file.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "api/tensor_file.h"
#include "base/check.h"
#include "compiler/tensor/compare.h"

namespace diapason::api {
namespace {

constexpr double kDefault = 1e-3, kDefaultHalf = 1e-2, kDefaultBfloat16 = 5e-2;

double AllowedFor(DType dtype, double tolerance) {
  if (!IsFloat(dtype)) return 0;
  if (tolerance >= 0) return tolerance;
  return dtype == DType::kFloat16 ? kDefaultHalf : dtype == DType::kBfloat16 ? kDefaultBfloat16 : kDefault;
}

// "[3,5]" of an element in row-major order.
std::string IndexText(const std::vector<int64_t>& shape, int64_t element) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0; element /= shape[d]) index[d] = element % shape[d];
  return absl::StrCat("[", absl::StrJoin(index, ","), "]");
}

std::string ValueText(const Array& array, int64_t element) {
  return IsFloat(array.dtype) ? absl::StrFormat("%.6g", array.at(element)) : absl::StrCat(array.int_at(element));
}

// An element at a time: the policy is that of Compare.
int64_t CountDiffering(const Array& got, const Array& want, double relative) {
  const double magnitude = MagnitudeOf(want), scale = magnitude > 0 ? magnitude : 1;
  int64_t count = 0;
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double a = got.at(i), b = want.at(i);
    const bool finite = std::isfinite(a) && std::isfinite(b);
    const bool same = IsFloat(got.dtype) ? a == b || (std::isnan(a) && std::isnan(b)) : got.int_at(i) == want.int_at(i);
    if (!same && (!finite || std::fabs(a - b) > relative * std::max(scale, std::fabs(b)))) ++count;
  }
  return count;
}

absl::StatusOr<Array> ReadReference(const std::string& path, const PackagePort& port) {
  ASSIGN_OR_RETURN(Array want, ReadTensorFile(path));
  if (want.dtype != port.dtype && IsFloat(want.dtype) && IsFloat(port.dtype)) want = CastArray(want, port.dtype);
  if (want.dtype == port.dtype && want.shape == port.shape) return want;
  const PackagePort given{port.name, want.dtype, want.shape};
  return absl::InvalidArgumentError(absl::StrCat(path, " is ", given.TypeText(), ", and output '", port.name, "' is ",
                                                 port.TypeText(), "; give a file of that type and shape"));
}

absl::StatusOr<FileComparison> CompareOne(const std::string& path, const PackagePort& port, const Array& got,
                                          double tolerance) {
  ASSIGN_OR_RETURN(const Array want, ReadReference(path, port));
  FileComparison one;
  one.output = port.name;
  one.file = path;
  const Comparison found = Compare(got, want, {AllowedFor(port.dtype, tolerance), 0});
  one.errors = {found.ok, found.max_abs_error, found.max_rel_error, found.tolerance, ""};
  one.elements = got.elements();
  if (!found.ok) one.differing = CountDiffering(got, want, found.tolerance);
  if (const int64_t at = found.worst; at >= 0)
    one.errors.worst = absl::StrCat("element ", IndexText(port.shape, at), " is ", ValueText(got, at),
                                    " where the file has ", ValueText(want, at));
  return one;
}

}  // namespace

absl::StatusOr<std::vector<FileComparison>> CompareWithFiles(const std::map<std::string, std::string>& files,
                                                             const std::vector<PackagePort>& ports,
                                                             const std::vector<Array>& outputs, double tolerance) {
  for (const auto& [name, file] : files) {
    const auto is_named = [&name = name](const PackagePort& port) { return port.name == name; };
    if (std::any_of(ports.begin(), ports.end(), is_named)) continue;
    const auto quote = [](std::string* out, const PackagePort& port) { absl::StrAppend(out, "'", port.name, "'"); };
    return absl::InvalidArgumentError(absl::StrCat("--compare ", name, "=", file, ": the package has no output '", name,
                                                   "'; its outputs are: ", absl::StrJoin(ports, ", ", quote)));
  }
  std::vector<FileComparison> compared;
  for (size_t i = 0; i < ports.size(); ++i) {
    const auto file = files.find(ports[i].name);
    if (file == files.end()) continue;
    ASSIGN_OR_RETURN(FileComparison one, CompareOne(file->second, ports[i], outputs[i], tolerance));
    compared.push_back(std::move(one));
  }
  return compared;
}

}  // namespace diapason::api
